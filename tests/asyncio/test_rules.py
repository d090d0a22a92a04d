#!/usr/bin/python3
"""The pure parts: chance, readiness, the command line, what a round must be."""
import asyncio
import os
import unittest

import paths  # noqa: F401
from corefan_worker import options, readiness
from corefan_worker.cells import Cell, Fail, Stall
from corefan_worker.jobs import failing_children
from corefan_worker.loops import UnusableLoop, refuse_eager_before
from corefan_worker.machine import parse_cpu_list
from corefan_worker.measure import Waits, disproof, summary
from corefan_worker.slices import chance_of_round, chance_of_warmup
from corefan_worker.splitmix import SplitMix, block_order

MS = 1_000_000


class Chance(unittest.TestCase):
    """The examples of SPEC.md, section 6."""

    def test_generator(self):
        random = SplitMix(1)
        self.assertEqual([random.next() for _ in range(3)],
                         [10451216379200822465, 13757245211066428519, 17911839290282890590])

    def test_streams_and_below(self):
        random = SplitMix.stream(42, 0)
        self.assertEqual([random.below(bound) for bound in (6, 5, 4, 3, 2)], [2, 4, 1, 0, 1])

    def test_block_orders(self):
        orders = [[5, 3, 0, 1, 4, 2], [0, 4, 3, 2, 1, 5], [0, 4, 1, 3, 5, 2], [5, 2, 0, 1, 3, 4]]
        self.assertEqual([block_order(42, block, 6) for block in range(4)], orders)
        self.assertEqual(block_order(2**64 - 1, 99999, 7), [3, 1, 6, 4, 0, 5, 2])

    def test_failing_children(self):
        self.assertEqual(failing_children(Fail(fraction=0.25), 4, chance_of_round(42, 7, 3)), {0, 3})
        self.assertEqual(failing_children(Fail(children=2), 4, SplitMix(0)), {0, 1})
        self.assertEqual(failing_children(Fail(children=9), 4, SplitMix(0)), {0, 1, 2, 3})

    def test_warm_up_draws_from_a_stream_of_its_own(self):
        self.assertEqual(chance_of_warmup(42, 7).next(), SplitMix.stream(42, 8 + 2**63).next())


class Readiness(unittest.TestCase):
    def calibrated(self, cost):
        asked = []

        async def taken(loops):
            asked.append(loops)
            return cost(loops, len(asked))

        return asyncio.run(readiness.calibrate(taken, 10 * MS)), asked

    def test_threshold(self):
        self.assertEqual(readiness.threshold_ns(600_000), 10 * MS)
        self.assertEqual(readiness.threshold_ns(60 * MS), 60 * MS)

    def test_loops_double_until_the_threshold(self):
        (loops, stable), asked = self.calibrated(lambda loops, _: 5_000 * loops)
        self.assertEqual((loops, stable), (2048, True))
        self.assertEqual(asked[:12], [2**power for power in range(12)])
        self.assertEqual(asked[12:], [2048] * 3 + [4096] * 3)

    def test_a_cost_that_depends_on_the_count_is_unstable(self):
        (_, stable), _ = self.calibrated(lambda loops, _: loops * loops * 1000)
        self.assertFalse(stable)

    def test_one_retry_from_twice_the_count(self):
        (loops, stable), _ = self.calibrated(lambda loops, _: 100 * MS if loops == 1 else 30 * MS * loops)
        self.assertEqual((loops, stable), (2, True))

    def warmed(self, values, at_least=1, faults=0, wall=MS):
        warmup = readiness.Warmup(at_least)
        for value in values:
            if warmup.verdict() != "more":
                break
            warmup.add(value, wall, faults)
        return warmup.rounds, warmup.verdict()

    def test_cheap_rounds_are_taken_five_times(self):
        self.assertEqual(self.warmed([100] * 60), (5, "done"))

    def test_slow_rounds_as_often_as_asked(self):
        self.assertEqual(self.warmed([100] * 60, at_least=2, wall=400 * MS), (2, "done"))

    def test_windows_as_often_as_asked_whatever_they_show(self):
        warmup = readiness.Warmup(2, long=True)
        for wall in (MS, 3000 * MS):
            self.assertEqual(warmup.verdict(), "more")
            warmup.add(100, wall, faults=7)
        self.assertEqual(warmup.verdict(), "done")

    def test_a_first_value_that_sticks_out_is_warmed_away(self):
        self.assertEqual(self.warmed([900, 101, 100, 102, 99, 100, 101]), (6, "done"))

    def test_faults_without_end_are_capped(self):
        self.assertEqual(self.warmed([100] * 60, faults=1), (50, "unconverged"))
        self.assertEqual(self.warmed([100] * 60, faults=1, wall=900 * MS), (3, "unconverged"))


class Proof(unittest.TestCase):
    def judge(self, arm, in_flight, wakeups, early=0, waits=Waits(4, 100), eager=False, wall=10**9, overshoot=0, **more):
        cell = Cell(cell=0, arm=arm, job="sleep", fanout=4, delay_ns=1000, **more)
        values = {"max_in_flight": in_flight, "wakeups": wakeups, "early": early, "wall_ns": wall, "overshoot_min_ns": overshoot}
        return disproof(cell, values, waits, eager)

    def test_holds(self):
        self.assertIsNone(self.judge("sequential", 1, 4))
        self.assertIsNone(self.judge("gather", 4, 1))
        self.assertIsNone(self.judge("empty", 0, 0))

    def test_secretly_serial(self):
        self.assertIn("gather had 1 of 4", self.judge("gather", 1, 4))
        self.assertIn("woke up 9 times", self.judge("taskgroup", 4, 9))

    def test_secretly_concurrent(self):
        self.assertIn("sequential had 2 of 4", self.judge("sequential", 2, 4))
        self.assertIn("woke up 3 times", self.judge("sequential", 1, 3))

    def test_an_early_wait_needs_no_wake_up(self):
        self.assertIsNone(self.judge("sequential", 1, 3, early=1))

    def test_eager_children_that_do_not_wait_end_where_they_are_made(self):
        self.assertIsNone(self.judge("tasks", 1, 0, waits=None, eager=True))
        self.assertIn("tasks had 1", self.judge("tasks", 1, 0, eager=True))

    def test_every_child_waits(self):
        self.assertIn("3 of 4 children waited", self.judge("gather", 4, 1, waits=Waits(3, 100)))
        self.assertIn("0 of 4 children waited", self.judge("gather", 4, 1, waits=Waits(0, 100)))
        self.assertIsNone(self.judge("gather", 4, 1, waits=Waits(3, 100), stall=Stall(1, 5)))

    def test_waits_are_as_long_as_the_design_of_the_loop_allows(self):
        self.assertIsNone(self.judge("gather", 4, 1, early=1, overshoot=-100, wall=900))
        self.assertIn("ended 101 ns early", self.judge("gather", 4, 1, early=1, overshoot=-101))
        self.assertIn("gather took 899 ns, less than its waits of 900 ns", self.judge("gather", 4, 1, wall=899))
        self.assertIsNone(self.judge("sequential", 1, 4, wall=3600))
        self.assertIn("sequential took 3599 ns, less than its waits of 3600 ns", self.judge("sequential", 1, 4, wall=3599))

    def test_failures_lift_the_rules_that_count(self):
        self.assertIsNone(self.judge("gather", 2, 9, fail=Fail(children=1)))
        self.assertIn("had 5 of 4", self.judge("gather", 5, 9, fail=Fail(children=1)))

    def test_medians_are_the_lower_of_two(self):
        self.assertEqual(summary([5, 1, 3, 2]), (1, 2, 5))
        self.assertEqual(summary([]), (None, None, None))


class CommandLine(unittest.TestCase):
    def parsed(self, *words):
        return options.parse(["--connect", "ipc:///tmp/x", *words])

    def refused(self, *words):
        with self.assertRaises(options.BadUsage) as caught:
            options.parse(list(words))
        return str(caught.exception)

    def test_defaults(self):
        got = self.parsed()
        self.assertEqual((got.loop, got.label, got.cpu, got.slot), ("asyncio", "asyncio", None, None))
        self.assertEqual(got.patience_ns, 60 * 10**9)
        self.assertFalse(got.housekeeping.apart)

    def test_jobs(self):
        got = self.parsed("--job", "cart=shop.jobs:fetch_cart", "--job", "b=m:a.b")
        self.assertEqual(got.jobs, {"cart": "shop.jobs:fetch_cart", "b": "m:a.b"})
        for word in ("cart", "cart=", "=m:f", "cart=shop"):
            self.assertIn(word, self.refused("--connect", "ipc:///x", "--job", word))
        self.assertIn("twice", self.refused("--connect", "ipc:///x", "--job", "a=m:f", "--job", "a=m:g"))

    def test_mistakes(self):
        self.assertIn("--connect", self.refused())
        self.assertIn("--loop", self.refused("--connect", "ipc:///x", "--loop", "trio"))
        self.assertIn("--path", self.refused("--connect", "ipc:///x", "--path", "/does/not/exist"))
        self.assertIn("--slot", self.refused("--connect", "ipc:///x", "--slot", "x"))
        self.assertIn("--patience", self.refused("--connect", "ipc:///x", "--patience", "5"))
        self.assertIn("--con", self.refused("--con", "ipc:///x"))

    def test_housekeeping(self):
        allowed = frozenset({0, 1, 2, 3})
        choose = options.choose_housekeeping
        self.assertEqual(choose("auto", 1, allowed), options.Housekeeping(frozenset({0, 2, 3}), False))
        self.assertEqual(choose("auto", 0, frozenset({0})), options.Housekeeping(frozenset({0}), False))
        self.assertEqual(choose("none", 1, allowed), options.Housekeeping(frozenset({1}), False))
        self.assertEqual(choose("0,2-3", 1, allowed), options.Housekeeping(frozenset({0, 2, 3}), True))
        self.assertEqual(choose("0-1", 1, allowed), options.Housekeeping(frozenset({0, 1}), False))

    def test_cpu_lists(self):
        self.assertEqual(parse_cpu_list("0,2-5"), {0, 2, 3, 4, 5})
        for text in ("", "0,,1", "3-1", "-1", "1-", "a", "0 ,1", "1-2-3"):
            with self.assertRaises(ValueError, msg=text):
                parse_cpu_list(text)

    def test_a_cpu_that_is_not_there(self):
        cpu = max(os.sched_getaffinity(0))
        self.assertEqual(self.parsed("--cpu", str(cpu)).cpu, cpu)
        self.assertIn("does not exist", self.refused("--connect", "ipc:///x", "--cpu", "99999"))

    def test_eager_needs_a_newer_python(self):
        refuse_eager_before((3, 12, 0))
        with self.assertRaisesRegex(UnusableLoop, r"3\.12 or later.*3\.11\.9"):
            refuse_eager_before((3, 11, 9))


if __name__ == "__main__":
    unittest.main()
