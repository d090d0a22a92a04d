#!/usr/bin/python3
"""The queries of docs/schema.md on made-up runs: all run, and those that summary.json also answers say the same.

COREFAN_BIN: directory of the programs.
"""
import json
import math
import re
import sqlite3
import tempfile
import unittest

from test_man import ROOT, output

PAGE = (ROOT / "docs/schema.md").read_text()
QUERIES = {int(number): sql for number, sql in re.findall(r"^(\d+)\. [^\n]*\n(?:[^\n]+\n)*\n```sql\n(.*?)```", PAGE, re.M | re.S)}
# scenario -> queries that must find something there
FIND = {"lab": (1, 2, 3, 4, 5, 9), "troubled": (1, 2, 7, 8, 10), "disturbed": (2, 6)}


class Queries(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.found, cls.summaries = {}, {}
        for scenario in FIND:
            run = f"{cls.scratch.name}/{scenario}"
            output("make_run", run, scenario)
            cls.summaries[scenario] = json.loads(output("corefan", "report", run, "--format", "json"))
            store = sqlite3.connect(f"{run}/run.db")
            store.execute("INSERT INTO events VALUES(1767225600000000000, 'worker_lost', 'worker 3 went away')")
            cls.found[scenario] = {number: store.execute(sql).fetchall() for number, sql in QUERIES.items()}
            store.close()

    def test_there_are_ten(self):
        self.assertEqual(sorted(QUERIES), list(range(1, 11)))
        self.assertEqual(PAGE.count("```sql"), 10)

    def test_each_finds_something(self):
        for scenario, numbers in FIND.items():
            for number in numbers:
                self.assertTrue(self.found[scenario][number], (scenario, number))
        self.assertEqual({number for numbers in FIND.values() for number in numbers}, set(QUERIES))

    def test_the_events_have_their_time(self):
        self.assertEqual(self.found["lab"][10], [("2026-01-01 00:00:00", "worker_lost", "worker 3 went away")])

    def test_they_agree_with_the_summary(self):
        for scenario in ("lab",):
            cells = {cell["id"]: cell for cell in self.summaries[scenario]["cells"]}
            found = self.found[scenario]
            self.assertEqual({row[0] for row in found[2]}, {key for key, cell in cells.items() if cell["rounds"]})
            for cell_id, rounds, fastest, cpu in found[2]:
                self.assertEqual(rounds, cells[cell_id]["rounds"])
                self.assertTrue(math.isclose(fastest, cells[cell_id]["wall_ns"]["min"], rel_tol=1e-3), cell_id)
                self.assertTrue(math.isclose(cpu, cells[cell_id]["cpu_ns"]["mean"], rel_tol=1e-3), cell_id)
            for cell_id, p50 in found[3]:
                if cells[cell_id]["rounds"] % 2:
                    self.assertTrue(math.isclose(p50, cells[cell_id]["wall_ns"]["p50"]["value"], rel_tol=1e-3), cell_id)
            for row in found[5]:
                self.assertEqual(row[4] > 0, True)


if __name__ == "__main__":
    unittest.main()
