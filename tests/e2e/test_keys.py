"""Who is let in: CURVE keys, and two hosts that are two network namespaces of this one."""
import os
import pathlib
import stat
import subprocess
import time
import unittest

import msgpack

from harness import COREFAN, SMALL_SWEEP, WORKER, EndToEnd
from test_two_shells import free_endpoint

ASYNCIO_WORKER = str(pathlib.Path(WORKER).with_name("corefan-worker-asyncio"))
QUIETLY = ("--progress", "none", "--co-run")


class Keys(EndToEnd):
    def setUp(self):
        super().setUp()
        (self.scratch / "let-in").mkdir()
        for name in ("coordinator", "worker", "stranger"):
            self.assertEqual(self.run_corefan("keygen", str(self.scratch / name)).code, 0)
        self.let_in("worker")

    def let_in(self, name):
        (self.scratch / "let-in" / f"{name}.pub").write_text((self.scratch / f"{name}.pub").read_text())

    def start_locked(self, endpoint, *more, sweep=SMALL_SWEEP, program=()):
        path = self.write("sweep.yaml", sweep)
        return self.start(*program, COREFAN, "run", path, "--out", str(self.scratch / "run"), "--workers", "0", "--expect", "1",
                          "--listen", endpoint, "--key", str(self.scratch / "coordinator"), "--authorized-keys",
                          str(self.scratch / "let-in"), "--expect-timeout", "20s", *QUIETLY, *more)

    def with_key(self, name, endpoint, *more, worker=WORKER, coordinator="coordinator.pub", program=()):
        return self.start(*program, worker, "--connect", endpoint, "--cpu", "0", "--key", str(self.scratch / name),
                          "--coordinator-key", str(self.scratch / coordinator), *more)

    def check_whole(self, process, *workers):
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(self.summary()["run"]["status"], "complete")
        for worker in workers:
            self.assertEqual(self.finish(worker, timeout=10).code, 0)
        return done

    def test_files(self):
        for name, mode in (("worker", 0o600), ("worker.pub", 0o644)):
            self.assertEqual(stat.S_IMODE((self.scratch / name).stat().st_mode), mode)
        before = (self.scratch / "worker").read_bytes()
        self.assert_one_line(self.run_corefan("keygen", str(self.scratch / "worker")), 2, "never overwritten")
        self.assertEqual((self.scratch / "worker").read_bytes(), before)
        self.assertNotIn("secret", (self.scratch / "worker.pub").read_text())
        self.assert_one_line(self.run_corefan("keygen"), 2, "FILE")
        self.assert_one_line(self.run_corefan("keygen", "/nowhere/key"), 2, "/nowhere/key")

    def test_a_known_key_is_let_in(self):
        endpoint = free_endpoint()
        self.check_whole(self.start_locked(endpoint), self.with_key("worker", endpoint))

    def test_a_python_worker_too(self):
        endpoint = free_endpoint()
        sweep = SMALL_SWEEP + "runtimes: [asyncio]\n"
        self.check_whole(self.start_locked(endpoint, sweep=sweep), self.with_key("worker", endpoint, worker=ASYNCIO_WORKER))

    def test_an_unknown_key_is_told_so_and_changes_nothing(self):
        endpoint = free_endpoint()
        process = self.start_locked(endpoint)
        for worker in (WORKER, ASYNCIO_WORKER):
            refused = self.finish(self.with_key("stranger", endpoint, worker=worker), timeout=20)
            self.assertEqual(refused.code, 2, refused.err)
            self.assertIn("does not let this key in", refused.err)
        done = self.check_whole(process, self.with_key("worker", endpoint))
        self.assertEqual(done.err.count("was not let in"), 1)  # once a minute, however often

    def test_peers_without_keys_or_with_a_wrong_coordinator(self):
        endpoint = free_endpoint()
        process = self.start_locked(endpoint)
        plain = self.start(WORKER, "--connect", endpoint, "--cpu", "0")
        stranger = self.dealer()
        stranger.connect(endpoint)
        for _ in range(20):
            stranger.send(msgpack.packb({"type": "hello", "v": [9, 0]}))
        mistaken = self.with_key("worker", endpoint, coordinator="stranger.pub")
        self.assertFalse(stranger.poll(1500))  # not even a refusal: nothing that it says is heard
        self.check_whole(process, self.with_key("worker", endpoint))
        for worker in (plain, mistaken):
            worker.terminate()
            self.assertIn(self.finish(worker).code, (0, 1))

    def test_a_key_that_is_added_while_the_run_waits(self):
        endpoint = free_endpoint()
        process = self.start_locked(endpoint)
        time.sleep(0.5)
        self.let_in("stranger")
        self.check_whole(process, self.with_key("stranger", endpoint))

    def test_nobody_speaks_for_another_key(self):
        """Two keys that are both let in: who takes over the instance of another one is refused."""
        endpoint = free_endpoint()
        self.let_in("stranger")
        process = self.start_locked(endpoint, "--expect", "2")
        peers = [self.peer(endpoint, name) for name in ("worker", "stranger")]
        hello = {"type": "hello", "v": [1, 0], "instance": "a" * 32, "runtime": "libuv", "label": "libuv", "host": "h",
                 "boot_id": "b", "pid": 1, "arms": ["empty"], "jobs": [], "busy_heartbeats": False}
        self.assertEqual(self.ask(peers[0], hello)["type"], "welcome")
        answer = self.ask(peers[1], hello)
        self.assertEqual(answer["type"], "reject")
        self.assertIn("another key", answer["reason"])
        process.terminate()
        self.assertEqual(self.finish(process).code, 130)

    def peer(self, endpoint, name):
        socket = self.dealer()
        words = dict(line.split() for line in (self.scratch / name).read_text().splitlines() if not line.startswith("#"))
        server = (self.scratch / "coordinator.pub").read_text().split()[1]
        socket.curve_publickey, socket.curve_secretkey = words["public"].encode(), words["secret"].encode()
        socket.curve_serverkey = server.encode()
        socket.connect(endpoint)
        return socket

    def ask(self, socket, message):
        socket.send(msgpack.packb(message))
        self.assertTrue(socket.poll(10000), "no answer")
        return msgpack.unpackb(socket.recv())

    def test_local_workers_of_a_locked_run(self):
        path = self.write("sweep.yaml", SMALL_SWEEP + "runtimes: [libuv, asyncio]\n")
        done = self.run_corefan("run", path, "--out", str(self.scratch / "run"), "--workers", "1", "--listen", free_endpoint(),
                                "--key", str(self.scratch / "coordinator"), *QUIETLY)
        self.assertEqual(done.code, 0, done.err)

    def test_what_is_asked_wrongly(self):
        run = ("run", self.write("sweep.yaml", SMALL_SWEEP), "--workers", "0", "--expect", "1", "--listen")
        key, let_in = str(self.scratch / "coordinator"), str(self.scratch / "let-in")
        beyond = (*run, "tcp://0.0.0.0:7000")
        self.assert_one_line(self.run_corefan(*beyond), 2, "--key")
        self.assert_one_line(self.run_corefan(*beyond, "--key", key), 2, "--authorized-keys")
        self.assert_one_line(self.run_corefan(*beyond, "--authorized-keys", let_in), 2, "--key")
        self.assert_one_line(self.run_corefan(*beyond, "--key", key, "--authorized-keys", "/nowhere"), 2, "/nowhere")
        self.assert_one_line(self.run_corefan("run", "--key", key), 2, "--listen")
        os.chmod(key, 0o644)
        self.assert_one_line(self.run_corefan(*beyond, "--key", key, "--authorized-keys", let_in), 2, "others can read it")
        for text in ("", "public short\n", "secret " + "x" * 40, "\0" * 50, "x" * 10000):
            bad = self.write("bad", text)
            os.chmod(bad, 0o600)
            self.assert_one_line(self.run_corefan(*beyond, "--key", bad, "--authorized-keys", let_in), 2, bad)
        for worker in (WORKER, ASYNCIO_WORKER):
            words = (worker, "--connect", "tcp://192.0.2.1:7000", "--cpu", "0")
            self.assert_one_line(self.finish(self.start(*words)), 2, "--coordinator-key")
            self.assert_one_line(self.finish(self.start(*words, "--key", key)), 2, "belong together")


def namespaces_can_be_made():
    return os.geteuid() == 0 and subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(namespaces_can_be_made(), "network namespaces need root")
class TwoHosts(Keys):
    """The same over a wire between two network namespaces."""

    def setUp(self):
        super().setUp()
        self.names = [f"corefan-{os.getpid()}-{side}" for side in ("here", "there")]
        self.addCleanup(self.remove_namespaces)
        for name in self.names:
            self.ip("netns", "add", name)
        self.ip("link", "add", "here", "netns", self.names[0], "type", "veth", "peer", "name", "there", "netns", self.names[1])
        for name, device, address in zip(self.names, ("here", "there"), ("10.99.7.1/24", "10.99.7.2/24"), strict=True):
            self.ip("-n", name, "address", "add", address, "dev", device)
            self.ip("-n", name, "link", "set", device, "up")

    def remove_namespaces(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def inside(self, side):
        return ("ip", "netns", "exec", self.names[side])

    def test_two_hosts(self):
        endpoint = "tcp://10.99.7.1:7171"
        process = self.start_locked(endpoint, program=self.inside(0))
        worker = self.with_key("worker", endpoint, program=self.inside(1))
        self.check_whole(process, worker)

    def test_a_wire_that_is_cut_and_mended(self):
        endpoint = "tcp://10.99.7.1:7171"
        process = self.start_locked(endpoint, program=self.inside(0))
        worker = self.with_key("worker", endpoint, program=self.inside(1))
        time.sleep(1)
        self.ip("-n", self.names[1], "link", "set", "there", "down")
        time.sleep(1)
        self.ip("-n", self.names[1], "link", "set", "there", "up")
        self.check_whole(process, worker)


for inherited in [name for name in dir(Keys) if name.startswith("test_")]:
    setattr(TwoHosts, inherited, None)  # they have run once


if __name__ == "__main__":
    unittest.main()
