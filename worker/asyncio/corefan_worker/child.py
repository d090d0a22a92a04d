"""The measured process: `python -m corefan_worker.child ORDERS ANSWERS PARENT`: two descriptors of pipes, a pid.

Pinned, one thread, one event loop.  It sleeps in a read until an order arrives, runs it, answers, and looks for further
orders between two rounds only.  It dies with the parent.  Needs nothing outside the standard library but the loop that
it measures, so any interpreter can serve.

Orders   setup {loop, eager, cpus, jobs, path, probe}
         prepare {turn, assign}, go {turn, go}
         pace {interval_ns, hold}: between rounds, at most once in the interval, tell the rounds done; hold: and wait
         cancel: what was ordered so far is stale    continue: goes on after a held beat
         wind_up: the go that runs stops before its next round, its answer holds the rounds so far and an error
Answers  hello | refused {message}; prepared {turn, cells | error}; rounds {turn, rounds, error}; beat {rounds_done};
         cancelled
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import deque
from time import monotonic_ns, thread_time_ns
from typing import Any

from . import loops, machine
from .arms import ARMS
from .jobs import JOBS, UnusableJob, load_all
from .lines import Closed, LineReader, write_line
from .slices import CannotRun, Engine, Go, Slice, Stopped

NAMED_ERRORS = (CannotRun, MemoryError)


class Child:
    def __init__(self, orders: int, answers: int) -> None:
        self._reader = LineReader(orders)
        self._answers = answers
        self._queue: deque[dict[str, Any]] = deque()
        self._interval_ns = 0
        self._hold = False
        self._next_beat_ns = 0
        self._winding_up = False
        self._slice: Slice | None = None
        self._engine: Engine | None = None

    def run(self) -> None:
        handlers = {"setup": self._setup, "prepare": self._prepare, "go": self._go}
        while True:
            order = self._queue.popleft() if self._queue else self._reader.take(wait=True)
            handler = handlers.get(order["kind"])
            if handler is not None:
                handler(order)
            else:
                self._note(order)

    def _answer(self, kind: str, **content: Any) -> None:
        write_line(self._answers, {"kind": kind, **content})

    def _note(self, order: dict[str, Any]) -> bool:
        """Takes in an order that may come at any time.  False: what runs is to stop."""
        if order["kind"] == "cancel":
            self._queue.clear()
            self._slice = None
            self._answer("cancelled")
            return False
        if order["kind"] == "wind_up":
            self._winding_up = True
            return False
        if order["kind"] == "pace":
            self._interval_ns, self._hold = order["interval_ns"], order["hold"]
        return True

    def _between_rounds(self, rounds_done: int) -> bool:
        while (order := self._reader.take()) is not None:
            if not self._place(order):
                return False
        if self._interval_ns == 0 or monotonic_ns() < self._next_beat_ns:
            return True
        self._next_beat_ns = monotonic_ns() + self._interval_ns
        self._answer("beat", rounds_done=rounds_done)
        return not self._hold or self._wait_for_continue()

    def _place(self, order: dict[str, Any]) -> bool:
        if order["kind"] in ("prepare", "go"):
            self._queue.append(order)
            return True
        return self._note(order)

    def _wait_for_continue(self) -> bool:
        while (order := self._reader.take(wait=True))["kind"] != "continue":
            if not self._place(order):
                return False
        return True

    def _setup(self, order: dict[str, Any]) -> None:
        try:
            os.sched_setaffinity(0, order["cpus"])
            measured = loops.make(order["loop"], order["eager"])
            own = load_all(order["jobs"], order["path"])
        except (loops.UnusableLoop, UnusableJob, OSError) as error:
            self._answer("refused", message=str(error))
            return
        noise = machine.noise_floor() if order["probe"] else {}
        cost_ps = noise.get("cpu_clock_cost_ps") or machine.clock_cost_ps(thread_time_ns)
        self._engine = Engine(measured, order["eager"], own, cost_ps, self._between_rounds)
        self._answer("hello", versions=measured.versions, arms=sorted(ARMS), jobs=[*JOBS, *own], noise=noise)

    def _prepare(self, order: dict[str, Any]) -> None:
        assert self._engine is not None
        self._slice = None
        try:
            prepared = Slice(self._engine, order["assign"])
            cells = prepared.prepare()
            self._slice = prepared
        except Stopped:
            return
        except Exception as error:
            self._answer("prepared", turn=order["turn"], cells=[], error=text_of(error))
        else:
            self._answer("prepared", turn=order["turn"], cells=cells, error=None)

    def _go(self, order: dict[str, Any]) -> None:
        self._next_beat_ns = monotonic_ns() + self._interval_ns
        self._winding_up = False
        try:
            if self._slice is None:
                raise CannotRun("no slice is prepared")
            rounds = self._slice.go(Go(**order["go"]))
        except Stopped as stopped:
            if self._winding_up:
                count = len(stopped.rounds)
                error = f"interrupted after {count} round{'' if count == 1 else 's'}"
                self._answer("rounds", turn=order["turn"], rounds=stopped.rounds, error=error)
        except Exception as error:
            self._answer("rounds", turn=order["turn"], rounds=[], error=text_of(error))
        else:
            self._answer("rounds", turn=order["turn"], rounds=rounds, error=None)


def text_of(error: Exception) -> str:
    """One line for the coordinator; what we did not foresee is printed in full for whoever runs the worker."""
    if isinstance(error, NAMED_ERRORS):
        return str(error) or "out of memory"
    traceback.print_exception(type(error), error, error.__traceback__)
    return f"{type(error).__name__}: {error}"


def main() -> int:
    orders, answers, parent = (int(word) for word in sys.argv[1:4])
    if not machine.die_with_parent(signal.SIGKILL, parent):
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    try:
        Child(orders, answers).run()
    except Closed:
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main())
