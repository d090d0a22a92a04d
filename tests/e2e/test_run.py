"""corefan run as a user meets it: results, files, exit codes, and what is left behind.

Results and Trouble ask something of the workers too: they run for each kind of them (COREFAN_RUNTIME).
"""
import json
import os
import resource
import signal
import sqlite3
import time
import unittest

from harness import (COREFAN, EARLY_NS, RUNTIME, SLOW_SWEEP, SMALL_SWEEP, EndToEnd, children_of, processes_with,
                     wait_for_cpus)

CELL_KEYS = """id runtime arm job fanout delay_ns clients phase cores rate_per_s duration_ns rounds attempts processes
verdict flags wall_ns cpu_ns harness_ns cpu_net_ns ideal_wall_ns over_ideal_x speedup_x speedup_block_x max_in_flight
wakeups_per_fanout fanouts_per_round throughput_per_s throughput_per_s_core utilization ceiling_per_s_core
workers""".split()

FIVE_ARMS = """\
seed: 3
rounds: 6
warmup: 1
arms: [sequential, tasks, gather, gather-return-exceptions, taskgroup]
matrix:
  - {job: sleep, fanout: 2, delay: 1ms}
"""
QUIETLY = ("--progress", "none", "--co-run")  # where rounds and processes are counted, and no time is judged


class Results(EndToEnd):
    def test_small_sweep(self):
        done = self.run_sweep(SMALL_SWEEP)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(done.out, (self.scratch / "run/summary.txt").read_text())
        summary = self.summary()
        self.assertEqual(summary["run"]["status"], "complete")
        cells = summary["cells"]
        self.assertEqual(len(cells), 3 + 4)
        self.assertEqual(len({cell["id"] for cell in cells}), 7)
        for cell in cells:
            for key in CELL_KEYS:
                self.assertIn(key, cell, cell["id"])
            self.assertEqual(cell["rounds"], 5)
            self.assertEqual(cell["attempts"], 1)
            wall = cell["wall_ns"]
            self.assertLessEqual(wall["min"], wall["p50"]["value"])
            self.assertLessEqual(wall["p50"]["value"], wall["max"])
            self.assertGreater(cell["cpu_ns"]["p50"]["value"], 0)
            self.assertAlmostEqual(wall["p50"]["ci_level"], 0.9375)
            self.assertNotEqual(cell["verdict"], "invalid")
        self.assert_nulls_have_reasons(summary)
        by_arm = {cell["arm"]: cell for cell in cells if cell["job"] == "sleep"}
        self.assertGreaterEqual(by_arm["sequential"]["wall_ns"]["min"], 4 * (2_000_000 - EARLY_NS))
        self.assertGreaterEqual(by_arm["gather"]["wall_ns"]["min"], 2_000_000 - EARLY_NS)
        self.assertEqual(by_arm["sequential"]["max_in_flight"], 1)
        self.assertEqual(by_arm["gather"]["max_in_flight"], 4)
        self.assertEqual(by_arm["sequential"]["speedup_x"]["value"], 1)
        self.assertGreater(by_arm["gather"]["speedup_x"]["value"], 2)

    def assert_nulls_have_reasons(self, node, where="summary"):
        if isinstance(node, dict):
            for key, value in node.items():
                if value is None:
                    self.assertIn(key + "_null_reason", node, f"{where}.{key}")
                self.assert_nulls_have_reasons(value, f"{where}.{key}")
        elif isinstance(node, list):
            for index, value in enumerate(node):
                self.assert_nulls_have_reasons(value, f"{where}[{index}]")

    def test_cores_all_pools_every_worker(self):
        workers = min(2, len(os.sched_getaffinity(0)))
        done = self.run_sweep("name: g\nrounds: 5\ncores: [1, all]\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n",
                              "--workers", str(workers))
        self.assertEqual(done.code, 0, done.err)
        for cell in self.summary()["cells"]:
            self.assertEqual(cell["rounds"], 5 * cell["cores"])
            self.assertEqual(len(cell["workers"]), cell["cores"])

    def test_a_gang_starts_at_one_instant(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("a gang needs two CPUs")
        done = self.run_sweep("name: g\nrounds: 5\ncores: 2\narms: [gather]\nmatrix: [{job: sleep, fanout: 3, delay: 5ms}]\n",
                              "--workers", "2", "--progress", "none")
        self.assertEqual(done.code, 0, done.err)
        with sqlite3.connect(self.scratch / "run/run.db") as db:
            turns = db.execute("select block, cell, count(*), count(intended_start_ns), count(distinct intended_start_ns),"
                               " min(start_ns - intended_start_ns) from rounds group by block, cell").fetchall()
        self.assertEqual(len(turns), 5 * 2)  # the empty arm is a cell of its own
        for block, cell, rounds, told, instants, least_late_ns in turns:
            self.assertEqual((rounds, told, instants), (2, 2, 1), (block, cell))
            self.assertGreaterEqual(least_late_ns, 0)
        self.assertEqual([row["start_skew_ns"] is not None for row in self.summary()["scaling"]], [True])

    def test_cpus_that_are_shared_are_flagged(self):
        cpu = str(min(os.sched_getaffinity(0)))
        sweep = "name: g\nrounds: 2\ncores: [1, 2]\narms: [gather]\nmatrix: [{job: sleep, fanout: 3, delay: 1ms}]\n"
        refused = self.run_sweep(sweep, "--workers", "2", "--cpus", cpu)
        self.assert_one_line(refused, 2, "--oversubscribe", "1 of")
        done = self.run_sweep(sweep, "--workers", "2", "--cpus", cpu, "--oversubscribe")
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("2 workers share 1 CPU ", done.err)
        self.assertEqual({cell["cores"]: "oversubscribed" in cell["flags"] for cell in self.summary()["cells"]},
                         {1: False, 2: True})

    def test_idle_cpus_are_kept_busy_when_asked(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("two CPUs are wanted, one of them idle")
        sweep = "name: g\nrounds: 20\narms: [gather]\nmatrix: [{job: sleep, fanout: 3, delay: 10ms}]\n"
        used = []
        for out, more in (("plain", ()), ("filled", ("--fill-idle",))):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            done = self.run_sweep(sweep, "--workers", "2", *more, out=out)
            self.assertEqual(done.code, 0, done.err)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime - before.ru_utime)
            self.assertEqual(json.loads((self.scratch / out / "summary.json").read_text())["run"]["fill_idle"], bool(more))
            self.assertEqual("idle ones kept busy" in done.out, bool(more))
        self.assertGreater(used[1], used[0])  # 0.4 s of waiting, on one CPU at a time

    def test_placement_is_part_of_what_is_measured(self):
        cpu = min(os.sched_getaffinity(0))
        done = self.run_sweep(f"name: g\nrounds: 1\nplacement: {cpu}\narms: [gather]\n"
                              "matrix: [{job: sleep, fanout: 3, delay: 1ms}]\n")
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual([worker["cpu"] for worker in self.summary()["workers"]], [cpu])
        self.assertEqual([cell["id"].partition("/")[2] for cell in self.summary()["cells"]],
                         [f"gather/sleep/n=3/delay=1ms/cores=1/placement={cpu}"])

    def test_same_seed_same_order(self):
        orders = []
        for out in ("a", "b"):
            self.assertEqual(self.run_sweep(FIVE_ARMS, out=out).code, 0)
            with sqlite3.connect(self.scratch / out / "run.db") as db:
                orders.append(db.execute("select cell, block, position from rounds order by 1, 2, 3").fetchall())
        self.assertEqual(orders[0], orders[1])


class Output(EndToEnd):
    def test_stdout_is_exactly_the_format_asked_for(self):
        done = self.run_sweep(SMALL_SWEEP, "--format", "json")
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual(json.loads(done.out), self.summary())
        self.assertEqual(done.out, (self.scratch / "run/summary.json").read_text())

    def test_the_command_line_is_kept_as_it_was_written(self):
        path = self.write("sweep.yaml", SMALL_SWEEP)
        words = [COREFAN, "run", path, "--workers", "1", "--out", str(self.scratch / "run"), "--set", "rounds=2", "--quiet"]
        self.assertEqual(self.finish(self.start(*words)).code, 0)
        self.assertEqual(self.summary()["run"]["argv"], words)

    def test_report_rebuilds_the_same_bytes(self):
        self.assertEqual(self.run_sweep(SMALL_SWEEP).code, 0)
        for name, form in (("summary.json", "json"), ("summary.txt", "text")):
            path = self.scratch / "run" / name
            before = path.read_bytes()
            path.unlink()
            again = self.run_corefan("report", str(self.scratch / "run"), "--format", form)
            self.assertEqual(again.code, 0, again.err)
            self.assertEqual(again.out.encode(), before)
        rows = self.run_corefan("report", str(self.scratch / "run"), "--format", "csv").out.splitlines()
        self.assertEqual(len(rows), 1 + 7)

    def test_raw_rounds_are_all_kept(self):
        self.assertEqual(self.run_sweep(SMALL_SWEEP).code, 0)
        with sqlite3.connect(self.scratch / "run/run.db") as db:
            per_cell = dict(db.execute("select cell, count(*) from rounds group by cell"))
        self.assertEqual(set(per_cell.values()), {5})
        self.assertEqual(len(per_cell), 7 + 2)  # and the empty arm of both groups


class Trouble(EndToEnd):
    def fake_worker(self, script):
        path = self.write("worker", f"#!/bin/sh\n{script}")
        os.chmod(path, 0o755)
        return path

    def run_with(self, program, *argv, **more):
        """A sweep with that program in place of the worker, or of the interpreter of one in Python."""
        if RUNTIME == "libuv":
            return self.run_sweep(SMALL_SWEEP, *argv, env={"COREFAN_WORKER": program}, **more)
        return self.run_sweep(f"runtimes: [{{kind: {RUNTIME}, python: {program}}}]\n{SMALL_SWEEP}", *argv, **more)

    def test_killed_worker_is_replaced_and_its_group_run_again(self):
        process = self.start_sweep(SLOW_SWEEP, "--workers", "1", *QUIETLY)
        worker = self.wait_for(lambda: children_of(process.pid), "a worker")[0]
        self.wait_until_it_measures()
        os.kill(worker, signal.SIGKILL)
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.assertIn("lost", done.err)
        summary = self.summary()
        self.assertEqual(summary["run"]["status"], "complete")
        self.assertEqual(len(summary["cells"]), 2)
        for cell in summary["cells"]:
            self.assertEqual((cell["rounds"], cell["attempts"]), (20, 2))

    def lose(self, stop, sweep=SLOW_SWEEP, of=lambda pid: pid):
        """A run whose worker gets that signal while it measures on a CPU of its own; what was said."""
        cpus = sorted(os.sched_getaffinity(0))[:2]
        mark = f"corefan-lost-{os.getpid()}"
        process = self.start_sweep(sweep, "--cpus", str(cpus[-1]), "--housekeeping", str(cpus[0]),
                                   *QUIETLY, env={"MARK": mark})
        worker, = self.wait_for(lambda: children_of(process.pid), "a worker")
        self.wait_until_it_measures()
        os.kill(of(worker), stop)
        done = self.finish(process)
        self.assertEqual(done.code, 0, done.err)
        self.assertEqual({(cell["rounds"], cell["attempts"]) for cell in self.summary()["cells"]}, {(20, 2)})
        self.assertEqual(processes_with(mark), [])
        return done.err

    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs a CPU for the heartbeats")
    def test_a_stopped_worker_is_lost_by_its_heartbeats(self):
        self.assertIn("no heartbeat for", self.lose(signal.SIGSTOP))

    @unittest.skipIf(RUNTIME == "libuv", "its loop is a thread of the worker")
    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "needs a CPU for the heartbeats")
    def test_a_killed_loop_voids_the_attempt_alone(self):
        said = self.lose(signal.SIGKILL, of=lambda worker: children_of(worker)[0])
        self.assertIn("the loop's process died: signal 9", said)
        self.assertNotIn("lost", said)  # the worker lives on, with another loop

    def test_a_worker_that_always_dies_ends_the_run(self):
        done = self.run_with(self.fake_worker("echo 'no such device' >&2\nexit 7\n"), *QUIETLY, timeout=60)
        self.assertEqual(done.code, 1, done.err)
        self.assertEqual(done.err.splitlines()[-1],
                         "corefan: a worker cannot start: its process ended with exit status 7: no such device")
        self.assertFalse((self.scratch / "run").exists())

    def test_a_worker_that_cannot_run_here_is_not_tried_again(self):
        fake = self.fake_worker("echo started >>starts\necho 'no uvloop: install python3-uvloop' >&2\nexit 2\n")
        done = self.run_with(fake, "--workers", "1", *QUIETLY)
        self.assertEqual(done.code, 2, done.err)
        self.assertIn("install python3-uvloop", done.err)
        self.assertEqual((self.scratch / "starts").read_text(), "started\n")
        self.assertFalse((self.scratch / "run").exists())

    def test_missing_worker_binary(self):
        done = self.run_with("/nonexistent/corefan-worker")
        self.assert_one_line(done, 2, "/nonexistent/corefan-worker")

    def test_ctrl_c_keeps_what_was_measured(self):
        mark = f"corefan-ctrl-c-{os.getpid()}"
        process = self.start_sweep(SLOW_SWEEP + "  - {job: noop, fanout: 2}\n", *QUIETLY, env={"MARK": mark})
        self.wait_until_it_measures()
        process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        done = self.finish(process)
        self.assertLess(time.monotonic() - asked, 10)
        self.assertEqual(done.code, 130, done.err)
        self.assertEqual(self.summary()["run"]["status"], "interrupted")
        self.assertIn("interrupted", done.out)
        self.assertEqual(processes_with(mark), [])
        for cell in self.summary()["cells"]:
            if cell["job"] == "sleep":  # the group that ran: its rounds so far, though one order covers them all
                self.assertGreater(cell["rounds"], 0)
                self.assertLess(cell["rounds"], 20)
                self.assertIn("incomplete", cell["flags"])

    def test_workers_do_not_outlive_a_killed_coordinator(self):
        for seconds in (0, 1):  # when they have just been started, and while they measure
            mark = f"corefan-killed-{os.getpid()}-{seconds}"
            process = self.start_sweep(SLOW_SWEEP, *QUIETLY, env={"MARK": mark}, out=mark)
            self.wait_for(lambda: children_of(process.pid), "workers")
            time.sleep(seconds)
            process.kill()
            process.wait()
            self.wait_for(lambda: not processes_with(mark), "the workers' end", timeout=5)
            wait_for_cpus()


class OneHost(EndToEnd):
    def test_what_a_killed_coordinator_left_is_put_away(self):
        runtime = self.scratch / "runtime"
        runtime.mkdir()
        strangers = {"corefan-notours", "corefan-abcdef"}  # another name; one of ours with something else inside
        for name in strangers:
            (runtime / name).mkdir()
        (runtime / "corefan-abcdef/file").touch()
        env = {"XDG_RUNTIME_DIR": str(runtime)}
        process = self.start_sweep(SLOW_SWEEP, "--progress", "none", env=env)
        self.wait_for(lambda: list(runtime.glob("corefan-*/fleet")), "the socket")
        other = self.run_corefan("run", str(self.scratch / "sweep.yaml"), "--out", str(self.scratch / "other"), env=env)
        self.assertEqual(other.code, 2)  # the same CPUs
        self.assertEqual(len(list(runtime.glob("corefan-*/fleet"))), 1)  # what lives is left alone
        process.kill()
        process.wait()
        for path in runtime.iterdir():
            os.utime(path, (time.time() - 60, time.time() - 60))  # a newborn one would be left alone
        wait_for_cpus()
        self.assertEqual(self.run_sweep(SMALL_SWEEP, out="next", env=env).code, 0)
        self.assertEqual({path.name for path in runtime.iterdir()}, strangers)

    def test_second_run_on_the_same_cpus_is_refused(self):
        first = self.start_sweep(SLOW_SWEEP, "--progress", "none")
        self.wait_for((self.scratch / "run/run.db").exists, "the store")
        second = self.run_corefan("run", str(self.scratch / "sweep.yaml"), "--out", str(self.scratch / "other"))
        self.assert_one_line(second, 2, "--co-run", str(first.pid))
        self.assertEqual(self.finish(first).code, 0)


class BadInput(EndToEnd):
    def test_command_line(self):
        sweep = self.write("s.yaml", SMALL_SWEEP)
        (self.scratch / "full").mkdir()
        (self.scratch / "full/file").write_text("x")
        cases = [
            (("run", sweep, "--cpus", "4096"), "4096"),
            (("run", sweep, "--cpus", "0,0"), "0"),
            (("run", sweep, "--cpus", "zero"), "zero"),
            (("run", sweep, "--workers", "-1"), "--workers"),
            (("run", sweep, "--out", str(self.scratch / "full")), "full"),
            (("run", sweep, "--out", "/proc/corefan/run"), "/proc/corefan"),
            (("run", sweep, "--format", "jsn"), "json"),
            (("run", "/nonexistent.yaml"), "/nonexistent.yaml"),
            (("run", str(self.scratch)), str(self.scratch)),
            (("run", sweep, "--listen", "tcp://0.0.0.0:7777"), "other hosts"),
            (("run", sweep, "--listen", "nonsense"), "nonsense"),
            (("run", sweep, "--set", "fanouts=3"), "fanout"),
            (("run", sweep, "--set", "cores=5000"), "'cores' is 5000, but there "),
            (("run", sweep, "--workers", "1", "--set", "cores=2"), "1 worker per runtime: fewer 'cores', or more workers"),
            (("run", sweep, "--set", "placement=sprea"), "spread"),
            (("run", sweep, "--set", "placement=4096"), "placement '4096': cpu 4096 does not exist"),
            (("run", sweep, "--workers", "0", "--expect", "1", "--listen", "ipc:///tmp/x", "--fill-idle"), "--fill-idle"),
            (("run", sweep, "--set", "placement=0,"), "a list of CPUs such as 0,2-5, not"),
            (("run", sweep, "--set", "placement=0", "--cpus", "0"), "--cpus"),
            (("run", sweep, "--set", "placement=spread", "--workers", "0", "--expect", "1", "--listen", "ipc:///tmp/x"),
             "--workers 0"),
            (("run", sweep, "--set", "rate=0/s"), "above 0"),
            (("run", sweep, "--set", "rate=1000000000000/s"), "10M/s"),
            (("run", sweep, "--set", "rate=10/s", "--set", "clients=4"), "'clients' above 1"),
            (("run", sweep, "--set", "duration=0s"), "'duration' must be 1ms to"),
            (("run", sweep, "--set", "duration=1s"), "without 'clients' or 'rate'"),
            (("run", sweep, "--set", "clients={ladder: 100000}"), "'ladder' must be 2 to 65,536"),
            (("report", "/nonexistent"), "/nonexistent"),
            (("report", str(self.scratch / "full")), "full"),
            (("rnu",), "run"),
            (("run", sweep, "--sed", "3"), "--sed"),
        ]
        for argv, part in cases:
            with self.subTest(argv=argv):
                done = self.run_corefan(*argv, timeout=30)
                self.assert_one_line(done, 2, part)

    def test_all_mistakes_of_a_sweep_are_told(self):
        sweep = self.write("bad.yaml", "name: bad\nfanouts: 3\nmatrix:\n  - {job: sleep, fanout: 0, delay: 5}\n")
        done = self.run_corefan("run", sweep)
        self.assertEqual(done.code, 2)
        lines = done.err.strip().splitlines()
        self.assertEqual(len(lines), 3, done.err)
        self.assertIn("bad.yaml:2:1: unknown key 'fanouts', did you mean 'fanout'?", lines[0])
        self.assertIn("bad.yaml:4:", lines[1])
        self.assertIn("unit", lines[2])
        self.assertFalse((self.scratch / "runs").exists())

    def test_port_in_use(self):
        import socket
        with socket.socket() as busy:
            busy.bind(("127.0.0.1", 0))
            busy.listen()
            port = busy.getsockname()[1]
            done = self.run_sweep(SMALL_SWEEP, "--listen", f"tcp://127.0.0.1:{port}")
        self.assert_one_line(done, 2, str(port), "in use")


class Help(EndToEnd):
    def test_help_fits_a_screen(self):
        for argv in (("--help",), ("run", "--help"), ("plan", "--help"), ("report", "--help")):
            done = self.run_corefan(*argv)
            self.assertEqual((done.code, done.err), (0, ""), argv)
            lines = done.out.splitlines()
            self.assertLessEqual(len(lines), 50, argv)
            self.assertLessEqual(max(map(len, lines)), 100, argv)

    def test_version(self):
        done = self.run_corefan("--version")
        self.assertEqual(done.code, 0)
        self.assertRegex(done.out, r"^corefan \d+\.\d+\.\d+ \(protocol \d+\.\d+\)\nbuilt with \S+ \d.*; libuv \d.*\n$")

    def test_plan_runs_nothing(self):
        sweep = self.write("s.yaml", SMALL_SWEEP)
        done = self.run_corefan("plan", sweep)
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertIn("gather", done.out)
        as_json = json.loads(self.run_corefan("plan", sweep, "--format", "json").out)
        self.assertTrue(as_json)
        self.assertFalse((self.scratch / "runs").exists())


if __name__ == "__main__":
    assert COREFAN
    unittest.main()
