"""What the clock reads of a window enclose: counters | wall, CPU ... CPU, wall | counters.

Opened and closed from within the fan-outs that are under way, so that nothing else runs between an event and its clock.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic_ns, thread_time_ns

from .alarm import MakeAlarm, TimerfdAlarm
from .disturbance import PinnedCpu, grown
from .loops import WakeupCounter
from .machine import Counters, Sample
from .measure import Round, counter_values


def collections() -> int:
    """Runs of the garbage collector since the process began."""
    return sum(int(generation["collections"]) for generation in gc.get_stats())


@dataclass(frozen=True)
class Clocks:
    """Where time comes from: the kernel's clocks, or another one in tests."""

    wall: Callable[[], int] = monotonic_ns
    cpu: Callable[[], int] = thread_time_ns
    alarm: MakeAlarm = TimerfdAlarm


@dataclass(frozen=True)
class Reading:
    sample: Sample
    wakeups: int
    collections: int
    busy_ticks: int | None


class Span:
    """One window; reused for no other."""

    def __init__(self, clocks: Clocks, counters: Counters, cpu: PinnedCpu, wakeups: WakeupCounter | None) -> None:
        self.clocks = clocks
        self._counters = counters
        self._cpu = cpu
        self._wakeups = wakeups
        self.start_ns = self.end_ns = 0
        self._cpu_start_ns = self._cpu_end_ns = 0

    def _read(self) -> Reading:
        wakeups = self._wakeups.wakeups if self._wakeups is not None else 0
        return Reading(self._counters.read(), wakeups, collections(), self._cpu.busy_ticks())

    def open(self) -> int:
        """When it begins."""
        self._before = self._read()
        self.start_ns = self.clocks.wall()
        self._cpu_start_ns = self.clocks.cpu()
        return self.start_ns

    def close(self) -> int:
        """When it ended."""
        self._cpu_end_ns = self.clocks.cpu()
        self.end_ns = self.clocks.wall()
        self._after = self._read()
        return self.end_ns

    def values(self) -> Round:
        before, after = self._before, self._after
        counted = counter_values(before.sample, after.sample)
        return {
            "start_ns": self.start_ns,
            "wall_ns": self.end_ns - self.start_ns,
            "cpu_ns": self._cpu_end_ns - self._cpu_start_ns,
            "wakeups": counted["switches_voluntary"] if self._wakeups is None else after.wakeups - before.wakeups,
            "gc_runs": after.collections - before.collections,
            "busy_ticks": grown(before.busy_ticks, after.busy_ticks),
            **counted,
        }
