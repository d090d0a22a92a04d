"""Time that only tests move: an asyncio loop, clocks and alarms on it.  A wait takes no time and ends to the ns."""
import asyncio
import selectors

from corefan_worker.disturbance import PinnedCpu
from corefan_worker.loops import MeasuredLoop
from corefan_worker.machine import Counters
from corefan_worker.span import Clocks
from corefan_worker.window import WindowCell
from corefan_worker.cells import Cell

START_NS = 10**9


class Selector(selectors.SelectSelector):
    """Nothing ever happens but the passing of time."""

    def __init__(self, world):
        super().__init__()
        self.world = world

    def select(self, timeout=None):
        assert timeout is not None, "everybody waits for something that is not a timer"
        self.world.now_ns += round(max(0, timeout) * 1e9)
        return []


class Alarm:
    def __init__(self, loop, call):
        self.loop = loop
        self.call = call
        self.handle = None

    def set(self, at_ns):
        self.clear()
        self.handle = self.loop.call_at(at_ns / 1e9, self.call)

    def clear(self):
        if self.handle is not None:
            self.handle.cancel()

    close = clear


class World:
    def __init__(self):
        self.now_ns = START_NS
        self.cpu_ns = 0
        self.loop = asyncio.SelectorEventLoop(Selector(self))
        self.loop.time = lambda: self.now_ns / 1e9
        self.loop._clock_resolution = 1e-9  # a timer that is due by less than this is due
        self.loop.set_exception_handler(lambda loop, context: None)

    def burn(self, cpu_ns):
        """The thread computes, or is held: nothing else runs meanwhile."""
        self.now_ns += cpu_ns
        self.cpu_ns += cpu_ns

    def at(self, from_start_ns, call):
        self.loop.call_at((START_NS + from_start_ns) / 1e9, call)

    def wall(self):
        return self.now_ns

    def window(self, own=None, **keys):
        """The cell, ready for windows in this world."""
        cell = Cell(**{**dict(cell=0, arm="gather", job="sleep", fanout=2, delay_ns=10_000_000), **keys})
        measured = MeasuredLoop(self.loop, None, 0, {})
        clocks = Clocks(self.wall, lambda: self.cpu_ns, Alarm)
        return WindowCell(cell, own or {}, measured, False, Counters(), PinnedCpu(), clocks)

    def run(self, coroutine):
        asyncio.set_event_loop(self.loop)
        return self.loop.run_until_complete(coroutine)
