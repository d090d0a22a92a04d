"""The jobs: what one child of a fan-out does.

`Job.child(...)` gives what makes the coroutine of a child.  What is noted costs as little as can be: a sleep reads the
clock when it starts and when it wakes, 0.2 us next to some 7 us that a waiting child costs on asyncio, and all else is
worked out after the round.  Other children are counted when made and when done, by a coroutine around them; a no-wait
job runs bare while it is timed, and is counted in an untimed fan-out.

To add a job: one function and one line of the table.  A user's own coroutine, `async callable(index) -> value`, is
loaded by name and serves as a job as it is.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Coroutine
from time import monotonic_ns, thread_time_ns
from typing import Any

from .arms import Child
from .cells import Cell, Fail
from .splitmix import SplitMix

Body = Callable[[int], Coroutine[Any, Any, Any]]


class ChildFailed(Exception):
    """The error that a cell's `fail` asks of a child."""


class UnusableJob(Exception):
    """An own coroutine that cannot be loaded; the text is for the user."""


class Tally:
    """What the children of a round note.  One thread; reset before each round."""

    __slots__ = ("starts", "wakes", "in_flight", "max_in_flight", "errors")

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, fanout: int) -> None:
        self.starts = [0] * fanout  # clock reads of waiting children, by index; 0: not (yet)
        self.wakes = [0] * fanout
        self.in_flight = 0  # of counted children: made and not done
        self.max_in_flight = 0
        self.errors = 0  # exceptions that left a counted child, cancellations not among them

    def done(self) -> None:
        """A counted child ends.  In flight only falls here, so its maxima are seen here."""
        if self.in_flight > self.max_in_flight:
            self.max_in_flight = self.in_flight
        self.in_flight -= 1

    def overshoots(self, delay_ns: int, first: int = 0) -> list[int]:
        """Of the waits that ended by their timer, those of children from `first` on: how much after their deadline."""
        pairs = zip(self.starts[first:], self.wakes[first:])
        return [wake - start - delay_ns for start, wake in pairs if wake > 0]

    def most_waiting(self) -> int:
        """Most children that waited at the same time."""
        pairs = [(start, wake or math.inf) for start, wake in zip(self.starts, self.wakes) if start > 0]
        wakes = sorted(wake for _, wake in pairs)
        ended = most = 0
        for started, (start, _) in enumerate(sorted(pairs)):
            while wakes[ended] <= start:
                ended += 1
            most = max(most, started + 1 - ended)
        return most


def burn(cpu_ns: int) -> None:
    """Spends that much CPU time of this thread."""
    end = thread_time_ns() + cpu_ns
    while thread_time_ns() < end:
        pass


async def noop(index: int) -> int:
    return 0


def _noop(cell: Cell, tally: Tally) -> Body:
    return noop


def _sleep(cell: Cell, tally: Tally) -> Body:
    seconds, starts, wakes = cell.delay_ns / 1e9, tally.starts, tally.wakes

    async def sleep(index: int) -> int:
        starts[index] = monotonic_ns()
        await asyncio.sleep(seconds)
        wakes[index] = monotonic_ns()
        return 0

    if cell.stall is None:
        return sleep
    stalling, burn_ns = cell.stall.children, cell.stall.cpu_ns

    async def sleep_beside_stall(index: int) -> int:
        if index < stalling:
            burn(burn_ns)
        return await sleep(index)

    return sleep_beside_stall


def _cpu(cell: Cell, tally: Tally) -> Body:
    async def cpu(index: int) -> int:
        burn(cell.delay_ns)
        return 0

    return cpu


JOBS: dict[str, Callable[[Cell, Tally], Body]] = {"noop": _noop, "sleep": _sleep, "cpu": _cpu}


def load(name: str, target: str) -> Body:
    """The callable that MODULE:FUNCTION names; UnusableJob says in one line why there is none."""
    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise UnusableJob(f"job '{name}': '{target}' is not MODULE:FUNCTION")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:
        raise UnusableJob(f"job '{name}': cannot import '{module_name}': {type(error).__name__}: {error}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise UnusableJob(f"job '{name}': module '{module_name}' has no '{path}'")
        found = getattr(found, part)
    called = found if inspect.isroutine(found) or inspect.isclass(found) else getattr(found, "__call__", None)
    if not inspect.iscoroutinefunction(called):
        raise UnusableJob(f"job '{name}': '{target}' is not an async callable (index) -> value")
    body: Body = found
    return body


def load_all(targets: dict[str, str], path: str | None) -> dict[str, Body]:
    if path is not None:
        sys.path.insert(0, path)
    for name in targets:
        if name in JOBS:
            raise UnusableJob(f"job '{name}' is built in, choose another name")
    return {name: load(name, target) for name, target in targets.items()}


def failing_children(fail: Fail, fanout: int, random: SplitMix) -> frozenset[int]:
    """Those of one fan-out that do not end well: the first k, or a fraction of them drawn child by child."""
    if fail.fraction > 0:
        return frozenset(index for index in range(fanout) if random.unit() < fail.fraction)
    return frozenset(range(min(fail.children, fanout)))


def _with_failures(body: Body, fail: Fail, failing: frozenset[int]) -> Body:
    seconds, cleanup = fail.at_ns / 1e9, fail.cleanup_ns / 1e9

    async def end_badly(index: int) -> Any:
        if seconds > 0:
            await asyncio.sleep(seconds)
        if fail.outcome == "cancel":
            raise _CancelledItself
        raise ChildFailed(f"child {index} was told to fail")

    async def child(index: int) -> Any:
        try:
            return await (end_badly(index) if index in failing else body(index))
        except _CancelledItself:
            raise
        except asyncio.CancelledError:
            if fail.on_cancel == "suppress":
                return None
            if fail.on_cancel == "cleanup":
                await asyncio.sleep(cleanup)
            raise

    return child


class _CancelledItself(asyncio.CancelledError):
    """Told apart from a cancellation that came from outside, which on_cancel answers."""


def counted(body: Body, tally: Tally) -> Child:
    """The body, noting when it was made and when it was done, and an error that leaves it."""

    async def run(index: int) -> Any:
        try:
            return await body(index)
        except Exception:
            tally.errors += 1
            raise
        finally:
            tally.done()

    def child(index: int) -> Coroutine[Any, Any, Any]:
        tally.in_flight += 1
        return run(index)

    return child


class Job:
    """The job of one cell, ready to make the children of a round."""

    def __init__(self, cell: Cell, own: dict[str, Body]) -> None:
        self._cell = cell
        self._own = own.get(cell.job)
        self.tally = Tally()
        self.waits = cell.job == "sleep"
        self._counted = not cell.calibrated and (not self.waits or cell.fail is not None or cell.timeout_ns > 0)

    def _body(self) -> Body:
        return self._own or JOBS[self._cell.job](self._cell, self.tally)

    def child(self, random: SplitMix) -> Child:
        """For the timed fan-outs of a round, after a reset of the tally; chance decides which children fail."""
        body, fail = self._body(), self._cell.fail
        if fail is not None:
            body = _with_failures(body, fail, failing_children(fail, self._cell.fanout, random))
        return counted(body, self.tally) if self._counted else body

    def counted_child(self) -> Child:
        """For an untimed fan-out of a job that runs bare while it is timed."""
        return counted(self._body(), self.tally)

    def most_in_flight(self) -> int:
        if self.waits and not self._counted and self._cell.arm != "empty":
            return self.tally.most_waiting()
        return self.tally.max_in_flight

    def overshoots(self) -> list[int]:
        return self.tally.overshoots(self._cell.delay_ns) if self.waits else []

    def late_beside_stall(self, launch_ns: int | None) -> list[int]:
        """How late the waits ended that did not stall: against the start of the fan-out, or their own (None)."""
        stall, delay_ns = self._cell.stall, self._cell.delay_ns
        if stall is None:
            return []
        if launch_ns is None:
            return self.tally.overshoots(delay_ns, stall.children)
        return [wake - launch_ns - delay_ns for wake in self.tally.wakes[stall.children:] if wake > 0]
