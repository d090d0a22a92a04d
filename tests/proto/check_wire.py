#!/usr/bin/python3
"""wire.c against the vectors: every valid frame is read as SPEC.md reads it and survives decode, encode, decode; every
invalid one is refused in the words of tests/proto/refusals.txt.

WIRE_PRINT names the program (default: the one in build/dev).  `check_wire.py --write` rewrites refusals.txt."""
import json
import os
import subprocess
import sys
import unittest

import spec

VECTORS = spec.ROOT / "proto" / "vectors"
REFUSALS = spec.ROOT / "tests" / "proto" / "refusals.txt"
WIRE_PRINT = os.environ.get("WIRE_PRINT", str(spec.ROOT / "build" / "dev" / "bin" / "wire_print"))


def answers(kind):
    paths = sorted((VECTORS / kind).glob("*.hex"))
    ran = subprocess.run([WIRE_PRINT, *map(str, paths)], stdout=subprocess.PIPE, timeout=60, check=False)
    lines = ran.stdout.decode("utf-8").splitlines()
    said = dict(line.split("\t", 1) for line in lines)
    return ran.returncode, {path: said.get(path.name) for path in paths}


def refusals():
    return {path.stem: line.removeprefix("refused: ") if line.startswith("refused: ") else f"TAKEN: {line}"
            for path, line in answers("invalid")[1].items()}


class Wire(unittest.TestCase):
    maxDiff = None

    def test_valid_frames_are_read(self):
        law = spec.Law()
        code, said = answers("valid")
        self.assertGreaterEqual(len(said), 40)
        for path, line in said.items():
            with self.subTest(path.stem):
                frame = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["frame"]
                expected = law.reading(frame) | {"v": [1, 0]}
                self.assertEqual(json.loads(line), expected)
        self.assertEqual(code, 0)

    def test_invalid_frames_are_refused_in_clear_words(self):
        expected = dict(line.split("\t", 1) for line in REFUSALS.read_text(encoding="utf-8").splitlines())
        self.assertEqual(refusals(), expected)


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        REFUSALS.write_text("".join(f"{name}\t{words}\n" for name, words in refusals().items()), encoding="utf-8")
    else:
        unittest.main()
