"""One round: every raw value of it, and the proof that the arm did what it claims.

All of this runs on the measured loop, in the task that awaits the arm, as a user's own code would.  Between the clock
reads (wall, CPU ... CPU, wall) there is the arm and nothing else of ours; counters are read outside them.
"""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass
from time import monotonic_ns, thread_time_ns
from types import TracebackType
from typing import Any

from .arms import ARMS, Arm, Child, bounded
from .cells import Cell
from .disturbance import grown
from .jobs import Body, Job
from .loops import MeasuredLoop
from .machine import Counters, Sample
from .splitmix import SplitMix

Round = dict[str, Any]
"""Fields of a round as SPEC.md names them; what is not there is nil."""

CONCURRENT = frozenset({"gather", "gather-return-exceptions", "tasks", "taskgroup"})
DRAIN_LIMIT_S = 10.0


class Collector:
    """The garbage collector for one round: on (as a user has it), off, or freeze; and how often it ran."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self.runs = 0

    def __enter__(self) -> Collector:
        if self._mode == "off":
            gc.disable()
        elif self._mode == "freeze":
            gc.collect()
            gc.freeze()
        self._before = self._total()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.runs = self._total() - self._before
        if self._mode == "off":
            gc.enable()
            gc.collect()
        elif self._mode == "freeze":
            gc.unfreeze()

    @staticmethod
    def _total() -> int:
        return sum(int(generation["collections"]) for generation in gc.get_stats())


@dataclass
class Timed:
    """What the clock reads enclosed."""

    start_ns: int
    wall_ns: int
    cpu_ns: int
    value: Any = None
    error: BaseException | None = None


async def timed(arm: Arm, child: Child, fanout: int, loops: int) -> Timed:
    """`loops` fan-outs between the clock reads; an error of the arm ends them and is kept."""
    value, error = None, None
    wall0, cpu0 = monotonic_ns(), thread_time_ns()
    try:
        for _ in range(loops):
            value = await arm(child, fanout)
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as raised:
        error = raised
    cpu1, wall1 = thread_time_ns(), monotonic_ns()
    return Timed(wall0, wall1 - wall0, cpu1 - cpu0, value, error)


def errors_seen(value: Any, error: BaseException | None) -> int:
    """Errors that reached the caller of an arm: raised, members of a group, or in their slots."""
    if error is not None:
        members = getattr(error, "exceptions", None)
        if members is not None:
            return len(members)
        return 0 if isinstance(error, asyncio.CancelledError) else 1
    values = value if isinstance(value, list) else []
    return sum(isinstance(entry, Exception) for entry in values)


def counter_values(before: Sample, after: Sample) -> Round:
    """What the counters say of what was between them."""
    return {
        "switches_voluntary": after.switches_voluntary - before.switches_voluntary,
        "switches_involuntary": after.switches_involuntary - before.switches_involuntary,
        "faults_minor": after.faults_minor - before.faults_minor,
        "faults_major": after.faults_major - before.faults_major,
        "runq_ns": grown(before.runq_ns, after.runq_ns),
        "throttles": grown(before.throttles, after.throttles),
        "throttled_ns": grown(before.throttled_ns, after.throttled_ns),
        "cpu_start": before.cpu,
        "cpu_end": after.cpu,
    }


def summary(overshoots: Any) -> tuple[int | None, int | None, int | None]:
    """Smallest, median (the lower of two) and largest."""
    if not overshoots:
        return None, None, None
    ordered = sorted(overshoots)
    return ordered[0], ordered[(len(ordered) - 1) // 2], ordered[-1]


@dataclass(frozen=True)
class Waits:
    """What is known of the waits of a job that waits."""

    ended: int  # by their timer
    early_most_ns: int  # that the loop's timers are early by design


def disproof(cell: Cell, values: Round, waits: Waits | None, eager: bool) -> str | None:
    """Why a round is not what its arm claims to be; None when it is.

    Waits that are early by design are no part of it: the round tells how many.  waits: None where the job does not wait.
    """
    wrong = disproof_in_flight(cell, values["max_in_flight"], waits is not None, eager)
    if wrong is not None or waits is None or not whole(cell) or cell.arm == "empty":
        return wrong
    wakeups, early = values["wakeups"], values["early"]
    return _disproof_by_wakeups(cell.arm, cell.fanout, wakeups, early) or _disproof_by_waits(cell, values, waits)


def whole(cell: Cell) -> bool:
    """All children are to end well, undisturbed."""
    return cell.fail is None and cell.stall is None and cell.timeout_ns == 0


def disproof_in_flight(cell: Cell, in_flight: int, waits: bool, eager: bool) -> str | None:
    """By the most children of one fan-out that were made and not done at the same time."""
    if cell.arm == "empty":
        least, most = 0, 0
    elif cell.arm == "sequential":
        least, most = 1, 1
    else:
        # An eager task that does not suspend ends where it is created.
        least, most = cell.fanout if whole(cell) and not (eager and not waits) else 1, cell.fanout
    if not least <= in_flight <= most:
        return f"{cell.arm} had {in_flight} of {cell.fanout} children in flight, not {most}"
    return None


def _disproof_by_wakeups(arm: str, waits: int, wakeups: int, early: int) -> str | None:
    if arm == "sequential" and wakeups + early < waits:  # an early wait may have ended without a poll
        return f"sequential woke up {wakeups} times, fewer than its {waits} waits"
    if arm in CONCURRENT and wakeups > waits:
        return f"{arm} woke up {wakeups} times, more than its {waits} children"
    return None


def _disproof_by_waits(cell: Cell, values: Round, waits: Waits) -> str | None:
    """Did the children wait, and for as long as the cell says?  The second by the clock around the arm."""
    if waits.ended != cell.fanout:
        return f"{waits.ended} of {cell.fanout} children waited"
    early_ns = -values["overshoot_min_ns"]
    if early_ns > waits.early_most_ns:
        return f"a wait ended {early_ns} ns early, more than the {waits.early_most_ns} ns of this loop's timers"
    delays = cell.fanout if cell.arm == "sequential" else 1
    least_ns = delays * (cell.delay_ns - waits.early_most_ns)
    if values["wall_ns"] < least_ns:
        return f"{cell.arm} took {values['wall_ns']} ns, less than its waits of {least_ns} ns"
    return None


class PreparedCell:
    """A cell on a loop: its arm, its job and its loop count."""

    def __init__(
        self, cell: Cell, own: dict[str, Body], measured: MeasuredLoop, eager: bool, counters: Counters
    ) -> None:
        self.cell = cell
        self.loops = 1
        self._measured = measured
        self._eager = eager
        self._counters = counters
        self._job = Job(cell, own)
        arm = ARMS[cell.arm]
        self._arm = bounded(arm, cell.timeout_ns) if cell.timeout_ns > 0 else arm
        self._may_leave_children = cell.fail is not None or cell.timeout_ns > 0 or cell.job in own

    async def cost_ns(self, loops: int) -> int:
        """CPU of so many fan-outs, for calibration."""
        self._job.tally.reset(self.cell.fanout)
        with Collector(self.cell.collector):
            outcome = await timed(self._arm, self._job.child(SplitMix(0)), self.cell.fanout, loops)
        if outcome.error is not None:
            raise outcome.error
        return outcome.cpu_ns

    async def round(self, random: SplitMix) -> Round:
        """One round; chance decides which children fail."""
        tally, counter = self._job.tally, self._measured.counter
        tally.reset(self.cell.fanout)
        child = self._job.child(random)
        tasks_before = asyncio.all_tasks() if self._may_leave_children else set()
        with Collector(self.cell.collector) as collector:
            if counter is not None:
                counter.switch(not self.cell.calibrated)
            before, wakeups = self._counters.read(), counter.wakeups if counter else 0
            outcome = await timed(self._arm, child, self.cell.fanout, self.loops)
            wakeups, after = (counter.wakeups if counter else 0) - wakeups, self._counters.read()
        failures = await self._after_return(outcome, tasks_before) if self._may_leave_children else {}
        if self.cell.calibrated:
            wakeups += self.loops * await self._untimed_wakeups()
        return self._values(outcome, before, after, wakeups, collector.runs, failures)

    warm_up = round

    async def _untimed_wakeups(self) -> int:
        """A fan-out of a no-wait job that counts what the timed ones did not: children in flight, wake-ups."""
        counter = self._measured.counter
        if counter is None:
            await self._arm(self._job.counted_child(), self.cell.fanout)
            return 0
        counter.switch(True)
        before = counter.wakeups
        await self._arm(self._job.counted_child(), self.cell.fanout)
        counter.switch(False)
        return counter.wakeups - before

    async def _after_return(self, outcome: Timed, tasks_before: set[asyncio.Task[Any]]) -> Round:
        """What the fan-out left behind: waits for it, and accounts for it."""
        left = asyncio.all_tasks() - tasks_before
        told_to = self.cell.fail is not None or self.cell.timeout_ns > 0
        if outcome.error is None and self._job.tally.errors == 0 and not told_to:
            return {}
        orphans, cpu0 = len(left), thread_time_ns()
        drained = await drain(left, tasks_before)
        seen = errors_seen(outcome.value, outcome.error)
        timed_out = self.cell.timeout_ns > 0 and isinstance(outcome.error, asyncio.TimeoutError)
        return {
            "time_to_error_ns": None if outcome.error is None and seen == 0 else outcome.wall_ns,
            "wasted_cpu_ns": thread_time_ns() - cpu0 if orphans else 0,
            "drain_ns": monotonic_ns() - outcome.start_ns - outcome.wall_ns if orphans else 0,
            "orphans": orphans,
            "errors_seen": seen,
            "errors_lost": max(0, self._job.tally.errors - (0 if timed_out else seen)),  # it is no child's
            "error": None if drained else f"children still ran {DRAIN_LIMIT_S:g} s after the arm had returned",
        }

    def _values(
        self, outcome: Timed, before: Sample, after: Sample, wakeups: int, collections: int, failures: Round
    ) -> Round:
        cell, overshoots = self.cell, self._job.overshoots()
        least, median, most = summary(overshoots)
        late = self._job.late_beside_stall(outcome.start_ns if cell.arm in CONCURRENT else None)
        counted = counter_values(before, after)
        values: Round = {
            "start_ns": outcome.start_ns,
            "wall_ns": outcome.wall_ns,
            "cpu_ns": outcome.cpu_ns,
            "fanouts": self.loops,
            "wakeups": counted["switches_voluntary"] if self._measured.counter is None else wakeups,
            "max_in_flight": self._job.most_in_flight(),
            "early": sum(overshoot < 0 for overshoot in overshoots) if self._job.waits else None,
            "overshoot_min_ns": least,
            "overshoot_p50_ns": median,
            "overshoot_max_ns": most,
            **counted,
            "gc_runs": collections,
            "stall_overshoot_p50_ns": summary(late)[1],
            **failures,
        }
        if values.get("error") is None:
            waits = Waits(len(overshoots), self._measured.early_most_ns) if self._job.waits else None
            values["error"] = disproof(cell, values, waits, self._eager)
        return values


async def drain(left: set[asyncio.Task[Any]], tasks_before: set[asyncio.Task[Any]]) -> bool:
    """Waits until no task is left that was not there before; False when that takes too long."""
    end = monotonic_ns() + int(DRAIN_LIMIT_S * 1e9)
    while left:
        seconds = (end - monotonic_ns()) / 1e9
        if seconds <= 0:
            return False
        await asyncio.wait(left, timeout=seconds)
        left = asyncio.all_tasks() - tasks_before
    return True
