"""The jobs: what one child of a fan-out does.

`Job.child(index)` makes the coroutine of a child.  Children of jobs that wait note in a Tally how late they woke and
how many of them were there at once: 0.3 us per child, next to some 10 us that a waiting child costs on asyncio.  A
no-wait job notes nothing while it is timed: `counted` gives it a tally for an untimed fan-out.

To add a job: one function and one line of the table.  A user's own coroutine, `async callable(index) -> value`, is
loaded by name and serves as a job as it is.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
from array import array
from collections.abc import Callable, Coroutine
from time import monotonic_ns, thread_time_ns
from typing import Any

from .arms import Child
from .cells import Cell, Fail, Stall
from .splitmix import SplitMix

Body = Callable[[int], Coroutine[Any, Any, Any]]


class ChildFailed(Exception):
    """The error that a cell's `fail` asks of a child."""


class UnusableJob(Exception):
    """An own coroutine that cannot be loaded; the text is for the user."""


class Tally:
    """What the children of a round note.  One thread; reset before each round."""

    __slots__ = ("in_flight", "max_in_flight", "overshoots", "beside_stall", "errors")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.in_flight = 0
        self.max_in_flight = 0
        self.overshoots = array("q")  # ns per wait, signed: how long after its deadline it went on
        self.beside_stall = array("q")  # those of children that did not stall
        self.errors = 0  # exceptions that left a child, cancellations not among them

    def done(self) -> None:
        """A child ends.  In flight only falls here, so its maxima are seen here."""
        if self.in_flight > self.max_in_flight:
            self.max_in_flight = self.in_flight
        self.in_flight -= 1


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
    delay_ns, seconds = cell.delay_ns, cell.delay_ns / 1e9
    stall = cell.stall or Stall()

    async def sleep(index: int) -> int:
        stalls = index < stall.children
        if stalls:
            burn(stall.cpu_ns)
        deadline = monotonic_ns() + delay_ns
        await asyncio.sleep(seconds)
        overshoot = monotonic_ns() - deadline
        tally.overshoots.append(overshoot)
        if not stalls:
            tally.beside_stall.append(overshoot)
        return 0

    async def sleep_alone(index: int) -> int:
        deadline = monotonic_ns() + delay_ns
        await asyncio.sleep(seconds)
        tally.overshoots.append(monotonic_ns() - deadline)
        return 0

    return sleep if stall.children else sleep_alone


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
    """The job of one cell, ready to make children."""

    def __init__(self, cell: Cell, own: dict[str, Body]) -> None:
        self._cell = cell
        self.tally = Tally()
        make = JOBS.get(cell.job)
        self._body = own[cell.job] if make is None else make(cell, self.tally)
        self.waits = cell.job == "sleep"
        # No-wait children run bare while they are timed.
        self._bare = cell.calibrated

    def child(self, random: SplitMix) -> Child:
        """What the timed fan-outs of a round run; chance decides which children fail."""
        body = self._body
        if self._cell.fail is not None:
            body = _with_failures(body, self._cell.fail, failing_children(self._cell.fail, self._cell.fanout, random))
        return body if self._bare else counted(body, self.tally)

    def counted_child(self) -> Child:
        return counted(self._body, self.tally)
