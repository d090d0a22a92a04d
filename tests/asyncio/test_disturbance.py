#!/usr/bin/python3
"""Who disturbs a round, as the Python worker reads it: against the table of the C one, and against this machine."""
import os
import pathlib
import re
import unittest

import paths
from corefan_worker.disturbance import PinnedCpu, cpu_stat_path, parse_throttling

V2 = "33 25 0:29 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "30 25 0:26 / /cg/cpu rw shared:11 - cgroup cgroup rw,cpu,cpuacct\n"
DOCKER = "30 25 0:26 /docker/7f /cg/cpu rw - cgroup cgroup rw,cpu\n"


class CpuStat(unittest.TestCase):
    def test_path(self):
        for cgroups, mounts, path in (
                ("0::/user.slice/a.scope\n", V2, "/sys/fs/cgroup/user.slice/a.scope/cpu.stat"),
                ("0::/\n", V2, "/sys/fs/cgroup/cpu.stat"),
                ("4:memory:/m\n1:cpu,cpuacct:/a/b\n0::/u\n", V2 + V1, "/cg/cpu/a/b/cpu.stat"),
                ("3:cpu:/a\n0::/b\n", V2, "/sys/fs/cgroup/b/cpu.stat"),
                ("3:cpu,cpuacct:/docker/7f\n", DOCKER, "/cg/cpu/cpu.stat"),
                ("3:cpu,cpuacct:/docker/7f/w\n", DOCKER, "/cg/cpu/w/cpu.stat"),
                ("3:cpu,cpuacct:/docker/7fa\n", DOCKER, None),
                ("0::/../outside\n", V2, None),
                ("0::/a\n", V2.replace("/sys/fs/cgroup", "/odd\\040place"), "/odd place/a/cpu.stat"),
                ("2:cpuset:/c\n", V1, None),
                ("rubbish\n::\n", "rubbish\n - \n", None)):
            with self.subTest(cgroups):
                self.assertEqual(cpu_stat_path(cgroups, mounts), path)

    def test_throttling(self):
        self.assertEqual(parse_throttling("nr_periods 9\nnr_throttled 3\nthrottled_time 250\n"), (3, 250))
        self.assertEqual(parse_throttling("usage_usec 9\nnr_throttled 4\nthrottled_usec 250\n"), (4, 250_000))
        self.assertEqual(parse_throttling("usage_usec 9\n"), (None, None))
        self.assertEqual(parse_throttling(""), (None, None))


class Cpu(unittest.TestCase):
    def setUp(self):
        self.allowed = os.sched_getaffinity(0)
        self.addCleanup(os.sched_setaffinity, 0, self.allowed)

    def steal(self, cpu):
        line = re.search(rf"^cpu{cpu} (.*)$", pathlib.Path("/proc/stat").read_text(), re.MULTILINE)
        return int(line[1].split()[7])

    def test_steal_of_each_cpu(self):
        for cpu in sorted(self.allowed):
            os.sched_setaffinity(0, {cpu})
            before, got, after = self.steal(cpu), PinnedCpu().steal_ticks(), self.steal(cpu)
            self.assertTrue(before <= got <= after)

    def test_not_pinned(self):
        if len(self.allowed) > 1:
            self.assertEqual((PinnedCpu().steal_ticks(), PinnedCpu().frequency_khz()), (None, None))


if __name__ == "__main__":
    unittest.main()
