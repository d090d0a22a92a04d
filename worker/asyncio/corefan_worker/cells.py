"""A cell of an assign as the measured side sees it (SPEC.md, `assign`): plain values, nothing of the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Fail:
    """Which children do not end well, and how all of them answer a cancellation."""

    children: int = 0
    fraction: float = 0.0
    at_ns: int = 0
    outcome: str = "fail"
    on_cancel: str = "propagate"
    cleanup_ns: int = 0


@dataclass(frozen=True)
class Stall:
    """The first children hold the loop with CPU before they wait."""

    children: int = 0
    cpu_ns: int = 0


@dataclass(frozen=True)
class Cell:
    cell: int
    arm: str
    job: str
    fanout: int
    delay_ns: int = 0
    wait: str | None = None
    clients: int = 1
    phase: str = "together"
    rate_per_s: float = 0.0
    arrivals: str = "poisson"
    duration_ns: int = 0
    warmup: int = 0
    timeout_ns: int = 0
    calibrated: bool = False
    gc: str | None = None
    fail: Fail | None = None
    stall: Stall | None = None
    params: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_map(cls, entry: Mapping[str, Any]) -> Cell:
        known = {name.name: entry[name.name] for name in fields(cls) if entry.get(name.name) is not None}
        for name, kind in (("fail", Fail), ("stall", Stall)):
            if name in known:
                inner = known[name]
                known[name] = kind(**{f.name: inner[f.name] for f in fields(kind) if inner.get(f.name) is not None})
        return cls(**known)

    @property
    def window(self) -> bool:
        """Measured as a window of many fan-outs, not as one."""
        return self.duration_ns > 0 or self.clients > 1 or self.rate_per_s > 0

    @property
    def collector(self) -> str:
        """on, off or freeze: unless told otherwise off for what is calibrated, else as a user has it."""
        return self.gc or ("off" if self.calibrated and not self.window else "on")
