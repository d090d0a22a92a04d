"""The seeded random numbers of a sweep, the same in every language that speaks the protocol (SPEC.md).

SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.  Not for secrets.
"""

from __future__ import annotations

import math

_MASK = (1 << 64) - 1
_GOLDEN_GAMMA = 0x9E3779B97F4A7C15


class SplitMix:
    """One stream; a seed is taken modulo 2^64, so that a signed one means its bits."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    @classmethod
    def stream(cls, seed: int, number: int) -> SplitMix:
        """A stream of its own for (seed, number)."""
        return cls(cls((seed & _MASK) ^ (number * _GOLDEN_GAMMA & _MASK)).next())

    def next(self) -> int:
        """0 .. 2^64 - 1."""
        self._state = (self._state + _GOLDEN_GAMMA) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        """0 .. bound - 1: the high 64 bits of next() * bound."""
        return (self.next() * bound) >> 64

    def unit(self) -> float:
        """[0, 1): the top 53 bits."""
        return (self.next() >> 11) * 2.0**-53

    def exponential(self, mean: float) -> float:
        return -mean * math.log(1.0 - self.unit())

    def shuffle(self, items: list[int]) -> None:
        """Fisher-Yates from the end, in place."""
        for i in range(len(items) - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]


def block_order(seed: int, block: int, cells: int) -> list[int]:
    """Positions of a slice's cells in one block: indexes into the assign's list, in the order of running."""
    order = list(range(cells))
    SplitMix.stream(seed, block).shuffle(order)
    return order
