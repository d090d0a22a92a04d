"""The job of a cell that is measured as a window: its children, and what they note.

Many fan-outs are under way at the same time here, so nothing is kept by child: every wait goes into a histogram when it
ends (two clock reads and a record, 0.25 us next to some 10 us that a waiting child costs), `cpu` and own coroutines are
counted when they end, a no-wait child runs bare.  The children of one fan-out of each window, the first one launched, are
counted when made and when done: the proof of what the arm does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from .arms import Child
from .cells import Cell, Stall
from .histogram import Histogram, quantile_of
from .jobs import JOBS, Body, Tally, burn, counted
from .measure import Round

LONGEST_NS = 10**18
NO_WAIT = "noop"


class Waits:
    """How late waits ended after their deadline, signed, in buckets of 0.1 % (exact below 1,024 ns)."""

    def __init__(self) -> None:
        self.late = Histogram(highest_ns=LONGEST_NS)
        self.early = Histogram(highest_ns=LONGEST_NS)  # of those that ended before it: by how much

    def reset(self) -> None:
        self.late.reset()
        self.early.reset()

    def summary(self) -> tuple[int | None, int | None, int | None]:
        """Smallest, median (the lower of two) and largest."""
        early = [(-begin, count) for begin, count in reversed(self.early.buckets())]
        buckets = early + self.late.buckets()
        if not buckets:
            return None, None, None
        return buckets[0][0], quantile_of(buckets, 0.5), buckets[-1][0]


class Ends:
    """Children that ended, the exceptions that left them, and those that reached a caller of their arm."""

    __slots__ = ("children", "errors", "seen")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.children = self.errors = self.seen = 0


def waiting(delay_ns: int, waits: Waits, clock: Callable[[], int]) -> Body:
    """A child that waits, and notes how late it woke up: `Histogram.record` written out."""
    seconds, bits, sleep = delay_ns / 1e9, waits.late.bits, asyncio.sleep
    late_counts, early_counts = waits.late.counts, waits.early.counts

    async def wait(index: int) -> int:
        due = clock() + delay_ns
        await sleep(seconds)
        late = clock() - due
        if late >= 0:
            exponent = late.bit_length() - 1 - bits
            late_counts[(exponent << bits) + (late >> exponent) if exponent > 0 else late] += 1
        else:
            early = -late
            exponent = early.bit_length() - 1 - bits
            early_counts[(exponent << bits) + (early >> exponent) if exponent > 0 else early] += 1
        return 0

    return wait


def behind_stall(body: Body, stall: Stall) -> Body:
    async def wait(index: int) -> Any:
        if index < stall.children:
            burn(stall.cpu_ns)
        return await body(index)

    return wait


def noting_end(body: Body, ends: Ends) -> Body:
    async def run(index: int) -> Any:
        try:
            return await body(index)
        except Exception:
            ends.errors += 1
            raise
        finally:
            ends.children += 1

    return run


class WindowJob:
    """Ready to make the children of the fan-outs of a window."""

    def __init__(self, cell: Cell, own: dict[str, Body], clock: Callable[[], int]) -> None:
        self._cell = cell
        self.waits = Waits() if cell.job == "sleep" else None
        self.ends = Ends()
        self.may_fail = cell.job in own
        self._first = Tally()
        if self.waits is not None:
            child = waiting(cell.delay_ns, self.waits, clock)
            self.child: Child = child if cell.stall is None else behind_stall(child, cell.stall)
        elif cell.job == NO_WAIT:
            self.child = JOBS[NO_WAIT](cell, self._first)
        else:  # also what is built in and does not wait, but takes time
            body = own.get(cell.job) or JOBS[cell.job](cell, self._first)
            self.child = noting_end(body, self.ends)

    def reset(self) -> None:
        """Forgets what was noted so far, but not the first fan-out."""
        self.ends.reset()
        if self.waits is not None:
            self.waits.reset()

    def first_child(self) -> Child:
        """For the first fan-out of a window."""
        self._first.reset(0)
        return counted(self.child, self._first)

    @property
    def max_in_flight(self) -> int | None:
        """Most children of the first fan-out that were made and not done; None before one of them is done."""
        return self._first.max_in_flight if self._first.max_in_flight or self._cell.arm == "empty" else None

    def values(self, fanouts: int) -> Round:
        """What a round says of its children; of a no-wait job, `children` are those of the fan-outs that ended."""
        least, median, most = self.waits.summary() if self.waits is not None else (None, None, None)
        return {
            "max_in_flight": self.max_in_flight,
            "children": self._children(fanouts),
            "early": self.waits.early.total if self.waits is not None else None,
            "overshoot_min_ns": least,
            "overshoot_p50_ns": median,
            "overshoot_max_ns": most,
            **self._errors(),
        }

    def _errors(self) -> Round:
        ends = self.ends
        if ends.errors == 0:
            return {}
        return {"errors_seen": ends.seen, "errors_lost": max(0, ends.errors - ends.seen)}

    def _children(self, fanouts: int) -> int:
        if self._cell.arm == "empty":
            return 0
        if self.waits is not None:
            return self.waits.late.total + self.waits.early.total
        return fanouts * self._cell.fanout if self._cell.job == NO_WAIT else self.ends.children
