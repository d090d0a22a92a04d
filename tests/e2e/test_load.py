#!/usr/bin/python3
"""Windows of load with real workers: ladders that end, parts of ceilings, latencies against a second reading of run.db."""
import math
import os
import signal
import sqlite3
import struct
import threading
import time
import unittest

import harness

# A job without waits saturates its core with one client: rungs beyond the second are left out.
LADDER = """\
name: ladder
rounds: 3
duration: 100ms
job: noop
fanout: 4
matrix:
  - {arms: [sequential, gather], clients: {ladder: 16}}
  - {arms: [gather], rate: [0.01x, 20/s], arrivals: fixed}
"""

SLEEPERS = """\
name: sleepers
rounds: 3
duration: 200ms
job: sleep
fanout: 4
delay: 5ms
arms: [sequential, gather]
matrix:
  - {clients: [1, 8]}
  - {clients: 8, phase: staggered}
  - {rate: 200/s}
"""

# Half of the starts of a millisecond each; a process that is stopped for a tenth of the time.
FROZEN = """\
name: frozen
rounds: 6
warmup: 0
duration: 500ms
job: noop
fanout: 2
arms: [gather]
rate: 1000/s
arrivals: fixed
"""


def lower(index):
    """Where a bucket begins (SPEC.md, 7), for 3 digits and 1 ns."""
    octave = index // 1024 - 1
    return index if octave <= 0 else (index - octave * 1024) << octave


def histogram(blob):
    words = struct.unpack(f">{len(blob) // 8}q", blob)
    assert words[0] == 3 and words[1] == 1, words[:4]
    return dict(zip(words[4::2], words[5::2])), words[3]


def added(blobs):
    total = {}
    for blob in blobs:
        for index, count in histogram(blob)[0].items():
            total[index] = total.get(index, 0) + count
    return total


def quantile(counts, q):
    rank, seen = math.ceil(q * sum(counts.values())), 0
    for index in sorted(counts):
        seen += counts[index]
        if seen >= rank:
            return (lower(index) + lower(index + 1) - 1) / 2
    raise AssertionError("no such rank")


class Load(harness.EndToEnd):
    def rounds(self, cell, *columns):
        with sqlite3.connect(self.scratch / "run" / "run.db") as db:
            return db.execute(f"SELECT {', '.join('r.' + name for name in columns)} FROM counted_rounds r JOIN cells c"
                              " ON c.number = r.cell WHERE c.id = ? ORDER BY r.worker, r.block", (cell,)).fetchall()

    def check_against_store(self, cell):
        rows = self.rounds(cell["id"], "fanouts", "wall_ns", "cpu_ns", "latency", "latency_intended", "error")
        self.assertEqual([row[5] for row in rows], [None] * len(rows))
        fanouts, wall, cpu = (sum(row[i] for row in rows) for i in range(3))
        counts = added(row[3] for row in rows)
        self.assertAlmostEqual(cell["wall_ns"]["p50"]["value"], quantile(counts, 0.5), delta=0.001)
        self.assertAlmostEqual(cell["wall_ns"]["p90"], quantile(counts, 0.9), delta=0.001)
        self.assertAlmostEqual(cell["wall_ns"]["min"], lower(min(counts)), delta=0.001)
        self.assertAlmostEqual(cell["utilization"], cpu / wall, delta=1e-6)
        self.assertAlmostEqual(cell["throughput_per_s_core"], fanouts / wall * 1e9, delta=1e-3 * fanouts / wall * 1e9)
        self.assertEqual(len(cell["windows"]), len(rows))
        if cell["arrivals"]:
            due = added(row[4] for row in rows)
            self.assertAlmostEqual(cell["intended_wall_ns"]["p50"]["value"], quantile(due, 0.5), delta=0.001)
        else:
            self.assertEqual(sum(counts.values()), fanouts)
        return sum(counts.values())

    def test_ladder_and_parts_of_its_ceiling(self):
        done = self.run_sweep(LADDER, "--workers", "1")
        self.assertEqual(done.code, 0, done.err)
        summary = self.summary()
        self.assertEqual(summary["run"]["status"], "complete")
        cells = {cell["id"]: cell for cell in summary["cells"]}
        for cell in cells.values():
            self.check_against_store(cell)
        ladder = [cell for cell in cells.values() if not cell["arrivals"]]
        clients = sorted({cell["clients"] for cell in ladder})
        for cell in ladder:
            self.assertGreater(cell["busy_x"], 0.5, cell["id"])
        left_out = [entry["reason"] for entry in summary["left_out"] if not entry["id"]]
        arms = [entry["id"] for entry in summary["left_out"] if entry["id"]]
        self.assertEqual(len(ladder) + len(arms) + 2 * len(left_out), 2 * 5)
        self.assertFalse(set(arms) & set(cells))
        saturated = [K for K in clients if all(c["saturated"] for c in ladder if c["clients"] == K)]
        self.assertEqual(len(clients) + len(left_out), 5)
        if len(saturated) >= 2:  # a host where somebody else runs too may keep the worker from its CPU
            self.assertTrue(all(reason == f"saturated at K={clients[-1]}" for reason in left_out), left_out)
        most = max(cell["throughput_per_s_core"] for cell in ladder if cell["arm"] == "gather")
        part = cells["libuv/gather/noop/n=4/cores=1/rate=0.01x/arrivals=fixed/duration=100ms"]
        self.assertAlmostEqual(part["rate_per_s"] / (0.01 * most), 1, delta=1e-6)
        self.assertAlmostEqual(part["offered_per_s_core"] / part["rate_per_s"], 1, delta=0.01)
        proved = any(cell["saturated"] for cell in ladder if cell["arm"] == "gather")
        self.assertEqual("ceiling_not_reached" in part["flags"], not proved)
        number = cells["libuv/gather/noop/n=4/cores=1/rate=20%2fs/arrivals=fixed/duration=100ms"]
        self.assertEqual(number["rate_per_s"], 20)
        self.assertEqual(number["offered_per_s_core"], 20)
        self.assertIn("left out, saturated at K=" if left_out else "3 windows", done.out)
        self.assertLessEqual(max(map(len, done.out.splitlines())), 100)

    def test_resumed_ladder(self):
        """What its rungs had shown before it was interrupted still ends the ladder, and is the ceiling."""
        process = self.start_sweep(LADDER, "--workers", "1", "--co-run")
        self.wait_for(lambda: self.groups_done() >= 2, "two rungs", timeout=60)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.finish(process).code, 130)
        self.assertFalse([cell for cell in self.summary()["cells"] if cell["arrivals"] and cell["rounds"]])
        done = self.run_corefan("run", "--resume", str(self.scratch / "run"), "--workers", "1", "--co-run")
        self.assertEqual(done.code, 0, done.err)
        cells = self.summary()["cells"]
        most = max(cell["throughput_per_s_core"] for cell in cells if cell["arm"] == "gather" and not cell["arrivals"])
        part = [cell for cell in cells if cell.get("rate_factor_x")]
        self.assertEqual(len(part), 1)
        self.assertAlmostEqual(part[0]["rate_per_s"] / (0.01 * most), 1, delta=1e-6)

    def groups_done(self):
        try:
            with sqlite3.connect(f"file:{self.scratch / 'run/run.db'}?mode=ro", uri=True) as db:
                return db.execute("SELECT count(*) FROM groups WHERE state = 'done'").fetchone()[0]
        except sqlite3.OperationalError:
            return 0

    def test_latencies_of_sleepers(self):
        done = self.run_sweep(SLEEPERS, "--workers", "1")
        self.assertEqual(done.code, 0, done.err)
        for cell in self.summary()["cells"]:
            if not cell["duration_ns"]:
                continue
            count = self.check_against_store(cell)
            least = 5e6 * (4 if cell["arm"] == "sequential" else 1)
            self.assertGreaterEqual(cell["wall_ns"]["min"], least * 0.999, cell["id"])
            if not cell["arrivals"]:  # whole bursts; what K clients do cannot exceed K / latency
                self.assertEqual(count % cell["clients"], 0, cell["id"])
                self.assertLess(cell["throughput_per_s_core"], 1.02 * cell["clients"] / least * 1e9, cell["id"])
            exported = self.run_corefan("report", str(self.scratch / "run"), "--format", "hgrm", "--cell", cell["id"])
            self.assertEqual(exported.code, 0, exported.err)
            self.assertIn(f"Total count    = {count:12}]", exported.out)

    def test_frozen_loop_shows_from_the_intended_start(self):
        """50 ms of every 500: whoever should have started then waits, and only the intended start tells of it."""
        running = threading.Event()
        process = self.start_sweep(FROZEN, "--workers", "1")

        def freeze():
            while not running.is_set():
                time.sleep(0.45)
                workers = harness.children_of(process.pid)
                for sent in (signal.SIGSTOP, signal.SIGCONT):
                    for worker in workers:
                        try:
                            os.kill(worker, sent)
                        except ProcessLookupError:
                            pass
                    time.sleep(0.05 if sent == signal.SIGSTOP else 0)

        thread = threading.Thread(target=freeze)
        thread.start()
        try:
            done = self.finish(process)
        finally:
            running.set()
            thread.join()
        self.assertEqual(done.code, 0, done.err)
        cell = self.summary()["cells"][0]
        self.check_against_store(cell)
        self.assertGreater(cell["intended_wall_ns"]["p99"], 30e6)
        self.assertLess(cell["wall_ns"]["p99"], 5e6)
        self.assertGreater(cell["lag_max_ns"], 40e6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
