#!/usr/bin/python3
"""examples/minimal-worker against SPEC.md, from the coordinator's chair of tests/e2e/worker_protocol.py."""
import pathlib
import sys
import time
import unittest

import msgpack
import paths

sys.path.insert(0, str(paths.ROOT / "tests" / "e2e"))
sys.path.insert(0, str(paths.ROOT / "tests" / "proto"))
import spec  # noqa: E402
import worker_protocol  # noqa: E402
from worker_protocol import CPUS, SECOND, cell  # noqa: E402

PROGRAM = str(paths.ROOT / "examples" / "minimal-worker" / "minimal-worker")
ARMS = ["sequential", "gather", "empty"]


class Lawful(worker_protocol.Coordinator):
    """Every frame of the worker must keep SPEC.md."""

    law = spec.Law()

    def receive(self, timeout=10.0):
        message = super().receive(timeout)
        if message is not None:
            fault = self.law.fault(msgpack.packb(message))
            assert fault is None, (fault, message)
        return message


class Minimal(worker_protocol.EndToEnd):
    def setUp(self):
        super().setUp()
        self.coordinator = Lawful()
        self.addCleanup(self.coordinator.close)

    def registered(self):
        worker = self.start("/usr/bin/python3", PROGRAM, "--connect", self.coordinator.endpoint, "--cpu", str(CPUS[-1]))
        self.coordinator.welcome()
        self.coordinator.beat(state="idle", group=None)
        return worker

    def test_a_slice_from_assign_to_bye(self):
        worker = self.registered()
        cells = [cell(n, arm, fanout=5, delay_ns=2_000_000, warmup=2) for n, arm in enumerate(ARMS * 2)]
        _, result = self.coordinator.measure(cells, blocks=2, seed=42)
        self.assertEqual([one["cell"] for one in result["rounds"]], [5, 3, 0, 1, 4, 2, 0, 4, 3, 2, 1, 5])
        for one in result["rounds"]:
            arm = (ARMS * 2)[one["cell"]]
            self.assertIsNone(one["error"])
            self.assertEqual(one["max_in_flight"], {"sequential": 1, "gather": 5, "empty": 0}[arm])
            self.assertGreaterEqual(one["wall_ns"], {"sequential": 10_000_000, "gather": 2_000_000, "empty": 0}[arm] - 1000)
        self.coordinator.send("bye", reason=None)
        self.assertEqual(worker.wait(5), 0)

    def test_turns_starts_and_parts(self):
        self.registered()
        self.coordinator.assign([cell(7, "gather", delay_ns=1), cell(8, "empty")], blocks=1100)
        self.coordinator.expect("ready", timeout=30, error=None)
        start_ns = time.monotonic_ns() + SECOND // 5
        self.coordinator.go(blocks=2, cell=8, start_at_ns=start_ns)
        rounds = self.coordinator.result(error=None)["rounds"]
        self.assertEqual([(one["cell"], one["block"], one["intended_start_ns"]) for one in rounds],
                         [(8, 0, start_ns), (8, 1, None)])
        self.assertGreaterEqual(rounds[0]["start_ns"], start_ns)
        self.coordinator.go(go=1, blocks=1100)
        result = self.coordinator.result(error=None, timeout=60)
        self.assertEqual((result["parts"], len(result["rounds"])), (3, 2200))

    def test_what_it_cannot_do_it_says(self):
        self.registered()
        self.coordinator.assign([cell(0, "taskgroup")])
        self.assertIn("0", self.coordinator.expect("ready")["error"])
        self.coordinator.go(group=3)
        self.assertTrue(self.coordinator.result(rounds=[])["error"])
        for frame in (b"", b"\xdd\xff\xff\xff\xff", msgpack.packb({"type": "dance", "v": [1, 0]}), msgpack.packb([1]),
                      msgpack.packb({"type": "bye", "v": [2, 0]}), msgpack.packb({"type": "go", "v": [1, 0]})):
            self.coordinator.send_bytes(frame)
            self.coordinator.expect("reject")
        self.coordinator.beat(state="idle")

    def test_abort_and_reconnection(self):
        self.registered()
        self.coordinator.assign([cell(0, "gather")])
        self.coordinator.expect("ready")
        self.coordinator.go(blocks=2)
        first = self.coordinator.result(acknowledge=False)
        self.coordinator.lose()
        self.coordinator.found()
        self.coordinator.welcome()
        self.assertEqual(self.coordinator.result()["rounds"], first["rounds"])
        self.coordinator.send("abort", group=0, attempt=0, reason="void")
        self.coordinator.beat(state="idle", group=None)

    def test_a_refusal_ends_it(self):
        worker = self.start("/usr/bin/python3", PROGRAM, "--connect", self.coordinator.endpoint)
        self.coordinator.expect("hello")
        self.coordinator.send("reject", reason="label 'minimal' is not in the sweep")
        self.assertEqual(worker.wait(5), 2)

    def test_the_guide_quotes_the_program(self):
        """Each piece of code in the guide is there in the program, line by line."""
        guide = (paths.ROOT / "docs" / "guide" / "write-a-worker.md").read_text(encoding="utf-8")
        program = [line.strip() for line in pathlib.Path(PROGRAM).read_text(encoding="utf-8").splitlines()]
        blocks = [block.split("\n", 1) for block in guide.split("```")[1::2]]
        quoted = [line.strip() for kind, text in blocks if kind == "python" for line in text.splitlines() if line.strip()]
        self.assertGreater(len(quoted), 15)
        for line in quoted:
            self.assertIn(line, program)


if __name__ == "__main__":
    sys.exit(unittest.main())
