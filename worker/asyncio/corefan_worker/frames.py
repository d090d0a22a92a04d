"""Is this frame well-formed?  Answered by walking its bytes, before msgpack allocates anything for them.

The rules and their names are those of SPEC.md, section 2.1.  Nothing is kept but the keys of the maps that are open.
"""

from __future__ import annotations

import math
import struct

MAX_FRAME_BYTES = 4 << 20
MAX_DEPTH = 8
MAX_TEXT_BYTES = 4096
MAX_KEY_BYTES = 128
MAX_MAP_KEYS = 128
MAX_VALUES = 1 << 20

_CONTROL = frozenset((*range(0x20), *range(0x7F, 0xA0)))

# First bytes 0xc0..0xdf: what they begin, and how many bytes of a big-endian number follow.
_HEADS = {
    0xC0: ("nil", 0), 0xC2: ("flag", 0), 0xC3: ("flag", 0),
    0xCA: ("float", 4), 0xCB: ("float", 8),
    0xCC: ("integer", 1), 0xCD: ("integer", 2), 0xCE: ("integer", 4), 0xCF: ("integer", 8),
    0xD0: ("integer", 1), 0xD1: ("integer", 2), 0xD2: ("integer", 4), 0xD3: ("integer", 8),
    0xD9: ("text", 1), 0xDA: ("text", 2), 0xDB: ("text", 4),
    0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4),
}  # fmt: skip


class Refused(Exception):
    """A frame that breaks a rule: the rule's name, and what is wrong in words."""

    def __init__(self, rule: str, what: str) -> None:
        super().__init__(f"{rule}: {what}")
        self.rule = rule


def holds_control(text: str) -> bool:
    return any(ord(character) in _CONTROL for character in text)


def one_line(text: str) -> str:
    """A peer's text as it may be shown on a terminal."""
    return "".join("?" if ord(character) in _CONTROL else character for character in text)


def _head(first: int) -> tuple[str, int, int]:
    """(kind, bytes that follow, the number within the first byte)."""
    if first < 0x80 or first >= 0xE0:
        return "integer", 0, 0
    if first < 0x90:
        return "map", 0, first & 0x0F
    if first < 0xA0:
        return "array", 0, first & 0x0F
    if first < 0xC0:
        return "text", 0, first & 0x1F
    kind, size = _HEADS.get(first, ("", 0))
    return kind, size, 0


class _Walk:
    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.at = 0
        self.values = 0

    def left(self) -> int:
        return len(self.frame) - self.at

    def _refuse(self, rule: str, what: str) -> Refused:
        return Refused(rule, f"byte {self.at}: {what}")

    def _take(self, size: int) -> bytes:
        if size > self.left():
            raise self._refuse("truncated", "the frame ends inside a value")
        self.at += size
        return self.frame[self.at - size : self.at]

    def _token(self) -> tuple[str, int, bytes]:
        """(kind, length or count, bytes of a float)."""
        kind, size, number = _head(self._take(1)[0])
        if not kind:
            self.at -= 1
            raise self._refuse("kind", "a binary, extension or reserved type")
        payload = self._take(size)
        if size:
            number = int.from_bytes(payload, "big")
        return kind, number, payload

    def _text(self, size: int, limit: int, rule: str) -> str:
        start = self.at
        data = self._take(size)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("text", f"byte {start}: text is not UTF-8") from None
        if size > limit:
            raise Refused(rule, f"byte {start}: {size} bytes of text, more than {limit}")
        if "\0" in text:
            raise Refused(rule, f"byte {start}: text holds NUL")
        return text

    def _key(self) -> str:
        if self.left() and _head(self.frame[self.at])[0] != "text":
            raise self._refuse("key", "a key is not text")
        _, size, _ = self._token()
        key = self._text(size, MAX_KEY_BYTES, "key")
        if holds_control(key):
            raise self._refuse("key", "a key holds a control character")
        self._count_value()
        return key

    def _count_value(self) -> None:
        self.values += 1
        if self.values > MAX_VALUES:
            raise self._refuse("many", f"more than {MAX_VALUES} values")

    def value(self, depth: int) -> None:
        kind, number, payload = self._token()
        self._count_value()
        if kind == "float":
            if not math.isfinite(struct.unpack(">f" if len(payload) == 4 else ">d", payload)[0]):
                raise self._refuse("finite", "a number is not finite")
        elif kind == "text":
            self._text(number, MAX_TEXT_BYTES, "text")
        elif kind in ("array", "map"):
            self._container(kind, number, depth)

    def _container(self, kind: str, entries: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise self._refuse("depth", f"nested deeper than {MAX_DEPTH} levels")
        if entries * (2 if kind == "map" else 1) > self.left():
            raise self._refuse("count", f"{entries} entries declared with {self.left()} bytes left")
        if kind == "array":
            for _ in range(entries):
                self.value(depth + 1)
            return
        if entries > MAX_MAP_KEYS:
            raise self._refuse("many", f"a map of more than {MAX_MAP_KEYS} keys")
        keys: set[str] = set()
        for _ in range(entries):
            key = self._key()
            if key in keys:
                raise self._refuse("duplicate", f"key '{key}' appears twice")
            keys.add(key)
            self.value(depth + 1)


def walk(frame: bytes) -> None:
    """Raises Refused unless the whole frame is well-formed; limits by type are left to the caller."""
    if not frame:
        raise Refused("size", "the frame is empty")
    if len(frame) > MAX_FRAME_BYTES:
        raise Refused("size", f"a frame of {len(frame)} bytes, more than {MAX_FRAME_BYTES}")
    if _head(frame[0])[0] != "map":
        raise Refused("root", "the frame is not a map")
    walker = _Walk(frame)
    walker.value(1)
    if walker.left():
        raise Refused("trailing", f"{walker.left()} bytes after the end of the frame")
