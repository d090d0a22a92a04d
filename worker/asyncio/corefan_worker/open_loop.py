"""The open loop: fan-outs start by a schedule, whatever is still under way.

The window opens with the schedule and is `duration_ns` long.  Every start in it that finds room is made, late where the
loop was held up: the latency from the intended start shows that, the one from the actual start does not.  What is under
way at the end is given a second more, and its latencies count; what is not done by then is `unfinished`.
"""

from __future__ import annotations

import asyncio
from array import array

from .arms import Arm, Child
from .cells import Cell
from .histogram import Histogram
from .measure import Round
from .span import Span
from .window_job import WindowJob

DRAIN_S = 1.0


class OpenLoop:
    """One window; reused for no other.  `values` is there once `run` has returned."""

    def __init__(
        self, cell: Cell, arm: Arm, job: WindowJob, span: Span, duration_ns: int, due: array[int], room: int
    ) -> None:
        """due: ns from the opening, ascending.  room: most fan-outs under way; a start that finds none left is skipped."""
        self.values: Round
        self._cell = cell
        self._arm = arm
        self._job = job
        self._span = span
        self._duration_ns = duration_ns
        self._due = due
        self._room = room
        self._open_ns = 0
        self._next = 0  # start, by its place in the schedule
        self._ended = self._skipped = 0
        self._under_way: dict[int, asyncio.Task[None] | None] = {}  # by place in the schedule
        self._latency, self._latency_intended, self._lag = Histogram(), Histogram(), Histogram()

    async def run(self) -> None:
        """Until the window is closed and what was started in it has ended, or was given up."""
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._drained: asyncio.Future[None] = self._loop.create_future()
        self._alarm = self._span.clocks.alarm(self._loop, self._start_due)
        try:
            self._job.reset()
            self._open_ns = self._span.open()
            self._start_due()
            await self._closed
            await asyncio.wait([self._drained], timeout=DRAIN_S)
        finally:
            self._alarm.close()
        self.values |= {
            "max_in_flight": self._job.max_in_flight,  # the first fan-out may have ended only now
            "skipped": self._skipped,
            "unfinished": len(self._under_way),
            "lag_p50_ns": self._lag.quantile(0.5),
            "lag_max_ns": self._lag.largest if self._next > self._skipped else None,
            "latency": self._latency.to_map(),
            "latency_intended": self._latency_intended.to_map(),
        }

    def _start_due(self) -> None:
        """Closes the window when it is time, makes every start that is due, and comes back when the next one is."""
        passed_ns = self._span.clocks.wall() - self._open_ns
        over = passed_ns >= self._duration_ns
        if over:
            self._close()
        while self._next < len(self._due) and self._due[self._next] <= passed_ns:
            self._start(self._next)
            self._next += 1
        if over:
            self._alarm.clear()
            self._look_at_drain()
        else:
            coming = self._due[self._next] if self._next < len(self._due) else self._duration_ns
            self._alarm.set(self._open_ns + coming)

    def _start(self, number: int) -> None:
        if len(self._under_way) >= self._room:
            self._skipped += 1
            return
        child = self._job.child if number else self._job.first_child()
        self._under_way[number] = None
        task = self._loop.create_task(self._guarded(number, child))
        if number in self._under_way:  # an eager one may have ended
            self._under_way[number] = task

    async def _guarded(self, number: int, child: Child) -> None:
        try:
            await self._fan_out(number, child)
        except Exception as error:
            if not self._closed.done():
                self._closed.set_exception(error)

    async def _fan_out(self, number: int, child: Child) -> None:
        """One fan-out; with `_start`, this is the harness."""
        clock, intended_ns = self._span.clocks.wall, self._open_ns + self._due[number]
        start_ns = clock()
        self._lag.record(start_ns - intended_ns)
        await self._arm(child, self._cell.fanout)
        end_ns = clock()
        self._latency.record(end_ns - start_ns)
        self._latency_intended.record(end_ns - intended_ns)
        self._ended += 1
        del self._under_way[number]
        if self._closed.done():
            self._look_at_drain()

    def _look_at_drain(self) -> None:
        if not self._under_way and not self._drained.done():
            self._drained.set_result(None)

    def _close(self) -> None:
        self._span.close()
        self.values = {
            **self._span.values(),
            **self._job.values(self._ended),
            "launch_ns": self._open_ns,
            "fanouts": self._ended,
            "offered": len(self._due),
        }
        self._closed.set_result(None)
