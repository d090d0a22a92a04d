"""Failure as an experiment: every round of a real run, against what the rules of its arm say.

Counts are exact.  Times are bounded from below only, by deadlines: that one arm is told sooner than another is held in
virtual time (tests/unit/test_arms.c).  Deadlines lie 15 ms and more apart; a round in which the worker was kept off its
CPU for longer than that is not judged, and most rounds must be.
"""
import sqlite3
import sys
import unittest

from harness import ROOT, EndToEnd

sys.path.insert(0, str(ROOT / "worker/asyncio"))
from corefan_worker.splitmix import SplitMix  # noqa: E402

MS = 1_000_000
N, DELAY, AT, TIMEOUT, CLEANUP = 4, 40 * MS, 5 * MS, 20 * MS, 5 * MS
EARLY_NS = {"libuv": 0, "asyncio": 2000}  # asyncio admits a timer one tick of its clock before it is due

HEAD = """\
name: failure
seed: 3
rounds: 5
warmup: 1
arms: [sequential, tasks, gather, gather-return-exceptions, taskgroup]
job: sleep
fanout: 4
delay: 40ms
matrix:
"""

# arm: (children still running, errors seen, errors lost, ms until the caller is told or None, ms until the last child ends)
POLICIES = {
    "{fail: {children: 1, at: 5ms}}": {
        "sequential": (0, 1, 0, 5, 5),
        "tasks": (3, 1, 0, 5, 40),
        "gather": (3, 1, 0, 5, 40),
        "gather-return-exceptions": (0, 1, 0, 40, 40),
        "taskgroup": (0, 1, 0, 5, 5),
    },
    # The rest of a sequence never starts; gather and tasks drop what fails after the first; a group has all members.
    "{fail: {children: 3, at: 5ms}}": {
        "sequential": (0, 1, 0, 5, 5),
        "tasks": (1, 1, 2, 5, 40),
        "gather": (1, 1, 2, 5, 40),
        "gather-return-exceptions": (0, 3, 0, 40, 40),
        "taskgroup": (0, 3, 0, 5, 5),
    },
    # A cancellation is no error.  It reaches those who await the child; a group and the slots take it as an end.
    "{fail: {children: 1, at: 5ms, outcome: cancel}}": {
        "sequential": (0, 0, 0, 5, 5),
        "tasks": (3, 0, 0, 5, 40),
        "gather": (3, 0, 0, 5, 40),
        "gather-return-exceptions": (0, 0, 0, None, 40),
        "taskgroup": (0, 0, 0, None, 40),
    },
    "{fail: {children: 1, at: 5ms, on_cancel: suppress}}": {
        "sequential": (0, 1, 0, 5, 5),
        "tasks": (3, 1, 0, 5, 40),
        "gather": (3, 1, 0, 5, 40),
        "gather-return-exceptions": (0, 1, 0, 40, 40),
        "taskgroup": (0, 1, 0, 5, 5),
    },
    # Only a group cancels, so only a group waits for the clean-up.
    "{fail: {children: 1, at: 5ms, on_cancel: cleanup, cleanup: 5ms}}": {
        "sequential": (0, 1, 0, 5, 5),
        "tasks": (3, 1, 0, 5, 40),
        "gather": (3, 1, 0, 5, 40),
        "gather-return-exceptions": (0, 1, 0, 40, 40),
        "taskgroup": (0, 1, 0, 10, 10),
    },
    # A timeout cancels what the caller awaits: all children of a gather or a group, but only the one at hand of tasks.
    "{timeout: 20ms}": {
        "sequential": (0, 1, 0, 20, 20),
        "tasks": (3, 1, 0, 20, 40),
        "gather": (0, 1, 0, 20, 20),
        "gather-return-exceptions": (0, 1, 0, 20, 20),
        "taskgroup": (0, 1, 0, 20, 20),
    },
    # Errors in the slots of a fan-out that timed out are given to nobody.
    "{timeout: 20ms, fail: {children: 2, at: 5ms}}": {
        "sequential": (0, 1, 0, 5, 5),
        "tasks": (2, 1, 1, 5, 40),
        "gather": (2, 1, 1, 5, 40),
        "gather-return-exceptions": (0, 1, 2, 20, 20),
        "taskgroup": (0, 2, 0, 5, 5),
    },
    # Who awaits one child at a time asks it alone to stop; when it swallows that, the timeout is lost.
    "{timeout: 20ms, fail: {children: 1, at: 40ms, on_cancel: suppress}}": {
        "sequential": (0, 0, 0, None, 20 + 3 * 40),
        "tasks": (0, 0, 0, None, 40),
        "gather": (0, 1, 0, 20, 20),
        "gather-return-exceptions": (0, 1, 0, 20, 20),
        "taskgroup": (0, 1, 0, 20, 20),
    },
    # A timeout is soft: the clean-up of those that were asked to stop is waited for.
    "{timeout: 20ms, fail: {children: 1, at: 40ms, on_cancel: cleanup, cleanup: 5ms}}": {
        "sequential": (0, 1, 0, 25, 25),
        "tasks": (3, 1, 0, 25, 40),
        "gather": (0, 1, 0, 25, 25),
        "gather-return-exceptions": (0, 1, 0, 25, 25),
        "taskgroup": (0, 1, 0, 25, 25),
    },
}

# On Python's own loop as well, where no two deadlines are the same.
BOTH_RUNTIMES = ["{fail: {children: 1, at: 5ms}}", "{fail: {children: 1, at: 5ms, outcome: cancel}}", "{timeout: 20ms}"]


def when_some_fail(arm, failing):
    """The same five figures where `failing` (indexes) end with an error after 5 ms."""
    if not failing:
        return 0, 0, 0, None, 40 * N if arm == "sequential" else 40
    first, all_of_them = min(failing), len(failing) == N
    if arm == "sequential":
        return 0, 1, 0, 40 * first + 5, 40 * first + 5
    if arm == "tasks" and first > 0:  # it awaits child 0 first, and all are over when that one is
        return 0, 1, len(failing) - 1, 40, 40
    if arm in ("tasks", "gather"):
        return N - len(failing), 1, len(failing) - 1, 5, 5 if all_of_them else 40
    if arm == "taskgroup":
        return 0, len(failing), 0, 5, 5
    end = 5 if all_of_them else 40
    return 0, len(failing), 0, end, end


class Failure(EndToEnd):
    def measure(self, *entries, head=HEAD):
        done = self.run_sweep(head + "".join(f"  - {entry}\n" for entry in entries), "--workers", "1", timeout=180)
        self.assertEqual(done.code, 0, done.err)
        self.text = done.out
        db = sqlite3.connect(self.scratch / "run/run.db")
        db.row_factory = sqlite3.Row
        self.addCleanup(db.close)
        return db.execute(
            "select r.*, c.arm, c.runtime, c.group_number as grp, c.number as number, g.seed from counted_rounds r"
            " join cells c on c.number = r.cell join groups g on g.number = c.group_number"
            " where not c.harness order by c.number, r.block").fetchall()

    def judge(self, row, expected, where):
        orphans, seen, lost, told_ms, end_ms = expected
        early = EARLY_NS[row["runtime"]]
        self.assertIsNone(row["error"], where)
        self.assertEqual((row["orphans"], row["errors_seen"], row["errors_lost"]), (orphans, seen, lost), where)
        self.assertEqual(row["time_to_error_ns"] is None, told_ms is None, where)
        if told_ms is not None:
            self.assertEqual(row["time_to_error_ns"], row["wall_ns"], where)
            self.assertGreaterEqual(row["time_to_error_ns"], told_ms * MS - early, where)
        self.assertGreaterEqual(row["wall_ns"] + row["drain_ns"], end_ms * MS - early * N, where)
        self.assertEqual((row["wasted_cpu_ns"] > 0, row["drain_ns"] > 0), (orphans > 0,) * 2, where)

    def judge_all(self, rows, expectation):
        judged = {}
        for row in rows:
            where = f"{row['runtime']} {row['arm']}, group {row['grp']}, block {row['block']}: {dict(row)}"
            undisturbed = (row["runq_ns"] or 0) < 5 * MS
            judged.setdefault(row["number"], []).append(undisturbed)
            if undisturbed:
                self.judge(row, expectation(row), where)
        for number, rounds in judged.items():
            self.assertEqual(len(rounds), 5)
            self.assertGreaterEqual(sum(rounds), 3, f"cell {number} was kept off its CPU")

    def test_every_policy(self):
        rows = self.measure(*POLICIES)
        tables = list(POLICIES.values())
        self.assertEqual(len(rows), len(POLICIES) * 5 * 5)
        self.judge_all(rows, lambda row: tables[row["grp"]][row["arm"]])
        for cell in self.summary()["cells"]:  # medians of rounds that are all the same
            for name in ("orphans", "errors_seen", "errors_lost", "wasted_cpu_ns", "drain_ns"):
                self.assertIsNotNone(cell[name], cell["id"])

    def test_on_pythons_own_loop(self):
        rows = self.measure(*BOTH_RUNTIMES, head=HEAD.replace("job:", "runtimes: [libuv, asyncio]\njob:"))
        self.assertEqual({row["runtime"] for row in rows}, {"libuv", "asyncio"})
        self.judge_all(rows, lambda row: POLICIES[BOTH_RUNTIMES[row["grp"]]][row["arm"]])

    def test_a_fraction_is_drawn_for_each_round(self):
        rows = self.measure("{fail: {fraction: 40%, at: 5ms}}")
        drawn = set()

        def expectation(row):
            numbers = SplitMix.stream(int(row["seed"]), (row["number"] + 1) * 2**32 + row["block"])
            failing = frozenset(i for i in range(N) if numbers.unit() < 0.4)
            drawn.add(failing)
            return when_some_fail(row["arm"], failing)

        self.judge_all(rows, expectation)
        self.assertGreater(len(drawn), 5)

    def test_the_example_tells_the_policies_apart(self):
        done = self.run_corefan("run", str(ROOT / "examples/failure.yaml"), "--out", str(self.scratch / "run"))
        self.assertEqual(done.code, 0, done.err)
        self.assertTrue(all(len(line) <= 100 for line in done.out.splitlines()))
        words = " ".join(done.out.split("\n\n")[0].split())
        self.assertIn("the caller learns of the error: ", words)
        self.assertIn("the caller learns that its time is up: ", words)
        for arm in ("tasks", "gather"):
            self.assertRegex(words, rf"\b{arm} after [0-9.]+ ms \(19 still running\)")
        self.assertRegex(words, r"Thrown away after that: tasks [0-9.]+ us CPU over [0-9.]+ ms, gather ")
        tables = done.out.split("\n\n")[1:]
        self.assertEqual(sum("\nwhen children fail:\n" in table for table in tables), 4)
        self.assertEqual(sum("\nwhen the time is up:\n" in table for table in tables), 1)

    def test_sleepers_beside_a_stall_are_late(self):
        rows = self.measure("{stall: {children: 1, cpu: 3ms}}", head=HEAD.replace("40ms", "10ms"))
        for row in rows:
            self.assertIsNone(row["error"])
            self.assertGreaterEqual(row["cpu_ns"], 3 * MS)
            self.assertGreaterEqual(row["stall_overshoot_p50_ns"], 0 if row["arm"] == "sequential" else 3 * MS)
            self.assertIsNone(row["orphans"])
        self.assertRegex(" ".join(self.text.split()), r"the sleepers beside them woke: sequential [0-9.]+ [mu]s late, ")


if __name__ == "__main__":
    unittest.main()
