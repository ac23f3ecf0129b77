"""What the process of a run prints, forwarded to the kept driver's own log with the run's name before each line."""

from __future__ import annotations

import os
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from skipstone.keeping.statuses import MAX_TAIL_BYTES

_PIECE = 65536
#: A longer line is forwarded in parts.
_MAX_LINE = 1 << 20


@dataclass
class RunOutput:
    """The read end of a run's output. ``sink``: the file descriptor that lines go to."""

    pipe: int
    prefix: str
    sink: int = 1
    _rest: bytes = b""
    _tail: deque[bytes] = field(default_factory=deque)
    _kept: int = 0

    def forward(self) -> None:
        """Forward what there is. Never waits: the pipe does not block."""
        with suppress(BlockingIOError):
            while piece := os.read(self.pipe, _PIECE):
                *lines, self._rest = (self._rest + piece).split(b"\n")
                self._write(lines)
                if len(self._rest) > _MAX_LINE:
                    self._write([self._rest])
                    self._rest = b""

    def finish(self) -> bytes:
        """Forward the rest; the end of everything that was printed."""
        self.forward()
        os.close(self.pipe)
        if self._rest:
            self._write([self._rest])
        return b"".join(self._tail)

    def _write(self, lines: list[bytes]) -> None:
        content = b"".join(b"[%s] %s\n" % (self.prefix.encode(), line) for line in lines)
        while content:
            content = content[os.write(self.sink, content) :]
        for line in lines:
            self._tail.append(line + b"\n")
            self._kept += len(line) + 1
        while len(self._tail) > 1 and self._kept - len(self._tail[0]) >= MAX_TAIL_BYTES:
            self._kept -= len(self._tail.popleft())
