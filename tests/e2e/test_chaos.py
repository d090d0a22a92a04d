"""A sweep of 2,000 cells is measured while its fleet is killed, stopped, cut off and started again; nothing may be lost.

The fleet: a coordinator with launched workers, and two more "hosts" whose workers were started by hand, each with a C and a
Python worker: one behind a wire between two network namespaces, one behind a TCP relay.  What is done to them is drawn from
COREFAN_CHAOS_SEED, one fault for every few groups that got done: the length is bounded by work, not by a clock.
COREFAN_CHAOS_ROUNDS and COREFAN_CHAOS_STEP (groups for each fault) make it longer.
"""
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import unittest

from harness import COREFAN, PYTHON_WORKER, ROOT, WORKER, EndToEnd, alive, children_of, processes_with
from test_keys import namespaces_can_be_made

SEED = int(os.environ.get("COREFAN_CHAOS_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
ROUNDS = int(os.environ.get("COREFAN_CHAOS_ROUNDS", "2"))
STEP = int(os.environ.get("COREFAN_CHAOS_STEP", "8"))
CELLS = 2000
SWEEP = f"""\
name: chaos
seed: 5
rounds: {ROUNDS}
warmup: 1
arms: [sequential, gather]
runtimes: [libuv, asyncio]
matrix:
  - {{job: sleep, fanout: [{', '.join(str(n) for n in range(1, 21))}], delay: [{', '.join(f'{n}00us' for n in range(1, 21))}]}}
  - {{job: sleep, fanout: [{', '.join(str(n) for n in range(1, 11))}], delay: [{', '.join(f'{n}50us' for n in range(1, 11))}],
     cores: 2}}
"""
HERE, PORT, RELAY_PORT = "10.99.8.1", "7272", "7273"
STUCK_S = 240  # without a single group done: given up
LAST_TRIES = 5  # undisturbed resumes for what was given up after three attempts


class Chaos(EndToEnd):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.mark = f"COREFAN_CHAOS={os.getpid()}"
        self.faults = collections.Counter()
        self.undo = []  # (when, what), by time
        self.names = [f"corefan-chaos-{os.getpid()}-{side}" for side in ("here", "there")]
        self.addCleanup(self.remove_namespaces)
        for name in self.names:
            self.ip("netns", "add", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        self.ip("link", "add", "here", "netns", self.names[0], "type", "veth", "peer", "name", "there", "netns", self.names[1])
        for name, device, address in zip(self.names, ("here", "there"), (HERE, "10.99.8.2"), strict=True):
            self.ip("-n", name, "address", "add", f"{address}/24", "dev", device)
            self.ip("-n", name, "link", "set", device, "up")
        (self.scratch / "let-in").mkdir()
        for name in ("coordinator", "worker"):
            self.assertEqual(self.run_corefan("keygen", str(self.scratch / name)).code, 0)
        (self.scratch / "let-in/worker.pub").write_text((self.scratch / "worker.pub").read_text())
        self.write("sweep.yaml", SWEEP)

    def remove_namespaces(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    # -- the fleet

    def spawn(self, side, *argv, stdin=subprocess.DEVNULL):
        with open(self.scratch / "log", "ab") as log:
            process = subprocess.Popen(["ip", "netns", "exec", self.names[side], *argv], stdin=stdin,
                                       stdout=subprocess.DEVNULL, stderr=log, cwd=self.scratch, start_new_session=True,
                                       env=dict(os.environ, COREFAN_CHAOS=str(os.getpid())))
        self.started.append(process)
        return process

    def start_coordinator(self):
        sweep = ("--resume", str(self.scratch / "run")) if (self.scratch / "run/run.db").exists() else \
            (str(self.scratch / "sweep.yaml"), "--out", str(self.scratch / "run"))
        self.coordinator = self.spawn(0, COREFAN, "run", *sweep, "--workers", "2", "--listen", f"tcp://{HERE}:{PORT}",
                                      "--key", str(self.scratch / "coordinator"), "--authorized-keys",
                                      str(self.scratch / "let-in"), "--progress", "none", "--co-run")

    def start_by_hand(self, place):
        """Of one host and kind: (far or relayed, program)."""
        host, program = place
        endpoint, side = {"far": (f"tcp://{HERE}:{PORT}", 1), "relayed": (f"tcp://127.0.0.1:{RELAY_PORT}", 0)}[host]
        self.by_hand[place] = self.spawn(
            side, "unshare", "--uts", "sh", "-c", f"hostname {host} && exec \"$@\"", "sh", program, "--connect", endpoint,
            "--cpu", "1", "--housekeeping", "0", "--key", str(self.scratch / "worker"), "--coordinator-key",
            str(self.scratch / "coordinator.pub"))

    def start_fleet(self):
        self.relay = self.spawn(0, sys.executable, str(ROOT / "tests/e2e/relay.py"), RELAY_PORT, HERE, PORT,
                                stdin=subprocess.PIPE)
        self.start_coordinator()
        self.by_hand = {}
        for host in ("far", "relayed"):
            for program in (WORKER, PYTHON_WORKER):
                self.start_by_hand((host, program))

    def tend(self):
        """What is over is undone; a worker by hand that ended is started again, as its user would."""
        while self.undo and self.undo[0][0] <= time.monotonic():
            self.undo.pop(0)[1]()
        for place, process in list(self.by_hand.items()):
            if process.poll() is not None:
                self.start_by_hand(place)

    def later(self, seconds, what):
        self.undo.append((time.monotonic() + seconds, what))
        self.undo.sort(key=lambda one: one[0])

    # -- what is done to it

    def order(self, line):
        self.relay.stdin.write(line.encode() + b"\n")
        self.relay.stdin.flush()

    def some_seconds(self):
        return self.random.uniform(0.2, 6)

    def a_local_one(self):
        found = children_of(self.coordinator.pid)
        return self.random.choice(found) if found else None

    def signal_pid(self, pid, number):
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop_pid(self, pid):
        self.signal_pid(pid, signal.SIGSTOP)
        self.later(self.some_seconds(), lambda: self.signal_pid(pid, signal.SIGCONT))

    def a_place(self):
        return self.random.choice(sorted(self.by_hand))

    def kill_launched(self):
        self.signal_pid(self.a_local_one(), signal.SIGKILL)

    def stop_launched(self):
        self.stop_pid(self.a_local_one())

    def kill_by_hand(self):
        self.by_hand[self.a_place()].kill()

    def leave_by_hand(self):
        self.by_hand[self.a_place()].terminate()

    def stop_by_hand(self):
        self.stop_pid(self.by_hand[self.a_place()].pid)

    def cut_wire(self):
        self.ip("-n", self.names[1], "link", "set", "there", "down")
        self.later(self.some_seconds(), lambda: self.ip("-n", self.names[1], "link", "set", "there", "up"))

    def stall_relay(self):
        self.order(f"stall {self.some_seconds() * 1000:.0f}")

    def delay_relay(self):
        self.order(f"delay {self.random.randrange(1, 200)}")
        self.later(self.some_seconds(), lambda: self.order("delay 0"))

    def cut_relay(self):
        self.order("cut")

    def stop_coordinator(self):
        self.stop_pid(self.coordinator.pid)

    def kill_coordinator(self):
        local = children_of(self.coordinator.pid)
        self.coordinator.kill()
        self.coordinator.wait()
        self.wait_for(lambda: not any(alive(pid) for pid in local), "the end of launched workers", timeout=60)
        self.start_coordinator()

    KINDS = ("kill_launched", "stop_launched", "kill_by_hand", "leave_by_hand", "stop_by_hand", "cut_wire", "stall_relay",
             "delay_relay", "cut_relay", "stop_coordinator", "kill_coordinator")

    def next_fault(self):
        """Every kind once, in an order that is drawn, and again."""
        if not self.to_come:
            self.to_come = self.random.sample(self.KINDS, len(self.KINDS))
        kind = self.to_come.pop()
        self.faults[kind] += 1
        getattr(self, kind)()

    # -- the run

    def groups_done(self):
        found = self.rows_so_far("SELECT count(*) FROM groups WHERE state = 'done'")
        return found[0][0] if found else 0

    def disturb_until_it_ends(self):
        self.to_come = []
        target, seen, since = STEP, 0, time.monotonic()
        while self.coordinator.poll() is None:
            self.tend()
            done = self.groups_done()
            if done > seen:
                seen, since = done, time.monotonic()
            self.assertLess(time.monotonic() - since, STUCK_S, f"stuck at {done} groups")
            if done >= target:
                target = done + STEP
                self.next_fault()
            time.sleep(0.1)

    def finish_undisturbed(self):
        """A group that was hit three times was given up, and is measured by a resume."""
        while self.undo:
            self.undo.pop(0)[1]()
        for _ in range(LAST_TRIES):
            self.assertIn(self.coordinator.wait(), (0, 3))
            if self.summary()["run"]["status"] == "complete":
                return
            self.start_coordinator()
            while self.coordinator.poll() is None:
                self.tend()
                time.sleep(0.1)

    def complete_cells(self):
        """Cells of which each member of the gang has each planned block once, in the one attempt that counts."""
        rows = self.rows_so_far(
            "SELECT cells.rounds, cells.cores, count(*), count(DISTINCT block), count(DISTINCT worker),"
            " count(DISTINCT attempt) FROM counted_rounds JOIN cells ON cell = number"
            " WHERE NOT harness GROUP BY cell")
        return sum((rounds * cores, rounds, cores, 1) == (count, blocks, workers, attempts)
                   for rounds, cores, count, blocks, workers, attempts in rows)

    def broken_rounds(self):
        return self.rows_so_far("SELECT id, block, worker, counted_rounds.error FROM counted_rounds JOIN cells ON cell = number"
                                " WHERE error IS NOT NULL")

    def one(self, sql):
        return self.rows_so_far(sql)[0][0]

    def check(self):
        # A process that is stopped in the middle of a round may break its structural proof: told, kept, and exit code 3.
        self.assertEqual(self.coordinator.returncode, 3 if self.broken_rounds() else 0)
        self.assertEqual(self.summary()["run"]["status"], "complete")
        self.assertEqual(self.complete_cells(), CELLS)
        self.assertEqual(self.one("SELECT count(*) FROM cells WHERE NOT harness"), CELLS)
        planned = json.loads(self.run_corefan("plan", str(self.scratch / "sweep.yaml"), "--workers", "2", "--format", "json").out)
        self.assertEqual(sorted(cell["id"] for cell in self.summary()["cells"]),
                         sorted(cell["id"] for group in planned["groups"] for cell in group["cells"]))
        self.assertEqual(self.rows_so_far("SELECT group_number FROM attempts WHERE state = 'counts' GROUP BY 1"
                                          " HAVING count(*) > 1"), [])
        self.assertEqual(self.one("SELECT count(*) FROM attempts WHERE state = 'open'"), 0)
        self.assertEqual(self.run_corefan("report", str(self.scratch / "run")).out,
                         (self.scratch / "run/summary.txt").read_text())

    def tell(self):
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items()))
        void = self.one("SELECT count(*) FROM attempts WHERE state = 'void'")
        refused = (self.scratch / "log").read_text(errors="replace").count(" refused\n")
        print(f"chaos: seed {SEED}, {sum(self.faults.values())} faults ({kinds}); attempts void {void}, refusals told {refused},"
              f" cells lost {CELLS - self.complete_cells()}", file=sys.stderr)
        for row in self.broken_rounds():
            print("chaos: a broken round:", *row, file=sys.stderr)

    @unittest.skipUnless(namespaces_can_be_made(), "network namespaces need root")
    def test_nothing_is_lost(self):
        try:
            self.start_fleet()
            self.disturb_until_it_ends()
            self.finish_undisturbed()
            self.tell()
            self.check()
            for process in self.by_hand.values():  # one that was started at the very end has met no coordinator
                process.terminate()
                process.wait(timeout=60)
            self.relay.stdin.close()
            self.relay.wait(timeout=30)
            self.wait_for(lambda: not processes_with(self.mark), "the end of every process", timeout=30)
        except BaseException:
            print(f"chaos: COREFAN_CHAOS_SEED={SEED}", file=sys.stderr)
            print((self.scratch / "log").read_text(errors="replace")[-8000:], file=sys.stderr)
            raise


if __name__ == "__main__":
    unittest.main()
