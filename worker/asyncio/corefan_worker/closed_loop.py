"""The closed loop: each client starts its next fan-out the moment its last returned.

The window opens when as many fan-outs have ended as there are clients, and all are under way again.  It closes at the
first end, `duration_ns` later or after, at which the ends in it are a multiple of the clients: whole bursts are counted,
and what is under way at one end of the window makes up for what is under way at the other.  It does not wait for that
longer than 1.5 durations and ten of the longest latencies: an own coroutine may never return.

A client whose fan-outs never suspend would keep the loop to itself, as a coroutine of a user's does: it lets the loop turn
once in a millisecond.
"""

from __future__ import annotations

import asyncio

from .arms import Arm, Child
from .cells import Cell
from .histogram import Histogram
from .measure import Round
from .span import Span
from .window_job import WindowJob

WITHOUT_DELAY_NS = 1_000_000  # staggered clients are spread over this where children do not wait
TURN_NS = 1_000_000
LONGEST_FACTOR = 10


def stagger_ns(cell: Cell, client: int) -> int:
    """When a client starts its first fan-out, from the launch."""
    if cell.phase == "together":
        return 0
    return client * (cell.delay_ns or WITHOUT_DELAY_NS) // cell.clients


class ClosedLoop:
    """One window; reused for no other.  `values` is there once `run` has returned."""

    def __init__(self, cell: Cell, arm: Arm, job: WindowJob, span: Span, duration_ns: int) -> None:
        self.values: Round
        self._cell = cell
        self._arm = arm
        self._job = job
        self._span = span
        self._duration_ns = duration_ns
        self._latency = Histogram()
        self._ended = 0  # fan-outs: before the window opened, then in it
        self._look_at_ns = 0  # an end from here on may open or close the window, or have held the loop
        self._due_ns = 0
        self._turn_at_ns = 0  # is to have turned by then
        self._turns = 0  # of the loop, as far as they were expected
        self._turn_expected = False
        self._opened = False
        self._longest_ns = 0  # latency before the window
        self._launched = 0
        self._launch_ns = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Until the window is closed; fan-outs are still under way then."""
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._alarm = self._span.clocks.alarm(self._loop, self._on_alarm)
        try:
            self._launch_ns = self._span.clocks.wall()
            self._launch_due()
            await self._closed
        finally:
            self._alarm.close()

    def _on_alarm(self) -> None:
        if self._launched < self._cell.clients:
            self._launch_due()
        elif self._opened:
            self._close_if_late()

    def _launch_due(self) -> None:
        clients, passed_ns = self._cell.clients, self._span.clocks.wall() - self._launch_ns
        while self._launched < clients and stagger_ns(self._cell, self._launched) <= passed_ns:
            child = self._job.child if self._launched else self._job.first_child()
            self._tasks.append(self._loop.create_task(self._guarded(child)))
            self._launched += 1
        if self._launched < clients:
            self._alarm.set(self._launch_ns + stagger_ns(self._cell, self._launched))
        else:
            self._alarm.clear()

    async def _guarded(self, child: Child) -> None:
        try:
            await self._client(child)
        except Exception as error:
            if not self._closed.done():
                self._closed.set_exception(error)

    async def _client(self, child: Child) -> None:
        """Fan-out after fan-out, the first with `child`.  The harness is what stands here, `Histogram.record` written out."""
        arm, fanout, clock, next_child = self._arm, self._cell.fanout, self._span.clocks.wall, self._job.child
        latency = self._latency
        counts, bits, highest_ns = latency.counts, latency.bits, latency.highest_ns
        turn = -1  # of the loop, when this client last looked
        start_ns = clock()
        while True:
            await arm(child, fanout)
            end_ns = clock()
            took_ns = end_ns - start_ns
            if took_ns <= highest_ns:
                exponent = took_ns.bit_length() - 1 - bits
                counts[(exponent << bits) + (took_ns >> exponent) if exponent > 0 else took_ns] += 1
            else:
                latency.overflow += 1
            self._ended += 1
            start_ns, child = end_ns, next_child
            if end_ns >= self._look_at_ns:
                if self._is_over(end_ns):
                    return
                if end_ns >= self._turn_at_ns:
                    if turn == self._turns:  # not once since this client was here before
                        await asyncio.sleep(0)
                    turn = self._turns
                    self._expect_turn(clock())
                start_ns = clock()

    def _expect_turn(self, now_ns: int) -> None:
        """Takes note of the next turn of the loop, and has somebody look a millisecond from now."""
        self._turn_at_ns = now_ns + TURN_NS
        self._look_at_ns = min(self._turn_at_ns, self._due_ns)
        if not self._turn_expected:
            self._turn_expected = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_expected = False
        self._turns += 1

    def _is_over(self, end_ns: int) -> bool:
        """Looks at an end that may open or close the window.  True: it is closed."""
        if self._closed.done():
            return True
        if not self._opened:
            if self._ended >= self._cell.clients and self._launched == self._cell.clients:
                self._open()
        elif end_ns >= self._due_ns and self._ended % self._cell.clients == 0:
            self._close()
        return self._closed.done()

    def _open(self) -> None:
        self._opened, self._ended = True, 0
        self._longest_ns = self._latency.largest
        self._latency.reset()
        self._job.reset()
        self._due_ns = self._span.open() + self._duration_ns
        self._look_at_ns = min(self._turn_at_ns, self._due_ns)
        self._alarm.set(self._last_ns())

    def _last_ns(self) -> int:
        longest_ns = max(self._longest_ns, self._latency.largest)
        return self._span.start_ns + 3 * self._duration_ns // 2 + LONGEST_FACTOR * longest_ns

    def _close_if_late(self) -> None:
        last_ns = self._last_ns()
        if self._span.clocks.wall() >= last_ns:
            self._close()
        else:
            self._alarm.set(last_ns)

    def _close(self) -> None:
        self._alarm.clear()
        self._span.close()
        self.values = {
            **self._span.values(),
            **self._job.values(self._ended),
            "launch_ns": self._launch_ns,
            "fanouts": self._ended,
            "latency": self._latency.to_map(),
        }
        self._closed.set_result(None)
