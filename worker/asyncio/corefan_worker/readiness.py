"""When is a cell ready to be timed?  Two rules, both pure: the figures come from the caller.

Calibration: the loop count L doubles until L fan-outs take the threshold of CPU and is frozen there; the cost per
fan-out at L and at 2 L (median of three each) must agree within 2 %, else once more from 2 L, or the cell is flagged.

Warm-up: rounds are thrown away until the last one had no minor page fault and the first of the last five is no outlier
among them (first <= Q3 + 1.5 IQR).  Cheap rounds are taken five times at least, slow ones as often as asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from statistics import median, quantiles

_NS_PER_MS = 1_000_000
_THRESHOLD_NS = 10 * _NS_PER_MS
_LOOPS_CAP = 1 << 36
_AGREEMENT = 0.02
_WINDOW = 5
_CAP = 50
_CHEAP_NS = 100 * _NS_PER_MS
_DEAR_NS = 2000 * _NS_PER_MS

Cost = Callable[[int], Awaitable[int]]


def threshold_ns(cpu_clock_cost_ps: int) -> int:
    """CPU that a calibrated round takes at least: 10 ms, and 1,000 reads of the CPU clock."""
    return max(_THRESHOLD_NS, cpu_clock_cost_ps)  # 1,000 reads in ns is one read in ps


async def _unit_cost(cost: Cost, loops: int) -> float:
    return median([await cost(loops) for _ in range(3)]) / loops


async def _agrees(cost: Cost, loops: int) -> bool:
    single = await _unit_cost(cost, loops)
    return abs(await _unit_cost(cost, 2 * loops) - single) <= _AGREEMENT * single


async def calibrate(cost: Cost, threshold: int) -> tuple[int, bool]:
    """(L, stable), where cost(loops) is the CPU ns that so many fan-outs took."""
    loops = 1
    while await cost(loops) < threshold and loops < _LOOPS_CAP:
        loops *= 2
    if await _agrees(cost, loops):
        return loops, True
    return 2 * loops, await _agrees(cost, 2 * loops)


class Warmup:
    """Takes the figures of warm-up rounds in and judges whether they suffice."""

    def __init__(self, at_least: int, long: bool = False) -> None:
        """long: so long that as many as asked for suffice."""
        self._at_least = max(at_least, 1)
        self._long = long
        self._values: list[int] = []
        self._faulted = False
        self.rounds = 0
        self.spent_ns = 0

    def add(self, value_ns: int, wall_ns: int, faults: int) -> None:
        self._values = [*self._values, value_ns][-_WINDOW:]
        self._faulted = faults > 0
        self.rounds += 1
        self.spent_ns += wall_ns

    def _first_is_outlier(self) -> bool:
        if len(self._values) < _WINDOW:
            return False
        low, _, high = quantiles(self._values, n=4, method="inclusive")
        return self._values[0] > high + 1.5 * (high - low)

    def verdict(self) -> str:
        """"more", "done", or "unconverged" when a cap was reached first."""
        if self.rounds < self._at_least or (not self._long and self.rounds < _WINDOW and self.spent_ns < _CHEAP_NS):
            return "more"
        if self._long:
            return "done"
        if not self._faulted and not self._first_is_outlier():
            return "done"
        return "unconverged" if self.spent_ns >= _DEAR_NS or self.rounds >= _CAP else "more"
