"""Bytes <-> messages of the corefan protocol, written from proto/SPEC.md; no sockets, no clocks, no policy.

A message is a dict with `type` and the fields of that type, each one present: None is nil.  The tables below are
SPEC.md's, line by line; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from . import PROTOCOL
from .frames import MAX_TEXT_BYTES, Refused, holds_control, walk
from .histogram import index_of

MAX_ROUNDS = 1024  # in one part of a result

NAME_BYTES = 128
SPAN = 10**18
COUNT = 10**15
NUMBER = 2**31 - 1
CPU = 2**20 - 1
BLOCKS = 100_000
INT64 = 2**63 - 1
FAN_OUT = 1_000_000

_KIB = 1024
FRAME_BYTES = {"hello": 64 * _KIB, "result": 4096 * _KIB}
DEFAULT_FRAME_BYTES = 1024 * _KIB

REQUIRED: Any = object()
"""Fallback of a field that must be there."""


@dataclass(frozen=True)
class Field:
    name: str
    kind: str
    low: float
    high: float
    need: Any = REQUIRED  # or what stands for the field where it is absent or nil
    of: str | None = None  # table of what it holds
    words: tuple[str, ...] = ()


def _integer(name: str, low: int, high: int, need: Any = REQUIRED) -> Field:
    return Field(name, "integer", low, high, need)


def _nil(name: str, low: int, high: int) -> Field:
    return Field(name, "integer", low, high, None)


def _name(name: str, low: int = 1, high: int = NAME_BYTES, need: Any = REQUIRED) -> Field:
    return Field(name, "name", low, high, need)


def _text(name: str, low: int, need: Any = REQUIRED) -> Field:
    return Field(name, "text", low, MAX_TEXT_BYTES, need)


def _word(name: str, words: tuple[str, ...], need: Any = REQUIRED) -> Field:
    return Field(name, "word", 0, 0, need, words=words)


def _flag(name: str, need: Any = REQUIRED) -> Field:
    return Field(name, "flag", 0, 0, need)


_SLICE = (_integer("group", 0, NUMBER), _integer("attempt", 0, 1_000_000))

TABLES: dict[str, tuple[Field, ...]] = {
    "hello": (
        Field("instance", "text", 32, 32),
        _name("runtime"),
        _name("label"),
        _name("host", 1, 255),
        _name("boot_id"),
        _integer("pid", 1, NUMBER),
        _nil("slot", 0, 65535),
        _nil("cpu", 0, CPU),
        _nil("package", 0, CPU),
        _nil("numa", 0, CPU),
        _nil("core", 0, CPU),
        _nil("l3", 0, CPU),
        Field("versions", "texts by name", 0, 64, {}),
        Field("arms", "names", 0, 64),
        Field("jobs", "names", 0, 256),
        _nil("wall_clock_cost_ps", 0, SPAN),
        _nil("cpu_clock_cost_ps", 0, SPAN),
        _nil("timer_overshoot_p50_ns", -SPAN, SPAN),
        _nil("timer_overshoot_max_ns", -SPAN, SPAN),
        _nil("spin_gap_max_ns", 0, SPAN),
        _flag("busy_heartbeats"),
    ),
    "welcome": (_integer("worker", 0, NUMBER), _name("run"), _integer("heartbeat_ns", 1_000_000, 3_600_000_000_000)),
    "reject": (_text("reason", 1),),
    "assign": (
        *_SLICE,
        _integer("lease_ns", 1, SPAN),
        Field("seed", "unsigned", 0, 2**64 - 1),
        _integer("blocks", 1, BLOCKS),
        _integer("gang", 1, 65536),
        Field("cells", "array", 1, 1024, of="cell"),
    ),
    "cell": (
        _integer("cell", 0, NUMBER),
        _name("arm"),
        _name("job"),
        _integer("fanout", 1, FAN_OUT),
        _integer("delay_ns", 0, SPAN),
        _name("wait", need="timerfd"),
        _integer("clients", 1, 65536, 1),
        _word("phase", ("together", "staggered"), "together"),
        Field("rate_per_s", "number", 0, 10**9, 0),
        _word("arrivals", ("poisson", "fixed"), "poisson"),
        _integer("duration_ns", 0, SPAN, 0),
        _integer("warmup", 0, BLOCKS, 0),
        _integer("timeout_ns", 0, SPAN, 0),
        _flag("calibrated", False),
        _word("gc", ("on", "off", "freeze"), None),
        Field("fail", "map", 0, 0, None, of="fail"),
        Field("stall", "map", 0, 0, None, of="stall"),
        Field("params", "texts by name", 0, 64, {}),
    ),
    "fail": (
        _integer("children", 0, FAN_OUT, 0),
        Field("fraction", "number", 0, 1, 0),
        _integer("at_ns", 0, SPAN, 0),
        _word("outcome", ("fail", "cancel"), "fail"),
        _word("on_cancel", ("propagate", "suppress", "cleanup"), "propagate"),
        _integer("cleanup_ns", 0, SPAN, 0),
    ),
    "stall": (_integer("children", 0, FAN_OUT), _integer("cpu_ns", 0, SPAN)),
    "ready": (*_SLICE, Field("cells", "array", 0, 1024, of="prepared"), _text("error", 0, None)),
    "prepared": (
        _integer("cell", 0, NUMBER),
        _integer("loops", 1, COUNT),
        _integer("warmups", 0, NUMBER),
        _integer("warmup_ns", 0, SPAN),
        _integer("calibration_ns", 0, SPAN),
        Field("flags", "names", 0, 32, []),
    ),
    "go": (
        *_SLICE,
        _integer("go", 0, NUMBER),
        _integer("first_block", 0, BLOCKS - 1),
        _integer("blocks", 1, BLOCKS),
        _nil("cell", 0, NUMBER),
        _nil("start_at_ns", 0, INT64),
    ),
    "heartbeat": (
        _nil("group", 0, NUMBER),
        _nil("attempt", 0, 1_000_000),
        _integer("rounds_done", 0, COUNT, 0),
        _word("state", ("idle", "preparing", "ready", "measuring")),
    ),
    "result": (
        *_SLICE,
        _integer("go", 0, NUMBER),
        _integer("part", 0, NUMBER),
        _flag("last"),
        Field("rounds", "array", 0, MAX_ROUNDS, of="round"),
        _text("error", 0, None),
    ),
    "round": (
        _integer("cell", 0, NUMBER),
        _integer("block", 0, BLOCKS - 1),
        _integer("position", 0, 1023),
        _nil("intended_start_ns", 0, INT64),
        _nil("start_ns", 0, INT64),
        _nil("wall_ns", 0, SPAN),
        _nil("cpu_ns", 0, SPAN),
        _nil("fanouts", 0, COUNT),
        _nil("wakeups", 0, COUNT),
        _nil("max_in_flight", 0, COUNT),
        _nil("early", 0, COUNT),
        _nil("overshoot_min_ns", -SPAN, SPAN),
        _nil("overshoot_p50_ns", -SPAN, SPAN),
        _nil("overshoot_max_ns", -SPAN, SPAN),
        _nil("switches_voluntary", 0, COUNT),
        _nil("switches_involuntary", 0, COUNT),
        _nil("faults_minor", 0, COUNT),
        _nil("faults_major", 0, COUNT),
        _nil("runq_ns", 0, SPAN),
        _nil("cpu_start", 0, CPU),
        _nil("cpu_end", 0, CPU),
        _nil("throttles", 0, COUNT),
        _nil("throttled_ns", 0, SPAN),
        _nil("steal_ticks", 0, COUNT),
        _nil("frequency_start_khz", 0, COUNT),
        _nil("frequency_end_khz", 0, COUNT),
        _nil("cycles", 0, INT64),
        _nil("instructions", 0, INT64),
        _nil("gc_runs", 0, COUNT),
        _nil("time_to_error_ns", 0, SPAN),
        _nil("wasted_cpu_ns", 0, SPAN),
        _nil("drain_ns", 0, SPAN),
        _nil("orphans", 0, COUNT),
        _nil("errors_seen", 0, COUNT),
        _nil("errors_lost", 0, COUNT),
        _nil("stall_overshoot_p50_ns", -SPAN, SPAN),
        _nil("launch_ns", 0, INT64),
        _nil("children", 0, COUNT),
        _nil("busy_ticks", 0, COUNT),
        _nil("offered", 0, COUNT),
        _nil("skipped", 0, COUNT),
        _nil("unfinished", 0, COUNT),
        _nil("lag_p50_ns", 0, SPAN),
        _nil("lag_max_ns", 0, SPAN),
        _text("error", 0, None),
        Field("latency", "map", 0, 0, None, of="histogram"),
        Field("latency_intended", "map", 0, 0, None, of="histogram"),
    ),
    "histogram": (
        _integer("significant_digits", 1, 5),
        _integer("lowest_ns", 1, SPAN),
        _integer("highest_ns", 1, SPAN),
        _integer("overflow", 0, COUNT),
        Field("counts", "counts", 0, 2**19),
    ),
    "ack": (*_SLICE, _integer("go", 0, NUMBER), _integer("part", 0, NUMBER)),
    "abort": (*_SLICE, _text("reason", 1), _flag("keep", False)),
    "bye": (_text("reason", 0, None),),
}

MESSAGES = ("hello", "welcome", "reject", "assign", "ready", "go", "heartbeat", "result", "ack", "abort", "bye")


def _mistyped(where: str, what: str) -> Refused:
    return Refused("mistyped", f"'{where}' is not {what}")


def _within(field: Field, where: str, amount: float) -> None:
    if not field.low <= amount <= field.high:
        raise Refused("range", f"'{where}' is outside of {field.low}..{field.high}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _read_integer(field: Field, where: str, value: Any) -> Any:
    if not _is_integer(value):
        raise _mistyped(where, "an integer")
    _within(field, where, value)
    return value


def _read_number(field: Field, where: str, value: Any) -> Any:
    if not _is_integer(value) and not isinstance(value, float):
        raise _mistyped(where, "a number")
    _within(field, where, value)
    return value


def _read_flag(field: Field, where: str, value: Any) -> Any:
    if not isinstance(value, bool):
        raise _mistyped(where, "true or false")
    return value


def _read_text(field: Field, where: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise _mistyped(where, "text")
    _within(field, where, len(value.encode()))
    return value


def _read_name(field: Field, where: str, value: Any) -> Any:
    _read_text(field, where, value)
    if holds_control(value):
        raise Refused("range", f"'{where}' holds a control character")
    return value


def _read_word(field: Field, where: str, value: Any) -> Any:
    if not isinstance(value, str):
        raise _mistyped(where, "text")
    if value not in field.words:
        raise Refused("range", f"'{where}' is none of {', '.join(field.words)}")
    return value


_ENTRY = _name("")


def _read_names(field: Field, where: str, value: Any) -> Any:
    if not isinstance(value, list):
        raise _mistyped(where, "an array")
    _within(field, where, len(value))
    return [_read_name(_ENTRY, f"{where}[{index}]", entry) for index, entry in enumerate(value)]


def _read_pairs(field: Field, where: str, value: Any) -> Any:
    if not isinstance(value, dict):
        raise _mistyped(where, "a map")
    _within(field, where, len(value))
    for name, text in value.items():
        _read_name(_ENTRY, where, name)
        if not isinstance(text, str):
            raise _mistyped(f"{where}.{name}", "text")
    return value


def _read_map(field: Field, where: str, value: Any) -> Any:
    assert field.of is not None
    return read_table(field.of, value, where)


def _read_array(field: Field, where: str, value: Any) -> Any:
    assert field.of is not None
    if not isinstance(value, list):
        raise _mistyped(where, "an array")
    _within(field, where, len(value))
    return [read_table(field.of, entry, f"{where}[{index}]") for index, entry in enumerate(value)]


def _read_counts(field: Field, where: str, value: Any) -> Any:
    if not isinstance(value, list) or not all(_is_integer(entry) for entry in value):
        raise _mistyped(where, "an array of integers")
    _within(field, where, len(value) // 2)
    if any(not 0 <= entry <= INT64 for entry in value):
        raise Refused("range", f"'{where}' has an entry outside of 0..2^63-1")
    return value


_READERS: dict[str, Callable[[Field, str, Any], Any]] = {
    "integer": _read_integer,
    "unsigned": _read_integer,
    "number": _read_number,
    "flag": _read_flag,
    "text": _read_text,
    "name": _read_name,
    "word": _read_word,
    "names": _read_names,
    "texts by name": _read_pairs,
    "map": _read_map,
    "array": _read_array,
    "counts": _read_counts,
}


def _tie_hello(fields: Mapping[str, Any]) -> str | None:
    if set(fields["instance"]) - set("0123456789abcdef"):
        return "'instance' is not 32 lower-case hex digits"
    return None


def _tie_assign(fields: Mapping[str, Any]) -> str | None:
    numbers = [cell["cell"] for cell in fields["cells"]]
    return None if len(set(numbers)) == len(numbers) else "two cells have the same number"


def _tie_fail(fields: Mapping[str, Any]) -> str | None:
    both = fields["children"] > 0 and fields["fraction"] > 0
    return "'children' and 'fraction' are both set" if both else None


def _tie_round(fields: Mapping[str, Any]) -> str | None:
    nil = [name for name in ("start_ns", "wall_ns", "cpu_ns", "fanouts") if fields[name] is None]
    return f"'{nil[0]}' is nil without 'error'" if nil and fields["error"] is None else None


def _tie_histogram(fields: Mapping[str, Any]) -> str | None:
    if fields["highest_ns"] < fields["lowest_ns"]:
        return "'highest_ns' is below 'lowest_ns'"
    if len(fields["counts"]) % 2:
        return "'counts' is not in pairs"
    indexes, counts = fields["counts"][::2], fields["counts"][1::2]
    last = index_of(fields["highest_ns"], fields["significant_digits"], fields["lowest_ns"])
    if indexes and (indexes[0] < 0 or indexes[-1] > last or any(a >= b for a, b in zip(indexes, indexes[1:]))):
        return f"'counts' has indexes that do not ascend within 0..{last}"
    if any(count < 1 for count in counts) or sum(counts) > COUNT:
        return "'counts' has a count below 1, or too many of them"
    return None


def _tie_result(fields: Mapping[str, Any]) -> str | None:
    return "a part that is not the last has an error" if fields["error"] is not None and not fields["last"] else None


_TIES: dict[str, Callable[[Mapping[str, Any]], str | None]] = {
    "hello": _tie_hello,
    "assign": _tie_assign,
    "fail": _tie_fail,
    "round": _tie_round,
    "histogram": _tie_histogram,
    "result": _tie_result,
}


def read_table(table: str, entry: Any, where: str) -> dict[str, Any]:
    """The fields of one table, each present; unknown keys are left out."""
    if not isinstance(entry, dict):
        raise _mistyped(where, "a map")
    fields = {}
    for field in TABLES[table]:
        value = entry.get(field.name)
        path = f"{where}.{field.name}"
        if value is not None:
            fields[field.name] = _READERS[field.kind](field, path, value)
        elif field.need is REQUIRED:
            raise Refused("missing", f"'{path}' is missing")
        else:
            fields[field.name] = field.need
    tie = _TIES.get(table)
    if tie is not None and (what := tie(fields)) is not None:
        raise Refused("tie", f"{where}: {what}")
    return fields


def is_version(value: Any) -> bool:
    pair = isinstance(value, list) and len(value) == 2
    return pair and all(_is_integer(part) and 0 <= part <= 65535 for part in value)


def _check_version(entry: Mapping[str, Any]) -> None:
    version = entry.get("v")
    if version is None or not is_version(version):
        raise Refused("version", "'v' is not [major, minor]")
    if version[0] != PROTOCOL[0]:
        raise Refused("version", f"protocol {version[0]}.{version[1]} of the peer is not {PROTOCOL[0]}.x")


def decode(frame: bytes) -> dict[str, Any]:
    """Raises Refused."""
    walk(frame)
    entry = msgpack.unpackb(frame, raw=False)
    _check_version(entry)
    kind = entry.get("type")
    if kind not in MESSAGES:
        raise Refused("type", f"unknown type '{kind}'" if isinstance(kind, str) else "'type' is not text")
    if len(frame) > FRAME_BYTES.get(kind, DEFAULT_FRAME_BYTES):
        raise Refused("size", f"a {kind} of {len(frame)} bytes, more than {FRAME_BYTES.get(kind, DEFAULT_FRAME_BYTES)}")
    return {"type": kind, **read_table(kind, entry, kind)}


def peek(frame: bytes) -> tuple[Any, Any]:
    """`type` and `v` of a frame that was refused, whatever they are; None where it is not well-formed."""
    try:
        walk(frame)
    except Refused:
        return None, None
    entry = msgpack.unpackb(frame, raw=False)
    return entry.get("type"), entry.get("v")


def clip(text: str, limit: int = MAX_TEXT_BYTES) -> str:
    """The text as far as it may go into a frame."""
    return text.replace("\0", " ").encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _written(table: str, content: Mapping[str, Any]) -> dict[str, Any]:
    fields = {}
    for field in TABLES[table]:
        value = content.get(field.name)
        if value is not None and field.of is not None:
            nested = field.of
            value = _written(nested, value) if field.kind == "map" else [_written(nested, entry) for entry in value]
        elif value is not None and field.kind == "text":
            value = clip(value)
        fields[field.name] = value
    return fields


def encode(kind: str, **content: Any) -> bytes:
    """Every key of the table, nil where there is nothing."""
    frame: bytes = msgpack.packb({"type": kind, "v": list(PROTOCOL), **_written(kind, content)})
    return frame


def encode_result(content: Mapping[str, Any], rounds: list[dict[str, Any]], error: str | None) -> list[bytes]:
    """The parts of one go's result, each within the limits, the last one marked and holding the error."""
    size = MAX_ROUNDS
    while True:
        chunks = [rounds[at : at + size] for at in range(0, len(rounds), size)] or [[]]
        last = len(chunks) - 1
        parts = [
            encode("result", **content, part=part, last=part == last, rounds=chunk, error=error if part == last else None)
            for part, chunk in enumerate(chunks)
        ]
        if size == 1 or max(map(len, parts)) <= FRAME_BYTES["result"]:
            return parts
        size = (size + 1) // 2
