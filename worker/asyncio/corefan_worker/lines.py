"""Lines of JSON over a pipe: how the session and the loop's process talk."""

from __future__ import annotations

import json
import os
import select
from typing import Any


class Closed(Exception):
    """The other end is gone."""


class LineReader:
    """Reads one end.  Waits for a line, or only takes one that is there."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._pending = b""
        self._lines: list[bytes] = []

    def take(self, wait: bool = False) -> Any:
        """The next object, or None when nothing is there and we do not wait.  Raises Closed."""
        while not self._lines:
            if not wait and not select.select([self.descriptor], [], [], 0)[0]:
                return None
            data = os.read(self.descriptor, 1 << 16)
            if not data:
                raise Closed
            *self._lines, self._pending = (self._pending + data).split(b"\n")
        return json.loads(self._lines.pop(0))


def write_line(descriptor: int, content: Any) -> None:
    """Raises Closed."""
    data = memoryview(json.dumps(content, separators=(",", ":")).encode() + b"\n")
    try:
        while data:
            data = data[os.write(descriptor, data):]
    except BrokenPipeError:
        raise Closed from None
