"""Workers started by hand, and peers that do not belong: corefan run --workers 0 --expect N --listen ENDPOINT."""
import contextlib
import os
import signal
import socket
import sqlite3
import time
import unittest

import msgpack
import zmq

from harness import COREFAN, SMALL_SWEEP, WORKER, EndToEnd


TWO_GROUPS = """\
rounds: 12
warmup: 1
arms: [sequential]
matrix:
  - {job: sleep, fanout: 10, delay: [9ms, 10ms]}
"""


def free_endpoint():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


class TwoShells(EndToEnd):
    def run_by_hand(self, endpoint, workers=1, before_workers=lambda: None):
        process = self.start_sweep(SMALL_SWEEP, "--workers", "0", "--expect", str(workers), "--listen", endpoint,
                                   "--expect-timeout", "30s", "--progress", "none")
        before_workers()
        by_hand = [self.start(WORKER, "--connect", endpoint, "--cpu", str(cpu)) for cpu in range(workers)]
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(self.summary()["run"]["status"], "complete")
        for worker in by_hand:
            self.assertEqual(self.finish(worker, timeout=10).code, 0)
        return done

    def test_over_tcp(self):
        self.run_by_hand(free_endpoint())

    def test_over_ipc(self):
        self.run_by_hand(f"ipc://{self.scratch}/fleet.sock")

    def test_a_worker_that_was_held_up_hears_the_end(self):
        """What one end of a connection has not read when the other end closes is lost: the coordinator waits."""
        endpoint = f"ipc://{self.scratch}/fleet.sock"
        process = self.start_sweep(TWO_GROUPS, "--workers", "0", "--expect", "2", "--listen", endpoint,
                                   "--progress", "none")
        workers = [self.start(WORKER, "--connect", endpoint, "--cpu", "0") for _ in range(2)]
        first = self.wait_for(self.first_worker, "the first group's result")
        time.sleep(0.5)  # the second group's worker is another one: this one has nothing more to do
        os.kill(first, signal.SIGSTOP)
        self.wait_for((self.scratch / "run" / "summary.json").exists, "the summary")
        time.sleep(0.7)
        os.kill(first, signal.SIGCONT)
        self.assertEqual(self.finish(process).code, 0)
        for worker in workers:
            self.assertEqual(self.finish(worker, timeout=10).code, 0)

    def first_worker(self):
        """Its pid, once the run's first rounds are stored."""
        try:
            with contextlib.closing(sqlite3.connect(f"file:{self.scratch / 'run/run.db'}?mode=ro", uri=True)) as db:
                found = db.execute("SELECT pid FROM rounds JOIN workers ON number = worker LIMIT 1").fetchone()
        except sqlite3.OperationalError:
            return None
        return found and found[0]

    def test_strangers_change_nothing(self):
        endpoint = free_endpoint()
        context = zmq.Context()
        self.addCleanup(context.destroy, linger=0)
        stranger = context.socket(zmq.DEALER)
        stranger.connect(endpoint)
        frames = [b"", b"\xff" * 10, b"\xdd\xff\xff\xff\xff", b"{}", b"\x81" * 40,
                  msgpack.packb({"type": "hello", "v": [2, 0]}),
                  msgpack.packb({"type": "hello", "v": [1, 0]}),
                  msgpack.packb({"type": "nonsense", "v": [1, 0]}),
                  msgpack.packb({"type": "result", "v": [1, 0], "group": 0, "attempt": 0, "go": 0, "part": 0,
                                 "last": True, "rounds": []}),
                  b"\x00" * (5 << 20)]

        def attack():
            for frame in frames:
                stranger.send(frame)
                stranger.send_multipart([frame, frame])

        self.run_by_hand(endpoint, before_workers=attack)

    def test_a_worker_that_knows_less_is_no_harm_to_those_that_know_more(self):
        """Somebody connects to a run with workers of its own and knows one arm only: the others do the work."""
        endpoint = free_endpoint()
        process = self.start_sweep(TWO_GROUPS, "--workers", "1", "--listen", endpoint, "--progress", "none", "--co-run")
        context = zmq.Context()
        self.addCleanup(context.destroy, linger=0)
        peer = context.socket(zmq.DEALER)
        peer.connect(endpoint)
        peer.send(msgpack.packb({"type": "hello", "v": [1, 0], "instance": "b" * 32, "runtime": "libuv", "label": "libuv",
                                 "host": "elsewhere", "boot_id": "other", "pid": 1, "arms": ["gather", "empty"], "jobs": ["sleep"],
                                 "busy_heartbeats": False}))
        self.assertTrue(peer.poll(5000))
        self.assertEqual(msgpack.unpackb(peer.recv())["type"], "welcome")
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(self.summary()["run"]["status"], "complete")

    def test_other_major_version_is_refused_by_name(self):
        endpoint = free_endpoint()
        process = self.start_sweep(SMALL_SWEEP, "--workers", "0", "--expect", "1", "--listen", endpoint,
                                   "--expect-timeout", "3s", "--progress", "none")
        context = zmq.Context()
        self.addCleanup(context.destroy, linger=0)
        peer = context.socket(zmq.DEALER)
        peer.connect(endpoint)
        peer.send(msgpack.packb({"type": "hello", "v": [9, 1]}))
        self.assertTrue(peer.poll(5000))
        answer = msgpack.unpackb(peer.recv())
        self.assertEqual(answer["type"], "reject")
        self.assertIn("9.1", answer["reason"])
        self.assertIn("1.", answer["reason"])
        done = self.finish(process)
        self.assertNotEqual(done.code, 0)

    def test_missing_workers_are_told(self):
        started = time.monotonic()
        done = self.run_sweep(SMALL_SWEEP, "--workers", "0", "--expect", "2", "--listen", free_endpoint(),
                              "--expect-timeout", "1s", "--progress", "none")
        self.assertLess(time.monotonic() - started, 15)
        self.assertEqual(done.code, 3, done.err)
        self.assertIn("2 of 2 workers have not come", done.err)


if __name__ == "__main__":
    assert COREFAN
    unittest.main()
