"""Fresh processes, rounds: auto and budgets, as a user meets them: real workers that end and start again."""
import contextlib
import os
import signal
import sqlite3
import time
import unittest

from harness import EndToEnd, alive, children_of

THREE = """\
name: three
rounds: 4
warmup: 1
processes: 3
arms: [sequential, gather]
matrix:
  - {job: sleep, fanout: [2, 3], delay: 1ms}
"""

GOES_ON = """\
name: goes-on
rounds: auto
precision: %s
warmup: 1
arms: [sequential, gather]
matrix:
  - {job: sleep, fanout: 4, delay: 2ms}
"""


class Case(EndToEnd):
    def rows(self, sql, out="run"):
        with contextlib.closing(sqlite3.connect(f"file:{self.scratch / out / 'run.db'}?mode=ro", uri=True)) as db:
            return db.execute(sql).fetchall()

    def assert_no_warning(self, finished):
        for line in finished.err.splitlines():
            self.assertNotIn("warning", line)
            self.assertNotIn("lost", line)
            self.assertNotIn("started again", line)


class Processes(Case):
    def test_three_fresh_processes_per_place(self):
        cpus = sorted(os.sched_getaffinity(0))[:2]
        done = self.run_sweep(THREE + "  - {job: sleep, fanout: 2, delay: 1ms, cores: all}\n",
                              "--cpus", ",".join(map(str, cpus)), "--verbose")
        self.assertEqual(done.code, 0, done.err)
        self.assert_no_warning(done)
        places = {}
        for slot, pid, cpu in self.rows("SELECT slot, pid, cpu FROM workers"):
            places.setdefault(slot, []).append((pid, cpu))
        self.assertEqual(len(places), len(cpus))
        for workers in places.values():
            self.assertEqual(len({pid for pid, _ in workers}), 3)
            self.assertEqual(len({cpu for _, cpu in workers}), 1)
        for cell, cores, workers, rounds, blocks in self.rows(
                "SELECT cell, cores, count(DISTINCT worker), count(*), count(DISTINCT block) FROM counted_rounds"
                " JOIN cells ON cells.number = cell GROUP BY cell"):
            self.assertEqual((workers, rounds, blocks), (3 * cores, 12 * cores, 12), cell)
        for cell in self.summary()["cells"]:
            self.assertEqual(cell["processes"], 3)
            self.assertEqual(cell["rounds"], 12 * cell["cores"])
            self.assertEqual(cell["attempts"], 1)
            for estimate in (cell["wall_ns"]["p50"], cell["cpu_ns"]["p50"], cell["cpu_net_ns"]):
                self.assertEqual(estimate["ci_method"], "process_range")
                self.assertEqual(estimate["ci_level"], 0.75)  # three processes cannot say more
        self.assertIn("in each of 3 processes", done.out)

    def test_workers_started_by_hand_cannot_be_renewed(self):
        for argv, part in ((("--workers", "0", "--expect", "1"), "--workers 0"),
                           (("--workers", "1", "--expect", "1"), "--expect")):
            refused = self.run_sweep(THREE, *argv, "--listen", f"ipc://{self.scratch}/socket")
            self.assert_one_line(refused, 2, "'processes' is 3", "started by hand", part)
            self.assertFalse((self.scratch / "run").exists())

    def test_killed_worker_costs_an_attempt_not_the_run(self):
        run = self.start_sweep(THREE.replace("rounds: 4", "rounds: 60"), "--workers", "1")
        self.wait_for(lambda: self.rows_so_far("SELECT 1 FROM parts"), "a result")
        victim = self.wait_for(lambda: children_of(run.pid), "a worker")[0]
        os.kill(victim, signal.SIGKILL)
        done = self.finish(run)
        self.assertEqual(done.code, 0, done.err)
        for workers, rounds in self.rows("SELECT count(DISTINCT worker), count(*) FROM counted_rounds GROUP BY cell"):
            self.assertEqual((workers, rounds), (3, 180))

    def test_interrupt_keeps_whole_passes(self):
        run = self.start_sweep(THREE.replace("rounds: 4", "rounds: 100"), "--workers", "1")
        self.wait_for(lambda: len(self.rows_so_far("SELECT DISTINCT worker FROM parts")) == 2, "a second process")
        workers = children_of(run.pid)
        run.send_signal(signal.SIGINT)
        done = self.finish(run)
        self.assertEqual(done.code, 130, done.err)
        for (rounds,) in self.rows("SELECT count(*) FROM counted_rounds GROUP BY cell"):
            self.assertGreaterEqual(rounds, 100)
        self.assertEqual(len(self.rows("SELECT DISTINCT cell FROM counted_rounds")), 6)
        self.assertEqual([pid for pid in workers if alive(pid)], [])


class Precision(Case):
    def test_auto_goes_on_until_it_is_precise(self):
        done = self.run_sweep(GOES_ON % "30%", "--workers", "1")
        self.assertEqual(done.code, 0, done.err)
        row, = self.summary()["precision"]
        self.assertTrue(row["reached"])
        self.assertLessEqual(row["achieved_x"], 0.3)
        self.assertEqual(row["missing_ns"], 0)
        self.assertGreaterEqual(row["rounds"], 10)
        for cell in self.summary()["cells"]:
            self.assertEqual(cell["rounds"], row["rounds"])
            for p50 in (cell["wall_ns"]["p50"], cell["cpu_ns"]["p50"]):
                self.assertGreaterEqual(p50["ci_level"], 0.95)
                self.assertLessEqual((p50["ci_hi"] - p50["ci_lo"]) / 2 / p50["value"], row["achieved_x"] + 1e-5)
        self.assertIn("30 % asked: reached", done.out)

    def test_budget_that_is_too_short(self):
        began = time.monotonic()
        done = self.run_sweep(GOES_ON % "0.001%", "--workers", "1", "--budget", "1500ms")
        self.assertLess(time.monotonic() - began, 60)
        self.assertEqual(done.code, 98, done.err)
        summary = self.summary()
        self.assertEqual(summary["run"]["status"], "complete")
        self.assertEqual(summary["run"]["budget_ns"], 1500000000)
        row, = summary["precision"]
        self.assertFalse(row["reached"])
        self.assertGreater(row["missing_ns"], 1e9)
        self.assertLess(row["rounds"], row["rounds_most"])
        self.assertRegex(done.out, r"Inconclusive: 1 of 1 group did not reach .*about \d")
        self.assertRegex(done.err, r"warning: .* more of measuring is missing")
        again = self.run_corefan("report", str(self.scratch / "run"))
        self.assertEqual((again.code, again.out), (0, done.out))

    def test_budget_leaves_out_what_does_not_fit(self):
        done = self.run_sweep("rounds: 10\nwarmup: 0\narms: [gather]\n"
                              "matrix: [{job: sleep, fanout: 2, delay: [10ms, 2s, 11ms]}]\n", "--workers", "1",
                              "--budget", "3s")
        self.assertEqual(done.code, 3, done.err)
        self.assertIn("group 1 (2 x 2s sleep, 1 core) given up: left out, the budget of 3s", done.err)
        self.assertIn("left out, the budget of 3s does not reach for it", done.out)
        self.assertEqual([cell["rounds"] for cell in self.summary()["cells"]], [10, 0, 10])

    def test_plan_shows_both(self):
        path = self.write("sweep.yaml", GOES_ON % "4%" + "  - {job: sleep, fanout: 2, delay: 1s, rounds: 9, processes: 8}\n")
        shown = self.run_corefan("plan", path, "--workers", "1", "--budget", "10s")
        self.assertEqual(shown.code, 0, shown.err)
        self.assertIn("p50 within 4 %, 10 to 1000 rounds", shown.out)
        self.assertIn("p50 of 72 values in 8 processes", shown.out)
        self.assertIn("The budget of 10.0 s leaves out group 2: 2 x 1s sleep, 1 core", shown.out)
        refused = self.run_corefan("plan", path, "--budget", "0s")
        self.assert_one_line(refused, 2, "--budget '0s'")


if __name__ == "__main__":
    unittest.main()
