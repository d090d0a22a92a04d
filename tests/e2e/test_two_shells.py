"""Workers started by hand, and peers that do not belong: corefan run --workers 0 --expect N --listen ENDPOINT.

It runs for each kind of worker (COREFAN_RUNTIME), but for NoWorkers.
"""
import os
import signal
import socket
import time
import unittest

import msgpack

from harness import COREFAN, ROOT, RUNTIME, EndToEnd, alive, children_of


BRIEF = """\
rounds: 5
warmup: 1
matrix:
  - {job: sleep, fanout: 4, delay: 2ms}
"""
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
        process = self.start_sweep(BRIEF, "--workers", "0", "--expect", str(workers), "--listen", endpoint,
                                   "--expect-timeout", "30s", "--progress", "none")
        before_workers()
        by_hand = [self.start_worker(endpoint, cpu=cpu) for cpu in range(workers)]
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
        workers = [self.start_worker(endpoint) for _ in range(2)]
        first = self.wait_for(self.first_worker, "the first group's result")
        time.sleep(0.5)  # the second group's worker is another one: this one has nothing more to do
        os.kill(first, signal.SIGSTOP)
        self.wait_for((self.scratch / "run" / "summary.json").exists, "the summary")
        time.sleep(0.7)
        os.kill(first, signal.SIGCONT)
        self.assertEqual(self.finish(process).code, 0)
        for worker in workers:
            self.assertEqual(self.finish(worker, timeout=10).code, 0)

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs a CPU for the heartbeats")
    def test_a_killed_one_leaves_its_group_to_the_other(self):
        endpoint = f"ipc://{self.scratch}/fleet.sock"
        sweep = TWO_GROUPS.replace("[9ms, 10ms]", "[10ms, 20ms]")  # the second one takes 2.4 s
        process = self.start_sweep(sweep, "--workers", "0", "--expect", "2", "--listen", endpoint, "--progress", "none")
        workers = [self.start_worker(endpoint, "--housekeeping", "0", cpu=1) for _ in range(2)]
        first = self.wait_for(self.first_worker, "the first group's result")
        self.wait_until_it_measures(groups=2)  # the second group is the other worker's
        victim, = [worker for worker in workers if worker.pid != first]
        loops = children_of(victim.pid)
        victim.kill()
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("lost", done.err)
        self.assertEqual([(cell["rounds"], cell["attempts"]) for cell in self.summary()["cells"]], [(12, 1), (12, 2)])
        self.assertEqual(self.finish([worker for worker in workers if worker.pid == first][0], timeout=10).code, 0)
        self.assertFalse(any(alive(pid) for pid in loops))

    def test_ctrl_c_says_goodbye_to_them(self):
        endpoint = f"ipc://{self.scratch}/fleet.sock"
        process = self.start_sweep(TWO_GROUPS, "--workers", "0", "--expect", "1", "--listen", endpoint, "--progress", "none")
        worker = self.start_worker(endpoint)
        self.wait_for(self.first_worker, "the first group's result")
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process).code, 130)
        self.assertEqual(self.finish(worker, timeout=10).code, 0)
        self.assertEqual(self.summary()["run"]["status"], "interrupted")

    def first_worker(self):
        """Its pid, once the run's first rounds are stored."""
        found = self.rows_so_far("SELECT pid FROM rounds JOIN workers ON number = worker LIMIT 1")
        return found and found[0][0]

    def test_strangers_change_nothing(self):
        endpoint = free_endpoint()
        stranger = self.dealer()
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
        (told,), = self.rows_so_far("SELECT text FROM events WHERE kind = 'refusals'")
        refused = int(told.rsplit(" ", 1)[1])
        self.assertGreaterEqual(refused, len(frames) - 1)  # the longest one may end its connection

    def test_a_worker_that_knows_less_is_no_harm_to_those_that_know_more(self):
        """Somebody connects to a run with workers of its own and knows one arm only: the others do the work."""
        endpoint = free_endpoint()
        process = self.start_sweep(TWO_GROUPS, "--workers", "1", "--listen", endpoint, "--progress", "none", "--co-run")
        peer = self.dealer()
        peer.connect(endpoint)
        peer.send(msgpack.packb({"type": "hello", "v": [1, 0], "instance": "b" * 32, "runtime": RUNTIME, "label": RUNTIME,
                                 "host": "elsewhere", "boot_id": "other", "pid": 1, "arms": ["gather", "empty"], "jobs": ["sleep"],
                                 "busy_heartbeats": False}))
        self.assertTrue(peer.poll(5000))
        self.assertEqual(msgpack.unpackb(peer.recv())["type"], "welcome")
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(self.summary()["run"]["status"], "complete")


class NoWorkers(EndToEnd):
    def test_other_major_version_is_refused_by_name(self):
        endpoint = free_endpoint()
        process = self.start_sweep(BRIEF, "--workers", "0", "--expect", "1", "--listen", endpoint,
                                   "--expect-timeout", "3s", "--progress", "none")
        peer = self.dealer()
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
        done = self.run_sweep(BRIEF, "--workers", "0", "--expect", "2", "--listen", free_endpoint(),
                              "--expect-timeout", "1s", "--progress", "none")
        self.assertLess(time.monotonic() - started, 15)
        self.assertEqual(done.code, 3, done.err)
        self.assertIn("2 of 2 workers have not come", done.err)


CART = """\
name: cart
rounds: 4
warmup: 1
arms: [sequential, gather]
matrix:
  - {job: cart, fanout: 5}
"""
WITH_CART = ("--job", "cart=shop.jobs:fetch_cart", "--path", str(ROOT / "examples" / "own-coroutine"))


class AnnouncedJobs(EndToEnd):
    """A job that no line of the sweep declares: whoever starts a worker by hand says what it can do."""

    def by_hand(self, *words):
        endpoint = f"ipc://{self.scratch}/fleet.sock"
        process = self.start_sweep(CART, "--workers", "0", "--expect", "1", "--listen", endpoint, "--quiet")
        worker = self.start_worker(endpoint, "--quiet", *words)
        return self.finish(process), self.finish(worker, timeout=10)

    @unittest.skipIf(RUNTIME == "libuv", "it has no jobs of its users")
    def test_it_is_measured(self):
        done, worker = self.by_hand(*WITH_CART)
        self.assertEqual((done.code, done.err, worker.code, worker.err), (0, "", 0, ""))
        for cell in self.summary()["cells"]:
            self.assertEqual((cell["job"], cell["rounds"], cell["attempts"]), ("cart", 4, 1))
            self.assertGreater(cell["wall_ns"]["min"], 3_000_000)
        self.assertEqual(self.run_corefan("report", str(self.scratch / "run")).out, done.out)

    def test_what_no_worker_announced_is_refused_before_anything_runs(self):
        done, worker = self.by_hand()
        self.assert_one_line(done, 3, f"no worker of runtime '{RUNTIME}' announced the job 'cart'", "worker 0",
                             "knows noop, sleep, cpu")
        self.assertEqual("--job 'cart=MODULE:FUNCTION'" in done.err, RUNTIME != "libuv")
        self.assertEqual(worker.code, 0)
        self.assertFalse((self.scratch / "run").exists())

    def test_workers_that_run_starts_need_to_be_told(self):
        done = self.run_sweep(CART, "--workers", "1")
        self.assert_one_line(done, 2, "unknown job 'cart'", "'jobs'", "--workers 0")
        done = self.run_corefan("plan", str(self.scratch / "sweep.yaml"), "--workers", "0", "--expect", "1")
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertIn("5 x cart", done.out)


if __name__ == "__main__":
    assert COREFAN
    unittest.main()
