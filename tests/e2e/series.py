"""Series of whole runs for the tests of false alarms and of power: one after another, each by fresh processes.

Somebody else may hold the CPUs between two of them, so a run that is refused for that is tried again; and may compute on
them, so each run knows how much was not ours."""
import os
import pathlib
import resource
import shutil
import time

import harness

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def busy_s():
    """CPU time that anybody used on this machine since boot, stolen time included."""
    user, nice, system, _, _, irq, softirq, steal = map(int, pathlib.Path("/proc/stat").read_text().split(None, 9)[1:9])
    return (user + nice + system + irq + softirq + steal) * TICK_S


def children_s():
    """CPU time of all that we started and waited for, with their children."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Series(harness.EndToEnd):
    def setUp(self):
        super().setUp()
        self.foreign_x = {}  # of a run by its name: CPU time of others / wall time

    def measure(self, name, sweep, *words, timeout=300):
        """One run; gives its summary."""
        path = self.scratch / name
        end = time.monotonic() + timeout
        while True:
            shutil.rmtree(path, ignore_errors=True)
            others, start = busy_s() - children_s(), time.monotonic()
            done = self.run_sweep(sweep, "--workers", "1", "--quiet", *words, out=name, timeout=timeout)
            if done.code == 2 and "--co-run" in done.err and time.monotonic() < end:
                time.sleep(0.5)
                harness.wait_for_cpus()
                continue
            self.assertEqual(done.code, 0, done.err)
            # a tick or two of a thread that had just begun when it ticked are no neighbour
            self.foreign_x[name] = max(0, busy_s() - children_s() - others - 0.03) / (time.monotonic() - start)
            return self.summary(name)

    def compare(self, base, changed, *words):
        """Exit code and what it printed."""
        done = self.run_corefan("compare", str(self.scratch / base), str(self.scratch / changed), *words)
        self.assertIn(done.code, (0, 98, 99), done.err)
        return done.code, done.out

    def is_quiet(self, name):
        """Others used less than 3 % of a CPU meanwhile."""
        return self.foreign_x[name] < 0.03
