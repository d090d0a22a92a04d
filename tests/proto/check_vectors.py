#!/usr/bin/python3
"""The vectors against SPEC.md, with Debian's msgpack and no code of ours: hex and JSON say the same, valid frames keep
every rule, invalid ones break exactly the rule that they name, and the committed files are what make_vectors writes."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import msgpack

import spec

VECTORS = spec.ROOT / "proto" / "vectors"


def frame_bytes(path):
    return bytes.fromhex(path.read_text(encoding="ascii"))


def vectors(kind):
    return sorted((VECTORS / kind).glob("*.hex"))


class Vectors(unittest.TestCase):
    law = spec.Law()

    def test_every_type_has_a_vector(self):
        seen = {json.loads(path.with_suffix(".json").read_text())["frame"]["type"] for path in vectors("valid")}
        self.assertEqual(seen, set(self.law.types))
        self.assertEqual(len(seen), 11)

    def test_hex_and_json_agree(self):
        for path in vectors("valid"):
            with self.subTest(path.stem):
                frame = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["frame"]
                unpacked = msgpack.unpackb(frame_bytes(path), raw=False)
                self.assertEqual(json.dumps(unpacked), json.dumps(frame))
                if not path.stem.endswith("-wide"):
                    self.assertEqual(msgpack.packb(frame), frame_bytes(path))

    def test_valid_frames_keep_the_law(self):
        for path in vectors("valid"):
            with self.subTest(path.stem):
                self.assertIsNone(self.law.fault(frame_bytes(path)))

    def test_invalid_frames_break_their_rule(self):
        paths = vectors("invalid")
        self.assertGreaterEqual(len(paths), 30)
        for path in paths:
            with self.subTest(path.stem):
                rule = path.with_suffix(".txt").read_text(encoding="utf-8").splitlines()[0]
                self.assertEqual(self.law.fault(frame_bytes(path)), rule)

    def test_every_field_is_in_a_vector(self):
        """Each key of each table appears with a value, so no field goes untested."""
        seen = set()

        def note(name, record):
            for field in self.law.tables[name]:
                value = record.get(field.key)
                if value is None:
                    continue
                seen.add((name, field.key))
                for entry in value if field.kind.startswith("array of") else [value] if field.nested else []:
                    note(field.nested, entry)

        for path in vectors("valid"):
            frame = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["frame"]
            note(frame["type"], frame)
        named = {(name, field.key) for name, fields in self.law.tables.items() for field in fields
                 if name != "2. Frames"}
        self.assertEqual(named - seen, set())

    def test_committed_files_are_what_the_script_writes(self):
        with tempfile.TemporaryDirectory() as fresh:
            subprocess.run([sys.executable, pathlib.Path(__file__).with_name("make_vectors.py"), fresh], check=True)
            names = {path.relative_to(fresh) for path in pathlib.Path(fresh).rglob("*") if path.is_file()}
            self.assertEqual(names, {path.relative_to(VECTORS) for path in VECTORS.rglob("*") if path.is_file()})
            for name in names:
                self.assertEqual((VECTORS / name).read_bytes(), (fresh / name).read_bytes(), name)


class Page(unittest.TestCase):
    """The worked examples of SPEC.md."""

    def test_shuffle(self):
        mask = 2 ** 64 - 1

        def stream(seed):
            state = seed
            while True:
                state = (state + 0x9e3779b97f4a7c15) & mask
                z = ((state ^ (state >> 30)) * 0xbf58476d1ce4e5b9) & mask
                z = ((z ^ (z >> 27)) * 0x94d049bb133111eb) & mask
                yield z ^ (z >> 31)

        def order(seed, block, count):
            outputs = stream(next(stream(seed ^ (block * 0x9e3779b97f4a7c15 & mask))))
            items = list(range(count))
            for i in range(count - 1, 0, -1):
                j = next(outputs) * (i + 1) >> 64
                items[i], items[j] = items[j], items[i]
            return " ".join(map(str, items))

        page = spec.SPEC.read_text(encoding="utf-8")
        for block in range(4):
            self.assertIn(f"| {block} | {order(42, block, 6)} |", page)
        self.assertIn(f"block 99999 has the order {order(2 ** 64 - 1, 99999, 7)}.", page)

    def test_buckets(self):
        page = spec.SPEC.read_text(encoding="utf-8")
        rows = {line.split("|")[1].strip(): [cell.strip() for cell in line.split("|")[2:-1]]
                for line in page.splitlines() if line.startswith(("| ns |", "| index |"))}
        values = [10 ** 18 if cell == "10^18" else int(cell) for cell in rows["ns"]]
        self.assertEqual([str(spec.bucket(3, 1, value)) for value in values], rows["index"])


if __name__ == "__main__":
    unittest.main()
