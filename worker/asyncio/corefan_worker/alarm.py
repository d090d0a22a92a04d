"""A call at an instant of CLOCK_MONOTONIC from within an event loop, to the ns: the loops' own timers count milliseconds.

By a timerfd that the loop polls like any other descriptor, so a start that comes by it wakes the loop as a request does.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from typing import Protocol

_libc = ctypes.CDLL(None, use_errno=True)
_CLOCK_MONOTONIC = 1
_TFD_TIMER_ABSTIME = 1
_NS_PER_S = 1_000_000_000


class Alarm(Protocol):
    def set(self, at_ns: int) -> None:
        """One call at that instant, at once if it is past; what was set before is forgotten."""

    def clear(self) -> None:
        """No call any more, unless set again.  A call that sets nothing has to clear."""

    def close(self) -> None:
        ...


MakeAlarm = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Alarm]


class TimerfdAlarm:
    """OSError where the kernel has no timerfd for us."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self._loop = loop
        self._timer = _libc.timerfd_create(_CLOCK_MONOTONIC, os.O_CLOEXEC | os.O_NONBLOCK)
        if self._timer < 0:
            number = ctypes.get_errno()
            raise OSError(number, f"no timerfd: {os.strerror(number)}")
        self._setting = (ctypes.c_long * 4)()  # interval s, ns; instant s, ns
        self._address = ctypes.byref(self._setting)
        loop.add_reader(self._timer, call)

    def set(self, at_ns: int) -> None:
        self._setting[2], self._setting[3] = divmod(max(at_ns, 1), _NS_PER_S)
        _libc.timerfd_settime(self._timer, _TFD_TIMER_ABSTIME, self._address, None)

    def clear(self) -> None:
        self._setting[2] = self._setting[3] = 0
        _libc.timerfd_settime(self._timer, _TFD_TIMER_ABSTIME, self._address, None)

    def close(self) -> None:
        self._loop.remove_reader(self._timer)
        os.close(self._timer)
