#!/usr/bin/python3
"""worker_protocol.py [WORKER WORDS...] [-- UNITTEST WORDS...]: a worker against proto/SPEC.md, from a coordinator's chair.

The worker is any program that speaks the protocol and takes --connect, --cpu, --slot, --label and --housekeeping;
without words it is corefan-worker of this build.  What a worker may leave out is asked of its --help.
"""
import math
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import unittest

import msgpack
import zmq

from harness import WORKER, EndToEnd, alive

COMMAND = [WORKER]
CPUS = sorted(os.sched_getaffinity(0))
SECOND = 10**9
ARMS = ["sequential", "gather", "gather-return-exceptions", "tasks", "taskgroup", "empty"]
ORDERS_OF_SEED_42 = [[5, 3, 0, 1, 4, 2], [0, 4, 3, 2, 1, 5], [0, 4, 1, 3, 5, 2], [5, 2, 0, 1, 3, 4]]


def early_ns():
    """How much too early a wait may end: uvloop's timers count whole milliseconds of a floored clock (SPEC.md)."""
    return 1_000_000 if "uvloop" in COMMAND else 0


def cell(number, arm, job="sleep", fanout=3, delay_ns=1_000_000, **more):
    return dict(cell=number, arm=arm, job=job, fanout=fanout, delay_ns=0 if job == "noop" else delay_ns, **more)


class Coordinator:
    """A ROUTER on a port of its own, with one worker at the other end."""

    def __init__(self, port=0):
        self.context = zmq.Context()
        self.open(port)
        self.route = None

    def open(self, port):
        self.router = self.context.socket(zmq.ROUTER)
        self.router.linger = 0
        end = time.monotonic() + 10
        while True:
            try:
                self.router.bind(f"tcp://127.0.0.1:{port or '*'}")
                break
            except zmq.ZMQError:  # the port is not free yet after a close
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        self.endpoint = self.router.last_endpoint.decode()
        self.port = int(self.endpoint.rsplit(":", 1)[1])

    def close(self):
        self.router.close()
        self.context.term()

    def lose(self):
        """Every connection breaks; nobody listens until found."""
        self.router.close()

    def found(self):
        self.open(self.port)

    def send_bytes(self, *frames):
        self.router.send_multipart([self.route, *frames])

    def send(self, kind, version=(1, 0), **fields):
        self.send_bytes(msgpack.packb(dict(fields, type=kind, v=list(version))))

    def receive(self, timeout=10.0):
        """The next message as a map, or None."""
        if not self.router.poll(timeout * 1000):
            return None
        frames = self.router.recv_multipart()
        assert len(frames) == 2, f"{len(frames) - 1} frames in one message"
        self.route = frames[0]
        message = msgpack.unpackb(frames[1])
        assert message["v"] == [1, 0], message
        return message

    def expect(self, kind, timeout=10.0, skip=("heartbeat",), **fields):
        """The next message that is none of `skip` is a `kind` with these fields."""
        end = time.monotonic() + timeout
        while True:
            message = self.receive(max(0.0, end - time.monotonic()))
            assert message is not None, f"no {kind} within {timeout} s"
            if message["type"] not in skip:
                break
        assert message["type"] == kind, f"{message} instead of {kind}"
        for key, value in fields.items():
            assert message[key] == value, f"{key} is {message[key]}, not {value}, in {message}"
        return message

    def beat(self, timeout=10.0, **fields):
        """Heartbeats until one has these fields."""
        end = time.monotonic() + timeout
        while True:
            message = self.expect("heartbeat", max(0.0, end - time.monotonic()), skip=())
            if all(message[key] == value for key, value in fields.items()):
                return message

    def welcome(self, run="run-1", heartbeat_ns=SECOND // 5):
        hello = self.expect("hello", timeout=20)
        self.send("welcome", worker=0, run=run, heartbeat_ns=heartbeat_ns)
        return hello

    def assign(self, cells, group=0, attempt=0, blocks=4, lease_ns=60 * SECOND, seed=42):
        self.send("assign", group=group, attempt=attempt, lease_ns=lease_ns, seed=seed, blocks=blocks, gang=1, cells=cells)

    def go(self, group=0, attempt=0, go=0, first_block=0, blocks=4, cell=None, start_at_ns=None):
        self.send("go", group=group, attempt=attempt, go=go, first_block=first_block, blocks=blocks, cell=cell,
                  start_at_ns=start_at_ns)

    def result(self, timeout=30.0, acknowledge=True, **fields):
        """All parts of one go, as one result."""
        parts = [self.expect("result", timeout, part=0, **fields)]
        while not parts[-1]["last"]:
            assert parts[-1]["error"] is None and len(parts[-1]["rounds"]) > 0
            parts.append(self.expect("result", timeout, part=len(parts), **fields))
        assert all(len(part["rounds"]) <= 1024 for part in parts)
        if acknowledge:
            for part in parts:
                self.send("ack", **{key: part[key] for key in ("group", "attempt", "go", "part")})
        return dict(parts[-1], rounds=[one for part in parts for one in part["rounds"]], parts=len(parts))

    def measure(self, cells, blocks=4, **more):
        """A whole slice, from assign to ack."""
        self.assign(cells, blocks=blocks, **more)
        ready = self.expect("ready", timeout=60)
        assert ready["error"] is None, ready["error"]
        self.go(blocks=blocks, **{key: more[key] for key in ("group", "attempt") if key in more})
        result = self.result()
        assert result["error"] is None, result["error"]
        return ready, result


class Protocol(EndToEnd):
    def setUp(self):
        super().setUp()
        self.coordinator = Coordinator()
        self.addCleanup(self.coordinator.close)

    def launch(self, *more, cpu=CPUS[-1], endpoint=None):
        return self.start(*COMMAND, "--connect", endpoint or self.coordinator.endpoint, "--cpu", str(cpu), *more)

    def takes(self, option):
        return option in subprocess.run([*COMMAND, "--help"], capture_output=True, text=True, check=True).stdout

    def registered(self, *more, **fields):
        worker = self.launch(*more)
        self.coordinator.welcome(**fields)
        self.coordinator.beat(state="idle", group=None, attempt=None)
        return worker

    def still_works(self):
        _, result = self.coordinator.measure([cell(0, "gather")], blocks=1, group=77)
        self.assertEqual([one["error"] for one in result["rounds"]], [None])

    def ends(self, worker, code, *parts, timeout=20):
        """It ends by itself, with one line on stderr that holds all parts (or none at all)."""
        finished = self.finish(worker, timeout)
        self.assertEqual(finished.code, code, finished.err)
        lines = finished.err.strip().splitlines()
        for part in parts:
            self.assertIn(part, lines[-1])
        self.assertEqual(finished.out, "")
        return lines


class Registration(Protocol):
    def test_hello_says_who_it_is(self):
        self.launch("--label", "mine", "--slot", "3")
        hello = self.coordinator.expect("hello", timeout=20)
        self.assertRegex(hello["instance"], "^[0-9a-f]{32}$")
        self.assertEqual((hello["label"], hello["slot"], hello["cpu"]), ("mine", 3, CPUS[-1]))
        self.assertEqual(hello["host"], socket.gethostname())
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as boot_id:
            self.assertEqual(hello["boot_id"], boot_id.read().strip())
        self.assertLessEqual(set(ARMS), set(hello["arms"]))
        self.assertLessEqual({"noop", "sleep", "cpu"}, set(hello["jobs"]))
        self.assertGreater(hello["wall_clock_cost_ps"], 0)
        self.assertGreater(hello["cpu_clock_cost_ps"], 0)
        self.assertGreaterEqual(hello["timer_overshoot_max_ns"], hello["timer_overshoot_p50_ns"])
        self.assertGreater(hello["spin_gap_max_ns"], 0)
        self.assertIn("corefan", hello["versions"])
        self.assertIn("kernel", hello["versions"])

    def test_label_is_the_runtime_unless_told(self):
        self.launch()
        hello = self.coordinator.expect("hello", timeout=20)
        self.assertEqual(hello["label"], hello["runtime"])
        self.assertIsNone(hello["slot"])

    def test_a_refused_worker_says_why(self):
        worker = self.launch()
        self.coordinator.expect("hello", timeout=20)
        self.coordinator.send("reject", reason="label 'x' is not\tin the sweep")
        self.ends(worker, 2, "refused", "label 'x' is not?in the sweep")

    def test_versions_that_differ_are_both_named(self):
        worker = self.launch()
        self.coordinator.expect("hello", timeout=20)
        self.coordinator.send("welcome", version=(7, 3), worker=0, run="x", heartbeat_ns=SECOND)
        self.assertEqual(len(self.ends(worker, 2, "7.3", "1.0")), 1)
        self.assertIn("7.3", self.coordinator.expect("reject")["reason"])

    def test_another_minor_and_unknown_keys_are_fine(self):
        self.launch()
        self.coordinator.expect("hello", timeout=20)
        self.coordinator.send("welcome", version=(1, 9), worker=0, run="x", heartbeat_ns=SECOND, colour={"deep": [1]})
        self.coordinator.beat(state="idle")
        self.still_works()

    def test_nothing_is_done_before_welcome(self):
        self.launch()
        self.coordinator.expect("hello", timeout=20)
        self.coordinator.assign([cell(0, "gather")])
        self.coordinator.expect("reject")
        self.coordinator.send("welcome", worker=0, run="x", heartbeat_ns=SECOND)
        self.coordinator.beat(state="idle")

    def test_ipc(self):
        path = f"ipc://{self.scratch}/socket"
        self.coordinator.router.bind(path)
        self.launch(endpoint=path)
        self.coordinator.welcome()
        self.still_works()

    def test_bye_ends_it(self):
        worker = self.registered()
        self.coordinator.send("bye", reason=None)
        self.coordinator.expect("bye")
        self.assertEqual(self.finish(worker, 5).code, 0)


class Measuring(Protocol):
    def test_a_slice_from_assign_to_ack(self):
        self.registered()
        cells = [cell(10 + i, arm, warmup=2) for i, arm in enumerate(ARMS)]
        ready, result = self.coordinator.measure(cells)
        self.assertEqual([one["cell"] for one in ready["cells"]], [10 + i for i in range(6)])
        for one in ready["cells"]:
            self.assertEqual((one["loops"], one["calibration_ns"]), (1, 0))
            self.assertGreaterEqual(one["warmups"], 2)
        places = [(one["block"], one["position"], one["cell"] - 10) for one in result["rounds"]]
        self.assertEqual(places, [(b, p, i) for b in range(4) for p, i in enumerate(ORDERS_OF_SEED_42[b])])
        before = 0
        for one in result["rounds"]:
            self.check_round(one, ARMS[one["cell"] - 10])
            self.assertGreaterEqual(one["start_ns"], before)
            before = one["start_ns"] + one["wall_ns"]

    def check_round(self, one, arm):
        self.assertIsNone(one["error"], one)
        self.assertEqual(one["fanouts"], 1)
        self.assertIsNone(one["intended_start_ns"])
        self.assertGreater(one["cpu_ns"], 0)
        in_flight = {"sequential": 1, "empty": 0}.get(arm, 3)
        self.assertIn(one["max_in_flight"], (in_flight, None))
        self.assertIn(one["cpu_start"], (CPUS[-1], None))
        if arm == "empty":
            self.assertIsNone(one["overshoot_min_ns"])
            return
        self.assertGreaterEqual(one["wall_ns"], (3 if arm == "sequential" else 1) * (1_000_000 - early_ns()))
        self.assertLessEqual(one["early"], 3 if early_ns() else 0)
        self.assertGreaterEqual(one["overshoot_min_ns"], -early_ns())
        self.assertLessEqual(one["overshoot_min_ns"], one["overshoot_p50_ns"])
        self.assertLessEqual(one["overshoot_p50_ns"], one["overshoot_max_ns"])
        if one["wakeups"] is not None and arm == "sequential":
            self.assertGreaterEqual(one["wakeups"] + one["early"], 3)  # an early wait needs no wake-up of its own
        elif one["wakeups"] is not None:
            self.assertLessEqual(one["wakeups"], 3)

    def test_what_is_too_short_is_calibrated(self):
        self.registered()
        cells = [cell(i, arm, job="noop", fanout=2, calibrated=True) for i, arm in enumerate(("gather", "empty"))]
        ready, result = self.coordinator.measure(cells, blocks=2)
        for one in ready["cells"]:
            self.assertGreater(one["loops"], 1)
            self.assertGreater(one["calibration_ns"], 0)
        loops = {one["cell"]: one["loops"] for one in ready["cells"]}
        for one in result["rounds"]:
            self.assertIsNone(one["error"])
            self.assertEqual(one["fanouts"], loops[one["cell"]])

    def test_a_go_for_each_turn(self):
        self.registered()
        self.coordinator.assign([cell(i, arm) for i, arm in enumerate(ARMS)], group=2, attempt=1)
        self.coordinator.expect("ready", timeout=60, group=2, attempt=1, error=None)
        turns = [(b, number) for b in (3, 0) for number in (4, 1)]
        for go, (block, number) in enumerate(turns):
            self.coordinator.go(group=2, attempt=1, go=go, first_block=block, blocks=1, cell=number)
            result = self.coordinator.result(group=2, attempt=1, go=go, error=None)
            self.assertEqual([(one["block"], one["cell"], one["position"]) for one in result["rounds"]],
                             [(block, number, ORDERS_OF_SEED_42[block].index(number))])

    def test_a_start_is_kept(self):
        self.registered()
        self.coordinator.assign([cell(0, "gather")])
        self.coordinator.expect("ready", timeout=60)
        start_ns = time.monotonic_ns() + SECOND // 4
        self.coordinator.go(blocks=2, start_at_ns=start_ns)
        first, second = self.coordinator.result(error=None)["rounds"]
        self.assertEqual(first["intended_start_ns"], start_ns)
        self.assertGreaterEqual(first["start_ns"], start_ns)
        self.assertIsNone(second["intended_start_ns"])
        self.coordinator.go(go=1, blocks=1, start_at_ns=start_ns)  # past by now: at once
        self.assertGreater(self.coordinator.result(error=None)["rounds"][0]["start_ns"], start_ns)
        self.coordinator.go(go=2, blocks=1, start_at_ns=time.monotonic_ns() + 3600 * SECOND)
        far = self.coordinator.result(go=2)
        self.assertEqual(far["rounds"], [])
        self.assertIn("lease", far["error"])

    def test_many_rounds_come_in_parts(self):
        self.registered()
        cells = [cell(i, arm, job="noop", fanout=2) for i, arm in enumerate(("gather", "empty"))]
        _, result = self.coordinator.measure(cells, blocks=1300)
        self.assertEqual((result["parts"], len(result["rounds"])), (3, 2600))
        self.assertEqual([one["block"] for one in result["rounds"]], [i // 2 for i in range(2600)])

    def test_a_slice_that_cannot_be_run_says_why(self):
        self.registered()
        self.coordinator.assign([cell(5, "juggle")])
        ready = self.coordinator.expect("ready", timeout=60)
        self.assertIn("juggle", ready["error"])
        self.coordinator.beat(state="idle")
        self.coordinator.assign([cell(6, "gather", job="dig")])
        self.assertIn("dig", self.coordinator.expect("ready", timeout=60)["error"])
        self.still_works()

    def test_a_go_for_nothing_that_it_has_is_answered(self):
        self.registered()
        self.coordinator.go(group=9)
        self.assertTrue(self.coordinator.result(group=9, rounds=[])["error"])
        self.coordinator.assign([cell(0, "gather")], group=1)
        self.coordinator.expect("ready", timeout=60)
        for go, wrong in enumerate((dict(attempt=1), dict(cell=8), dict(first_block=3, blocks=2), dict(group=3))):
            self.coordinator.go(**dict(dict(group=1, go=go), **wrong))
            self.assertTrue(self.coordinator.result(rounds=[], go=go)["error"], wrong)
        self.coordinator.go(group=1, go=9)
        self.assertEqual(len(self.coordinator.result(group=1, go=9, error=None)["rounds"]), 4)

    def test_a_new_slice_replaces_the_old_one(self):
        self.registered()
        self.coordinator.assign([cell(0, "sequential", fanout=20, delay_ns=50_000_000, warmup=50)], group=1)
        self.coordinator.assign([cell(0, "gather")], group=2)
        self.coordinator.expect("ready", timeout=60, group=2)
        self.coordinator.go(group=1)
        self.assertTrue(self.coordinator.result(group=1, rounds=[])["error"])
        self.coordinator.go(group=2)
        self.assertEqual(len(self.coordinator.result(group=2, error=None)["rounds"]), 4)


class Failures(Protocol):
    def failing(self, arm, **fail):
        return cell(0, arm, fanout=4, delay_ns=20_000_000,
                    fail=dict(dict(children=1, at_ns=2_000_000, outcome="fail", on_cancel="propagate"), **fail))

    def round_of(self, slice_cell):
        _, result = self.coordinator.measure([slice_cell], blocks=1)
        self.assertIsNone(result["rounds"][0]["error"])
        return result["rounds"][0]

    def test_policies_differ_in_what_is_left(self):
        self.registered()
        gather = self.round_of(self.failing("gather"))
        group = self.round_of(self.failing("taskgroup"))
        self.assertEqual((gather["orphans"], gather["errors_seen"], gather["errors_lost"]), (3, 1, 0))
        self.assertEqual((group["orphans"], group["errors_seen"], group["errors_lost"]), (0, 1, 0))
        for one in (gather, group):
            self.assertGreaterEqual(one["time_to_error_ns"], 2_000_000)
            self.assertLess(one["time_to_error_ns"], 20_000_000)
        self.assertGreater(gather["drain_ns"], group["drain_ns"])
        self.assertGreater(gather["wasted_cpu_ns"], 0)

    def test_a_timeout_is_an_error(self):
        self.registered()
        one = self.round_of(cell(0, "gather", fanout=4, delay_ns=50_000_000, timeout_ns=5_000_000))
        self.assertGreaterEqual(one["time_to_error_ns"], 5_000_000 - early_ns())
        self.assertLess(one["wall_ns"], 50_000_000)


class Windows(Protocol):
    """SPEC.md 5.5: many fan-outs as one round."""
    LENGTH = SECOND // 4

    def windows(self, cells, blocks=2, timeout=60):
        self.registered()
        return self.coordinator.measure(cells, blocks=blocks)[1]["rounds"]

    def check(self, one, clients, fanout, delay_ns, sequential=False):
        self.assertIsNone(one["error"])
        self.assertGreaterEqual(one["wall_ns"], self.LENGTH)
        self.assertLess(one["launch_ns"], one["start_ns"])
        self.assertGreater(one["fanouts"], 0)
        self.assertEqual(one["fanouts"] % clients, 0)
        latency = one["latency"]
        self.assertEqual((latency["significant_digits"], latency["lowest_ns"]), (3, 1))
        indexes, counts = latency["counts"][::2], latency["counts"][1::2]
        self.assertEqual(sum(counts) + latency["overflow"], one["fanouts"])
        shortest = delay_ns * (fanout if sequential else 1) - early_ns()
        self.assertGreaterEqual(bucket_end(indexes[0]), shortest)
        self.assertEqual(one["max_in_flight"], 1 if sequential else fanout)
        self.assertGreaterEqual(one["children"], (one["fanouts"] - clients) * fanout)
        for name in ("offered", "skipped", "unfinished", "lag_p50_ns", "latency_intended"):
            self.assertIsNone(one[name])

    def test_closed_loop(self):
        for phase in ("together", "staggered"):
            cells = [cell(i, arm, fanout=3, delay_ns=5_000_000, clients=4, phase=phase, duration_ns=self.LENGTH)
                     for i, arm in enumerate(ARMS)]
            with self.subTest(phase=phase):
                self.registered() if phase == "together" else None
                rounds = self.coordinator.measure(cells, blocks=2, group=int(phase == "staggered"))[1]["rounds"]
                self.assertEqual(len(rounds), 2 * len(cells))
                for one in rounds:
                    if ARMS[one["cell"]] != "empty":
                        self.check(one, 4, 3, 5_000_000, ARMS[one["cell"]] == "sequential")

    def test_many_clients_share_wakeups_and_finish_together(self):
        cells = [cell(0, "gather", fanout=2, delay_ns=10_000_000, clients=64, duration_ns=self.LENGTH)]
        for one in self.windows(cells):
            self.check(one, 64, 2, 10_000_000)
            self.assertGreaterEqual(one["fanouts"], 64 * 2)
            if one["wakeups"] is not None:
                self.assertLess(one["wakeups"], one["fanouts"] * 2)

    def test_a_job_that_never_waits(self):
        cells = [cell(i, arm, "noop", fanout=2, clients=3, duration_ns=self.LENGTH)
                 for i, arm in enumerate(("sequential", "gather"))]
        for one in self.windows(cells):
            self.assertIsNone(one["error"])
            self.assertGreater(one["fanouts"], 1000)

    def test_open_loop(self):
        cells = [cell(0, "gather", fanout=2, delay_ns=2_000_000, rate_per_s=400, arrivals=arrivals, duration_ns=self.LENGTH)
                 for arrivals in ("fixed", "poisson")]
        cells[1]["cell"] = 7
        for one in self.windows(cells, blocks=4):
            self.assertIsNone(one["error"])
            offered = 100 if one["cell"] == 0 else poisson_offered(42, 7, one["block"], 400, self.LENGTH)
            self.assertEqual((one["offered"], one["skipped"], one["unfinished"]), (offered, 0, 0))
            self.assertAlmostEqual(one["wall_ns"], self.LENGTH, delta=self.LENGTH // 2)
            for name in ("latency", "latency_intended"):
                self.assertEqual(sum(one[name]["counts"][1::2]), offered)
            self.assertLessEqual(one["lag_p50_ns"], one["lag_max_ns"])
            self.assertLessEqual(one["fanouts"], offered)
            self.assertGreater(one["fanouts"], offered // 2)

    def test_what_is_no_window_is_refused(self):
        self.registered()
        for number, wrong in enumerate((dict(clients=2), dict(rate_per_s=10), dict(clients=2, rate_per_s=10, duration_ns=SECOND),
                                        dict(clients=2, duration_ns=SECOND, timeout_ns=SECOND))):
            self.coordinator.assign([cell(0, "gather", **wrong)], group=number)
            self.assertTrue(self.coordinator.expect("ready", group=number)["error"])
        self.still_works()


def bucket_end(index):
    """First value above a bucket, with three digits and ns."""
    octave = max(0, (index >> 10) - 1)
    return (index - (octave << 10) + 1) << octave if octave else index + 1


def poisson_offered(seed, number, block, rate, length):
    """How many starts SPEC.md 6.4 intends."""
    mask, at, count = 2**64 - 1, 0, 0

    def step(state):
        state = (state + 0x9E3779B97F4A7C15) & mask
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
        return state, mixed ^ (mixed >> 31)

    state = step(seed ^ (((number + 1) * 2**32 + block + 2**62) * 0x9E3779B97F4A7C15 & mask))[1]
    while True:
        state, drawn = step(state)
        at += math.floor(-math.log(1 - (drawn >> 11) * 2.0**-53) * 1e9 / rate + 0.5)
        if at >= length:
            return count
        count += 1


class Interruptions(Protocol):
    SLOW = dict(fanout=20, delay_ns=50_000_000)  # a second a round

    def test_abort_while_measuring(self):
        self.registered("--housekeeping", "none")
        self.coordinator.assign([cell(0, "gather", delay_ns=50_000_000)], blocks=1000)
        self.coordinator.expect("ready", timeout=60)
        self.coordinator.go(blocks=1000)
        time.sleep(0.3)
        self.coordinator.send("abort", group=0, attempt=0, reason="another member was lost")
        self.coordinator.beat(state="idle", timeout=5)
        self.assertIsNone(self.next_but_beats(1.0))
        self.still_works()

    def test_abort_that_keeps_what_was_measured(self):
        self.registered("--housekeeping", "none")
        self.coordinator.assign([cell(0, "gather", delay_ns=50_000_000)], blocks=1000)
        self.coordinator.expect("ready", timeout=60)
        self.coordinator.go(blocks=1000)
        time.sleep(0.5)
        self.coordinator.send("abort", group=0, attempt=0, reason="interrupted", keep=True)
        part = self.next_but_beats(5)
        self.assertEqual((part["type"], part["go"], part["part"], part["last"]), ("result", 0, 0, True))
        self.assertIn("interrupted", part["error"])
        self.assertEqual([one["block"] for one in part["rounds"]], list(range(len(part["rounds"]))))
        self.assertGreater(len(part["rounds"]), 2)
        self.assertLess(len(part["rounds"]), 100)
        self.assertTrue(all(one["error"] is None and one["wall_ns"] >= 50_000_000 for one in part["rounds"]))
        self.coordinator.beat(state="idle", timeout=5)
        self.coordinator.send("ack", group=0, attempt=0, go=0, part=0)
        self.still_works()

    def test_abort_that_keeps_drops_what_only_prepares(self):
        self.registered()
        self.coordinator.assign([cell(0, "sequential", warmup=100, **self.SLOW)])
        time.sleep(0.2)
        self.coordinator.send("abort", group=0, attempt=0, reason="interrupted", keep=True)
        self.coordinator.beat(state="idle", timeout=5)
        self.still_works()

    def next_but_beats(self, timeout):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            message = self.coordinator.receive(max(0.0, end - time.monotonic()))
            if message and message["type"] != "heartbeat":
                return message
        return None

    def test_abort_while_preparing(self):
        self.registered()
        self.coordinator.assign([cell(0, "sequential", warmup=100, **self.SLOW)])
        time.sleep(0.2)
        self.coordinator.send("abort", group=0, attempt=1, reason="not this one")
        self.coordinator.send("abort", group=0, attempt=0, reason="void")
        self.coordinator.beat(state="idle", timeout=5)
        self.still_works()

    def stopped_by(self, number, codes):
        worker = self.registered()
        self.coordinator.assign([cell(0, "sequential", fanout=100, delay_ns=50_000_000, warmup=9)])
        time.sleep(0.3)  # it is in the middle of a round of five seconds
        start = time.monotonic()
        worker.send_signal(number)
        self.assertIn(worker.wait(5), codes)
        self.assertLess(time.monotonic() - start, 1.0)
        self.coordinator.expect("bye")

    def test_sigterm(self):
        self.stopped_by(signal.SIGTERM, (0,))

    def test_sigint(self):
        self.stopped_by(signal.SIGINT, (130,))

    def test_a_launched_worker_dies_with_its_launcher(self):
        words = shlex.join([*COMMAND, "--connect", self.coordinator.endpoint, "--cpu", str(CPUS[-1]), "--slot", "0"])
        launcher = self.start("sh", "-c", f"{words} & wait")
        pid = self.coordinator.welcome()["pid"]
        self.assertTrue(alive(pid))
        os.kill(launcher.pid, signal.SIGKILL)
        self.wait_for(lambda: not alive(pid), "the worker's end", timeout=2)


class Heartbeats(Protocol):
    def test_idle_beats_come_on_time(self):
        self.registered(heartbeat_ns=SECOND // 10)
        start = time.monotonic()
        for _ in range(10):
            self.coordinator.beat(state="idle", timeout=3, rounds_done=0)
        self.assertGreater(time.monotonic() - start, 0.5)

    def beats_while(self, *options):
        """Measures for about three seconds in short rounds; the states that beats named meanwhile."""
        self.launch(*options)
        hello = self.coordinator.welcome(heartbeat_ns=SECOND // 10)
        self.coordinator.assign([cell(0, "gather", delay_ns=20_000_000)], blocks=150)
        self.coordinator.expect("ready", timeout=60)
        self.coordinator.go(blocks=150)
        seen = []
        while True:
            message = self.coordinator.receive(10)
            if message["type"] == "result":
                return hello, seen
            seen.append((message["state"], message["group"], message["rounds_done"]))

    def check(self, seen):
        measuring = [rounds for state, group, rounds in seen if (state, group) == ("measuring", 0)]
        self.assertGreater(len(measuring), 3)
        self.assertEqual(measuring, sorted(measuring))
        self.assertGreater(measuring[-1], measuring[0])

    def test_between_rounds_where_the_cpu_is_shared(self):
        hello, seen = self.beats_while("--housekeeping", "none")
        self.assertFalse(hello["busy_heartbeats"])
        if self.takes("between rounds"):
            self.check(seen)

    @unittest.skipIf(len(CPUS) < 2, "needs a CPU apart from the measured one")
    def test_all_along_with_a_cpu_of_its_own(self):
        hello, seen = self.beats_while("--housekeeping", str(CPUS[0]))
        self.assertTrue(hello["busy_heartbeats"])
        self.check(seen)


class Reconnections(Protocol):
    def test_results_are_sent_until_they_are_acknowledged(self):
        self.launch()
        instance = self.coordinator.welcome()["instance"]
        self.coordinator.assign([cell(0, "gather", delay_ns=30_000_000)], blocks=20)
        self.coordinator.expect("ready", timeout=60)
        self.coordinator.go(blocks=20)
        time.sleep(0.2)  # it must have come
        self.coordinator.lose()
        time.sleep(1)  # the go is done meanwhile
        for _ in range(2):  # lost once more before the ack
            self.coordinator.found()
            self.assertEqual(self.coordinator.welcome()["instance"], instance)
            result = self.coordinator.result(acknowledge=False)
            self.assertEqual(len(result["rounds"]), 20)
            self.coordinator.lose()
            time.sleep(0.2)
        self.coordinator.found()
        self.coordinator.welcome()
        self.coordinator.result(acknowledge=True)
        for _ in range(2):  # the second one was sent after the ack had come
            self.coordinator.beat(state="ready", group=0)
        self.coordinator.lose()
        self.coordinator.found()
        self.coordinator.welcome()
        for _ in range(5):
            self.assertNotEqual(self.coordinator.receive(3)["type"], "result")

    def test_another_run_knows_nothing_of_the_last_one(self):
        self.registered()
        self.coordinator.assign([cell(0, "gather")])
        self.coordinator.expect("ready", timeout=60)
        self.coordinator.go()
        self.coordinator.result(acknowledge=False)
        self.coordinator.lose()
        self.coordinator.found()
        self.coordinator.welcome(run="run-2")
        self.coordinator.beat(state="idle", group=None)
        self.still_works()

    def test_it_does_not_wait_for_ever(self):
        if not self.takes("--patience"):
            self.skipTest("has no --patience")
        worker = self.registered("--patience", "700ms")
        self.coordinator.lose()
        self.ends(worker, 1, "lost the coordinator", self.coordinator.endpoint, timeout=5)

    def test_nobody_there(self):
        if not self.takes("--patience"):
            self.skipTest("has no --patience")
        self.coordinator.lose()
        worker = self.launch("--patience", "300ms")
        self.assertEqual(len(self.ends(worker, 1, "in vain", self.coordinator.endpoint, timeout=5)), 1)


class BadFrames(Protocol):
    FRAMES = [
        (b"", None), (b"\xc1", None), (b"\xdd\xff\xff\xff\xff", None), (b"\xdf\xff\xff\xff\xff", None),
        (b"hello", None), (b"\x81" * 100, None), (bytes(2_000_000), None),
        (msgpack.packb({"type": "go", "v": [1, 0]})[:-1], None),
        (msgpack.packb({"type": "dance", "v": [1, 0]}), "dance"),
        (msgpack.packb({"type": "go", "v": [1, 0]}), "group"),
        (msgpack.packb({"type": "go"}), "'v'"),
        (msgpack.packb({"type": 5, "v": [1, 0]}), "type"),
        (msgpack.packb({"type": "ack", "v": [1, 0], "group": "x", "attempt": 0, "go": 0, "part": 0}), "group"),
        (msgpack.packb({"type": "assign", "v": [1, 0], "group": 0, "attempt": 0, "lease_ns": 1, "seed": 1, "blocks": 1,
                        "gang": 1, "cells": []}), "cells"),
        (msgpack.packb({"type": "bye", "v": [2, 0], "reason": None}), "2.0"),
        (msgpack.packb({"type": "hello", "v": [1, 0]}), "hello"),
    ]

    def test_each_is_refused_and_changes_nothing(self):
        worker = self.registered()
        for frame, part in self.FRAMES:
            self.coordinator.send_bytes(frame)
            reject = self.coordinator.expect("reject")
            self.assertTrue(reject["reason"])
            if part:
                self.assertIn(part, reject["reason"])
        self.coordinator.send_bytes(b"one", b"two")
        self.coordinator.expect("reject")
        self.coordinator.send("heartbeat", group=None, attempt=None, rounds_done=0, state="idle")
        self.coordinator.expect("reject")
        self.still_works()
        self.coordinator.send("bye", reason=None)
        finished = self.finish(worker, 5)
        self.assertEqual(finished.code, 0)
        refusals = [line for line in finished.err.splitlines() if "refused" in line]
        self.assertLessEqual(len(refusals), 2, finished.err)  # the first one, and how many in all

    def test_a_reject_is_never_answered(self):
        self.registered()
        self.coordinator.send("reject", reason="no idea")
        self.coordinator.send_bytes(msgpack.packb({"type": "reject", "v": [1, 0]}))
        for _ in range(3):
            self.coordinator.beat(state="idle", timeout=3)

    def test_an_oversized_frame_is_one_of_them(self):
        self.registered()
        self.coordinator.send_bytes(bytes(8 << 20))
        self.coordinator.expect("reject")
        self.still_works()


class CommandLine(EndToEnd):
    def refused(self, *words, parts):
        finished = self.finish(self.start(*COMMAND, *words), 20)
        self.assert_one_line(finished, 2, *parts)

    def test_endpoints(self):
        for endpoint in ("", "tcp://", "tcp://127.0.0.1", "tcp://127.0.0.1:x", "udp://127.0.0.1:1", "ipc://", "nonsense"):
            self.refused("--connect", endpoint, parts=[endpoint])

    def test_beyond_loopback(self):
        for endpoint in ("tcp://10.1.2.3:5555", "tcp://example.org:5555", "tcp://[2001:db8::1]:5555"):
            self.refused("--connect", endpoint, parts=[endpoint, "loopback"])

    def test_cpus(self):
        self.refused("--connect", "tcp://127.0.0.1:9", "--cpu", "100000", parts=["100000"])
        self.refused("--connect", "tcp://127.0.0.1:9", "--cpu", "-1", parts=["-1"])
        self.refused("--connect", "tcp://127.0.0.1:9", "--cpu", "one", parts=["one"])
        self.refused("--connect", "tcp://127.0.0.1:9", "--housekeeping", "0,,1", parts=["0,,1"])

    @unittest.skipIf(len(CPUS) < 2, "needs a CPU that can be forbidden")
    def test_a_cpu_that_is_not_allowed(self):
        words = shlex.join([*COMMAND, "--connect", "tcp://127.0.0.1:9", "--cpu", str(CPUS[-1])])
        finished = self.finish(self.start("taskset", "-c", str(CPUS[0]), "sh", "-c", words), 20)
        self.assert_one_line(finished, 2, f"cpu {CPUS[-1]}", "not allowed")

    def test_help_and_version(self):
        for word in ("--help", "--version"):
            finished = self.finish(self.start(*COMMAND, word), 20)
            self.assertEqual((finished.code, finished.err), (0, ""))
            self.assertTrue(re.search(r"corefan", finished.out))


if __name__ == "__main__":
    given = sys.argv[1:]
    rest = given[given.index("--") + 1:] if "--" in given else []
    words = given[:given.index("--")] if "--" in given else given
    if words:
        COMMAND[:] = [os.path.abspath(word) if os.path.exists(word) else word for word in words]
    unittest.main(argv=[sys.argv[0], *rest])
