"""The process that owns the measured loop, seen from the session: orders in, answers out, and its life.

Orders that came before a cancel are stale: their answers are never seen.  A process that does not heed a cancel, stuck
in a round, is killed and replaced; one that dies by itself is reported, and replaced too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import monotonic_ns
from typing import Any

from .lines import Closed, LineReader, write_line

CANCEL_PATIENCE_NS = 2_000_000_000
MAX_DEATHS = 3
OLDEST_PYTHON = (3, 10)


class Refusal(Exception):
    """The loop that was asked for cannot be had; the text is for the user."""


class Died(Exception):
    """The process ended by itself; it has been replaced."""


@dataclass(frozen=True)
class LoopOptions:
    """What the measured process is to be."""

    loop: str
    eager: bool
    cpus: frozenset[int]
    jobs: dict[str, str]
    path: str | None
    python: str


def refuse_old_python(python: str) -> None:
    """Raises Refusal for an interpreter that cannot run our half of it."""
    ask = [python, "-c", "import sys; print(*sys.version_info[:3])"]
    try:
        found = subprocess.run(ask, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=True)
        version = tuple(int(word) for word in found.stdout.split())
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise Refusal(f"cannot run '{python}': {error}") from error
    if version < OLDEST_PYTHON:
        text = ".".join(str(part) for part in version)
        raise Refusal(f"{python} is Python {text}, this worker needs 3.10 or later")


class LoopProcess:
    def __init__(self, options: LoopOptions) -> None:
        self._options = options
        self._turn = 0
        self._pace: dict[str, Any] | None = None
        self._cancels = 0  # not yet answered
        self._cancel_until: int | None = None  # set while there are any
        self._after_cancel: list[dict[str, Any]] = []
        self._deaths = 0
        if options.python != sys.executable:
            refuse_old_python(options.python)
        self._spawn()
        self.hello = self._set_up(probe=True)

    def _spawn(self) -> None:
        orders, self._orders = os.pipe()
        answers_at, answers = os.pipe()
        package = str(Path(__file__).resolve().parent.parent)
        search = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH")]))
        argv = [self._options.python, "-m", "corefan_worker.child", str(orders), str(answers), str(os.getpid())]
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=2,  # what a user's coroutine prints must not mix with our own output
            pass_fds=(orders, answers),
            env={**os.environ, "PYTHONPATH": search},
        )
        os.close(orders)
        os.close(answers)
        self._reader = LineReader(answers_at)

    def _set_up(self, probe: bool) -> dict[str, Any]:
        options = self._options
        try:
            self._send(
                kind="setup",
                loop=options.loop,
                eager=options.eager,
                cpus=sorted(options.cpus),
                jobs=options.jobs,
                path=options.path,
                probe=probe,
            )
            answer: dict[str, Any] = self._reader.take(wait=True)
        except Closed:
            raise Refusal(f"the loop's process ended before it was ready ({self._end()})") from None
        if answer["kind"] == "refused":
            self.kill()
            raise Refusal(answer["message"])
        return answer

    def _send(self, **order: Any) -> None:
        write_line(self._orders, order)

    def _end(self) -> str:
        code = self._process.wait()
        return f"signal {-code}" if code < 0 else f"exit status {code}"

    def kill(self) -> None:
        """Ends the process at once; fine twice."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for descriptor in (self._orders, self._reader.descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._orders = self._reader.descriptor = -1

    def _replace(self) -> None:
        self.kill()
        self._cancels, self._cancel_until = 0, None
        orders, self._after_cancel = self._after_cancel, []
        self._spawn()
        self._set_up(probe=False)
        if self._pace is not None:
            self._send(**self._pace)
        for order in orders:
            self._send(**order)

    def descriptor(self) -> int:
        """Readable when answers wait."""
        return self._reader.descriptor

    def _order(self, kind: str, **content: Any) -> int:
        self._turn += 1
        order = {"kind": kind, "turn": self._turn, **content}
        if self._cancels:
            self._after_cancel.append(order)
        self._tell(order)
        return self._turn

    def _tell(self, order: dict[str, Any]) -> None:
        try:
            self._send(**order)
        except Closed:
            pass  # its death is seen where its answers are read

    def prepare(self, assign: dict[str, Any]) -> None:
        self._order("prepare", assign=assign)

    def go(self, go: dict[str, Any]) -> None:
        self._order("go", go=go)

    def pace(self, interval_ns: int, hold: bool) -> None:
        """Beats between rounds, at most one in the interval; with hold the loop stands still until `go_on`."""
        self._pace = {"kind": "pace", "interval_ns": interval_ns, "hold": hold}
        self._tell(self._pace)

    def go_on(self) -> None:
        self._tell({"kind": "continue"})

    def wind_up(self) -> None:
        """The go that runs stops before its next round; what it has measured by then is answered, with an error."""
        self._tell({"kind": "wind_up"})

    def cancel(self) -> None:
        """Everything ordered so far is stale; what runs stops before its next round."""
        self._after_cancel = []
        self._cancels += 1
        if self._cancel_until is None:
            self._cancel_until = monotonic_ns() + CANCEL_PATIENCE_NS
        self._tell({"kind": "cancel"})

    def due_ns(self) -> int | None:
        """When `take` wants to be called even if nothing is readable."""
        return self._cancel_until

    def take(self) -> dict[str, Any] | None:
        """The next answer, None when there is none.  Raises Died, and Refusal when it cannot be replaced any more."""
        try:
            answer = self._next()
        except Closed:
            cancelled, how = self._cancels > 0, self._end()
            self._deaths += 1
            if self._deaths >= MAX_DEATHS:
                raise Refusal(f"the loop's process died {self._deaths} times in a row, at last by {how}") from None
            self._replace()
            if cancelled:
                return None
            raise Died(f"the loop's process died: {how}") from None
        if answer is None and self._cancel_until is not None and monotonic_ns() >= self._cancel_until:
            self._replace()
        return answer

    def _next(self) -> dict[str, Any] | None:
        while (answer := self._reader.take()) is not None:
            if answer["kind"] == "cancelled":
                self._note_cancelled()
            elif not self._cancels and answer.get("turn", self._turn) == self._turn:
                self._deaths = 0
                return dict(answer)
        return None

    def _note_cancelled(self) -> None:
        self._cancels -= 1
        if not self._cancels:
            self._cancel_until, self._after_cancel = None, []
