#!/usr/bin/python3
"""Rounds of the real loops: what they record, what failures leave behind, and faults that must be noticed."""
import asyncio
import gc
import importlib.util
import os
import subprocess
import sys
import time
import unittest
from time import monotonic_ns, sleep

import paths
from corefan_worker import arrivals, loops, window
from corefan_worker.arms import ARMS
from corefan_worker.jobs import JOBS, Tally, UnusableJob, load, load_all
from corefan_worker.slices import CannotRun, Engine, Go, Slice, Stopped

KINDS = ["asyncio"] + (["uvloop"] if importlib.util.find_spec("uvloop") else [])
MS = 1_000_000


def cell(number, arm, job="sleep", fanout=4, delay_ns=3 * MS, **more):
    return dict(cell=number, arm=arm, job=job, fanout=fanout, delay_ns=delay_ns, warmup=1, **more)


class Wakeups(unittest.TestCase):
    """What counts as a return from a poll that could block."""

    def counted(self, coroutine):
        measured = loops.make("asyncio", False)
        self.addCleanup(measured.loop.close)
        measured.counter.switch(True)
        measured.loop.run_until_complete(coroutine)
        return measured.counter.wakeups

    def test_a_timer_that_came_due_before_the_poll(self):
        async def held_up():
            for _ in range(5):
                asyncio.get_running_loop().call_soon(sleep, 0.002)  # as a process that is stopped
                await asyncio.sleep(0.001)

        self.assertGreaterEqual(self.counted(held_up()), 5)

    def test_polls_between_callbacks_are_none(self):
        async def busy():
            for _ in range(5):
                await asyncio.sleep(0)

        self.assertEqual(self.counted(busy()), 0)


class Case(unittest.TestCase):
    kind = "asyncio"

    def engine(self, own=None, between=lambda rounds: True, kind=None):
        measured = loops.make(kind or self.kind, False)
        self.addCleanup(measured.loop.close)
        return Engine(measured, False, own or {}, 600_000, between)

    def measure(self, cells, blocks=2, own=None, kind=None, prepare=True):
        whole = Slice(self.engine(own, kind=kind), {"seed": 42, "blocks": blocks, "cells": cells})
        if prepare:
            self.prepared = whole.prepare()
        return whole.go(Go(0, blocks))

    def one(self, arm, own=None, kind=None, prepare=True, **more):
        return self.measure([cell(0, arm, **more)], 1, own, kind, prepare)[0]


class Rounds(Case):
    def test_waiting_children(self):
        for kind in KINDS:
            for values in self.measure([cell(n, arm) for n, arm in enumerate(ARMS)], kind=kind):
                arm = list(ARMS)[values["cell"]]
                with self.subTest(kind, arm=arm):
                    self.assertIsNone(values.get("error"))
                    self.assertEqual(values["fanouts"], 1)
                    self.assertEqual(values["max_in_flight"], {"sequential": 1, "empty": 0}.get(arm, 4))
                    self.assertGreater(values["wall_ns"], values["cpu_ns"] / 2)
                    if arm == "sequential":
                        self.assertGreaterEqual(values["wakeups"] + values["early"], 4)
                    elif arm != "empty":
                        self.assertLessEqual(values["wakeups"], 4)
                        self.assertGreaterEqual(values["wakeups"], 1)
                    if arm != "empty":
                        self.assertLessEqual(values["overshoot_min_ns"], values["overshoot_p50_ns"])
                        self.assertLessEqual(values["overshoot_p50_ns"], values["overshoot_max_ns"])
                        self.assertEqual(values["early"] > 0, values["overshoot_min_ns"] < 0)
                    if kind == "asyncio" and arm != "empty":
                        self.assertGreaterEqual(values["wall_ns"], (12 if arm == "sequential" else 3) * MS - 1000)

    def test_no_wait_children_are_calibrated_and_run_bare(self):
        for kind in KINDS:
            cells = [cell(n, arm, job="noop", fanout=2, delay_ns=0, calibrated=True) for n, arm in enumerate(ARMS)]
            rounds = self.measure(cells, 1, kind=kind)
            loops_of = {one["cell"]: one["loops"] for one in self.prepared}
            for values in rounds:
                arm = list(ARMS)[values["cell"]]
                with self.subTest(kind, arm=arm):
                    self.assertIsNone(values.get("error"))
                    self.assertEqual(values["fanouts"], loops_of[values["cell"]])
                    self.assertGreater(values["fanouts"], 1)
                    self.assertEqual(values["max_in_flight"], {"sequential": 1, "empty": 0}.get(arm, 2))
                    self.assertEqual(values["gc_runs"], 0)
                    self.assertIsNone(values["early"])
                    self.assertIsNone(values["overshoot_p50_ns"])

    def test_cpu_is_burnt(self):
        for arm in ("sequential", "gather"):
            values = self.one(arm, job="cpu", delay_ns=2 * MS)
            self.assertGreaterEqual(values["cpu_ns"], 8 * MS)
            self.assertIsNone(values.get("error"))

    def test_the_same_cells_in_the_same_order(self):
        cells = [cell(10 + n, arm, job="noop", delay_ns=0) for n, arm in enumerate(ARMS)]
        rounds = self.measure(cells, 2)
        self.assertEqual([one["cell"] - 10 for one in rounds], [5, 3, 0, 1, 4, 2, 0, 4, 3, 2, 1, 5])
        self.assertEqual([one["position"] for one in rounds], [0, 1, 2, 3, 4, 5] * 2)

    def test_stall_is_burnt_and_the_others_are_told_apart(self):
        values = self.one("gather", stall={"children": 1, "cpu_ns": 20 * MS})
        self.assertGreaterEqual(values["cpu_ns"], 20 * MS)
        self.assertGreaterEqual(values["stall_overshoot_p50_ns"], 20 * MS)  # they begin after the burn
        self.assertIsNotNone(self.one("sequential", stall={"children": 1, "cpu_ns": MS})["stall_overshoot_p50_ns"])
        self.assertIsNone(self.one("gather", stall={"children": 4, "cpu_ns": MS})["stall_overshoot_p50_ns"])
        self.assertIsNone(self.one("gather")["stall_overshoot_p50_ns"])


class Windows(Case):
    """On the real loops; the rules are tested in virtual time (test_windows.py)."""

    def window(self, arm, **more):
        return self.one(arm, **{**dict(prepare=False, duration_ns=40 * MS), **more})

    def check(self, values, arm):
        self.assertIsNone(values["error"])
        self.assertEqual(values["max_in_flight"], {"sequential": 1, "empty": 0}.get(arm, 4))
        self.assertGreaterEqual(values["wall_ns"], 40 * MS)
        self.assertGreater(values["fanouts"], 0)
        self.assertGreater(values["cpu_ns"], 0)
        self.assertIsNotNone(values["wakeups"])
        self.assertGreaterEqual(values["start_ns"], values["launch_ns"])
        self.assertIsNotNone(values["switches_voluntary"])

    def test_closed_loops(self):
        for kind in KINDS:
            for arm in ARMS:
                for job, delay in (("sleep", 3 * MS), ("noop", 0), ("cpu", MS // 10)):
                    with self.subTest(kind, arm=arm, job=job):
                        values = self.window(arm, kind=kind, job=job, delay_ns=delay, clients=3, phase="staggered")
                        self.check(values, arm)
                        self.assertEqual(values["fanouts"] % 3, 0)
                        self.assertEqual(sum(values["latency"]["counts"][1::2]), values["fanouts"])
                        if arm == "empty":
                            self.assertEqual(values["children"], 0)
                        else:
                            self.assertLessEqual(abs(values["children"] - 4 * values["fanouts"]), 12)
                        self.assertEqual(values["overshoot_p50_ns"] is None, job != "sleep" or arm == "empty")

    def test_open_loops(self):
        for kind in KINDS:
            for arm in ARMS:
                with self.subTest(kind, arm=arm):
                    for _ in range(20):  # on a host that lets it run: else nothing may end within 40 ms
                        values = self.window(arm, kind=kind, delay_ns=MS, rate_per_s=500)
                        if values["fanouts"] > 0:
                            break
                    self.check(values, arm)
                    started = values["offered"] - values["skipped"] - values["unfinished"]
                    self.assertEqual(sum(values["latency"]["counts"][1::2]), started)
                    self.assertEqual(sum(values["latency_intended"]["counts"][1::2]), started)
                    self.assertGreaterEqual(values["lag_max_ns"], values["lag_p50_ns"])
                    self.assertGreaterEqual(values["lag_p50_ns"], 0)  # the kernel's timer is never early

    def test_own_coroutines_are_counted(self):
        async def mine(index):
            await asyncio.sleep(0.001)
            if index == 2:
                raise ValueError("out of stock")

        for arm in ("gather", "gather-return-exceptions", "taskgroup"):
            values = self.window(arm, own={"mine": mine}, job="mine", clients=2)
            self.assertIsNone(values["error"])
            self.assertGreaterEqual(values["errors_seen"], values["fanouts"])

    def test_a_stall_is_burnt_by_each_fan_out(self):
        values = self.window("gather", stall={"children": 2, "cpu_ns": MS})
        self.assertGreaterEqual(values["cpu_ns"], values["fanouts"] * 2 * MS)

    def test_collector(self):
        async def make_cycles(index):
            for _ in range(1000):
                cycle = []
                cycle.append(cycle)
            await asyncio.sleep(0)

        for mode, runs in ((None, True), ("on", True), ("off", False), ("freeze", True)):
            values = self.window("gather", own={"rubbish": make_cycles}, job="rubbish", gc=mode)
            self.assertEqual(values["gc_runs"] > 0, runs, mode)
            self.assertTrue(gc.isenabled())
        values = self.window("gather", own={"rubbish": make_cycles}, job="rubbish", calibrated=True)
        self.assertGreater(values["gc_runs"], 0)  # as a user has it, also where a round would be calibrated

    def test_as_many_warm_ups_as_asked_for(self):
        cells = [dict(cell(0, "gather", clients=2, duration_ns=20 * MS), warmup=2)]
        values = self.measure(cells, 1)[0]
        self.assertEqual((self.prepared[0]["warmups"], self.prepared[0]["loops"]), (2, 1))
        self.assertEqual(self.prepared[0]["flags"], [])
        self.assertIsNone(values["error"])

    def test_a_start_is_kept_and_nothing_is_drawn_after_it(self):
        engine = self.engine()
        whole = Slice(engine, {"seed": 1, "blocks": 1, "cells": [cell(0, "gather", rate_per_s=20_000, duration_ns=50 * MS)]})
        at = time.monotonic_ns() + 100 * MS
        drawn = []
        draw = arrivals.schedule
        self.addCleanup(setattr, window, "schedule", draw)
        window.schedule = lambda *words: (drawn.append(time.monotonic_ns()), draw(*words))[1]
        values = whole.go(Go(0, 1, start_at_ns=at))[0]
        self.assertLess(drawn[0], at)
        self.assertGreaterEqual(values["launch_ns"], at)
        self.assertEqual(values["intended_start_ns"], at)


class Tallies(unittest.TestCase):
    def tally(self, *pairs):
        tally = Tally()
        tally.reset(len(pairs))
        tally.starts[:], tally.wakes[:] = zip(*pairs)
        return tally

    def test_most_waiting(self):
        self.assertEqual(self.tally((1, 5), (2, 6), (3, 7)).most_waiting(), 3)
        self.assertEqual(self.tally((1, 2), (2, 3), (3, 4)).most_waiting(), 1)
        self.assertEqual(self.tally((1, 4), (2, 3), (3, 9)).most_waiting(), 2)
        self.assertEqual(self.tally((1, 0), (2, 0), (0, 0)).most_waiting(), 2)
        self.assertEqual(self.tally((0, 0)).most_waiting(), 0)

    def test_overshoots(self):
        self.assertEqual(self.tally((10, 15), (10, 0), (12, 16)).overshoots(5), [0, -1])
        self.assertEqual(self.tally((10, 15), (10, 0), (12, 16)).overshoots(5, first=1), [-1])


class Collector(Case):
    def rubbish(self):
        async def make_cycles(index):
            for _ in range(3000):
                cycle = []
                cycle.append(cycle)

        return {"rubbish": make_cycles}

    def runs(self, **more):
        return self.one("gather", own=self.rubbish(), job="rubbish", prepare=False, **more)["gc_runs"]

    def test_as_a_user_has_it(self):
        self.assertGreater(self.runs(), 0)
        self.assertGreater(self.runs(gc="on"), 0)
        self.assertTrue(gc.isenabled())

    def test_off(self):
        self.assertEqual(self.runs(gc="off"), 0)
        self.assertTrue(gc.isenabled())

    def test_freeze(self):
        self.assertGreater(self.runs(gc="freeze"), 0)
        self.assertEqual(gc.get_freeze_count(), 0)


class Failures(Case):
    def failing(self, arm, **fail):
        told = dict(dict(children=2, at_ns=2 * MS), **fail)
        return self.one(arm, delay_ns=8 * MS, fail=told)

    def account(self, values):
        return values["orphans"], values["errors_seen"], values["errors_lost"]

    def test_policies(self):
        for kind in KINDS:
            self.kind = kind
            for arm, expected in {
                "sequential": (0, 1, 0),
                "gather": (2, 1, 1),
                "gather-return-exceptions": (0, 2, 0),
                "tasks": (2, 1, 1),
                "taskgroup": (0, 2, 0),
            }.items():
                with self.subTest(kind, arm=arm):
                    values = self.failing(arm)
                    self.assertIsNone(values["error"])
                    # two equal timers may fire in two turns, so that one error comes before the other
                    self.assertIn(values["orphans"], (expected[0], expected[0] + 1) if expected[0] else (0,))
                    cancelled_first = int(arm == "taskgroup" and values["errors_seen"] == 1)  # then the other ends so
                    self.assertEqual(self.account(values)[1:], (expected[1] - cancelled_first, expected[2]))
                    told_at_the_end = arm == "gather-return-exceptions"
                    # uvloop's timers count whole ms and may be one early
                    self.assertGreaterEqual(values["time_to_error_ns"], (8 if told_at_the_end else 2) * MS - MS)
                    self.assertEqual(values["drain_ns"] > 0, arm in ("gather", "tasks"))
                    self.assertEqual(values["wasted_cpu_ns"] > 0, arm in ("gather", "tasks"))

    def test_clean_up_is_waited_for(self):
        slow = self.failing("taskgroup", on_cancel="cleanup", cleanup_ns=20 * MS)["wall_ns"]
        self.assertGreater(slow, 20 * MS)  # from when the first child failed

    def test_suppressed_cancels_end_the_children_well(self):
        # one error, where equal timers fire in two turns: the other child is cancelled before its own
        self.assertIn(self.account(self.failing("taskgroup", on_cancel="suppress")), [(0, 2, 0), (0, 1, 0)])

    def test_a_child_that_cancels_itself(self):
        gather = self.failing("gather", children=1, outcome="cancel")
        self.assertEqual(self.account(gather), (3, 0, 0))
        self.assertIsNotNone(gather["time_to_error_ns"])
        self.assertEqual(self.account(self.failing("taskgroup", children=1, outcome="cancel")), (0, 0, 0))

    def test_timeout(self):
        for arm, orphans in {"gather": 0, "tasks": 3, "taskgroup": 0, "sequential": 0}.items():
            values = self.one(arm, delay_ns=30 * MS, timeout_ns=5 * MS)
            self.assertIsNone(values["error"], arm)
            self.assertLess(values["time_to_error_ns"], 30 * MS)
            self.assertEqual(self.account(values), (orphans, 1, 0), arm)

    def test_what_a_timeout_hides_is_lost(self):
        values = self.one("gather-return-exceptions", delay_ns=30 * MS, timeout_ns=5 * MS,
                          fail=dict(children=2, at_ns=MS))
        self.assertEqual(self.account(values), (0, 1, 2))

    def test_an_exception_of_an_own_coroutine_is_an_outcome(self):
        async def sometimes(index):
            await asyncio.sleep(0.001)
            if index == 1:
                raise ValueError("out of stock")
            return index

        values = self.one("gather-return-exceptions", own={"mine": sometimes}, job="mine")
        self.assertEqual(self.account(values), (0, 1, 0))
        self.assertIsNone(values["error"])
        values = self.one("taskgroup", own={"mine": sometimes}, job="mine")
        self.assertEqual(self.account(values), (0, 1, 0))
        self.assertIsNotNone(values["time_to_error_ns"])


class Faults(Case):
    def test_a_concurrent_arm_that_is_secretly_serial(self):
        original = ARMS["gather"]
        self.addCleanup(ARMS.__setitem__, "gather", original)
        ARMS["gather"] = ARMS["sequential"]
        self.assertIn("gather had 1 of 4", self.one("gather", prepare=False)["error"])

    def test_a_plain_loop_that_is_secretly_concurrent(self):
        original = ARMS["sequential"]
        self.addCleanup(ARMS.__setitem__, "sequential", original)
        ARMS["sequential"] = ARMS["gather"]
        self.assertIn("sequential had 4 of 4", self.one("sequential", prepare=False)["error"])

    def sleep_that(self, body):
        """`sleep` with another body: (index, seconds, starts, wakes)."""
        def make(this, tally):
            async def child(index):
                tally.starts[index] = monotonic_ns()
                await body(index, this.delay_ns / 1e9)
                tally.wakes[index] = monotonic_ns()
            return child
        original = JOBS["sleep"]
        self.addCleanup(JOBS.__setitem__, "sleep", original)
        JOBS["sleep"] = make

    def test_a_job_that_is_secretly_serial(self):
        async def blocks(index, seconds):
            sleep(seconds)

        self.sleep_that(blocks)
        for kind in KINDS:
            self.assertIn("gather had 1 of 4", self.one("gather", kind=kind, prepare=False)["error"])
        self.assertIn("sequential woke up 0 times", self.one("sequential", prepare=False)["error"])

    def test_a_job_that_waits_for_less_than_it_says(self):
        async def hurries(index, seconds):
            await asyncio.sleep(seconds / 1000)

        self.sleep_that(hurries)
        for kind in KINDS:
            for arm in ("sequential", "gather", "taskgroup"):
                values = self.one(arm, kind=kind, prepare=False, delay_ns=2000 * MS)
                self.assertIn("a wait ended", values["error"])
                self.assertEqual(values["early"], 4)

    def test_what_cannot_be_run_is_refused_before_it_starts(self):
        for wrong, part in [
            (dict(arm="juggle"), "juggle"),
            (dict(arm="gather", job="dig"), "dig"),
            (dict(arm="gather", clients=2), "cell 0: .*need a duration_ns"),
            (dict(arm="gather", job="noop", calibrated=True, fail={"children": 1}), "fail"),
            (dict(arm="gather", job="cpu", stall={"children": 1, "cpu_ns": 1}), "stall"),
        ]:
            with self.assertRaisesRegex(CannotRun, part):
                Slice(self.engine(), {"seed": 1, "blocks": 1, "cells": [cell(0, **wrong)]})

    def test_blocks_and_cells_that_are_not_there(self):
        whole = Slice(self.engine(), {"seed": 1, "blocks": 3, "cells": [cell(0, "gather", delay_ns=0, job="noop")]})
        self.assertEqual(len(whole.go(Go(1, 2))), 2)
        for go in (Go(2, 2), Go(0, 1, cell=7)):
            with self.assertRaises(CannotRun):
                whole.go(go)

    def test_it_stops_between_rounds(self):
        seen = []

        def between(rounds):
            seen.append(rounds)
            return rounds < 3

        engine = self.engine(between=between)
        whole = Slice(engine, {"seed": 1, "blocks": 9, "cells": [cell(0, "gather", job="noop", delay_ns=0)]})
        with self.assertRaises(Stopped):
            whole.go(Go(0, 9))
        self.assertEqual(seen, [1, 2, 3])


class OwnCoroutines(unittest.TestCase):
    def test_what_is_no_async_callable_is_refused_in_a_line(self):
        for target, part in [
            ("asyncio:sleep", None),
            ("no.such.module:f", "cannot import"),
            ("asyncio:nothing", "has no"),
            ("json:dumps", "not an async callable"),
            ("json:JSONEncoder", "not an async callable"),
            (":f", "MODULE:FUNCTION"),
        ]:
            if part is None:
                self.assertIs(load("x", target), asyncio.sleep)
                continue
            with self.assertRaisesRegex(UnusableJob, part):
                load("x", target)

    def test_built_in_names_are_taken(self):
        for name in JOBS:
            with self.assertRaisesRegex(UnusableJob, "built in"):
                load_all({name: "asyncio:sleep"}, None)


class Interpreters(unittest.TestCase):
    """The measured half on whatever other interpreters are here."""

    SCRIPT = """
import sys
from corefan_worker import loops
from corefan_worker.slices import Engine, Go, Slice
eager = sys.version_info >= (3, 12)
engine = Engine(loops.make("asyncio", eager), eager, {}, 600_000, lambda rounds: True)
cells = [dict(cell=n, arm=arm, job=job, fanout=3, delay_ns=delay, warmup=1, calibrated=job == "noop")
         for n, (arm, job, delay) in enumerate([("tasks", "noop", 0), ("gather", "noop", 0), ("tasks", "sleep", 2_000_000),
                                                ("gather", "sleep", 2_000_000), ("sequential", "sleep", 2_000_000)])]
window = dict(arm="gather", job="sleep", fanout=3, delay_ns=2_000_000, warmup=1, duration_ns=20_000_000)
cells += [dict(window, cell=5, clients=3), dict(window, cell=6, rate_per_s=500.0)]
whole = Slice(engine, {"seed": 1, "blocks": 1, "cells": cells})
whole.prepare()
rounds = sorted(whole.go(Go(0, 1)), key=lambda one: one["cell"])
assert [one.get("error") for one in rounds] == [None] * 7, rounds
print(*[one["max_in_flight"] for one in rounds])
"""

    def test_other_versions(self):
        places = os.environ.get("COREFAN_PYTHONS", "").split(os.pathsep)
        places += [f"/usr/bin/python3.{minor}" for minor in range(10, 16)]
        for python in filter(os.path.exists, filter(None, places)):
            with self.subTest(python):
                got = subprocess.run([python, "-c", self.SCRIPT], env={**os.environ, "PYTHONPATH": paths.PACKAGE},
                                     capture_output=True, text=True, check=False)
                self.assertEqual(got.returncode, 0, got.stderr)
                words = [python, "-c", "import sys; print(sys.version_info >= (3, 12))"]
                eager = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "True"
                self.assertEqual(got.stdout.split(), ["1" if eager else "3", "3", "3", "3", "1", "3", "3"])


if __name__ == "__main__":
    sys.exit(unittest.main())
