#!/usr/bin/python3
"""The Python worker's wire against the golden vectors and, table by table, against SPEC.md."""
import json
import sys
import unittest

import paths
from corefan_worker import wire
from corefan_worker.frames import Refused

sys.path.insert(0, str(paths.ROOT / "tests" / "proto"))
import spec  # noqa: E402

VECTORS = paths.ROOT / "proto" / "vectors"


def frame_bytes(path):
    return bytes.fromhex(path.read_text(encoding="ascii"))


def vectors(kind):
    return sorted((VECTORS / kind).glob("*.hex"))


def fault(frame):
    try:
        wire.decode(frame)
    except Refused as refused:
        return refused.rule
    return None


class Tables(unittest.TestCase):
    law = spec.Law()

    def test_are_those_of_the_specification(self):
        for name, fields in self.law.tables.items():
            if name not in wire.TABLES:
                self.assertEqual(name, "2. Frames")
                continue
            with self.subTest(name):
                ours = wire.TABLES[name]
                self.assertEqual([field.name for field in ours], [field.key for field in fields])
                for mine, law in zip(ours, fields):
                    self.same_field(mine, law)

    def same_field(self, mine, law):
        with self.subTest(law.key):
            self.assertEqual(mine.kind, law.kind.split(" of ")[0])
            self.assertEqual(mine.of, law.nested)
            if law.low is not None:
                self.assertEqual((mine.low, mine.high), (law.low, law.high))
            if law.words:
                self.assertEqual(list(mine.words), law.words)
            self.assertEqual(mine.need is wire.REQUIRED, law.need == "required")
            if law.need != "required":
                self.assertEqual(mine.need, law.fallback())

    def test_every_message_is_known(self):
        self.assertEqual(set(wire.MESSAGES), set(self.law.types))


class Vectors(unittest.TestCase):
    law = spec.Law()

    def test_valid_frames_mean_what_the_specification_says(self):
        self.assertGreaterEqual(len(vectors("valid")), 11)
        for path in vectors("valid"):
            with self.subTest(path.stem):
                frame = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["frame"]
                expected = self.law.reading(frame)
                del expected["v"]
                self.assertEqual(wire.decode(frame_bytes(path)), expected)

    def test_invalid_frames_break_their_rule(self):
        self.assertGreaterEqual(len(vectors("invalid")), 30)
        for path in vectors("invalid"):
            with self.subTest(path.stem):
                rule = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()[0]
                self.assertEqual(fault(frame_bytes(path)), rule)

    def test_what_we_write_keeps_the_law_and_comes_back(self):
        for path in vectors("valid"):
            with self.subTest(path.stem):
                message = wire.decode(frame_bytes(path))
                fields = {name: value for name, value in message.items() if name != "type"}
                frame = wire.encode(message["type"], **fields)
                self.assertIsNone(self.law.fault(frame))
                self.assertEqual(wire.decode(frame), message)

    def test_every_cut_of_a_frame_is_refused(self):
        for path in vectors("valid"):
            frame = frame_bytes(path)
            if len(frame) < 4096:
                for size in range(len(frame)):
                    self.assertIsNotNone(fault(frame[:size]), (path.stem, size))

    def test_every_changed_byte_is_judged_as_the_specification_judges_it(self):
        for path in vectors("valid"):
            frame = frame_bytes(path)
            if len(frame) > 600:
                continue
            for at in range(len(frame)):
                for byte in (0x00, 0x7F, 0xC1, 0xDD, 0xFF, frame[at] ^ 1):
                    changed = frame[:at] + bytes([byte]) + frame[at + 1:]
                    self.assertEqual(fault(changed), self.law.fault(changed), (path.stem, at, byte))


class Results(unittest.TestCase):
    def round(self, error=None):
        return {"cell": 1, "block": 0, "position": 0, "start_ns": 1, "wall_ns": 1, "cpu_ns": 1, "fanouts": 1,
                "error": error}

    def parts(self, rounds, error=None):
        content = {"group": 1, "attempt": 0, "go": 0}
        return [wire.decode(frame) for frame in wire.encode_result(content, rounds, error)]

    def test_no_round_is_one_empty_part(self):
        parts = self.parts([], "died")
        self.assertEqual([(p["part"], p["last"], p["error"], p["rounds"]) for p in parts], [(0, True, "died", [])])

    def test_many_rounds_go_in_parts(self):
        parts = self.parts([self.round()] * 2500, "stopped")
        self.assertEqual([len(p["rounds"]) for p in parts], [1024, 1024, 452])
        self.assertEqual([p["part"] for p in parts], [0, 1, 2])
        self.assertEqual([p["last"] for p in parts], [False, False, True])
        self.assertEqual([p["error"] for p in parts], [None, None, "stopped"])

    def test_large_rounds_go_in_smaller_parts(self):
        parts = self.parts([self.round("x" * 4096)] * 1024 + [self.round("\N{EURO SIGN}" * 9000)] * 300)
        self.assertEqual(sum(len(p["rounds"]) for p in parts), 1324)
        self.assertGreater(len(parts), 2)
        self.assertTrue(all(len(p["rounds"][-1]["error"].encode()) <= 4096 for p in parts))


if __name__ == "__main__":
    unittest.main()
