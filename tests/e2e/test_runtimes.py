"""Several runtimes in one sweep: interleaved in the same blocks on the same cores, compared row by row; and what a run
gives to other tools."""
import csv
import json
import os
import pathlib
import shutil
import signal
import sqlite3
import stat
import sys
import time
import unittest

from harness import COREFAN, EndToEnd, children_of

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import pyperf_grammar  # noqa: E402  (beside the golden files)

SWEEP = """\
name: runtimes
rounds: 4
warmup: 1
runtimes: [libuv, asyncio, uvloop]
matrix:
  - {job: sleep, fanout: 40, delay: 10ms, arms: [sequential, gather]}
  - {job: noop, fanout: 2, arms: [sequential, tasks, gather, taskgroup]}
"""


class Runtimes(EndToEnd):
    def test_one_sweep_on_three_runtimes(self):
        done = self.run_sweep(SWEEP, "--workers", "1", "--progress", "none", timeout=200)
        self.assertEqual(done.code, 0, done.err)
        summary = self.summary()
        self.assertEqual(len(summary["cells"]), 3 * (2 + 4))
        for cell in summary["cells"]:
            self.assertEqual((cell["rounds"], cell["attempts"]), (4, 1), cell["id"])
            self.assertNotEqual(cell["verdict"], "invalid", cell["id"])
        self.assertEqual({worker["runtime"] for worker in summary["workers"]}, {"libuv", "asyncio", "uvloop"})
        self.assertEqual(len({worker["cpu"] for worker in summary["workers"]}), 1)
        versions = {worker["runtime"]: worker["versions"] for worker in summary["workers"]}
        self.assertIn("python", versions["asyncio"])
        self.assertIn("uvloop", versions["uvloop"])
        self.check_interleaved()
        self.check_text(done.out)
        self.check_lab(summary)

    def check_interleaved(self):
        """In every block each runtime has its turn before any has its next."""
        with sqlite3.connect(self.scratch / "run/run.db") as db:
            rows = db.execute("select c.group_number, r.block, min(r.start_ns), max(r.start_ns + r.wall_ns) from rounds r"
                              " join cells c on c.number = r.cell group by 1, 2 order by 1, 2").fetchall()
        for before, after in zip(rows, rows[1:]):
            if before[0] == after[0]:
                self.assertLess(before[3], after[2], "two blocks overlap")

    def check_text(self, text):
        self.assertIn("runtimes side by side", text)
        self.assertIn("The published lab and this run", text)
        for published in ("0.415 s", "38.15x", "478 ns +- 16", "8.87 us +- 0.20", "20.7 us +- 0.5"):
            self.assertIn(published, text)
        self.assertLessEqual(max(map(len, text.splitlines())), 100)

    def check_lab(self, summary):
        rows = summary["lab"]
        self.assertEqual(len(rows), 3 * (3 + 3))
        by_id = {cell["id"]: cell for cell in summary["cells"]}
        for row in rows:
            cell = by_id[row["cell"]]
            figure = cell["speedup_x"] if row["metric"] == "speedup_x" else cell[row["metric"]]["p50"]
            self.assertAlmostEqual(row["measured"], figure["value"], delta=0.001)
        verdicts = {(verdict["runtime"], verdict["experiment"][0]) for verdict in summary["lab_verdicts"]}
        self.assertEqual(verdicts, {(runtime, which) for runtime in ("asyncio", "uvloop") for which in "12"})

    def test_interpreters_side_by_side(self):
        """A stand-in for a second interpreter: a script that runs the first."""
        other = self.write("python-other", "#!/bin/sh\nexec /usr/bin/python3 \"$@\"\n")
        os.chmod(other, os.stat(other).st_mode | stat.S_IXUSR)
        sweep = ("name: two\nrounds: 3\nruntimes:\n  - asyncio\n"
                 f"  - {{kind: asyncio, python: {other}, label: other}}\n"
                 "matrix: [{job: noop, fanout: 2}]\n")
        done = self.run_sweep(sweep, "--workers", "1", "--progress", "none")
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual({cell["runtime"] for cell in self.summary()["cells"]}, {"asyncio", "other"})

    def test_what_is_missing_is_said(self):
        missing = "runtimes: [{kind: asyncio, python: /nonexistent/python3, label: gone}]\n"
        done = self.run_sweep(missing + "matrix: [{job: noop, fanout: 2}]\n", "--workers", "1", "--progress", "none",
                              timeout=60)
        self.assertEqual(done.code, 2, done.err)
        self.assertIn("/nonexistent/python3", done.err)
        self.assertFalse((self.scratch / "run").exists())

    def test_own_jobs_that_are_secretly_serial_are_flagged(self):
        self.write("jobs.py", """\
import asyncio, time
lock = None
async def blocks(index):
    time.sleep(0.004)
async def locks(index):
    global lock
    lock = lock or asyncio.Lock()
    async with lock:
        await asyncio.sleep(0.004)
async def waits(index):
    await asyncio.sleep(0.004)
async def computes(index):
    end = time.thread_time() + 0.004
    while time.thread_time() < end:
        pass
""")
        names = ("blocks", "locks", "waits", "computes")
        jobs = ", ".join(f"{name}: 'jobs:{name}'" for name in names)
        sweep = (f"name: own\nrounds: 5\nruntimes: [{{kind: asyncio, label: own, path: {self.scratch}, jobs: {{{jobs}}}}}]\n"
                 "arms: [sequential, gather]\nmatrix: [" + ", ".join(f"{{job: {name}, fanout: 4}}" for name in names) + "]\n")
        done = self.run_sweep(sweep, "--workers", "1", "--progress", "none")
        self.assertEqual(done.code, 0, done.err)
        serial = {(cell["job"], cell["arm"]) for cell in self.summary()["cells"] if "serial" in cell["flags"] and
                  (cell["job"] != "computes" or cell["utilization"] > 0.5)}  # which it is where it has the CPU
        self.assertEqual(serial, {("blocks", "gather"), ("locks", "gather")})
        self.assertIn("note: serial (gather)", done.out)

    def test_killed_asyncio_worker_is_replaced(self):
        sweep = "name: k\nrounds: 30\nruntimes: [asyncio]\narms: [gather]\nmatrix: [{job: sleep, fanout: 4, delay: 50ms}]\n"
        process = self.start_sweep(sweep, "--workers", "1", "--progress", "none")
        worker = self.wait_for(lambda: children_of(process.pid), "a worker")[0]
        self.wait_for(lambda: children_of(worker), "its loop process")
        time.sleep(1.2)
        os.kill(worker, signal.SIGKILL)
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual([(cell["rounds"], cell["attempts"]) for cell in self.summary()["cells"]], [(30, 2)])


class OtherTools(EndToEnd):
    def setUp(self):
        super().setUp()
        done = self.run_sweep("name: t\nrounds: 6\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n", "--workers", "1",
                              "--progress", "none")
        self.assertEqual(done.code, 0, done.err)
        self.run_dir = str(self.scratch / "run")

    def report(self, *words):
        done = self.run_corefan("report", self.run_dir, *words)
        self.assertEqual((done.code, done.err), (0, ""))
        return done.out

    def test_pyperf_grammar(self):
        suite = json.loads(self.report("--format", "pyperf"))
        self.assertEqual(list(pyperf_grammar.check_suite(suite)), [])
        names = [benchmark["metadata"]["name"] for benchmark in suite["benchmarks"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertEqual(len(names), 2 * 3)
        cells = {cell["id"]: cell for cell in self.summary()["cells"]}
        for benchmark in suite["benchmarks"]:
            self.assertEqual(benchmark["metadata"]["unit"], "second")
            values = [value for run in benchmark["runs"] for value in run["values"]]
            self.assertEqual(len(values), 6)
            name = benchmark["metadata"]["name"]
            metric = cells[name.removesuffix(" cpu")]["cpu_ns" if name.endswith(" cpu") else "wall_ns"]
            self.assertAlmostEqual(min(values), metric["min"] / 1e9, places=12)
            self.assertAlmostEqual(max(values), metric["max"] / 1e9, places=12)

    @unittest.skipUnless(shutil.which("pyperf"), "pyperf is not installed")
    def test_pyperf_itself(self):
        path = self.write("suite.json", self.report("--format", "pyperf"))
        done = self.finish(self.start("pyperf", "stats", path))
        self.assertEqual(done.code, 0, done.err)

    def test_rounds_as_csv(self):
        rows = list(csv.DictReader(self.report("--format", "csv", "--rounds").splitlines()))
        with sqlite3.connect(self.scratch / "run/run.db") as db:
            expected = db.execute("select c.id, r.worker, r.block, r.wall_ns, r.cpu_ns from counted_rounds r"
                                  " join cells c on c.number = r.cell order by r.cell, r.worker, r.block").fetchall()
        self.assertEqual(len(rows), 6 * 4)
        got = [(row["id"], int(row["worker"]), int(row["block"]), int(row["wall_ns"]), int(row["cpu_ns"])) for row in rows]
        self.assertEqual(sorted(got), sorted(expected))
        self.assertEqual({row["cycles"] for row in rows} - {""} == set(), all(row["cycles"] == "" for row in rows))


if __name__ == "__main__":
    assert COREFAN
    unittest.main()
