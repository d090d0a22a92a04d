"""What the kernel knows: CPUs, counters of this thread, clock costs, the noise floor.  Linux only.

Values are ns unless named otherwise; None means that it cannot be read here.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns, thread_time_ns

from .disturbance import own_cpu_stat, parse_throttling

_libc = ctypes.CDLL(None, use_errno=True)
_PR_SET_PDEATHSIG = 1
_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_NS_PER_MS = 1_000_000
_NS_PER_S = 1_000_000_000
_TIMER_WAITS = 49

current_cpu: Callable[[], int] = _libc.sched_getcpu
"""Logical CPU of the calling thread at this moment."""


def die_with_parent(signal_number: int, parent: int) -> bool:
    """The kernel sends the signal when the thread that started this process ends.  False: `parent` is gone already."""
    _libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal_number), 0, 0, 0)
    return os.getppid() == parent


def parse_cpu_list(text: str) -> frozenset[int]:
    """"0,2-5" -> {0, 2, 3, 4, 5}; ValueError for anything else."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isascii() or not first.isdigit() or (dash and not (last.isascii() and last.isdigit())):
            raise ValueError(text)
        low, high = int(first), int(last or first)
        if high < low or high >= 1 << 16:
            raise ValueError(text)
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None


def boot_id() -> str | None:
    return _read("/proc/sys/kernel/random/boot_id")


def _sysfs_number(path: str) -> int | None:
    text = _read(path)
    return int(text) if text is not None and text.isdigit() else None


def cpu_place(cpu: int) -> dict[str, int | None]:
    """Where a CPU sits: os indexes of package, NUMA node, core and last-level cache."""
    base = f"/sys/devices/system/cpu/cpu{cpu}"
    nodes = [path.name[4:] for path in Path(base).glob("node[0-9]*")]
    return {
        "package": _sysfs_number(f"{base}/topology/physical_package_id"),
        "numa": int(nodes[0]) if nodes else None,
        "core": _sysfs_number(f"{base}/topology/core_id"),
        "l3": _sysfs_number(f"{base}/cache/index3/id"),
    }


@dataclass(frozen=True)
class Sample:
    """Counters of the calling thread; they only grow."""

    switches_voluntary: int
    switches_involuntary: int
    faults_minor: int
    faults_major: int
    runq_ns: int | None
    throttles: int | None
    throttled_ns: int | None
    cpu: int


class Counters:
    """Reads Samples of the thread that made it; always outside the clock reads of a round."""

    def __init__(self) -> None:
        try:
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._schedstat: int | None = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._schedstat = None
        self._cpu_stat = own_cpu_stat()

    def read(self) -> Sample:
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        throttles, throttled_ns = parse_throttling(self._cpu_stat.text() or "")
        return Sample(usage.ru_nvcsw, usage.ru_nivcsw, usage.ru_minflt, usage.ru_majflt, self._runq_ns(), throttles,
                      throttled_ns, current_cpu())

    def _runq_ns(self) -> int | None:
        if self._schedstat is None:
            return None
        words = os.pread(self._schedstat, 128, 0).split()
        return int(words[1]) if len(words) >= 2 else None


def clock_cost_ps(read: Callable[[], int]) -> int:
    """One read as this interpreter makes it: the smallest mean of five batches of 1,000."""
    means = []
    for _ in range(5):
        start = monotonic_ns()
        for _ in range(1000):
            read()
        means.append(monotonic_ns() - start)  # ns per 1,000 reads is ps per read
    return min(means)


def sleep_until(at_ns: int) -> bool:
    """Returns when CLOCK_MONOTONIC reads at least that, at once when it is past.  By a timerfd, which carries no timer
    slack; False where there is none."""
    timer = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_CLOEXEC)
    if timer < 0:
        return False
    try:
        setting = struct.pack("@4l", 0, 0, at_ns // _NS_PER_S, at_ns % _NS_PER_S)
        if at_ns > monotonic_ns() and _libc.timerfd_settime(timer, _TFD_TIMER_ABSTIME, setting, None) == 0:
            os.read(timer, 8)
    finally:
        os.close(timer)
    return monotonic_ns() >= at_ns


def _timer_overshoots() -> list[int]:
    """Bare timerfd waits of 1 ms: how late does the kernel wake this thread?"""
    overshoots = []
    for _ in range(_TIMER_WAITS):
        due = monotonic_ns() + _NS_PER_MS
        if not sleep_until(due):
            return []
        overshoots.append(monotonic_ns() - due)
    return sorted(overshoots)


def _spin_gap_ns() -> int:
    """The largest gap that somebody else tears into a spin of 10 ms on the clock."""
    gap, now = 0, monotonic_ns()
    end = now + 10 * _NS_PER_MS
    while now < end:
        then, now = now, monotonic_ns()
        gap = max(gap, now - then)
    return gap


def noise_floor() -> dict[str, int | None]:
    """The measured thread's own view of its CPU before anything is measured there; takes some 70 ms."""
    overshoots = _timer_overshoots()
    return {
        "wall_clock_cost_ps": clock_cost_ps(monotonic_ns),
        "cpu_clock_cost_ps": clock_cost_ps(thread_time_ns),
        "timer_overshoot_p50_ns": overshoots[len(overshoots) // 2] if overshoots else None,
        "timer_overshoot_max_ns": overshoots[-1] if overshoots else None,
        "spin_gap_max_ns": _spin_gap_ns(),
    }
