#!/usr/bin/python3
"""wire.c against the vectors: every valid frame is read as SPEC.md reads it and survives decode, encode, decode; every
invalid one is refused in the words of tests/proto/refusals.txt.  And against the page itself: both ends of the limit of
every field, and seeded damage to every vector, are judged alike by wire.c and by spec.py.

WIRE_PRINT names the program (default: the one in build/dev).  `check_wire.py --write` rewrites refusals.txt."""
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import msgpack

import make_vectors
import spec

VECTORS = spec.ROOT / "proto" / "vectors"
REFUSALS = spec.ROOT / "tests" / "proto" / "refusals.txt"
WIRE_PRINT = os.environ.get("WIRE_PRINT", str(spec.ROOT / "build" / "dev" / "bin" / "wire_print"))


def ask(paths):
    """Exit code, and what wire_print says of each file."""
    ran = subprocess.run([WIRE_PRINT, *map(str, paths)], stdout=subprocess.PIPE, timeout=60, check=False)
    lines = ran.stdout.decode("utf-8").splitlines()
    said = dict(line.split("\t", 1) for line in lines)
    return ran.returncode, {path: said.get(path.name) for path in paths}


def answers(kind):
    return ask(sorted((VECTORS / kind).glob("*.hex")))


def ask_bytes(frames):
    """The same for frames in memory, in their order."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = [pathlib.Path(scratch) / f"{i}.hex" for i in range(len(frames))]
        for path, data in zip(paths, frames):
            path.write_text(data.hex(), encoding="ascii")
        return list(ask(paths)[1].values())


def full_frames():
    """A frame of each type in which every nested table occurs."""
    for frame in map(copy.deepcopy, make_vectors.ONE_OF_EACH):
        if frame["type"] == "assign":
            frame["cells"][0] |= {"fail": {}, "stall": make_vectors.STALL}
        if frame["type"] == "result":
            frame["rounds"][0]["latency"] = {"significant_digits": 3, "lowest_ns": 1, "highest_ns": 10 ** 6,
                                             "overflow": 0, "counts": []}
        yield frame


def records(law, name, record):
    """(table, its record within the frame) of a frame, itself first."""
    yield name, record
    for field in law.tables[name]:
        value = record.get(field.key)
        if field.nested and value is not None:
            yield from records(law, field.nested, value[0] if isinstance(value, list) else value)


def of_size(kind, size):
    """A value of this kind with that many bytes or entries."""
    if kind in ("text", "name"):
        return "0" * size
    if kind == "names":
        return ["n"] * size
    return {f"n{i}": "" for i in range(size)}


def at_limits(field):
    """Values at both ends of a field's limit and just beyond them."""
    kind = field.kind.split(" of ")[0]
    if kind in ("text", "name", "names", "texts by name"):
        sizes = [field.low - 1, field.low, field.high, field.high + 1]
        return [of_size(kind, size) for size in sizes if size >= 0]
    if kind in ("integer", "unsigned", "number"):
        return [v for v in (field.low - 1, field.low, field.high, field.high + 1) if -2 ** 63 <= v < 2 ** 64]
    if kind == "word":
        return [*field.words, "", field.words[0] + "x", field.words[0].upper()]
    return []


def limit_cases(law):
    """(what, frame bytes): each field at its limits, nil, absent and of every wrong type."""
    wrong = (None, True, 5, -1.5, "5", [], [[]], {}, {"a": "b"})
    for original in full_frames():
        for index, (table, _) in enumerate(records(law, original["type"], original)):
            for field in law.tables[table]:
                for value in (*at_limits(field), *wrong, "absent"):
                    frame = copy.deepcopy(original)
                    record = list(records(law, frame["type"], frame))[index][1]
                    record[field.key] = value
                    if value == "absent":
                        del record[field.key]
                    yield f"{table}.{field.key} {value!r:.40}", msgpack.packb(frame)


def damage(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data))
        data[at:at + rng.choice((0, 1, 1, 1))] = bytes([rng.choice((rng.randrange(256), 0xc0, 0, 0xff))])
    return bytes(data)


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

    def test_limits_are_those_of_the_page(self):
        law = spec.Law()
        self.judge_alike(law, list(limit_cases(law)))

    def test_damage_is_judged_alike(self):
        rng = random.Random(20250131)
        whole = [bytes.fromhex(path.read_text(encoding="ascii")) for path in sorted(VECTORS.glob("*/*.hex"))]
        damaged = [damage(rng, data) for data in whole if 0 < len(data) < 4096 for _ in range(12)]
        self.judge_alike(spec.Law(), [(data.hex(), data) for data in damaged])

    def judge_alike(self, law, cases):
        taken = 0
        for (what, data), line in zip(cases, ask_bytes([data for _, data in cases])):
            rule = law.fault(data)
            if line.startswith("refused: "):
                self.assertIsNotNone(rule, f"{what}: {line}")
                continue
            taken += 1
            self.assertIsNone(rule, f"{what}: taken")
            reading = law.reading(msgpack.unpackb(data, raw=False)) | {"v": [1, 0]}
            self.assertEqual(json.loads(line), reading, what)
        self.assertTrue(0 < taken < len(cases))


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        REFUSALS.write_text("".join(f"{name}\t{words}\n" for name, words in refusals().items()), encoding="utf-8")
    else:
        unittest.main()
