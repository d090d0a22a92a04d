"""A round that is a window: many fan-outs, from several clients (closed loop) or by a schedule (open loop)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from .arms import ARMS, Arm, Child
from .arrivals import schedule, too_many
from .cells import Cell
from .closed_loop import ClosedLoop
from .disturbance import PinnedCpu
from .histogram import begin_of
from .jobs import Body
from .loops import MeasuredLoop
from .machine import Counters
from .measure import CONCURRENT, DRAIN_LIMIT_S, Collector, Round, disproof_in_flight, drain, errors_seen, whole
from .open_loop import OpenLoop
from .span import Clocks, Span
from .splitmix import SplitMix
from .window_job import Ends, WindowJob

MOST_UNDER_WAY = 65_536
WARM_UP_NS = EMPTY_NS = 100_000_000
"""The harness alone is measured no longer than this."""
TASK_BYTES = 2_200
"""What one task takes that waits, its coroutine, timer and future included: measured on CPython 3.11, both loops."""


def available_bytes() -> int | None:
    """What the kernel could give away now without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), None)


def fan_out_bytes(cell: Cell) -> int:
    return TASK_BYTES * (1 + (cell.fanout if cell.arm in CONCURRENT else 1))


def refuse_window(cell: Cell, available: int | None) -> str | None:
    """Why a window cannot be measured here."""
    if cell.duration_ns == 0:
        return "clients and rate_per_s need a duration_ns"
    if cell.rate_per_s > 0 and cell.clients > 1:
        return "clients and rate_per_s exclude each other"
    if cell.fail is not None or cell.timeout_ns > 0:
        return "fail and timeout need a round of one fan-out, not a window"
    needed = cell.clients * fan_out_bytes(cell)
    if available is not None and needed > available:
        return (
            f"{cell.clients} clients of {cell.fanout} children need about {needed / 2**30:.2g} GiB, "
            f"{available / 2**30:.2g} are left here: fewer clients, or children one after another"
        )
    return too_many(cell)


def room_for(cell: Cell, available: int | None) -> int:
    """Most fan-outs that an open loop lets pile up: what half of the memory that is left can hold."""
    if available is None:
        return MOST_UNDER_WAY
    return max(1, min(MOST_UNDER_WAY, available // 2 // fan_out_bytes(cell)))


def surviving(arm: Arm, ends: Ends) -> Arm:
    """The arm of a client that counts an error of its fan-out and goes on.  A cancellation ends the fan-out, not the client:
    that one looks whether the window is closed."""

    async def count_errors(child: Child, fanout: int) -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = await arm(child, fanout)
        except (Exception, asyncio.CancelledError) as raised:
            error = raised
        ends.seen += errors_seen(value, error)

    return count_errors


class WindowCell:
    """A cell on a loop, as PreparedCell is one for rounds of one fan-out."""

    loops = 1

    def __init__(
        self, cell: Cell, own: dict[str, Body], measured: MeasuredLoop, eager: bool, counters: Counters, cpu: PinnedCpu,
        clocks: Clocks = Clocks(),
    ) -> None:
        self.cell = cell
        self._measured = measured
        self._eager = eager
        self._counters = counters
        self._cpu = cpu
        self._clocks = clocks
        self._duration_ns = min(cell.duration_ns, EMPTY_NS) if cell.arm == "empty" else cell.duration_ns
        self._job = WindowJob(cell, own, clocks.wall)

    def round(self, random: SplitMix) -> Coroutine[Any, Any, Round]:
        """One window.  What chance decides is drawn by the call itself, before the coroutine starts."""
        return self._window(random, self._duration_ns)

    def warm_up(self, random: SplitMix) -> Coroutine[Any, Any, Round]:
        """A shorter one: it is the first fan-out of each client that warms."""
        return self._window(random, min(self._duration_ns, WARM_UP_NS))

    def _window(self, random: SplitMix, duration_ns: int) -> Coroutine[Any, Any, Round]:
        arm = ARMS[self.cell.arm]
        if self._job.may_fail:
            arm = surviving(arm, self._job.ends)
        span = Span(self._clocks, self._counters, self._cpu, self._measured.counter)
        driver: ClosedLoop | OpenLoop
        if self.cell.rate_per_s > 0:
            due, room = schedule(self.cell, duration_ns, random), room_for(self.cell, available_bytes())
            driver = OpenLoop(self.cell, arm, self._job, span, duration_ns, due, room)
        else:
            driver = ClosedLoop(self.cell, arm, self._job, span, duration_ns)
        return self._round(driver)

    async def _round(self, driver: ClosedLoop | OpenLoop) -> Round:
        counter, tasks_before = self._measured.counter, asyncio.all_tasks()
        with Collector(self.cell.collector):
            if counter is not None:
                counter.switch(True)
            await driver.run()
            if counter is not None:
                counter.switch(False)
            ended = await cancel(asyncio.all_tasks() - tasks_before, tasks_before)
        values = driver.values
        if not ended:
            return {**values, "error": f"children still ran {DRAIN_LIMIT_S:g} s after they had been cancelled"}
        return {**values, "error": self._disproof(values)}

    def _disproof(self, values: Round) -> str | None:
        """Why a window is not what its arm claims to be; None when it is."""
        waits, in_flight = self._job.waits is not None, values["max_in_flight"]
        wrong = None if in_flight is None else disproof_in_flight(self.cell, in_flight, waits, self._eager)
        if wrong is not None or not waits or not whole(self.cell) or self.cell.arm == "empty":
            return wrong
        return disproof_by_waits(self.cell, values, self._measured.early_most_ns)


async def cancel(tasks: set[asyncio.Task[Any]], tasks_before: set[asyncio.Task[Any]]) -> bool:
    """Ends what is still under way; False when it does not end."""
    for task in tasks:
        task.cancel()
    return await drain(tasks, tasks_before)


def disproof_by_waits(cell: Cell, values: Round, early_most_ns: int) -> str | None:
    """Did the children wait, and for as long as the cell says?  What is under way at the ends of a window counts for
    neither."""
    children, expected = values["children"], values["fanouts"] * cell.fanout
    under_way = cell.clients * cell.fanout
    if children < expected - under_way or (cell.rate_per_s == 0 and children > expected + under_way):
        return f"{children} children waited, {cell.fanout} in each of {values['fanouts']} fan-outs would be {expected}"
    early_ns = -(values["overshoot_min_ns"] or 0)
    if early_ns > early_most_ns:
        return f"a wait ended {early_ns} ns early, more than the {early_most_ns} ns of this loop's timers"
    delays = cell.fanout if cell.arm == "sequential" else 1
    least_ns, counts = delays * (cell.delay_ns - early_most_ns), values["latency"]["counts"]
    if counts and begin_of(counts[0] + 1) <= least_ns:
        return f"{cell.arm} took less than {begin_of(counts[0] + 1)} ns, its waits alone are {least_ns} ns"
    return None
