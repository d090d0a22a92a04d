#!/usr/bin/python3
"""Writes proto/vectors/: frames that every implementation must read, and frames that it must refuse.

valid/NAME.json says what NAME.hex holds and why it is there; invalid/NAME.txt names the rule of SPEC.md that NAME.hex
breaks.  Made with Debian's msgpack for Python and by hand, never with code of ours.  The output is committed.
"""
import json
import pathlib
import struct
import sys

import msgpack

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "proto" / "vectors"

V = [1, 0]
INT64_MAX = 2 ** 63 - 1
NS_MAX = 10 ** 18

HELLO = {
    "type": "hello", "v": V, "instance": "00112233445566778899aabbccddeeff", "runtime": "libuv", "label": "libuv",
    "host": "bench-1", "boot_id": "8f2b0c1e-57a4-4f5e-9d0f-2c6b1f1f7a11", "pid": 4711, "slot": 0, "cpu": 1, "package": 0,
    "numa": 0, "core": 1, "l3": 0, "versions": {"corefan": "0.1.0", "libuv": "1.44.2", "kernel": "6.1.0-18-amd64"},
    "arms": ["sequential", "gather", "gather-return-exceptions", "tasks", "taskgroup", "empty"],
    "jobs": ["noop", "sleep", "cpu"], "wall_clock_cost_ps": 41200, "cpu_clock_cost_ps": 702000,
    "timer_overshoot_p50_ns": 51200, "timer_overshoot_max_ns": 93000, "spin_gap_max_ns": 8000, "busy_heartbeats": True,
}
WELCOME = {"type": "welcome", "v": V, "worker": 3, "run": "lab-20250131T120000Z", "heartbeat_ns": 1000000000}
REJECT = {"type": "reject", "v": V, "reason": "protocol 2.0 of the peer is not 1.x"}
CELL = {
    "cell": 7, "arm": "gather", "job": "sleep", "fanout": 40, "delay_ns": 10000000, "wait": "timerfd", "clients": 1,
    "phase": "together", "rate_per_s": 0.0, "duration_ns": 0, "warmup": 2, "timeout_ns": 0, "calibrated": False,
    "gc": None, "fail": None, "stall": None, "params": {},
}
EMPTY = {**CELL, "cell": 8, "arm": "empty"}
SMALL_CELL = {"cell": 0, "arm": "sequential", "job": "noop", "fanout": 1, "delay_ns": 0}
FAIL = {"children": 1, "fraction": 0.0, "at_ns": 2000000, "outcome": "fail", "on_cancel": "cleanup",
        "cleanup_ns": 500000}
STALL = {"children": 1, "cpu_ns": 3000000}
ASSIGN = {"type": "assign", "v": V, "group": 2, "attempt": 1, "lease_ns": 30000000000, "seed": 42, "blocks": 9,
          "gang": 1, "cells": [CELL, EMPTY]}
PREPARED = {"cell": 7, "loops": 1, "warmups": 2, "warmup_ns": 20412345, "calibration_ns": 0, "flags": []}
READY = {"type": "ready", "v": V, "group": 2, "attempt": 1, "cells": [PREPARED, {**PREPARED, "cell": 8}], "error": None}
GO = {"type": "go", "v": V, "group": 2, "attempt": 1, "go": 0, "first_block": 0, "blocks": 9, "cell": None,
      "start_at_ns": None}
HEARTBEAT = {"type": "heartbeat", "v": V, "group": 2, "attempt": 1, "rounds_done": 5, "state": "measuring"}
NO_FIGURES = dict.fromkeys((
    "intended_start_ns", "start_ns", "wall_ns", "cpu_ns", "fanouts", "wakeups", "max_in_flight", "early",
    "overshoot_min_ns", "overshoot_p50_ns", "overshoot_max_ns", "switches_voluntary", "switches_involuntary",
    "faults_minor", "faults_major", "runq_ns", "cpu_start", "cpu_end", "throttles", "throttled_ns", "steal_ticks",
    "frequency_start_khz", "frequency_end_khz", "cycles", "instructions", "gc_runs",
    "time_to_error_ns", "wasted_cpu_ns", "drain_ns", "orphans", "errors_seen", "errors_lost",
    "stall_overshoot_p50_ns", "error", "latency", "latency_intended"))
ROUND = {
    "cell": 7, "block": 0, "position": 1, **NO_FIGURES, "start_ns": 81234567890123, "wall_ns": 10061234, "cpu_ns": 48210,
    "fanouts": 1, "wakeups": 1, "max_in_flight": 40, "early": 0, "overshoot_min_ns": 51001, "overshoot_p50_ns": 55120,
    "overshoot_max_ns": 60877, "switches_voluntary": 1, "switches_involuntary": 0, "faults_minor": 0,
    "faults_major": 0, "runq_ns": 1210, "cpu_start": 1, "cpu_end": 1,
}
SMALL_ROUND = {"cell": 0, "block": 0, "position": 0, "start_ns": 0, "wall_ns": 0, "cpu_ns": 0, "fanouts": 0}
HISTOGRAM = {"significant_digits": 3, "lowest_ns": 1, "highest_ns": 60000000000, "overflow": 0,
             "counts": [14532, 3, 14533, 120, 15000, 1]}
RESULT = {"type": "result", "v": V, "group": 2, "attempt": 1, "go": 0, "part": 0, "last": True,
          "rounds": [ROUND, {**ROUND, "cell": 8, "position": 0, "max_in_flight": 0, "wakeups": 0}], "error": None}
ACK = {"type": "ack", "v": V, "group": 2, "attempt": 1, "go": 0, "part": 0}
ABORT = {"type": "abort", "v": V, "group": 2, "attempt": 1, "reason": "worker 5 of the gang was lost"}
BYE = {"type": "bye", "v": V, "reason": None}
ONE_OF_EACH = (HELLO, WELCOME, REJECT, ASSIGN, READY, GO, HEARTBEAT, RESULT, ACK, ABORT, BYE)


def without(record, *keys):
    return {key: value for key, value in record.items() if key not in keys}


def valid():
    """name -> (about, frame)"""
    yield "hello", "a pinned libuv worker that says everything", HELLO
    yield "hello-smallest", "only what is required; the rest is not known or empty", {
        key: HELLO[key] for key in ("type", "v", "instance", "runtime", "label", "host", "boot_id", "pid", "arms", "jobs",
                                    "busy_heartbeats")}
    yield "hello-nil", "started by hand, not pinned, nothing probed: nil, not 0", {
        **HELLO, **dict.fromkeys(("slot", "cpu", "package", "numa", "core", "l3", "versions", "wall_clock_cost_ps",
                                  "cpu_clock_cost_ps", "timer_overshoot_p50_ns", "timer_overshoot_max_ns",
                                  "spin_gap_max_ns")), "busy_heartbeats": False}
    yield "hello-largest", "every limit reached", {
        **HELLO, "runtime": "r" * 128, "label": "l" * 128, "host": "h" * 255, "boot_id": "b" * 128, "pid": 2 ** 31 - 1,
        "slot": 65535, "cpu": 2 ** 20 - 1, "versions": {f"part {i}": "" for i in range(63)} | {"long": "x" * 4096},
        "arms": [f"arm-{i}" for i in range(64)], "jobs": [f"job-{i}" for i in range(255)] + ["j" * 128],
        "wall_clock_cost_ps": NS_MAX, "timer_overshoot_p50_ns": -NS_MAX, "timer_overshoot_max_ns": NS_MAX}
    yield "hello-unicode", "names outside ASCII: two, three and four bytes a character", {
        **HELLO, "host": "m\u00fcnchen", "label": "\u5354\u7a0b \U0001f680"}
    yield "hello-unknown-keys", "keys of a later minor version, of every kind: ignored", {
        **HELLO, "v": [1, 9], "colour": "blue", "weights": [1, 2.5, None, {"deep": [[[[True]]]]}], "nothing": None,
        "big": 2 ** 64 - 1, "": "the empty key"}
    yield "hello-full-map", "128 keys, one of them of 128 bytes, and containers down to level 8", {
        **HELLO, "k" * 128: [[[[[[[]]]]]]], **{f"k{i}": 0 for i in range(127 - len(HELLO))}}
    yield "hello-minor", "the highest minor version of the same major", {**HELLO, "v": [1, 65535]}
    yield "hello-v-last", "keys come in any order", dict(reversed(HELLO.items()))
    yield "welcome", "a worker gets its number", WELCOME
    yield "welcome-smallest", "lower limits", {**WELCOME, "worker": 0, "run": "r", "heartbeat_ns": 1000000}
    yield "welcome-largest", "upper limits", {**WELCOME, "worker": 2 ** 31 - 1, "run": "r" * 128,
                                              "heartbeat_ns": 3600 * 10 ** 9}
    yield "reject", "another major version", REJECT
    yield "reject-lines", "a reason may hold line ends", {**REJECT, "reason": "two mistakes:\n\t'pid' is missing\n"}
    yield "reject-longest", "4096 bytes", {**REJECT, "reason": "\u00e9" * 2048}
    yield "assign", "one arm and the harness", ASSIGN
    yield "assign-smallest", "a cell of required keys", {
        **ASSIGN, "group": 0, "attempt": 0, "lease_ns": 1, "seed": 0, "blocks": 1, "cells": [SMALL_CELL]}
    yield "assign-largest", "upper limits of numbers", {
        **ASSIGN, "group": 2 ** 31 - 1, "attempt": 10 ** 6, "lease_ns": NS_MAX, "seed": 2 ** 64 - 1, "blocks": 10 ** 5,
        "gang": 65536, "cells": [{
            **CELL, "cell": 2 ** 31 - 1, "fanout": 10 ** 6, "delay_ns": NS_MAX, "clients": 65536, "rate_per_s": 1e9,
            "duration_ns": NS_MAX, "warmup": 10 ** 5, "timeout_ns": NS_MAX,
            "params": {f"p{i}": "v" for i in range(64)}}]}
    yield "assign-noop", "a calibrated cell", {**ASSIGN, "cells": [
        {**CELL, "job": "noop", "fanout": 2, "delay_ns": 0, "calibrated": True}]}
    yield "assign-fail", "the first child fails after 2 ms, all clean up when cancelled", {
        **ASSIGN, "cells": [{**CELL, "arm": "taskgroup", "fail": FAIL, "timeout_ns": 20000000}]}
    yield "assign-fail-fraction", "a fraction of the children cancel themselves", {
        **ASSIGN, "cells": [{**CELL, "fail": {"fraction": 0.1, "outcome": "cancel", "on_cancel": "suppress"}}]}
    yield "assign-fail-empty", "no field of `fail` is required", {**ASSIGN, "cells": [{**CELL, "fail": {}}]}
    yield "assign-stall", "one child holds the loop for 3 ms", {**ASSIGN, "cells": [{**CELL, "stall": STALL}]}
    yield "assign-window", "closed loop: 64 staggered clients for two seconds, collector frozen", {
        **ASSIGN, "gang": 4, "cells": [{**CELL, "clients": 64, "phase": "staggered", "duration_ns": 2 * 10 ** 9,
                                        "gc": "freeze"}]}
    yield "assign-open-loop", "a rate given as an integer", {
        **ASSIGN, "cells": [{**CELL, "rate_per_s": 1000, "duration_ns": 2 * 10 ** 9, "arrivals": "fixed"}]}
    yield "assign-params", "a job with keys of its own, another timer source", {
        **ASSIGN, "cells": [{**CELL, "job": "tcp", "wait": "uv_timer", "params": {
            "target": "127.0.0.1:7000", "size": "100B", "payload": "PING\r\n"}}]}
    yield "assign-unknown-keys", "unknown keys within a cell and within its `fail`", {
        **ASSIGN, "cells": [{**CELL, "priority": 3, "fail": {**FAIL, "mood": "bad"}}]}
    yield "ready", "prepared", READY
    yield "ready-calibrated", "L found, but not stable", {**READY, "cells": [
        {**PREPARED, "loops": 131072, "calibration_ns": 41000000,
         "flags": ["calibration_unstable", "warmup_unconverged"]}]}
    yield "ready-error", "cannot be run here", {**READY, "cells": [], "error": "no arm 'race' in this worker"}
    yield "ready-largest", "upper limits", {**READY, "cells": [
        {**PREPARED, "loops": 10 ** 15, "warmups": 2 ** 31 - 1, "warmup_ns": NS_MAX, "calibration_ns": NS_MAX}]}
    yield "go", "all blocks at once", GO
    yield "go-gang", "one turn of one cell, at an instant of the host's clock", {
        **GO, "go": 17, "first_block": 4, "blocks": 1, "cell": 7, "start_at_ns": 81234600000000}
    yield "go-largest", "upper limits", {
        **GO, "go": 2 ** 31 - 1, "first_block": 99999, "blocks": 10 ** 5, "cell": 2 ** 31 - 1, "start_at_ns": INT64_MAX}
    yield "go-smallest", "required keys only", without(GO, "cell", "start_at_ns")
    yield "heartbeat", "in the middle of a go", HEARTBEAT
    yield "heartbeat-idle", "no slice", {**HEARTBEAT, "group": None, "attempt": None, "rounds_done": 0, "state": "idle"}
    yield "heartbeat-smallest", "required keys only", {"type": "heartbeat", "v": V, "state": "idle"}
    yield "heartbeat-preparing", "a slice, nothing measured", {**HEARTBEAT, "rounds_done": 0, "state": "preparing"}
    yield "heartbeat-ready", "waiting for its go", {**HEARTBEAT, "rounds_done": 0, "state": "ready"}
    yield "result", "one round of a gather and of the harness", RESULT
    yield "result-first-part", "more parts follow", {**RESULT, "last": False}
    yield "result-empty", "a go without a finished round", {**RESULT, "rounds": []}
    yield "result-error", "a go that could not be run", {**RESULT, "rounds": [], "error": "no slice 2 is prepared here"}
    yield "result-round-smallest", "required keys only, figures 0", {**RESULT, "rounds": [SMALL_ROUND]}
    yield "result-round-error", "a broken structural proof; figures are kept", {**RESULT, "rounds": [
        {**ROUND, "early": 3, "error": "3 waits ended before their deadline"}]}
    yield "result-round-nothing", "a round that was never measured says why", {**RESULT, "rounds": [
        {"cell": 7, "block": 8, "position": 1, "error": "the timer source failed: Too many open files"}]}
    yield "result-asyncio", "a runtime that counts collections but neither polls nor cycles", {**RESULT, "rounds": [
        {**ROUND, "wakeups": None, "gc_runs": 2, "runq_ns": None}]}
    yield "result-failure", "what a failing child cost", {**RESULT, "rounds": [
        {**ROUND, "time_to_error_ns": 2050000, "wasted_cpu_ns": 31000, "drain_ns": 8012000, "orphans": 39,
         "errors_seen": 1, "errors_lost": 0, "stall_overshoot_p50_ns": -1}]}
    yield "result-disturbed", "a quota that ran out, a hypervisor that took CPU, a frequency that fell", {**RESULT, "rounds": [
        {**ROUND, "throttles": 1, "throttled_ns": 80114200, "steal_ticks": 3, "frequency_start_khz": 3600000,
         "frequency_end_khz": 1200000}]}
    yield "result-window", "closed loop: latencies of a window", {**RESULT, "rounds": [
        {**ROUND, "fanouts": 124, "wall_ns": 2 * 10 ** 9, "launch_ns": 81234500000000, "children": 4960, "busy_ticks": 31,
         "latency": HISTOGRAM}]}
    yield "result-open-loop", "latencies from the actual and from the intended start", {**RESULT, "rounds": [
        {**ROUND, "intended_start_ns": 81234567890000, "fanouts": 124, "offered": 131, "skipped": 4, "unfinished": 3,
         "lag_p50_ns": 1200, "lag_max_ns": 51200000, "latency": HISTOGRAM,
         "latency_intended": {**HISTOGRAM, "overflow": 2, "counts": [0, 1, 27388, 121]}}]}
    yield "result-histogram-edges", "first and last bucket, five digits, nothing at all", {**RESULT, "rounds": [
        {**ROUND, "latency": {"significant_digits": 3, "lowest_ns": 1, "highest_ns": NS_MAX, "overflow": 10 ** 15,
                              "counts": [0, 1, 1023, 2, 1024, 3, 51952, 10 ** 15 - 6]},
         "latency_intended": {"significant_digits": 5, "lowest_ns": 1000, "highest_ns": 1000, "overflow": 0,
                              "counts": [1, 1]}},
        {**ROUND, "latency": {**HISTOGRAM, "counts": []}}]}
    yield "result-largest", "upper limits of figures", {**RESULT, "part": 2 ** 31 - 1, "rounds": [
        {**ROUND, "cell": 2 ** 31 - 1, "block": 99999, "position": 1023, "intended_start_ns": INT64_MAX,
         "start_ns": INT64_MAX, "wall_ns": NS_MAX, "cpu_ns": NS_MAX, "fanouts": 10 ** 15, "overshoot_min_ns": -NS_MAX,
         "overshoot_p50_ns": 0, "overshoot_max_ns": NS_MAX, "cycles": INT64_MAX, "instructions": INT64_MAX,
         "throttles": 10 ** 15, "throttled_ns": NS_MAX, "steal_ticks": 10 ** 15, "frequency_start_khz": 10 ** 15,
         "frequency_end_khz": 0,
         "cpu_end": 2 ** 20 - 1}]}
    yield "result-unknown-keys", "a figure of a later minor version", {**RESULT, "rounds": [
        {**ROUND, "cache_misses": 12, "latency": {**HISTOGRAM, "unit": "ns"}}]}
    yield "ack", "a part is on disk", ACK
    yield "ack-largest", "upper limits", {**ACK, "group": 2 ** 31 - 1, "attempt": 10 ** 6, "go": 2 ** 31 - 1,
                                          "part": 2 ** 31 - 1}
    yield "abort", "a gang lost a member", ABORT
    yield "abort-keep", "the user stops the run", dict(ABORT, reason="interrupted", keep=True)
    yield "bye", "no reason", BYE
    yield "bye-smallest", "no key of its own", without(BYE, "reason")
    yield "bye-reason", "a reason", {**BYE, "reason": "the run is over"}


def wide(value):
    """The same value in the longest formats that msgpack has."""
    if value is None or isinstance(value, bool):
        return msgpack.packb(value)
    if isinstance(value, float):
        return msgpack.packb(value)
    if isinstance(value, int):
        return struct.pack(">Bq", 0xd3, value) if value <= INT64_MAX else struct.pack(">BQ", 0xcf, value)
    if isinstance(value, str):
        return struct.pack(">BI", 0xdb, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return struct.pack(">BI", 0xdd, len(value)) + b"".join(map(wide, value))
    return struct.pack(">BI", 0xdf, len(value)) + b"".join(wide(k) + wide(v) for k, v in value.items())


def spliced(frame, path, raw):
    """The frame with raw bytes in the place of the value under path."""
    mark = "\u2603 here"
    copy = json.loads(json.dumps(frame))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = mark
    return msgpack.packb(copy).replace(msgpack.packb(mark), raw)


def changed(frame, path, value):
    return spliced(frame, path, msgpack.packb(value))


def removed(frame, *path):
    copy = json.loads(json.dumps(frame))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return msgpack.packb(copy)


def repeated(frame, key, value):
    packed = msgpack.packb(frame)
    size = len(frame) + 1
    head = bytes([0x80 | size]) if size < 16 else struct.pack(">BH", 0xde, size)
    return head + packed[1 if packed[0] < 0x90 else 3:] + msgpack.packb(key) + msgpack.packb(value)


def nested(levels):
    return msgpack.packb(HEARTBEAT | {"x": 1})[:-1] + b"\x91" * levels + b"\xc0"


def kebab(*words):
    return "-".join(words).replace("_", "-").replace(".", "-")


def malformed():
    """name -> (rule, why, bytes): frames that break a rule of section 2.1"""
    whole = msgpack.packb(HEARTBEAT)
    yield "empty", "size", "no bytes at all", b""
    yield "array-bomb", "root", "five bytes that claim an array of four billion entries", bytes.fromhex("ddffffffff")
    yield "map-bomb", "count", "five bytes that claim a map of four billion entries", bytes.fromhex("dfffffffff")
    yield "inner-array-bomb", "count", "the bomb under an unknown key", repeated(BYE, "x", None)[:-1] + bytes.fromhex(
        "ddffffffff")
    yield "inner-map-bomb", "count", "a map of 2^31 entries in `versions`", spliced(
        HELLO, ["versions"], bytes.fromhex("df80000000"))
    yield "map-half-room", "count", "four entries declared where four bytes are left", bytes.fromhex("84a0c0c0c0")
    yield "text-bomb", "truncated", "a text of four billion bytes", spliced(BYE, ["reason"], bytes.fromhex("dbffffffff"))
    yield "binary-bomb", "kind", "a binary of four billion bytes", spliced(BYE, ["reason"], bytes.fromhex("c6ffffffff"))
    yield "depth-9", "depth", "an array at level 9", nested(8)
    yield "depth-bomb", "depth", "4,000 arrays within each other", nested(4000)
    for frame in ONE_OF_EACH:
        packed = msgpack.packb(frame)
        yield f"truncated-{frame['type']}", "truncated", "half of the frame", packed[:len(packed) // 2]
    yield "truncated-last-byte", "truncated", "its last byte is missing", whole[:-1]
    yield "trailing-byte", "trailing", "one byte too many", whole + b"\xc0"
    yield "trailing-frame", "trailing", "two frames in one", whole + whole
    for name, value in (("array", [1]), ("text", "hello"), ("nil", None), ("integer", 7)):
        yield f"root-{name}", "root", f"the frame is {value!r}", msgpack.packb(value)
    yield "kind-binary", "kind", "a reason as bytes", changed(BYE, ["reason"], b"over")
    yield "kind-extension", "kind", "an extension type", changed(BYE, ["reason"], msgpack.ExtType(5, b"over"))
    yield "kind-timestamp", "kind", "msgpack's own time stamp", changed(BYE, ["reason"], msgpack.Timestamp(1, 2))
    yield "kind-reserved", "kind", "the byte c1", spliced(BYE, ["reason"], b"\xc1")
    yield "kind-unknown-key", "kind", "an extension under an unknown key", msgpack.packb(
        {**BYE, "x": msgpack.ExtType(1, b"")})
    yield "nan", "finite", "NaN as a rate", changed(ASSIGN, ["cells", 0, "rate_per_s"], float("nan"))
    yield "infinity", "finite", "an infinite rate", changed(ASSIGN, ["cells", 0, "rate_per_s"], float("inf"))
    yield "nan-32", "finite", "a NaN of 32 bits under an unknown key", repeated(BYE, "x", None)[:-1] + bytes.fromhex(
        "ca7fc00000")
    for name, raw in (("alone", "80"), ("overlong", "c0af"), ("overlong-3", "e080af"), ("overlong-4", "f08080af"),
                      ("surrogate", "eda080"), ("beyond", "f4908080"), ("cut", "e282"), ("ff", "ff")):
        text = bytes.fromhex(raw)
        yield f"utf8-{name}", "text", f"the bytes {raw} in a text", spliced(
            BYE, ["reason"], bytes([0xa0 | len(text)]) + text)
    yield "nul", "text", "U+0000 in a text", changed(BYE, ["reason"], "a\x00b")
    yield "text-too-long", "text", "4097 bytes", changed(BYE, ["reason"], "x" * 4097)
    yield "text-too-long-unknown-key", "text", "4097 bytes under an unknown key", msgpack.packb({**BYE, "x": "x" * 4097})
    yield "key-integer", "key", "a key that is a number", msgpack.packb({**BYE, 5: 5})
    yield "key-nil", "key", "a key that is nil", msgpack.packb({**BYE, None: 5})
    yield "key-too-long", "key", "a key of 129 bytes", msgpack.packb({**BYE, "k" * 129: 5})
    yield "key-escape", "key", "an escape code in a key", msgpack.packb({**BYE, "\x1b[2J": 5})
    yield "key-line-end", "key", "a line end in the name of a version", changed(HELLO, ["versions"], {"a\nb": "1"})
    yield "duplicate-key", "duplicate", "`pid` twice", repeated(HELLO, "pid", 4712)
    yield "duplicate-type", "duplicate", "`type` twice", repeated(BYE, "type", "hello")
    yield "duplicate-unknown-key", "duplicate", "twice the same key in a map under an unknown key", repeated(
        BYE, "x", None)[:-1] + bytes.fromhex("82a16101a16102")
    yield "too-many-keys", "many", "a map of 129 keys", msgpack.packb({**BYE, **{f"k{i}": i for i in range(126)}})


def refused():
    """name -> (rule, why, bytes): well-formed frames that no message is"""
    yield "version-missing", "version", "no `v`", removed(BYE, "v")
    yield "version-nil", "version", "`v` is nil", changed(BYE, ["v"], None)
    yield "version-text", "version", "`v` is text", changed(BYE, ["v"], "1.0")
    yield "version-one-number", "version", "`v` has one number", changed(BYE, ["v"], [1])
    yield "version-three-numbers", "version", "`v` has three", changed(BYE, ["v"], [1, 0, 0])
    yield "version-negative", "version", "a negative minor", changed(BYE, ["v"], [1, -1])
    yield "version-float", "version", "1.0 is a float", changed(BYE, ["v"], [1.0, 0])
    yield "version-huge", "version", "a minor above 65535", changed(BYE, ["v"], [1, 65536])
    yield "major-2", "version", "another major", changed(HELLO, ["v"], [2, 0])
    yield "major-0", "version", "another major", changed(HELLO, ["v"], [0, 9])
    yield "type-missing", "type", "no `type`", removed(BYE, "type")
    yield "type-integer", "type", "`type` is a number", changed(BYE, ["type"], 1)
    yield "type-unknown", "type", "a type that nobody knows", changed(BYE, ["type"], "farewell")
    yield "type-upper-case", "type", "names are lower case", changed(BYE, ["type"], "BYE")
    yield "type-prefix", "type", "the beginning of a name", changed(BYE, ["type"], "by")
    yield "type-escape", "type", "an escape code as type", changed(BYE, ["type"], "\x1b[2J")
    yield "type-nested", "type", "a table that is no message", changed(BYE, ["type"], "cell")
    for frame in ONE_OF_EACH[:-1]:
        key = "state" if frame is HEARTBEAT else next(key for key in frame if key not in ("type", "v"))
        yield f"missing-{frame['type']}-{kebab(key)}", "missing", f"no `{key}`", removed(frame, key)
        yield f"nil-{frame['type']}-{key}", "missing", f"`{key}` is nil", changed(frame, [key], None)
    for path, value, why in (
            (["instance"], 5, "a number where text belongs"), (["pid"], "4711", "text where a number belongs"),
            (["pid"], 4711.0, "a float where an integer belongs"), (["arms"], "gather", "text where an array belongs"),
            (["arms"], ["gather", 7], "a number among names"), (["arms"], {"gather": 1}, "a map where an array belongs"),
            (["versions"], ["1"], "an array where a map belongs"), (["versions"], {"libuv": 1}, "a number as version"),
            (["busy_heartbeats"], 1, "1 is not true")):
        yield f"mistyped-hello-{kebab(path[0], type(value).__name__)}", "mistyped", why, changed(HELLO, path, value)
    yield "mistyped-cells", "mistyped", "`cells` is a map", changed(ASSIGN, ["cells"], CELL)
    yield "mistyped-cell", "mistyped", "a cell is a number", changed(ASSIGN, ["cells", 1], 8)
    yield "mistyped-fail", "mistyped", "`fail` is true", changed(ASSIGN, ["cells", 0, "fail"], True)
    yield "mistyped-rate", "mistyped", "a rate with a unit", changed(ASSIGN, ["cells", 0, "rate_per_s"], "1000/s")
    yield "mistyped-last", "mistyped", "`last` is 1", changed(RESULT, ["last"], 1)
    yield "mistyped-wall", "mistyped", "a float of ns", changed(RESULT, ["rounds", 0, "wall_ns"], 1.5)
    yield "mistyped-counts", "mistyped", "`counts` is a map", changed(
        RESULT, ["rounds", 0, "latency"], {**HISTOGRAM, "counts": {}})
    yield "mistyped-count", "mistyped", "a float among counts", changed(
        RESULT, ["rounds", 0, "latency"], {**HISTOGRAM, "counts": [1, 1.0]})
    yield "range-instance-short", "range", "31 digits", changed(HELLO, ["instance"], "0" * 31)
    yield "range-name-empty", "range", "an empty label", changed(HELLO, ["label"], "")
    yield "range-name-long", "range", "a label of 129 bytes", changed(HELLO, ["label"], "l" * 129)
    yield "range-name-escape", "range", "an escape code in the host name", changed(HELLO, ["host"], "a\x1b[31mb")
    yield "range-name-c1", "range", "U+009B in the host name", changed(HELLO, ["host"], "a\u009bb")
    yield "range-name-delete", "range", "U+007F in the host name", changed(HELLO, ["host"], "a\x7fb")
    yield "range-arm-empty", "range", "an arm without a name", changed(HELLO, ["arms"], [""])
    yield "range-arms-many", "range", "65 arms", changed(HELLO, ["arms"], [f"a{i}" for i in range(65)])
    yield "range-pid-zero", "range", "pid 0", changed(HELLO, ["pid"], 0)
    yield "range-pid-int64", "range", "pid 2^63-1", changed(HELLO, ["pid"], INT64_MAX)
    yield "range-pid-uint64", "range", "pid 2^64-1", changed(HELLO, ["pid"], 2 ** 64 - 1)
    yield "range-slot-negative", "range", "slot -1", changed(HELLO, ["slot"], -1)
    yield "range-slot-int64-min", "range", "slot -2^63", changed(HELLO, ["slot"], -2 ** 63)
    yield "range-heartbeat-zero", "range", "heartbeats without a pause", changed(WELCOME, ["heartbeat_ns"], 0)
    yield "range-reason-empty", "range", "a reject must say why", changed(REJECT, ["reason"], "")
    yield "range-seed-negative", "range", "a negative seed", changed(ASSIGN, ["seed"], -1)
    yield "range-blocks-zero", "range", "no block", changed(ASSIGN, ["blocks"], 0)
    yield "range-no-cells", "range", "a slice without cells", changed(ASSIGN, ["cells"], [])
    yield "range-lease-zero", "range", "no time at all", changed(ASSIGN, ["lease_ns"], 0)
    for key, value in (("fanout", 0), ("fanout", 10 ** 6 + 1), ("fanout", -1), ("clients", 0), ("clients", 65537),
                       ("delay_ns", -1), ("delay_ns", NS_MAX + 1), ("rate_per_s", -0.5), ("rate_per_s", 1e12),
                       ("warmup", -1), ("timeout_ns", -1), ("phase", "apart"), ("gc", "never"), ("arm", ""),
                       ("fail", {"fraction": 1.5}), ("fail", {"outcome": "explode"}), ("stall", {"children": -1, "cpu_ns": 1})):
        shown = next(iter(value.items())) if isinstance(value, dict) else (value,)
        named = kebab(key, *(str(part).replace("-", "minus-") or "empty" for part in shown))
        yield f"range-cell-{named}", "range", f"`{key}` is {value}", changed(ASSIGN, ["cells", 0, key], value)
    yield "range-loops-zero", "range", "L is 0", changed(READY, ["cells", 0, "loops"], 0)
    yield "range-go-no-blocks", "range", "0 blocks", changed(GO, ["blocks"], 0)
    yield "range-go-block", "range", "block 100000", changed(GO, ["first_block"], 100000)
    yield "range-go-start-negative", "range", "a start before the clock began", changed(GO, ["start_at_ns"], -5)
    yield "range-state", "range", "a state that nobody knows", changed(HEARTBEAT, ["state"], "asleep")
    yield "range-rounds-done", "range", "a negative count", changed(HEARTBEAT, ["rounds_done"], -1)
    yield "range-part", "range", "part -1", changed(RESULT, ["part"], -1)
    for key in ("wall_ns", "cpu_ns", "fanouts", "wakeups", "early", "faults_minor", "orphans"):
        yield f"range-round-{kebab(key)}", "range", f"`{key}` is -1", changed(RESULT, ["rounds", 0, key], -1)
    yield "range-too-many-rounds", "range", "1025 rounds", changed(RESULT, ["rounds"], [{}] * 1025)
    yield "range-digits", "range", "six digits", changed(
        RESULT, ["rounds", 0, "latency"], {**HISTOGRAM, "significant_digits": 6})
    yield "range-count-negative", "range", "a negative index", changed(
        RESULT, ["rounds", 0, "latency"], {**HISTOGRAM, "counts": [-1, 1]})
    yield "tie-instance", "tie", "upper case is no digit", changed(HELLO, ["instance"], "A" * 32)
    yield "tie-cell-twice", "tie", "the same cell twice", changed(ASSIGN, ["cells", 1, "cell"], 7)
    yield "tie-fail", "tie", "children and a fraction", changed(
        ASSIGN, ["cells", 0, "fail"], {"children": 1, "fraction": 0.5})
    yield "tie-round", "tie", "no wall time and no reason", changed(RESULT, ["rounds", 0, "wall_ns"], None)
    yield "tie-error-in-part", "tie", "an error before the last part", msgpack.packb(
        {**RESULT, "last": False, "error": "stopped"})
    for name, histogram in (
            ("odd", {"counts": [1]}), ("descending", {"counts": [5, 1, 4, 1]}), ("repeated", {"counts": [5, 1, 5, 1]}),
            ("zero", {"counts": [5, 0]}), ("beyond", {"counts": [40000, 1]}),
            ("just-beyond", {"counts": [27389, 1]}), ("sum", {"counts": [1, 10 ** 15, 2, 1]}),
            ("order", {"lowest_ns": 2, "highest_ns": 1, "counts": []})):
        yield f"tie-histogram-{name}", "tie", f"a histogram with {histogram}", changed(
            RESULT, ["rounds", 0, "latency"], {**HISTOGRAM, **histogram})


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def hex_lines(data):
    return "".join(data[i:i + 40].hex() + "\n" for i in range(0, len(data), 40))


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else VECTORS
    frames = [(name, about, frame, msgpack.packb(frame)) for name, about, frame in valid()]
    for frame in (HELLO, ASSIGN, RESULT):
        frames.append((f"{frame['type']}-wide", "every value in the longest format that msgpack has", frame, wide(frame)))
    for name, about, frame, data in frames:
        text = json.dumps({"about": about, "frame": frame}, indent=1, ensure_ascii=False)
        write(out / "valid" / f"{name}.json", text + "\n")
        write(out / "valid" / f"{name}.hex", hex_lines(data))
    for name, rule, why, data in [*malformed(), *refused()]:
        write(out / "invalid" / f"{name}.hex", hex_lines(data))
        write(out / "invalid" / f"{name}.txt", f"{rule}\n{why}\n")


if __name__ == "__main__":
    main()
