"""What the end-to-end tests share: the programs of one build, runs in a scratch directory, and what they left behind.

COREFAN_BIN names the directory of the built programs.  COREFAN_RUNTIME says whose workers run (libuv, asyncio, uvloop):
one suite holds all of them.  Every process that a test starts ends with the test.
"""
import contextlib
import fcntl
import json
import os
import pathlib
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest

import zmq

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("COREFAN_BIN", ROOT / "build" / "dev" / "bin"))
COREFAN = str(BIN / "corefan")
WORKER = str(BIN / "corefan-worker")
PYTHON_WORKER = str(BIN / "corefan-worker-asyncio")

RUNTIME = os.environ.get("COREFAN_RUNTIME", "libuv")
WORKER_COMMAND = {"libuv": [WORKER], "asyncio": [PYTHON_WORKER], "uvloop": [PYTHON_WORKER, "--loop", "uvloop"]}[RUNTIME]
# How much too early a wait may end: asyncio admits one tick of its clock, uvloop counts whole ms of a floored one.
EARLY_NS = {"libuv": 0, "asyncio": 2_000, "uvloop": 1_000_000}[RUNTIME]

SMALL_SWEEP = """\
name: small
seed: 7
rounds: 5
warmup: 1
matrix:
  - {job: sleep, fanout: 4, delay: 2ms}
  - {job: noop, fanout: 2, arms: [sequential, tasks, gather, taskgroup]}
"""

# About three seconds on one core: long enough to be disturbed half-way.
SLOW_SWEEP = """\
name: slow
rounds: 20
warmup: 1
arms: [sequential, gather]
matrix:
  - {job: sleep, fanout: 10, delay: 10ms}
"""


def on_runtime(sweep):
    """The sweep on the runtime of this suite, unless it names its own."""
    return sweep if RUNTIME == "libuv" or "runtimes:" in sweep else f"runtimes: [{RUNTIME}]\n{sweep}"


class Finished:
    """A process that has ended: code, stdout and stderr as text."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err


class EndToEnd(unittest.TestCase):
    def setUp(self):
        self._scratch = tempfile.TemporaryDirectory(prefix="corefan-test-")
        self.scratch = pathlib.Path(self._scratch.name)
        self.started = []
        wait_for_cpus()

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            for stream in (process.stdout, process.stderr):
                if stream and not stream.closed:
                    stream.close()
        self._scratch.cleanup()

    def write(self, name, text):
        path = self.scratch / name
        if isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(text)
        return str(path)

    def start(self, *argv, env=None):
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                   text=True, cwd=self.scratch, start_new_session=True,
                                   env=dict(os.environ, **(env or {})))
        self.started.append(process)
        return process

    def finish(self, process, timeout=120):
        out, err = process.communicate(timeout=timeout)
        return Finished(process.returncode, out, err)

    def run_corefan(self, *argv, timeout=120, env=None):
        return self.finish(self.start(COREFAN, *argv, env=env), timeout)

    def run_sweep(self, sweep, *argv, out="run", timeout=120, env=None):
        path = self.write("sweep.yaml", on_runtime(sweep))
        return self.run_corefan("run", path, "--out", str(self.scratch / out), *argv, timeout=timeout, env=env)

    def start_sweep(self, sweep, *argv, out="run", env=None):
        path = self.write("sweep.yaml", on_runtime(sweep))
        return self.start(COREFAN, "run", path, "--out", str(self.scratch / out), *argv, env=env)

    def start_worker(self, endpoint, *words, cpu=0, env=None):
        """One by hand, as a user would."""
        return self.start(*WORKER_COMMAND, "--connect", endpoint, "--cpu", str(cpu), *words, env=env)

    def summary(self, out="run"):
        return json.loads((self.scratch / out / "summary.json").read_text())

    def rows_so_far(self, sql, out="run"):
        """Of the store of a run that goes on, and may not have made it yet."""
        try:
            path = self.scratch / out / "run.db"
            with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
                return db.execute(sql).fetchall()
        except sqlite3.OperationalError:
            return []

    def wait_until_it_measures(self, out="run", groups=1):
        """So many groups are prepared, and a bit."""
        self.wait_for(lambda: len(self.rows_so_far("SELECT DISTINCT group_number FROM ready", out)) >= groups,
                      "a prepared group", timeout=60)
        time.sleep(0.4)

    def dealer(self):
        """A peer's socket of the test's own.  What it could not send is dropped at the end, or the end would wait for ever."""
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.linger = 0
        self.addCleanup(context.term)
        self.addCleanup(socket.close)
        return socket

    def assert_one_line(self, finished, code, *parts):
        """The error is one line on stderr that holds all parts; nothing else was said."""
        self.assertEqual(finished.code, code, finished.err)
        lines = finished.err.strip().splitlines()
        self.assertEqual(len(lines), 1, finished.err)
        for part in parts:
            self.assertIn(part, lines[0])
        self.assertEqual(finished.out, "")

    def wait_for(self, condition, what, timeout=20):
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            got = condition()
            if got:
                return got
            time.sleep(0.02)
        raise AssertionError(f"never saw {what}")


def wait_for_cpus(timeout=300):
    """Until no other run of this host measures: corefan would refuse ours, and rightly."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        try:
            with open("/run/lock/corefan.lock", "r+b") as lock:
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.2)


def children_of(pid):
    """Live children of a process, oldest first."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(word) for word in task.read_text().split()]
        except OSError:
            pass
    return [child for child in sorted(set(found)) if alive(child)]


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def processes_with(mark):
    """Pids of live processes whose environment holds the mark."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if mark.encode() in (entry / "environ").read_bytes() and alive(int(entry.name)):
                    found.append(int(entry.name))
            except OSError:
                pass
    return found
