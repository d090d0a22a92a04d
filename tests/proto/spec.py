"""The protocol as proto/SPEC.md states it, made executable: its tables are read from the page itself.

Law().fault(data) names the rule that a frame breaks, or gives None.  Law().reading(frame) is what a frame means: all
fields of its type, with what stands for the absent ones.  Shares no code with any implementation.
"""
import math
import pathlib
import re
import struct

import msgpack

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPEC = ROOT / "proto" / "SPEC.md"

MAX_BYTES = {"hello": 64 << 10, "result": 4 << 20}
OTHER_MAX_BYTES = 1 << 20
MAX_TEXT, MAX_KEY, MAX_KEYS, MAX_VALUES, MAX_DEPTH = 4096, 128, 128, 1 << 20, 8
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


class Broken(Exception):
    def __init__(self, rule, text):
        super().__init__(text)
        self.rule = rule


class Walker:
    """Passes over the bytes of one frame and raises Broken at the first rule of section 2.1 that they break."""

    def __init__(self, data):
        self.data, self.at, self.values = data, 0, 0

    def take(self, count):
        if count > len(self.data) - self.at:
            raise Broken("truncated", f"byte {self.at}")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, count):
        return int.from_bytes(self.take(count), "big")

    def frame(self):
        if not self.data or len(self.data) > MAX_BYTES["result"]:
            raise Broken("size", f"{len(self.data)} bytes")
        first = self.data[0]
        if not (0x80 <= first <= 0x8f or first in (0xde, 0xdf)):
            raise Broken("root", "not a map")
        self.value(1)
        if self.at != len(self.data):
            raise Broken("trailing", f"byte {self.at}")

    def value(self, depth):
        self.values += 1
        if self.values > MAX_VALUES:
            raise Broken("many", "values")
        first = self.number(1)
        if first < 0x80 or first >= 0xe0 or first in (0xc0, 0xc2, 0xc3):
            return
        if first < 0x90:
            self.map(first & 15, depth)
        elif first < 0xa0:
            self.array(first & 15, depth)
        elif first < 0xc0:
            self.text(first & 31)
        elif first in (0xca, 0xcb):
            form, count = (">f", 4) if first == 0xca else (">d", 8)
            if not math.isfinite(struct.unpack(form, self.take(count))[0]):
                raise Broken("finite", f"byte {self.at}")
        elif 0xcc <= first <= 0xd3:
            self.take(1 << (first & 3))
        elif 0xd9 <= first <= 0xdb:
            self.text(self.number(1 << (first - 0xd9)))
        elif 0xdc <= first <= 0xdd:
            self.array(self.number(2 << (first - 0xdc)), depth)
        elif 0xde <= first <= 0xdf:
            self.map(self.number(2 << (first - 0xde)), depth)
        else:
            raise Broken("kind", f"{first:02x}")

    def text(self, count, most=MAX_TEXT):
        raw = self.take(count)
        rule = "text" if most == MAX_TEXT else "key"
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Broken("text", "not UTF-8") from None
        if len(raw) > most:
            raise Broken(rule, "too long")
        if "\x00" in text or (rule == "key" and CONTROL.search(text)):
            raise Broken(rule, "control character")
        return text

    def enter(self, count, bytes_each, depth):
        if depth > MAX_DEPTH:
            raise Broken("depth", f"byte {self.at}")
        if count * bytes_each > len(self.data) - self.at:
            raise Broken("count", f"{count} entries")

    def array(self, count, depth):
        self.enter(count, 1, depth)
        for _ in range(count):
            self.value(depth + 1)

    def map(self, count, depth):
        self.enter(count, 2, depth)
        if count > MAX_KEYS:
            raise Broken("many", "keys")
        keys = set()
        for _ in range(count):
            first = self.number(1)
            self.values += 1
            if 0xa0 <= first < 0xc0:
                key = self.text(first & 31, MAX_KEY)
            elif 0xd9 <= first <= 0xdb:
                key = self.text(self.number(1 << (first - 0xd9)), MAX_KEY)
            else:
                raise Broken("key", "not text")
            if key in keys:
                raise Broken("duplicate", key)
            keys.add(key)
            self.value(depth + 1)


class Field:
    def __init__(self, key, kind, limit, need):
        self.key, self.kind, self.need = key, kind, need
        self.words = re.findall(r"`([^`]+)`", limit) if kind == "word" else None
        self.low, self.high = (None, None) if ".." not in limit else map(_limit, limit.split(".."))
        self.nested = kind.split(" of ")[1] if " of " in kind else None

    def fallback(self):
        if self.need in ("nil", "required"):
            return None
        if self.need == "empty":
            return {} if self.kind == "texts by name" else []
        if self.kind == "flag":
            return self.need == "true"
        return self.need if self.kind in ("name", "word", "text") else int(self.need)


def _limit(text):
    base, power, less = re.fullmatch(r"(-?\d+)(?:\^(\d+))?(-1)?", text).groups()
    sign = -1 if base.startswith("-") else 1
    return sign * abs(int(base)) ** int(power or 1) - (1 if less else 0)


def read_tables(page):
    tables, section = {}, None
    for line in page.splitlines():
        if line.startswith("#"):
            section = line.lstrip("# ")
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| `") else []
        if len(cells) == 5 and section:
            tables.setdefault(section, []).append(Field(cells[0].strip("`"), *cells[1:4]))
    return tables


def is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def is_text(value):
    return isinstance(value, str)


MISTYPED = {
    "integer": lambda v: not is_integer(v),
    "unsigned": lambda v: not is_integer(v),
    "number": lambda v: not is_integer(v) and not isinstance(v, float),
    "flag": lambda v: not isinstance(v, bool),
    "text": lambda v: not is_text(v),
    "name": lambda v: not is_text(v),
    "word": lambda v: not is_text(v),
    "names": lambda v: not isinstance(v, list) or not all(map(is_text, v)),
    "texts by name": lambda v: not isinstance(v, dict) or not all(map(is_text, v.values())),
    "counts": lambda v: not isinstance(v, list) or not all(map(is_integer, v)),
    "map": lambda v: not isinstance(v, dict),
    "array": lambda v: not isinstance(v, list) or not all(isinstance(entry, dict) for entry in v),
}


def is_name(text, low=1, high=128):
    return low <= len(text.encode()) <= high and not CONTROL.search(text)


def out_of_range(field, value):
    kind = field.kind.split(" of ")[0]
    if kind == "word":
        return value not in field.words
    if kind == "name":
        return not is_name(value, field.low, field.high)
    if kind == "flag" or field.low is None:
        return False
    if kind in ("integer", "unsigned", "number"):
        return not field.low <= value <= field.high
    if kind == "text":
        return not field.low <= len(value.encode()) <= field.high
    if kind == "names" and not all(map(is_name, value)):
        return True
    if kind == "texts by name" and not all(map(is_name, value)):
        return True
    if kind == "counts" and any(not 0 <= entry < 1 << 63 for entry in value):
        return True
    entries = len(value) // 2 if kind == "counts" else len(value)
    return not field.low <= entries <= field.high


def bucket(digits, lowest, value):
    """Section 7: the index of a value."""
    bits = next(b for b in range(64) if 2 ** b >= 10 ** digits)
    units = value // lowest
    if units < 1 << bits:
        return units
    octave = units.bit_length() - 1 - bits
    return (octave << bits) + (units >> octave)


def tie_histogram(value):
    if value["highest_ns"] < value["lowest_ns"] or len(value["counts"]) % 2:
        return True
    indexes, counts = value["counts"][::2], value["counts"][1::2]
    last = bucket(value["significant_digits"], value["lowest_ns"], value["highest_ns"])
    return (any(a >= b for a, b in zip(indexes, indexes[1:])) or any(i > last for i in indexes)
            or any(c < 1 for c in counts) or sum(counts) > 10 ** 15)


# The sentences below the tables: true when one is broken.  They see the reading, with its fallbacks.
TIES = {
    "hello": lambda v: not re.fullmatch("[0-9a-f]{32}", v["instance"]),
    "assign": lambda v: len({cell["cell"] for cell in v["cells"]}) != len(v["cells"]),
    "fail": lambda v: v["children"] > 0 and v["fraction"] > 0,
    "round": lambda v: v["error"] is None and None in [v[k] for k in ("start_ns", "wall_ns", "cpu_ns", "fanouts")],
    "histogram": tie_histogram,
    "result": lambda v: v["error"] is not None and not v["last"],
}


class Law:
    def __init__(self):
        self.tables = read_tables(SPEC.read_text(encoding="utf-8"))
        nested = {f.nested for fields in self.tables.values() for f in fields if f.nested}
        self.types = [name for name in self.tables if name not in nested and re.fullmatch("[a-z]+", name)]

    def fault(self, data):
        try:
            Walker(data).frame()
            frame = msgpack.unpackb(data, raw=False, strict_map_key=True)
            self._head(frame, len(data))
            self._record(frame["type"], frame)
        except Broken as broken:
            return broken.rule
        return None

    def reading(self, frame):
        """Of a valid frame."""
        return {"type": frame["type"], "v": frame["v"], **self._record(frame["type"], frame)}

    def _head(self, frame, size):
        version = frame.get("v")
        if (not isinstance(version, list) or len(version) != 2
                or not all(is_integer(n) and 0 <= n <= 65535 for n in version) or version[0] != 1):
            raise Broken("version", str(version))
        if frame.get("type") not in self.types:
            raise Broken("type", str(frame.get("type")))
        if size > MAX_BYTES.get(frame["type"], OTHER_MAX_BYTES):
            raise Broken("size", str(size))

    def _record(self, name, record):
        reading = {field.key: self._field(name, field, record.get(field.key)) for field in self.tables[name]}
        if name in TIES and TIES[name](reading):
            raise Broken("tie", name)
        return reading

    def _field(self, name, field, value):
        if value is None:
            if field.need == "required":
                raise Broken("missing", f"{name}.{field.key}")
            return field.fallback()
        if MISTYPED[field.kind.split(" of ")[0]](value):
            raise Broken("mistyped", f"{name}.{field.key}")
        if out_of_range(field, value):
            raise Broken("range", f"{name}.{field.key}")
        if field.kind.startswith("map of"):
            return self._record(field.nested, value)
        if field.kind.startswith("array of"):
            return [self._record(field.nested, entry) for entry in value]
        return value
