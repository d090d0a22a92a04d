"""A run that was cut short goes on: corefan run --resume DIR."""
import contextlib
import signal
import sqlite3
import time
import unittest

from harness import COREFAN, SMALL_SWEEP, EndToEnd, alive, children_of

SEVERAL_GROUPS = """\
name: several
rounds: 8
warmup: 1
arms: [sequential, gather]
matrix:
  - {job: sleep, fanout: 4, delay: [4ms, 5ms, 6ms, 7ms, 8ms, 9ms]}
"""
QUIETLY = ("--progress", "none", "--co-run")  # what is counted here are rounds, not their time
ONE_LONG_ROUND = """\
rounds: 20
warmup: 0
arms: [sequential, gather]
matrix:
  - {job: sleep, fanout: 30, delay: 40ms}
"""


class Resume(EndToEnd):
    def resume(self, *argv, **kwargs):
        return self.run_corefan("run", *argv, "--resume", str(self.scratch / "run"), *QUIETLY, **kwargs)

    def rows(self, query):
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.scratch / 'run/run.db'}?mode=ro", uri=True)) as db:
                return db.execute(query).fetchall()
        except sqlite3.OperationalError:
            return []

    def groups_done(self):
        return len(self.rows("SELECT number FROM groups WHERE state = 'done'"))

    def check_whole(self):
        """Every planned round of every cell counts, once."""
        self.assertEqual(self.summary()["run"]["status"], "complete")
        counted = self.rows("SELECT cells.rounds, count(*), count(DISTINCT block) FROM counted_rounds"
                            " JOIN cells ON cell = number GROUP BY cell")
        self.assertEqual(len(counted), len(self.rows("SELECT number FROM cells")))
        for planned, rounds, blocks in counted:
            self.assertEqual((rounds, blocks), (planned, planned))

    def test_after_a_killed_coordinator(self):
        process = self.start_sweep(SEVERAL_GROUPS, *QUIETLY)
        for groups in (1, 3):
            self.wait_for(lambda: self.groups_done() >= groups, f"{groups} groups")
            workers = children_of(process.pid)
            process.kill()
            process.wait()
            self.wait_for(lambda: not any(alive(pid) for pid in workers), "the workers' end", timeout=5)
            before = self.rows("SELECT number, attempt FROM groups WHERE state = 'done'")
            process = self.start_run_again()
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.check_whole()
        after = dict(self.rows("SELECT number, attempt FROM groups"))
        for number, attempt in before:
            self.assertEqual(after[number], attempt)  # not measured again
        self.assertEqual(len(self.rows("SELECT * FROM events WHERE kind = 'resumed'")), 2)
        self.assertEqual(self.run_corefan("report", str(self.scratch / "run")).out,
                         (self.scratch / "run/summary.txt").read_text())

    def start_run_again(self):
        return self.start(COREFAN, "run", "--resume", str(self.scratch / "run"), *QUIETLY)

    def test_after_ctrl_c_in_a_long_round(self):
        process = self.start_sweep(ONE_LONG_ROUND, *QUIETLY)
        self.wait_for(lambda: self.rows("SELECT * FROM ready"), "a prepared group", timeout=60)
        time.sleep(1.6)  # in the second block, most of the time in the middle of 1.2 seconds
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process).code, 130)
        self.assertEqual(self.rows("SELECT state, reason FROM groups"), [("partial", "interrupted")])
        kept = self.rows("SELECT count(*) FROM counted_rounds")[0][0]
        self.assertGreater(kept, 0)
        first = self.summary()["run"]
        self.assertEqual(first["status"], "interrupted")
        self.write("sweep.yaml", ONE_LONG_ROUND.replace("rounds: 20", "rounds: 2"))
        done = self.resume(str(self.scratch / "sweep.yaml"))
        self.assert_one_line(done, 2, "not the one that the run was begun with")
        self.assertEqual(self.rows("SELECT count(*) FROM counted_rounds")[0][0], kept)  # refused, and nothing lost

    def test_a_complete_run_stays_as_it_is(self):
        self.assertEqual(self.run_sweep(SMALL_SWEEP, *QUIETLY).code, 0)
        before = self.rows("SELECT * FROM rounds")
        done = self.resume()
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(self.rows("SELECT * FROM rounds"), before)
        self.check_whole()
        self.assertEqual(self.resume(str(self.scratch / "sweep.yaml")).code, 0)  # the same sweep may be named

    def test_what_cannot_be_resumed(self):
        self.assert_one_line(self.resume(), 2, "run.db")
        (self.scratch / "run").mkdir()
        self.write("run/run.db", b"\0" * 4096)
        self.assert_one_line(self.resume(), 2, "run.db")
        done = self.run_corefan("run", "--resume", str(self.scratch / "run"), "--out", "elsewhere")
        self.assert_one_line(done, 2, "--out")

    def test_one_coordinator_at_a_time(self):
        process = self.start_sweep(SEVERAL_GROUPS, *QUIETLY)
        self.wait_for(lambda: self.groups_done() >= 1, "a group")
        second = self.run_corefan("run", "--resume", str(self.scratch / "run"), *QUIETLY)
        self.assert_one_line(second, 2, "in use by another corefan")
        self.assertEqual(self.finish(process).code, 0)
        self.check_whole()

    def kill_after_a_group(self, sweep, *words):
        process = self.start_sweep(sweep, *words, *QUIETLY)
        self.wait_for(lambda: self.groups_done() >= 1, "a group")
        process.kill()
        process.wait()

    def test_with_fewer_workers_than_it_was_begun_with(self):
        self.kill_after_a_group(SEVERAL_GROUPS, "--workers", "2", "--cpus", "0,1")
        done = self.resume("--workers", "1", "--cpus", "0")
        self.assertEqual(done.code, 0, done.err)
        self.check_whole()

    def test_with_fewer_workers_than_a_gang_needs(self):
        self.kill_after_a_group(SEVERAL_GROUPS + "cores: 2\n", "--workers", "2", "--cpus", "0,1")
        done = self.resume("--workers", "1", "--cpus", "0")
        self.assert_one_line(done, 2, "needs 2 workers per runtime at the same time", "--workers 2")

    def test_a_worker_started_by_hand_is_met_again(self):
        endpoint = f"ipc://{self.scratch}/fleet.sock"
        by_hand = ("--workers", "0", "--expect", "1", "--listen", endpoint)
        process = self.start_sweep(SEVERAL_GROUPS, *by_hand, "--progress", "none")
        worker = self.start_worker(endpoint)
        self.wait_for(lambda: self.groups_done() >= 1, "a group")
        process.kill()
        process.wait()
        time.sleep(0.5)
        self.assertTrue(alive(worker.pid))
        done = self.resume(*by_hand)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(self.finish(worker, timeout=10).code, 0)
        self.check_whole()
        self.assertEqual(len(set(self.rows("SELECT pid FROM workers"))), 1)


if __name__ == "__main__":
    unittest.main()
