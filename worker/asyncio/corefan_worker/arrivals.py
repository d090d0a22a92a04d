"""When an open loop starts its fan-outs (SPEC.md, section 6.4): drawn before the window, so that it costs nothing in it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from itertools import count, takewhile

from .cells import Cell
from .splitmix import SplitMix

MOST_STARTS = 1 << 22
"""In one window: 32 MiB, and some seconds to draw them."""


def chance_of_arrivals(seed: int, cell: int, block: int) -> SplitMix:
    return SplitMix.stream(seed, ((cell + 1) << 32) + block + (1 << 62))


def too_many(cell: Cell) -> str | None:
    """Why a schedule is not drawn here."""
    starts = cell.rate_per_s * cell.duration_ns / 1e9
    if starts <= MOST_STARTS:
        return None
    return f"a window of {starts:.3g} starts: this worker draws at most {MOST_STARTS}, lower rate_per_s or duration_ns"


def _poisson(rate_per_s: float, random: SplitMix) -> Iterator[int]:
    at = 0
    while True:
        at += math.floor(-math.log(1.0 - random.unit()) * 1e9 / rate_per_s + 0.5)
        yield at


def _fixed(rate_per_s: float) -> Iterator[int]:
    return (math.floor(number * 1e9 / rate_per_s) for number in count())


def schedule(cell: Cell, duration_ns: int, random: SplitMix) -> array[int]:
    """The intended starts within the window, in ns from the launch, ascending."""
    endless = _fixed(cell.rate_per_s) if cell.arrivals == "fixed" else _poisson(cell.rate_per_s, random)
    return array("q", takewhile(lambda at: at < duration_ns, endless))
