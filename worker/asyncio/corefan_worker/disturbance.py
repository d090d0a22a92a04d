"""What the kernel knows of those who disturb: the CPU quota of the control group, the hypervisor, the frequency.

Files stay open; None means that it cannot be read here.  See worker/cgroup.h and worker/counters.h for the same in C.
"""

from __future__ import annotations

import os
import re
from pathlib import Path


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _groups(cgroups: str) -> dict[int, str]:
    """Version of a hierarchy with the controller `cpu` -> the group in it."""
    found: dict[int, str] = {}
    for line in cgroups.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if group.startswith("/") and not group.startswith("/.."):
            version = 1 if "cpu" in controllers.split(",") else 2 if controllers == "" else 0
            found.setdefault(version, group)
    return found


def cpu_stat_path(cgroups: str, mountinfo: str) -> str | None:
    """cpu.stat of the group, from /proc/self/cgroup and /proc/self/mountinfo; version 1 has the controller where it is
    mounted at all."""
    groups = _groups(cgroups)
    for version, kind in ((1, "cgroup"), (2, "cgroup2")):
        for line in mountinfo.splitlines() if version in groups else ():
            words, _, tail = line.partition(" - ")
            fields, mount = words.split(), tail.split()
            if len(fields) < 5 or len(mount) < 3 or mount[0] != kind or (version == 1 and "cpu" not in mount[2].split(",")):
                continue
            root, point = (_unescaped(field) for field in fields[3:5])
            inside, group = root.rstrip("/"), groups[version]
            if group == inside or group.startswith(inside + "/"):
                return point + group[len(inside):].rstrip("/") + "/cpu.stat"
    return None


def parse_throttling(cpu_stat: str) -> tuple[int | None, int | None]:
    """Periods in which the quota ran out, and for how many ns threads were held."""
    values = {words[0]: int(words[1]) for line in cpu_stat.splitlines() if len(words := line.split()) == 2}
    held = values.get("throttled_time")
    if held is None and "throttled_usec" in values:
        held = values["throttled_usec"] * 1000
    return values.get("nr_throttled"), held


def grown(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


class KeptFile:
    """A small file of the kernel, read again and again.  Like what reads it, it lives as long as the process."""

    def __init__(self, path: str | None) -> None:
        try:
            self._file = None if path is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = None

    def text(self, size: int = 1024) -> str | None:
        try:
            return None if self._file is None else os.pread(self._file, size, 0).decode()
        except OSError:
            return None


def own_cpu_stat() -> KeptFile:
    try:
        path = cpu_stat_path(Path("/proc/self/cgroup").read_text(), Path("/proc/self/mountinfo").read_text())
    except OSError:
        path = None
    return KeptFile(path)


class PinnedCpu:
    """The CPU that the calling thread is pinned to, if it is."""

    def __init__(self) -> None:
        allowed = os.sched_getaffinity(0)
        self._cpu = min(allowed) if len(allowed) == 1 else None
        base = f"/sys/devices/system/cpu/cpu{self._cpu}/cpufreq"
        self._frequency = KeptFile(None if self._cpu is None else f"{base}/scaling_cur_freq")
        self._stat = KeptFile(None if self._cpu is None else "/proc/stat")

    def frequency_khz(self) -> int | None:
        text = (self._frequency.text() or "").strip()
        return int(text) if text.isdigit() else None

    def _ticks(self) -> list[int] | None:
        """user, nice, system, idle, iowait, irq, softirq, steal.  Dear on a large machine: once per block, or window."""
        text = self._stat.text(256 * ((self._cpu or 0) + 2))
        match = re.search(rf"^cpu{self._cpu}((?: \d+){{8}})", text or "", re.MULTILINE)
        return [int(word) for word in match[1].split()] if match else None

    def steal_ticks(self) -> int | None:
        ticks = self._ticks()
        return ticks[7] if ticks is not None else None

    def busy_ticks(self) -> int | None:
        """All but idle and iowait."""
        ticks = self._ticks()
        return sum(ticks) - ticks[3] - ticks[4] if ticks is not None else None
