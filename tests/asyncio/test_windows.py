#!/usr/bin/python3
"""Windows in virtual time: when they open and close, what is counted in them, and schedules of open loops."""
import asyncio
import math
import random
import re
import unittest

import paths
from corefan_worker import measure
from corefan_worker.arms import ARMS
from corefan_worker.arrivals import MOST_STARTS, chance_of_arrivals, schedule
from corefan_worker.cells import Cell
from corefan_worker.closed_loop import stagger_ns
from corefan_worker.histogram import begin_of, index_of
from corefan_worker.open_loop import OpenLoop
from corefan_worker.window import fan_out_bytes, refuse_window, room_for
from virtual import START_NS, World

MS = 1_000_000
SPEC = (paths.ROOT / "proto" / "SPEC.md").read_text(encoding="utf-8")


def latencies(histogram):
    """Begin of bucket -> count."""
    pairs = zip(histogram["counts"][::2], histogram["counts"][1::2])
    return {begin_of(index): count for index, count in pairs}


def bucket(value):
    return begin_of(index_of(value))


def quantile(histogram, fraction):
    values = [begin for begin, count in latencies(histogram).items() for _ in range(count)]
    return values[max(1, math.ceil(fraction * len(values))) - 1]


class Case(unittest.TestCase):
    def setUp(self):
        self.world = World()
        self.addCleanup(self.world.loop.close)

    def measure(self, own=None, **keys):
        window = self.world.window(own, **keys)
        values = self.world.run(window.round(chance_of_arrivals(42, 7, 3)))
        self.assertEqual(asyncio.all_tasks(self.world.loop), set())
        return values

    def own(self, call, **keys):
        """A window of one-child fan-outs of an own coroutine."""
        return self.measure({"mine": call}, job="mine", fanout=1, arm=keys.pop("arm", "sequential"), **keys)


class ClosedLoop(Case):
    def test_one_client(self):
        for arm, took in {"gather": 10 * MS, "sequential": 20 * MS, "tasks": 10 * MS, "taskgroup": 10 * MS}.items():
            with self.subTest(arm):
                if arm not in ARMS:
                    continue
                values = self.measure(arm=arm, duration_ns=100 * MS)
                self.assertIsNone(values["error"])
                self.assertEqual(values["wall_ns"], 100 * MS)
                self.assertEqual(values["start_ns"] - values["launch_ns"], took)  # after the first fan-out
                self.assertEqual(values["fanouts"], 100 * MS // took)
                self.assertEqual(values["children"], 2 * values["fanouts"])
                self.assertEqual(latencies(values["latency"]), {bucket(took): values["fanouts"]})
                self.assertEqual((values["overshoot_min_ns"], values["overshoot_max_ns"], values["early"]), (0, 0, 0))
                self.assertEqual(values["max_in_flight"], 1 if arm == "sequential" else 2)
                self.assertNotIn("latency_intended", values)

    def test_the_window_is_as_long_as_it_takes(self):
        values = self.measure(duration_ns=95 * MS)
        self.assertEqual((values["wall_ns"], values["fanouts"]), (100 * MS, 10))

    def test_bursts_are_counted_whole(self):
        values = self.measure(clients=7, duration_ns=95 * MS)
        self.assertEqual((values["wall_ns"], values["fanouts"], values["children"]), (100 * MS, 70, 140))

    def test_staggered_clients(self):
        starts = []

        async def mine(index):
            starts.append(self.world.now_ns - START_NS)
            await asyncio.sleep(0.01)

        self.own(mine, clients=4, phase="staggered", delay_ns=10 * MS, duration_ns=20 * MS)
        self.assertEqual(starts[:8], [n * 2_500_000 for n in range(8)])
        starts.clear()
        self.own(mine, clients=4, phase="together", delay_ns=10 * MS, duration_ns=20 * MS)
        self.assertEqual(len(set(starts[:4])), 1)
        self.assertEqual([stagger_ns(Cell(0, "gather", "noop", 2, clients=4, phase="staggered"), n) for n in range(4)],
                         [0, 250_000, 500_000, 750_000])  # of 1 ms where there is no delay

    def test_first_fan_outs_are_not_in_it(self):
        seen = []

        async def slow_at_first(index):
            seen.append(0)
            await asyncio.sleep(0.07 if len(seen) <= 3 else 0.01)

        values = self.own(slow_at_first, clients=3, duration_ns=50 * MS)
        self.assertEqual(values["start_ns"] - values["launch_ns"], 70 * MS)
        self.assertEqual(latencies(values["latency"]), {bucket(10 * MS): 15})

    def test_opens_and_closes_where_the_rule_says(self):
        """The rule of SPEC.md, section 5.5, over the ends as the children saw them."""
        chance = random.Random(11)
        for clients in (1, 2, 5, 16):
            ends = []

            async def mine(index):
                await asyncio.sleep(chance.randrange(1, 40) / 1000)
                ends.append(self.world.now_ns)

            values = self.own(mine, clients=clients, duration_ns=300 * MS)
            opened = ends[clients - 1]
            inside = ends[clients:]
            last = next(n for n, end in enumerate(inside, 1) if end >= opened + 300 * MS and n % clients == 0)
            self.assertEqual((values["start_ns"], values["fanouts"]), (opened, last))
            self.assertEqual(values["start_ns"] + values["wall_ns"], inside[last - 1])
            self.assertEqual(sum(latencies(values["latency"]).values()), last)
            self.assertEqual(values["children"], last)

    def test_fan_outs_that_never_return_do_not_hold_it_open(self):
        seen = []

        async def hangs(index):
            seen.append(0)
            if len(seen) > 3:
                await self.world.loop.create_future()
            await asyncio.sleep(0.01)

        values = self.own(hangs, clients=3, duration_ns=40 * MS)
        self.assertEqual((values["fanouts"], values["wall_ns"]), (0, 60 * MS + 10 * bucket(10 * MS)))

    def test_what_is_under_way_is_cancelled(self):
        ended = []

        async def mine(index):
            try:
                await asyncio.sleep(0.01)
                ended.append("well")
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        values = self.own(mine, clients=3, phase="staggered", delay_ns=10 * MS, duration_ns=40 * MS)
        self.assertEqual(ended, ["well"] * (3 + values["fanouts"]) + ["cancelled"] * 2)  # one closed it

    def test_cpu_is_that_of_the_window(self):
        async def burns(index):
            self.world.burn(3 * MS)
            await asyncio.sleep(0.007)

        values = self.own(burns, duration_ns=100 * MS)
        self.assertEqual((values["cpu_ns"], values["wall_ns"], values["fanouts"]), (30 * MS, 100 * MS, 10))

    def test_clients_that_never_suspend_take_turns(self):
        turns = []

        async def burns(index):
            task = asyncio.current_task()
            if not turns or turns[-1] is not task:
                turns.append(task)
            self.world.burn(100_000)

        values = self.own(burns, clients=4, duration_ns=100 * MS)
        self.assertEqual(len(set(turns)), 4)
        self.assertGreater(len(turns), 40)
        self.assertEqual((values["wall_ns"], values["cpu_ns"], values["fanouts"]), (100 * MS, 100 * MS, 1000))

    def test_clients_that_suspend_are_left_alone(self):
        """Bursts that take longer than the turn of a loop lasts: all start again where they ended."""
        starts, ends = [], []

        async def mine(index):
            starts.append(self.world.now_ns)
            self.world.burn(700_000)
            await asyncio.sleep(0.003)
            ends.append(self.world.now_ns)

        self.own(mine, clients=8, duration_ns=100 * MS)
        self.assertEqual(starts[8:len(ends)], ends[:len(ends) - 8])

    def test_errors_of_own_coroutines_are_counted(self):
        seen = []

        async def fails(index):
            await asyncio.sleep(0.01)
            seen.append(0)
            if len(seen) % 2:
                raise ValueError("out of stock")

        for arm in set(ARMS) - {"empty"}:
            with self.subTest(arm):
                seen.clear()
                values = self.own(fails, arm=arm, duration_ns=100 * MS)
                self.assertIsNone(values["error"])
                self.assertEqual((values["fanouts"], values["errors_seen"], values["errors_lost"]), (10, 5, 0))

    def test_an_own_coroutine_that_cancels_itself_goes_on(self):
        async def cancels(index):
            await asyncio.sleep(0.01)
            raise asyncio.CancelledError

        self.assertEqual(self.own(cancels, duration_ns=50 * MS)["fanouts"], 5)

    def test_empty_is_cut_short(self):
        ticks = []

        def tick():
            ticks.append(0)
            self.world.burn(1000)
            return self.world.now_ns

        self.world.wall = tick
        values = self.measure(arm="empty", duration_ns=3600 * 10**9)
        self.assertGreaterEqual(values["wall_ns"], 100 * MS)
        self.assertLess(values["wall_ns"], 101 * MS)
        self.assertEqual((values["max_in_flight"], values["children"]), (0, 0))


class OpenLoops(Case):
    def test_fixed_starts(self):
        values = self.measure(rate_per_s=1000, arrivals="fixed", duration_ns=100 * MS)
        self.assertIsNone(values["error"])
        self.assertEqual((values["start_ns"], values["launch_ns"], values["wall_ns"]), (START_NS, START_NS, 100 * MS))
        self.assertEqual((values["offered"], values["skipped"], values["unfinished"]), (100, 0, 0))
        self.assertIn(values["fanouts"], (90, 91))  # one ends as the window does
        self.assertEqual(latencies(values["latency"]), {bucket(10 * MS): 100})  # those that ended afterwards as well
        self.assertEqual(latencies(values["latency_intended"]), {bucket(10 * MS): 100})
        self.assertEqual((values["lag_p50_ns"], values["lag_max_ns"]), (0, 0))

    def test_poisson_starts_are_those_of_the_specification(self):
        starts = []

        async def mine(index):
            starts.append(self.world.now_ns - START_NS)

        values = self.own(mine, rate_per_s=1000, duration_ns=100 * MS)
        text = re.search(r"the first starts are at ([\d, and]+) ns", SPEC)[1]
        self.assertEqual(starts[:5], [int(word) for word in re.findall(r"\d+", text)])
        self.assertEqual(values["offered"], len(starts))

    def test_arrivals_by_a_second_implementation(self):
        mask = 2**64 - 1

        def outputs(state):
            while True:
                state = (state + 0x9E3779B97F4A7C15) & mask
                z = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & mask
                z = (z ^ (z >> 27)) * 0x94D049BB133111EB & mask
                yield z ^ (z >> 31)

        for seed, number, block, rate in ((42, 7, 3, 1000), (2**64 - 1, 0, 99999, 0.5), (1, 1023, 0, 123456.75)):
            stream = (number + 1) * 2**32 + block + 2**62
            draws = outputs(next(outputs(seed ^ (stream * 0x9E3779B97F4A7C15 & mask))))
            expected, at = [], 0
            while len(expected) < 200:
                at += math.floor(-math.log(1 - (next(draws) >> 11) * 2.0**-53) * 1e9 / rate + 0.5)
                expected.append(at)
            cell = Cell(number, "gather", "sleep", 1, rate_per_s=rate, duration_ns=expected[-1])
            self.assertEqual(list(schedule(cell, expected[-1], chance_of_arrivals(seed, number, block))), expected[:-1])

    def test_fixed_schedule(self):
        cell = Cell(0, "gather", "sleep", 1, rate_per_s=3, arrivals="fixed", duration_ns=10**9)
        self.assertEqual(list(schedule(cell, 10**9, None)), [0, 333_333_333, 666_666_666])

    def freeze(self, frozen_ns):
        if frozen_ns:
            self.world.at(200 * MS, lambda: self.world.burn(frozen_ns))
        return self.measure(rate_per_s=1000, arrivals="fixed", delay_ns=MS, duration_ns=500 * MS)

    def test_a_frozen_loop_is_seen_from_the_intended_start_alone(self):
        values = self.freeze(50 * MS)
        self.assertEqual((values["offered"], sum(latencies(values["latency"]).values())), (500, 500))
        self.assertEqual(quantile(values["latency"], 0.99), bucket(MS))
        self.assertGreaterEqual(quantile(values["latency_intended"], 0.99), 40 * MS)
        self.assertGreaterEqual(values["lag_max_ns"], bucket(49 * MS))
        self.assertEqual(values["lag_p50_ns"], 0)

    def test_without_a_freeze_both_agree(self):
        values = self.freeze(0)
        self.assertEqual(values["latency"], values["latency_intended"])

    def test_starts_that_a_freeze_held_past_the_end_are_made(self):
        self.world.at(80 * MS, lambda: self.world.burn(40 * MS))
        values = self.measure(rate_per_s=1000, arrivals="fixed", delay_ns=MS, duration_ns=100 * MS)
        self.assertEqual((values["wall_ns"], values["offered"], values["skipped"]), (120 * MS, 100, 0))
        self.assertEqual(sum(latencies(values["latency_intended"]).values()), 100)

    def test_a_full_backlog_skips(self):
        window = self.world.window(rate_per_s=1000, arrivals="fixed", duration_ns=100 * MS)
        build = OpenLoop.__init__
        self.addCleanup(setattr, OpenLoop, "__init__", build)
        OpenLoop.__init__ = lambda *words: build(*words[:-1], 3)
        values = self.world.run(window.round(None))
        self.assertEqual(values["offered"], 100)
        self.assertGreaterEqual(values["skipped"], 65)
        self.assertEqual(values["offered"] - values["skipped"], sum(latencies(values["latency"]).values()))

    def test_what_does_not_end_in_a_second_is_unfinished(self):
        values = self.measure(rate_per_s=100, arrivals="fixed", delay_ns=1045 * MS, duration_ns=100 * MS)
        self.assertEqual((values["offered"], values["fanouts"]), (10, 0))
        self.assertEqual(values["unfinished"], 4)  # those from 60 ms on
        self.assertEqual(sum(latencies(values["latency"]).values()), 6)

    def test_the_first_fan_out_is_the_proof_whenever_it_ends(self):
        values = self.measure(rate_per_s=100, arrivals="fixed", delay_ns=500 * MS, duration_ns=100 * MS)
        self.assertEqual((values["fanouts"], values["max_in_flight"], values["error"]), (0, 2, None))
        values = self.measure(rate_per_s=100, arrivals="fixed", delay_ns=5000 * MS, duration_ns=100 * MS)
        self.assertEqual((values["unfinished"], values["max_in_flight"], values["error"]), (10, None, None))

    def test_nothing_offered(self):
        values = self.measure(rate_per_s=0.001, duration_ns=100 * MS)
        self.assertEqual((values["offered"], values["fanouts"], values["wall_ns"]), (0, 0, 100 * MS))
        self.assertEqual([values[name] for name in ("lag_max_ns", "max_in_flight", "error")], [None] * 3)


class Proof(Case):
    def test_a_concurrent_arm_that_is_secretly_serial(self):
        self.addCleanup(ARMS.__setitem__, "gather", ARMS["gather"])
        ARMS["gather"] = ARMS["sequential"]
        self.assertIn("gather had 1 of 2", self.measure(duration_ns=50 * MS, clients=3)["error"])

    def test_children_that_do_not_wait(self):
        window = self.world.window(duration_ns=50 * MS, clients=3)
        waits = window._job.child

        async def lazy(index):
            return await waits(index) if index else 0

        window._job.child = lazy
        self.assertIn("children waited", self.world.run(window.round(None))["error"])

    def test_waits_that_are_too_short(self):
        window = self.world.window(duration_ns=50 * MS)
        shorter = self.world.window(duration_ns=50 * MS, delay_ns=9 * MS)
        window._job.child, window._job.waits = shorter._job.child, shorter._job.waits
        self.assertIn("took less than", self.world.run(window.round(None))["error"])

    def test_children_that_cannot_be_ended(self):
        self.addCleanup(setattr, measure, "DRAIN_LIMIT_S", measure.DRAIN_LIMIT_S)
        measure.DRAIN_LIMIT_S = 0.0

        async def stays(index):
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                await asyncio.sleep(5)

        window = self.world.window({"mine": stays}, job="mine", fanout=1, clients=2, phase="staggered", duration_ns=50 * MS)
        self.assertIn("had been cancelled", self.world.run(window.round(None))["error"])


class Refusals(unittest.TestCase):
    def refuse(self, available=2**34, **keys):
        return refuse_window(Cell(**{**dict(cell=0, arm="gather", job="sleep", fanout=40, duration_ns=10**9), **keys}), available)

    def test_what_can_be_run(self):
        self.assertIsNone(self.refuse(clients=1024))
        self.assertIsNone(self.refuse(rate_per_s=50_000.0))
        self.assertIsNone(self.refuse(arm="sequential", clients=65_536))

    def test_what_cannot(self):
        for keys, part in (
            (dict(duration_ns=0, clients=2), "need a duration_ns"),
            (dict(clients=2, rate_per_s=1.0), "exclude each other"),
            (dict(timeout_ns=1), "timeout"),
            (dict(clients=65_536, fanout=1000), "GiB"),
            (dict(rate_per_s=1e9), f"at most {MOST_STARTS}"),
        ):
            with self.subTest(part):
                self.assertIn(part, self.refuse(**keys))

    def test_room(self):
        cell = Cell(0, "gather", "sleep", 40, rate_per_s=1.0)
        self.assertEqual(room_for(cell, None), 65_536)
        self.assertEqual(room_for(cell, 2**50), 65_536)
        self.assertEqual(room_for(cell, 20 * fan_out_bytes(cell)), 10)
        self.assertEqual(room_for(cell, 0), 1)


if __name__ == "__main__":
    unittest.main()
