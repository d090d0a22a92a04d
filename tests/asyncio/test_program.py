#!/usr/bin/python3
"""corefan-worker-asyncio as a program: own coroutines, interpreters, what is missing, and a loop's process that dies."""
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

import paths

sys.path.insert(0, str(paths.ROOT / "tests" / "e2e"))
import worker_protocol  # noqa: E402
from harness import BIN, alive, children_of  # noqa: E402
from worker_protocol import CPUS, cell  # noqa: E402

PROGRAM = str(BIN / "corefan-worker-asyncio")
EXAMPLE = str(paths.ROOT / "examples" / "own-coroutine")
OTHER_PYTHONS = [word for word in os.environ.get("COREFAN_PYTHONS", "").split(os.pathsep) if os.path.exists(word)]


class Program(worker_protocol.EndToEnd):
    def setUp(self):
        super().setUp()
        self.coordinator = worker_protocol.Coordinator()
        self.addCleanup(self.coordinator.close)

    def launch(self, *words, program=(PROGRAM,), env=None):
        return self.start(*program, "--connect", self.coordinator.endpoint, "--cpu", str(CPUS[-1]), *words, env=env)

    def registered(self, *words, **more):
        worker = self.launch(*words, **more)
        hello = self.coordinator.welcome()
        self.coordinator.beat(state="idle")
        return worker, hello

    def write_module(self, text):
        self.write("mine.py", text)
        return "--path", str(self.scratch), "--job", "mine=mine:child"

    def refused(self, *words, parts, program=(PROGRAM,), env=None):
        words = [*program, "--connect", "ipc:///tmp/nobody", *words]
        self.assert_one_line(self.finish(self.start(*words, env=env), 30), 2, *parts)


class OwnCoroutines(Program):
    def test_the_example(self):
        _, hello = self.registered("--path", EXAMPLE, "--job", "cart=shop.jobs:fetch_cart",
                                   "--job", "flaky=shop.jobs:fetch_flaky_cart")
        self.assertEqual(hello["jobs"][-2:], ["cart", "flaky"])
        _, result = self.coordinator.measure([cell(0, "gather", job="cart", fanout=5, delay_ns=0),
                                              cell(1, "sequential", job="cart", fanout=5, delay_ns=0)], blocks=2)
        for one in result["rounds"]:
            self.assertIsNone(one["error"])
            self.assertEqual(one["max_in_flight"], 5 if one["cell"] == 0 else 1)
            self.assertGreaterEqual(one["wall_ns"], 4_000_000 * (1 if one["cell"] == 0 else 5) - 1000)

    def test_its_exceptions_are_outcomes_of_the_child(self):
        self.registered("--path", EXAMPLE, "--job", "flaky=shop.jobs:fetch_flaky_cart")
        arms = ["gather", "gather-return-exceptions"]
        cells = [cell(n, arm, job="flaky", fanout=20, delay_ns=0) for n, arm in enumerate(arms)]
        _, result = self.coordinator.measure(cells, blocks=1)
        names = ("error", "orphans", "errors_seen", "errors_lost")
        told = {one["cell"]: tuple(one[name] for name in names) for one in result["rounds"]}
        self.assertEqual(told, {0: (None, 18, 1, 1), 1: (None, 0, 2, 0)})

    def test_what_it_prints_goes_to_stderr(self):
        worker, _ = self.registered(*self.write_module("async def child(index):\n    print('hello from a child')\n"))
        self.coordinator.measure([cell(0, "gather", job="mine", delay_ns=0)], blocks=1)
        self.coordinator.send("bye", reason=None)
        finished = self.finish(worker, 10)
        self.assertEqual(finished.out, "")
        self.assertIn("hello from a child", finished.err)

    def test_what_cannot_be_loaded_is_said_in_a_line(self):
        for text, part in [("child = 5\n", "not an async callable"),
                           ("def child(index):\n    pass\n", "not an async callable"),
                           ("1 / 0\n", "ZeroDivisionError"), ("other = 1\n", "has no 'child'")]:
            self.refused(*self.write_module(text), parts=["mine", part])
        self.refused("--job", "sleep=asyncio:sleep", parts=["sleep", "built in"])


class Deaths(Program):
    """The loop's process dies under a job; the session tells, and goes on with another one."""

    def dies(self, text, part):
        self.registered(*self.write_module(text), "--quiet")
        self.coordinator.assign([cell(0, "gather", job="mine", delay_ns=0)])
        self.assertIn(part, self.coordinator.expect("ready", timeout=30)["error"])
        self.coordinator.beat(state="idle", group=None)
        self.coordinator.measure([cell(0, "gather")], blocks=1, group=9)

    def test_while_it_prepares(self):
        self.dies("import os\nasync def child(index):\n    os._exit(7)\n", "exit status 7")

    def test_by_a_signal(self):
        self.dies("import os, signal\nasync def child(index):\n    os.kill(os.getpid(), signal.SIGSEGV)\n", "signal 11")

    def test_while_it_measures(self):
        worker, hello = self.registered()
        self.coordinator.assign([cell(0, "gather", delay_ns=50_000_000)], blocks=100)
        self.coordinator.expect("ready", timeout=30)
        self.coordinator.go(blocks=100)
        time.sleep(0.3)
        loop_pid, = children_of(hello["pid"])
        os.kill(loop_pid, signal.SIGKILL)
        result = self.coordinator.result()
        self.assertEqual(result["rounds"], [])
        self.assertIn("signal 9", result["error"])
        self.coordinator.beat(state="idle", group=None)
        self.coordinator.measure([cell(0, "gather")], blocks=1, group=9)
        self.assertIsNone(worker.poll())

    def test_a_round_that_does_not_heed_an_abort(self):
        self.registered(*self.write_module("import time\nasync def child(index):\n    time.sleep(60)\n"))
        self.coordinator.assign([cell(0, "gather", job="mine", delay_ns=0)])
        time.sleep(0.3)
        self.coordinator.send("abort", group=0, attempt=0, reason="void")
        self.coordinator.beat(state="idle", group=None)
        self.coordinator.measure([cell(0, "gather")], blocks=1, group=9)

    def test_the_loop_never_outlives_its_session(self):
        worker, hello = self.registered(*self.write_module("import time\nasync def child(index):\n    time.sleep(60)\n"))
        self.coordinator.assign([cell(0, "gather", job="mine", delay_ns=0)])
        time.sleep(0.3)
        loop_pid, = children_of(hello["pid"])
        worker.kill()
        self.wait_for(lambda: not alive(loop_pid), "the end of the loop's process", timeout=3)

    def test_a_launcher_behind_a_wrapper(self):
        """The wrapper lives on; the pipe on stdin tells that the launcher is gone."""
        read, write = os.pipe()
        words = [PROGRAM, "--connect", self.coordinator.endpoint, "--cpu", str(CPUS[-1]), "--slot", "0"]
        worker = subprocess.Popen(words, stdin=read, stderr=subprocess.PIPE, start_new_session=True)
        self.addCleanup(worker.stderr.close)
        self.started.append(worker)
        os.close(read)
        self.coordinator.welcome()
        os.close(write)
        self.assertEqual(worker.wait(3), 1)


class Missing(Program):
    def without(self, *modules):
        """An environment in which they cannot be imported."""
        for module in modules:
            self.write(f"{module}.py", f"raise ImportError('no {module}')\n")
        return {"PYTHONPATH": str(self.scratch)}

    def test_zmq_and_msgpack(self):
        for module, package in (("zmq", "python3-zmq"), ("msgpack", "python3-msgpack")):
            env = self.without(module)
            words = ["/usr/bin/python3", "-m", "corefan_worker"]
            env["PYTHONPATH"] += os.pathsep + paths.PACKAGE
            self.refused(parts=[module, package, "/usr/bin/python3"], program=words, env=env)
            (self.scratch / f"{module}.py").unlink()

    def test_uvloop(self):
        self.refused("--loop", "uvloop", parts=["uvloop", "python3-uvloop"], env=self.without("uvloop"))

    def test_an_interpreter_that_is_not_there(self):
        self.refused("--python", "/no/such/python", parts=["/no/such/python"])

    def test_an_interpreter_that_is_too_old(self):
        old = self.write("old-python", "#!/bin/sh\necho 3 7 4\n")
        os.chmod(old, 0o755)
        self.refused("--python", old, parts=["3.7.4", "3.10"])

    @unittest.skipIf(sys.version_info >= (3, 12), "this Python has eager tasks")
    def test_eager_tasks_need_a_newer_python(self):
        self.refused("--eager", parts=["--eager", "3.12", "/usr/bin/python3"])


class Interpreters(Program):
    def test_a_wrapper_script_is_an_interpreter(self):
        """As a launcher starts a `python:` of a sweep: INTERPRETER PROGRAM WORDS."""
        python = self.write("my-python", "#!/bin/sh\nexport WRAPPED=yes\nexec /usr/bin/python3 \"$@\"\n")
        os.chmod(python, 0o755)
        _, hello = self.registered("--label", "wrapped", program=(python, PROGRAM))
        self.assertEqual(hello["label"], "wrapped")
        self.assertIn(b"WRAPPED=yes", pathlib.Path(f"/proc/{hello['pid']}/environ").read_bytes())
        self.coordinator.measure([cell(0, "gather")], blocks=1)

    def test_one_without_our_modules_is_measured_from_the_systems(self):
        """The session moves to /usr/bin/python3, the loop stays with the interpreter that was asked for."""
        for python in OTHER_PYTHONS:
            with self.subTest(python):
                version = subprocess.run([python, "-c", "import sys; print(*sys.version_info[:3], sep='.')"],
                                         capture_output=True, text=True, check=True).stdout.strip()
                eager = ["--eager"] if tuple(map(int, version.split("."))) >= (3, 12) else []
                worker, hello = self.registered(*eager, program=(python, PROGRAM))
                self.assertEqual(hello["versions"]["python"], version)
                self.coordinator.measure([cell(0, "gather"), cell(1, "tasks", job="noop", calibrated=True)], blocks=1)
                self.coordinator.send("bye", reason=None)
                self.assertEqual(self.finish(worker, 10).code, 0)


class Busy(Program):
    def test_the_session_sleeps_while_rounds_run(self):
        """On a shared CPU the session must not run between go and result."""
        _, hello = self.registered("--housekeeping", "none")
        self.coordinator.assign([cell(0, "sequential", fanout=20, delay_ns=50_000_000)], blocks=2)
        self.coordinator.expect("ready", timeout=60)
        self.coordinator.go(blocks=1)
        time.sleep(0.2)
        before = self.switches(hello["pid"])
        time.sleep(0.6)  # within one round, of a second
        self.assertEqual(self.switches(hello["pid"]), before)
        self.coordinator.result()

    def switches(self, pid):
        """Of all threads of the session: how often each one ran."""
        found = {}
        for status in pathlib.Path(f"/proc/{pid}/task").glob("*/status"):
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
            found[status.parent.name] = int(lines["voluntary_ctxt_switches"]) + int(lines["nonvoluntary_ctxt_switches"])
        return found


if __name__ == "__main__":
    sys.exit(unittest.main())
