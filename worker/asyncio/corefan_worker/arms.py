"""The arms: five ways to await N children, written as a user writes them, and the harness alone.

An arm takes `child`, which makes the coroutine of one child, and the fan-out; it gives the values in input order.  It
does not know which job it runs.  To add an arm: one function and one line of the table.

Loops are written out where a comprehension with `await` would do: up to CPython 3.11 that makes a coroutine of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

Child = Callable[[int], Coroutine[Any, Any, Any]]
Arm = Callable[[Child, int], Awaitable[Any]]


async def sequential(child: Child, fanout: int) -> list[Any]:
    values = []
    for index in range(fanout):
        values.append(await child(index))
    return values


async def gather(child: Child, fanout: int) -> list[Any]:
    return await asyncio.gather(*[child(index) for index in range(fanout)])


async def gather_return_exceptions(child: Child, fanout: int) -> list[Any]:
    return await asyncio.gather(*[child(index) for index in range(fanout)], return_exceptions=True)


async def tasks(child: Child, fanout: int) -> list[Any]:
    running = [asyncio.create_task(child(index)) for index in range(fanout)]
    values = []
    for task in running:
        values.append(await task)
    return values


async def empty(child: Child, fanout: int) -> None:
    """What the harness itself costs."""


ARMS: dict[str, Arm] = {
    "sequential": sequential,
    "gather": gather,
    "gather-return-exceptions": gather_return_exceptions,
    "tasks": tasks,
    "empty": empty,
}

if sys.version_info >= (3, 11):

    async def taskgroup(child: Child, fanout: int) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(child(index)) for index in range(fanout)]
        return [None if task.cancelled() else task.result() for task in running]

    ARMS["taskgroup"] = taskgroup


def bounded(arm: Arm, timeout_ns: int) -> Arm:
    """The arm under a timeout of its own, raising TimeoutError."""
    seconds = timeout_ns / 1e9
    if sys.version_info >= (3, 11):

        async def with_timeout(child: Child, fanout: int) -> Any:
            async with asyncio.timeout(seconds):
                return await arm(child, fanout)

    else:

        async def with_timeout(child: Child, fanout: int) -> Any:
            return await asyncio.wait_for(arm(child, fanout), seconds)

    return with_timeout
