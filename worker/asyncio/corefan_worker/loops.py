"""The event loops that can be measured, and how each one's wake-ups are counted.

A wake-up is a return from a poll that could block.  asyncio polls through a selector, which counts them while a waiting
cell is measured.  uvloop polls inside libuv and tells nobody: there, a wake-up is a voluntary context switch of the loop's
thread, which is a poll that did block (one that found work at once is not seen).
"""

from __future__ import annotations

import asyncio
import selectors
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

KINDS = ("asyncio", "uvloop")
# asyncio admits a timer one tick of its clock early, a float of seconds.  uvloop rounds the delay to the nearest whole ms
# and counts from a clock that is floored to one.
EARLY_MOST_NS = {"asyncio": 1_000, "uvloop": 1_500_000}
EAGER_SINCE = (3, 12)


class UnusableLoop(Exception):
    """The loop that was asked for cannot be had here; the text is for the user."""


class WakeupCounter:
    """Puts itself before a selector's select, for as long as it is switched on.

    A poll that waits for a timer is told not to block when that timer came due on the way there (the process was stopped, or its
    CPU taken): nothing else is ready then, and it counts all the same."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        self.wakeups = 0
        self._ready: Any = ()  # callbacks that the loop runs next
        self._selector: Any = selector  # an attribute of the instance hides the method of its class

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        self._ready = getattr(loop, "_ready", (None,))

    def switch(self, on: bool) -> None:
        if on:
            self._selector.select = self._counting(type(self._selector).select.__get__(self._selector))
        else:
            self._selector.__dict__.pop("select", None)

    def _counting(self, select: Callable[[float | None], Any]) -> Callable[[float | None], Any]:
        def counting(timeout: float | None = None) -> Any:
            could_block = timeout is None or timeout > 0 or not self._ready
            found = select(timeout)
            if could_block:
                self.wakeups += 1
            return found

        return counting


@dataclass(frozen=True)
class MeasuredLoop:
    loop: asyncio.AbstractEventLoop
    counter: WakeupCounter | None  # None: voluntary switches stand for wake-ups
    early_most_ns: int  # how early a timer may end by the loop's design
    versions: dict[str, str]


def _python_version() -> str:
    return ".".join(str(part) for part in sys.version_info[:3])


def refuse_eager_before(version: tuple[int, ...]) -> None:
    if version < EAGER_SINCE:
        found = ".".join(str(part) for part in version[:3])
        raise UnusableLoop(f"--eager needs Python 3.12 or later, {sys.executable} is {found}")


def _quiet(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Errors that nobody retrieved are counted by the rounds, not logged between them."""


def make(kind: str, eager: bool) -> MeasuredLoop:
    """The loop, set as the current one of this thread."""
    if eager:
        refuse_eager_before(tuple(sys.version_info[:3]))
    versions = {"python": _python_version(), "implementation": sys.implementation.name}
    counter = None
    loop: asyncio.AbstractEventLoop
    if kind == "uvloop":
        loop = _make_uvloop(versions)
    else:
        selector = selectors.DefaultSelector()
        loop, counter = asyncio.SelectorEventLoop(selector), WakeupCounter(selector)
        counter.watch(loop)
    if sys.version_info >= (3, 12) and eager:
        loop.set_task_factory(asyncio.eager_task_factory)
        versions["tasks"] = "eager"
    loop.set_exception_handler(_quiet)
    asyncio.set_event_loop(loop)
    return MeasuredLoop(loop, counter, EARLY_MOST_NS[kind], versions)


def _make_uvloop(versions: dict[str, str]) -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        raise UnusableLoop(
            f"{sys.executable} has no uvloop: install python3-uvloop (Debian) or `{sys.executable} -m pip install uvloop`"
        ) from None
    versions["wakeups"] = "voluntary context switches"
    versions["uvloop"] = str(getattr(uvloop, "__version__", "unknown"))
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
