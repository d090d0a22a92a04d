"""Faults injected into the measurement itself, on real processes: each raises exactly its flag.

Rounds are taken in turns, one quiet and one disturbed, and judged by the rules of the summary (judge_rounds).  What the
disturbed ones raise and the quiet ones do not is what the fault raised: no threshold on time, and a busy host disturbs both.
Steal and changes of frequency cannot be made here; tests/golden/make_run.c has rounds with both.
"""
import os
import pathlib
import signal
import subprocess
import time
import unittest

import harness
import worker_protocol
from worker_protocol import CPUS, cell

JUDGE = str(harness.BIN / "judge_rounds")
SHIM = str(harness.BIN / "fault_shim.so")
# Whatever else runs here shall disturb little; where the scheduler groups sessions, their niceness is what counts.
URGENTLY = '(echo -20 > /proc/self/autogroup) 2> /dev/null; exec nice -n -20 "$@"'
URGENT = ["sh", "-c", URGENTLY, "sh"] if os.geteuid() == 0 else []
MS = 1_000_000
PAIRS = 10
LEAD_NS = 30 * MS
BURN = cell(0, "gather", job="cpu", fanout=4, delay_ns=10 * MS)
WAITS = cell(0, "sequential", fanout=20, delay_ns=2 * MS)
CPU_SWEEP = """\
name: stopped
rounds: 40
arms: [sequential]
matrix: [{job: cpu, fanout: 4, delay: 10ms}]
"""


def sleep_until(at_ns):
    time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)


def idle_ticks(cpu):
    line = next(line for line in pathlib.Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{cpu} "))
    return int(line.split()[4])


def is_idle(cpu):
    before = idle_ticks(cpu)
    time.sleep(0.2)
    return idle_ticks(cpu) - before >= 16  # of 20


def wait_until_idle(cpu, timeout=5):
    """While somebody else computes there, quiet rounds are none; it is tried all the same in the end."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if is_idle(cpu):
            return True
    return False


def share(flags, name):
    return sum(name in one for one in flags) / len(flags)


def raised(quiet, disturbed):
    """Flags that set the disturbed rounds apart from the quiet ones."""
    names = set().union(*quiet, *disturbed)
    return {name for name in names if share(disturbed, name) - share(quiet, name) >= 0.5}


def calm():
    """Nothing has to be undone."""


class Switches:
    """What a process with the shim does wrong from now on; the file is mapped there, so it must not be cut."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.path.write_text("-")
        self.env = {"LD_PRELOAD": SHIM, "COREFAN_FAULTS": str(path)}

    def set(self, letter):
        with self.path.open("r+b", buffering=0) as file:
            file.write(letter.encode())

    def off(self):
        self.set("-")


class Quota:
    """A control group of its own for one process, with a CPU quota that can be set and lifted."""

    def __init__(self):
        self.directory, self.version = None, 0
        for version, parent in self._parents():
            directory = parent / f"corefan-test-{os.getpid()}"
            try:
                directory.mkdir()
            except OSError:
                continue
            if (directory / ("cpu.cfs_quota_us" if version == 1 else "cpu.max")).exists():
                self.directory, self.version = directory, version
                return
            directory.rmdir()
        raise unittest.SkipTest("no control group with a CPU quota can be made here (no root, or no cpu controller)")

    @staticmethod
    def _parents():
        """Directories below which a group may be made, nearest first."""
        groups = {}
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            groups[1 if "cpu" in controllers.split(",") else 2 if not controllers else 0] = group
        for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
            words, tail = line.split(" - ")
            kind, _, options = tail.split(" ", 2)
            version = {"cgroup": 1, "cgroup2": 2}.get(kind, 0)
            if version not in groups or (version == 1 and "cpu" not in options.split(",")):
                continue
            root, point = words.split()[3:5]
            own = pathlib.Path(point) / groups[version].removeprefix(root).lstrip("/")
            for directory in (own, *own.parents):
                if directory.is_relative_to(point):
                    yield version, directory

    def set_ms(self, ms):
        """CPU in every 100 ms; None lifts it."""
        if self.version == 1:
            (self.directory / "cpu.cfs_quota_us").write_text(str(-1 if ms is None else ms * 1000))
        else:
            (self.directory / "cpu.max").write_text(f"{'max' if ms is None else ms * 1000} 100000")

    def remove(self):
        end = time.monotonic() + 5
        while True:
            try:
                self.directory.rmdir()
                return
            except OSError:  # its last process is not gone yet
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


class Injection(worker_protocol.Protocol):
    words = [harness.WORKER]

    def setUp(self):
        super().setUp()
        if len(CPUS) < 2:
            self.skipTest("two CPUs are needed: one to measure on and one to disturb from")
        self.cpu = CPUS[-1]
        self.attempt = 0

    def launch_worker(self, *before, env=None):
        """The worker, behind the words of a launcher."""
        place = "--cpu", str(self.cpu), "--housekeeping", str(CPUS[0])
        self.worker = self.start(*before, *URGENT, *self.words, "--connect", self.coordinator.endpoint, *place, env=env)
        self.pid = self.coordinator.welcome()["pid"]

    def measured_thread(self):
        for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == "measured":
                return int(task.name)
        self.fail("no thread is called 'measured'")

    def launch_with_switches(self):
        switches = Switches(self.scratch / "switches")
        env = dict(os.environ, **switches.env)
        if subprocess.run([harness.WORKER, "--version"], env=env, capture_output=True, check=False).returncode:
            self.skipTest("the worker does not start with a shim before it (a sanitizer wants to be the first)")
        self.launch_worker(env=switches.env)
        return switches

    def judge(self, spec, rounds):
        """The flags of each round, as sets of names."""
        lines = [" ".join(f"{name}={value}" for name, value in one.items() if isinstance(value, int)) + "\n"
                 for one in rounds]
        judged = subprocess.run([JUDGE, spec["job"], spec["arm"], str(self.cpu)], input="".join(lines), text=True,
                                capture_output=True, check=True)
        return [set(line.split()) for line in judged.stdout.splitlines()]

    def one_round(self, number, disturb=None):
        start_ns = time.monotonic_ns() + LEAD_NS
        self.coordinator.go(attempt=self.attempt, go=number, first_block=number, blocks=1, start_at_ns=start_ns)
        if disturb:
            disturb(start_ns)
        one, = self.coordinator.result(attempt=self.attempt, go=number, error=None)["rounds"]
        self.assertIsNone(one["error"])
        return one

    def take_turns(self, spec, disturb, undo):
        self.coordinator.assign([spec], blocks=2 * PAIRS, attempt=self.attempt)
        self.coordinator.expect("ready", timeout=60, attempt=self.attempt, error=None)
        quiet, disturbed = [], []
        for pair in range(PAIRS):
            quiet.append(self.one_round(2 * pair))
            try:
                disturbed.append(self.one_round(2 * pair + 1, disturb))
            finally:
                undo()
        return quiet, disturbed

    def assert_raises_exactly(self, expected, spec, disturb, undo=calm):
        """Gives (quiet, disturbed) rounds.  A host that is busy with something else may need a second look; one that was
        not idle before and after any of them proves nothing."""
        idle_host = False
        for self.attempt in range(5):
            idle_before = wait_until_idle(self.cpu)
            rounds = self.take_turns(spec, disturb, undo)
            quiet, disturbed = (self.judge(spec, one) for one in rounds)
            found = raised(quiet, disturbed)
            if found == expected and all(share(disturbed, name) >= 0.8 for name in expected):
                return rounds
            idle_host = idle_host or (idle_before and is_idle(self.cpu))
        if not idle_host:
            self.skipTest(f"somebody else computes on CPU {self.cpu} all the time: no round is quiet there")
        self.fail(f"raised {found}, not {expected}: quiet {quiet}, disturbed {disturbed}")
        return None

    def stop_for_5_ms(self, start_ns):
        sleep_until(start_ns + 10 * MS)
        os.kill(self.pid, signal.SIGSTOP)
        time.sleep(0.005)
        os.kill(self.pid, signal.SIGCONT)

    def run_out_of_quota(self):
        quota = Quota()
        self.addCleanup(quota.remove)
        self.launch_worker("sh", "-c", f"echo $$ > {quota.directory}/cgroup.procs && exec \"$@\"", "sh")
        quota.set_ms(50)
        quota.set_ms(None)
        quiet, disturbed = self.assert_raises_exactly({"throttled"}, BURN, lambda start_ns: quota.set_ms(15),
                                                      lambda: quota.set_ms(None))
        self.assertTrue(all(one["throttled_ns"] > 0 for one in disturbed if one["throttles"]))
        self.assertEqual({one["throttles"] for one in quiet} - {None}, {0})


class Faults(Injection):
    def test_a_quiet_round_raises_nothing(self):
        self.launch_worker()
        quiet, again = self.assert_raises_exactly(set(), BURN, lambda start_ns: None)
        for one in quiet + again:
            self.assertEqual((one["cpu_start"], one["cpu_end"]), (self.cpu, self.cpu))
            self.assertGreaterEqual(one["steal_ticks"], 0)

    def test_a_competitor_on_the_measured_core(self):
        competitor = self.start(*URGENT, "taskset", "-c", str(self.cpu), "sh", "-c", "while :; do :; done")
        competitor.send_signal(signal.SIGSTOP)
        self.launch_worker()
        _, disturbed = self.assert_raises_exactly(
            {"runq_delay"}, BURN, lambda start_ns: competitor.send_signal(signal.SIGCONT),
            lambda: competitor.send_signal(signal.SIGSTOP))
        self.assertTrue(any(one["switches_involuntary"] > 0 for one in disturbed))

    def test_a_stop_while_it_computes(self):
        self.launch_worker()
        self.assert_raises_exactly({"gap"}, BURN, self.stop_for_5_ms)

    def test_a_stop_while_it_waits(self):
        self.launch_worker()
        self.assert_raises_exactly({"gap"}, WAITS, self.stop_for_5_ms)

    def test_a_migration(self):
        self.launch_worker()
        thread = self.measured_thread()

        def migrate(start_ns):
            sleep_until(start_ns + 10 * MS)
            os.sched_setaffinity(thread, {CPUS[0]})

        _, disturbed = self.assert_raises_exactly({"migration"}, BURN, migrate,
                                                  lambda: os.sched_setaffinity(thread, {self.cpu}))
        self.assertTrue(any((one["cpu_start"], one["cpu_end"]) == (self.cpu, CPUS[0]) for one in disturbed))

    def test_a_round_on_another_cpu_from_start_to_end(self):
        self.launch_worker()
        thread = self.measured_thread()
        self.assert_raises_exactly({"migration"}, BURN, lambda start_ns: os.sched_setaffinity(thread, {CPUS[0]}),
                                   lambda: os.sched_setaffinity(thread, {self.cpu}))

    def test_page_faults(self):
        switches = self.launch_with_switches()
        quiet, disturbed = self.assert_raises_exactly({"faults"}, BURN, lambda start_ns: switches.set("f"), switches.off)
        self.assertGreaterEqual(min(one["faults_minor"] for one in disturbed), 16)
        self.assertLess(min(one["faults_minor"] for one in quiet), 16)

    def test_a_quota_that_runs_out(self):
        self.run_out_of_quota()

    def test_a_wall_clock_that_steps(self):
        switches = self.launch_with_switches()
        quiet, disturbed = self.assert_raises_exactly(set(), BURN, lambda start_ns: switches.set("w"), switches.off)
        for one in quiet + disturbed:
            self.assertLess(one["wall_ns"], 600_000 * MS)  # a step is an hour
        switches.set("w")
        probe = "import time; times = [time.time() for _ in range(4)]; print(max(times) - min(times))"
        stepped = subprocess.run(["/usr/bin/python3", "-c", probe], env=dict(os.environ, **switches.env),
                                 capture_output=True, text=True, check=True)
        self.assertGreater(float(stepped.stdout), 3600)


class PythonWorker(Injection):
    """The same counters, read by the other worker, whose measured process is a child of its session."""
    words = [str(harness.BIN / "corefan-worker-asyncio"), "--loop", "asyncio"]

    def launch_worker(self, *before, env=None):
        super().launch_worker(*before, env=env)
        self.pid, = harness.children_of(self.worker.pid)

    def test_a_quiet_round_raises_nothing(self):
        self.launch_worker()
        quiet, again = self.assert_raises_exactly(set(), BURN, lambda start_ns: None)
        for one in quiet + again:
            self.assertGreaterEqual(one["steal_ticks"], 0)

    def test_a_stop_while_it_computes(self):
        self.launch_worker()
        self.assert_raises_exactly({"gap"}, BURN, self.stop_for_5_ms)

    def test_a_quota_that_runs_out(self):
        self.run_out_of_quota()


class WholeRuns(harness.EndToEnd):
    def test_stops_are_told_by_the_summary(self):
        run = self.start_sweep(CPU_SWEEP, "--workers", "1", "--progress", "none")
        worker, = self.wait_for(lambda: harness.children_of(run.pid), "a worker")
        while run.poll() is None:
            time.sleep(0.06)
            try:
                os.kill(worker, signal.SIGSTOP)
                time.sleep(0.005)
                os.kill(worker, signal.SIGCONT)
            except ProcessLookupError:
                break
        self.assertEqual(self.finish(run).code, 0)
        one, = self.summary()["cells"]
        self.assertIn("gap", one["flags"])
        self.assertIn(one["verdict"], ("noisy", "drift"))  # the worst that holds: a host that fills up makes it drift too
        self.assertEqual(one["rounds_broken"], 0)
        self.assertRegex((self.scratch / "run" / "summary.txt").read_text(), "gap [0-9]+")

    def test_a_wall_clock_that_steps_changes_no_figure(self):
        switches = Switches(self.scratch / "switches")
        switches.set("w")
        if self.run_corefan("--version", env=switches.env).code:
            self.skipTest("corefan does not start with a shim before it (a sanitizer wants to be the first)")
        done = self.run_sweep(harness.SMALL_SWEEP, "--workers", "1", "--progress", "none", env=switches.env)
        self.assertEqual(done.code, 0, done.err)
        summary = self.summary()
        self.assertEqual(summary["run"]["status"], "complete")
        for one in summary["cells"]:
            self.assertEqual((one["rounds"], one["attempts"], one["rounds_broken"]), (5, 1, 0), one["id"])
            self.assertLess(one["wall_ns"]["max"], 600_000 * MS, one["id"])


if __name__ == "__main__":
    unittest.main()
