"""A slice: one runtime's share of a group, prepared once and then measured block by block (SPEC.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any, TypeVar

from .arms import ARMS
from .arrivals import chance_of_arrivals
from .cells import Cell
from .disturbance import PinnedCpu, grown
from .jobs import JOBS, Body
from .loops import MeasuredLoop
from .machine import Counters, sleep_until
from .measure import PreparedCell, Round
from .readiness import Cost, Warmup, calibrate, threshold_ns
from .splitmix import SplitMix, block_order
from .window import WindowCell, available_bytes, refuse_window

_START_SPIN_NS = 300_000

AnyCell = PreparedCell | WindowCell
Turn = tuple[int, int, AnyCell]
"""Block, position in it, cell."""

BetweenRounds = Callable[[int], bool]
"""Called with the rounds done so far; False: stop here."""


Result = TypeVar("Result")


class CannotRun(Exception):
    """This slice, or this go, cannot be run here; the text says why."""


class Stopped(Exception):
    """The caller asked to stop between two rounds: what was measured by then."""

    def __init__(self, rounds: list[Round] | None = None) -> None:
        super().__init__()
        self.rounds = rounds or []


@dataclass(frozen=True)
class Engine:
    """What a slice is measured with."""

    measured: MeasuredLoop
    eager: bool
    own: dict[str, Body]
    cpu_clock_cost_ps: int
    between_rounds: BetweenRounds
    counters: Counters = field(default_factory=Counters)
    cpu: PinnedCpu = field(default_factory=PinnedCpu)


@dataclass(frozen=True)
class Go:
    """Which rounds to run: some blocks, of all cells or of one."""

    first_block: int
    blocks: int
    cell: int | None = None
    start_at_ns: int | None = None


def refuse(cell: Cell, engine: Engine) -> str | None:
    """Why a cell cannot be measured here."""
    if cell.arm not in ARMS:
        return f"unknown arm '{cell.arm}'"
    if cell.job not in JOBS and cell.job not in engine.own:
        return f"unknown job '{cell.job}'"
    if cell.calibrated and (cell.fail or cell.stall or cell.timeout_ns):
        return f"cell {cell.cell}: fail, stall and timeout need a job that is timed round by round"
    if cell.stall is not None and cell.job != "sleep":
        return f"cell {cell.cell}: stall needs job 'sleep'"
    wrong = refuse_window(cell, available_bytes()) if cell.window else None
    return f"cell {cell.cell}: {wrong}" if wrong is not None else None


class Watch:
    """Frequency at both ends of a round, steal over the rounds of a block; what ends one begins the next."""

    def __init__(self, cpu: PinnedCpu) -> None:
        self._cpu = cpu
        self._steal = cpu.steal_ticks()
        self._frequency = cpu.frequency_khz()
        self._block: int | None = None

    def block_begins(self, block: int, rounds: list[Round]) -> None:
        if self._block not in (None, block):
            self.block_ended(rounds)
        self._block = block

    def block_ended(self, rounds: list[Round]) -> None:
        before, self._steal = self._steal, self._cpu.steal_ticks()
        for values in rounds:
            if values["block"] == self._block:
                values["steal_ticks"] = grown(before, self._steal)

    def round_ended(self) -> Round:
        before, self._frequency = self._frequency, self._cpu.frequency_khz()
        return {"frequency_start_khz": before, "frequency_end_khz": self._frequency}


class Slice:
    def __init__(self, engine: Engine, assign: dict[str, Any]) -> None:
        self._engine = engine
        self._seed: int = assign["seed"]
        self._blocks: int = assign["blocks"]
        cells = [Cell.from_map(entry) for entry in assign["cells"]]
        for cell in cells:
            if (why := refuse(cell, engine)) is not None:
                raise CannotRun(why)
        self._cells = [self._prepared(cell) for cell in cells]
        self._done = 0

    def _prepared(self, cell: Cell) -> AnyCell:
        engine = self._engine
        if cell.window:
            return WindowCell(cell, engine.own, engine.measured, engine.eager, engine.counters, engine.cpu)
        return PreparedCell(cell, engine.own, engine.measured, engine.eager, engine.counters)

    def prepare(self) -> list[dict[str, Any]]:
        """Calibrates and warms up; what `ready` says of each cell."""
        return [self._run(self._prepare_cell(cell)) for cell in self._cells]

    def go(self, go: Go) -> list[Round]:
        if go.first_block + go.blocks > self._blocks:
            raise CannotRun(f"blocks {go.first_block}..{go.first_block + go.blocks - 1} are not in the slice")
        turns = list(self._turns(go))
        if not turns:
            raise CannotRun(f"cell {go.cell} is not in the slice")
        watch = Watch(self._engine.cpu)
        first = self._round(*turns[0])
        if go.start_at_ns is not None:
            sleep_until(go.start_at_ns - _START_SPIN_NS)
            while monotonic_ns() < go.start_at_ns:
                pass  # nothing is timed yet, and wake-ups of several cores are further apart than their clocks
        return self._run(self._measure(turns, first, go.start_at_ns, watch))

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        return self._engine.measured.loop.run_until_complete(coroutine)

    def _turns(self, go: Go) -> Iterator[Turn]:
        """(block, position, cell) in the order of running."""
        for block in range(go.first_block, go.first_block + go.blocks):
            for position, index in enumerate(block_order(self._seed, block, len(self._cells))):
                prepared = self._cells[index]
                if go.cell is None or prepared.cell.cell == go.cell:
                    yield block, position, prepared

    def _round(self, block: int, position: int, prepared: AnyCell) -> Coroutine[Any, Any, Round]:
        chance = chance_of_arrivals if prepared.cell.window else chance_of_round
        return prepared.round(chance(self._seed, prepared.cell.cell, block))

    async def _measure(
        self, turns: list[Turn], first: Coroutine[Any, Any, Round], start_at_ns: int | None, watch: Watch
    ) -> list[Round]:
        """first: the round of the first turn, made before the start."""
        rounds: list[Round] = []
        for block, position, prepared in turns:
            values = await (self._round(block, position, prepared) if rounds else first)
            intended = start_at_ns if not rounds else None
            watch.block_begins(block, rounds)
            rounds.append({
                "cell": prepared.cell.cell,
                "block": block,
                "position": position,
                "intended_start_ns": intended,
                **values,
                **watch.round_ended(),
            })
            if not self._engine.between_rounds(len(rounds)):
                watch.block_ended(rounds)
                raise Stopped(rounds)
        watch.block_ended(rounds)
        return rounds

    def _pause(self, rounds_done: int) -> None:
        if not self._engine.between_rounds(rounds_done):
            raise Stopped

    async def _prepare_cell(self, prepared: AnyCell) -> dict[str, Any]:
        clock = asyncio.get_running_loop().time
        flags = []
        start = clock()
        calibrates = isinstance(prepared, PreparedCell) and prepared.cell.calibrated
        if isinstance(prepared, PreparedCell) and prepared.cell.calibrated:
            prepared.loops, stable = await calibrate(
                self._cost_with_pause(prepared), threshold_ns(self._engine.cpu_clock_cost_ps)
            )
            if not stable:
                flags.append("calibration_unstable")
        calibrated = clock()
        warmup = Warmup(prepared.cell.warmup, long=prepared.cell.window)
        chance = chance_of_warmup(self._seed, prepared.cell.cell)
        while (verdict := warmup.verdict()) == "more":
            values = await prepared.warm_up(chance)
            value = values["cpu_ns"] if calibrates else values["wall_ns"]
            warmup.add(value, values["wall_ns"], values["faults_minor"])
            self._pause(0)
        if verdict == "unconverged":
            flags.append("warmup_unconverged")
        return {
            "cell": prepared.cell.cell,
            "loops": prepared.loops,
            "warmups": warmup.rounds,
            "warmup_ns": warmup.spent_ns,
            "calibration_ns": round((calibrated - start) * 1e9) if calibrates else 0,
            "flags": flags,
        }

    def _cost_with_pause(self, prepared: PreparedCell) -> Cost:
        async def cost(loops: int) -> int:
            self._pause(0)
            return await prepared.cost_ns(loops)

        return cost


def chance_of_round(seed: int, cell: int, block: int) -> SplitMix:
    """Which children of a round do not end well (SPEC.md, section 6.3)."""
    return SplitMix.stream(seed, ((cell + 1) << 32) + block)


def chance_of_warmup(seed: int, cell: int) -> SplitMix:
    return SplitMix.stream(seed, cell + 1 + (1 << 63))
