"""An object as a file that Arrow and others read: seekable, every read a request for a range."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Hashable
from typing import Protocol

from cachetools import LRUCache

#: The end of an object that is asked for at once: all of a small file, and most footers.
TAIL_BYTES = 256 * 1024
#: Bytes that are asked for at once when all are wanted.
_AT_ONCE = 16 << 20


class Ends:
    """Ends of objects that a process remembers, the longest unused forgotten first."""

    def __init__(self, most_bytes: int) -> None:
        """``most_bytes``: of all together."""
        self._kept: LRUCache[Hashable, bytes] = LRUCache(most_bytes, getsizeof=lambda end: len(end) + 512)
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """The end that ``key`` names, version included; ``make`` asks for it."""
        with self._lock:
            content = self._kept.get(key)
        if content is None:
            content = make()
            with self._lock:
                self._kept[key] = content
        return content


class Content(Protocol):
    """One version of an object."""

    @property
    def known_size(self) -> int | None:
        """Its size, when that is known without a request."""
        ...

    def size(self) -> int:
        """Its size."""
        ...

    def fetch(self, start: int, end: int) -> bytes:
        """The bytes from ``start`` up to ``end``, or up to its own end."""
        ...


class ObjectFile(io.RawIOBase):
    """``content`` as a file. Asks for nothing before it is read."""

    def __init__(self, content: Content) -> None:
        """Begins at the beginning."""
        super().__init__()
        self._content = content
        self._place = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place. Raises ValueError for one before the beginning."""
        base = 0 if whence == io.SEEK_SET else self._place
        if whence == io.SEEK_END:
            base = self._content.size()
        if base + offset < 0:
            raise ValueError(f"a place before the beginning: {base + offset}")
        self._place = base + offset
        return self._place

    def readall(self) -> bytes:
        """The rest, by a request for each of few large parts."""
        return b"".join(iter(lambda: self.read(_AT_ONCE) or b"", b""))

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Fill ``buffer`` by one request, less only at the end."""
        view = memoryview(buffer).cast("B")
        end = self._place + len(view)
        if self._content.known_size is not None:
            end = min(end, self._content.known_size)
        if end <= self._place:
            return 0
        content = self._content.fetch(self._place, end)
        # The first answer may tell the size
        expected = max(0, min(end, self._content.size()) - self._place)
        if len(content) != expected:
            raise OSError(f"{expected} bytes were asked for and {len(content)} came")
        view[: len(content)] = content
        self._place += len(content)
        return len(content)


class ReadAhead(io.BufferedReader):
    """A file that asks for as many bytes at once as its buffer takes, also for lines of text, which ask for few."""

    def read1(self, size: int = -1, /) -> bytes:
        """Bytes that are there, up to ``size``, after one request when there were none."""
        self.peek(1)
        return super().read1(size)
