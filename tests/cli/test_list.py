#!/usr/bin/python3
"""`corefan list` over made-up runs: finished, gated, unfinished, running, spoilt.  COREFAN_BIN: directory of the programs."""
import fcntl
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from test_man import BIN, output


class List(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)

    def make(self, name, scenario, finished=True):
        output("make_run", str(self.dir / name), scenario)
        summary = output("corefan", "report", str(self.dir / name), "--format", "json")
        if finished:
            (self.dir / name / "summary.json").write_text(summary)
        return json.loads(summary)

    def list(self, *words):
        done = subprocess.run([BIN / "corefan", "list", *words], capture_output=True, text=True, cwd=self.dir)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def rows(self, *words):
        rows = json.loads(self.list(*words, "--format", "json"))["runs"]
        return {row["directory"]: row for row in rows}

    def test_finished_runs(self):
        lab = self.make("runs/lab-1", "lab")
        gated = self.make("runs/deep/er/gated", "gated")
        rows = self.rows()
        self.assertEqual(set(rows), {"runs/lab-1", "runs/deep/er/gated"})
        for path, summary in (("runs/lab-1", lab), ("runs/deep/er/gated", gated)):
            row = rows[path]
            told = {key: row[key] for key in ("name", "started_at", "status", "cells")}
            self.assertEqual(told, {"name": summary["run"]["name"], "started_at": summary["run"]["started_at"],
                                    "status": summary["run"]["status"], "cells": len(summary["cells"])})  # fmt: skip
        passed = [row["passed"] for row in gated["thresholds"]]
        self.assertIn(False, passed)
        self.assertEqual(rows["runs/deep/er/gated"]["verdict"], "fail")
        self.assertIsNone(rows["runs/lab-1"]["verdict"])
        self.assertEqual(rows["runs/lab-1"]["verdict_null_reason"], "no_thresholds_or_unfinished")
        lines = self.list().splitlines()
        self.assertEqual(lines[0].split(), ["started", "name", "cells", "status", "verdict", "directory"])
        self.assertEqual(len(lines), 3)

    def test_newest_first(self):
        for name, when in (("a", "2026-01-02T00:00:00Z"), ("b", "2026-01-03T00:00:00Z"), ("c", "2026-01-01T00:00:00Z")):
            summary = self.make(name, "one_block")
            summary["run"]["started_at"] = when
            (self.dir / name / "summary.json").write_text(json.dumps(summary))
        self.assertEqual(list(self.rows(".")), ["./b", "./a", "./c"])
        self.assertEqual(list(self.rows("c")), ["c"])

    def test_unfinished_and_running(self):
        summary = self.make("runs/x", "one_block", finished=False)
        row = self.rows()["runs/x"]
        self.assertEqual((row["status"], row["cells"], row["name"]), ("unfinished", len(summary["cells"]), summary["run"]["name"]))
        with open(self.dir / "runs/x/run.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.assertEqual(self.rows()["runs/x"]["status"], "running")

    def test_a_spoilt_run_is_a_line_with_its_reason(self):
        (self.dir / "runs/bad").mkdir(parents=True)
        (self.dir / "runs/bad/run.db").write_text("nothing of the kind")
        (self.dir / "runs/e\x1b[2Jvil").mkdir()
        (self.dir / "runs/e\x1b[2Jvil/run.db").write_text("")
        row = self.rows()["runs/bad"]
        self.assertEqual((row["status"], row["cells"]), ("unreadable", None))
        self.assertIn("run.db", row["name_null_reason"])
        self.assertNotIn("\x1b", self.list())
        os.mkdir(os.fsencode(self.dir) + b"/runs/\xff")
        pathlib.Path(os.fsdecode(os.fsencode(self.dir) + b"/runs/\xff/run.db")).touch()
        self.assertEqual(json.loads(self.list("--format", "json"))["schema_version"], 1)

    def test_nothing_there(self):
        (self.dir / "runs").mkdir()
        self.assertEqual(self.list(), "no run lies in 'runs'\n")
        self.assertEqual(self.rows(), {})
        done = subprocess.run([BIN / "corefan", "list", "nowhere"], capture_output=True, text=True, cwd=self.dir)
        self.assertEqual((done.returncode, done.stderr), (2, "corefan: cannot read 'nowhere': No such file or directory\n"))


if __name__ == "__main__":
    unittest.main()
