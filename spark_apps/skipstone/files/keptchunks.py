"""Column chunks that a process keeps as they are stored, for who reads rows of the same files again and again.

Used by whoever looks keys up in index files. A chunk is asked for once; who reads then pages of it asks the storage for
nothing. Chunks are kept by path and size, which never change, until they turn out to be damaged. Must not decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyiceberg.io import FileIO, InputStream

from skipstone.caches import ByteCache
from skipstone.storage.buckets.objectfiles import ObjectFile

CACHE_BYTES: Final = 64 * 1024 * 1024
#: A larger chunk is read in part, where it is not wanted as a whole, and not kept.
_LARGEST: Final = 1024 * 1024
_OVERHEAD: Final = 512


class ChunkRange(NamedTuple):
    """Where a column chunk lies in its file."""

    begin: int
    end: int


_chunks: ByteCache[tuple[str, int, int], bytes] = ByteCache(
    "index entries", CACHE_BYTES, lambda content: _OVERHEAD + len(content)
)


class KeptFile(ObjectFile):
    """The file at ``path`` of so many bytes. It is opened when something is read that is not kept."""

    def __init__(self, io: FileIO, path: str, size: int) -> None:
        """Opens nothing yet."""
        self._kept = _Content(io, path, size)
        super().__init__(self._kept)

    def hold(self, ranges: Sequence[ChunkRange]) -> None:
        """Have these chunks for the reads that follow, unless they are too large; keep them. Raises OSError."""
        self._kept.hold(ranges)

    def close(self) -> None:
        """Let go of the file."""
        self._kept.close()
        super().close()


def forget_chunks(path: str) -> None:
    """Read the chunks of a file again: one of them is damaged, and may be restored."""
    _chunks.drop(lambda key: key[0] == path)


class _Content:
    """The content that a KeptFile reads."""

    def __init__(self, io: FileIO, path: str, size: int) -> None:
        self._io, self._path = io, path
        self.known_size: int | None = size
        self._held: dict[ChunkRange, bytes] = {}
        self._stream: InputStream | None = None

    def size(self) -> int:
        return self.known_size or 0

    def fetch(self, start: int, end: int) -> bytes:
        for place, content in self._held.items():
            if place.begin <= start and end <= place.end:
                return content[start - place.begin : end - place.begin]
        return self._read(start, end)

    def hold(self, ranges: Sequence[ChunkRange]) -> None:
        fitting = [place for place in ranges if place.end - place.begin <= _LARGEST]
        contents = {place: _chunks.peek((self._path, *place)) for place in fitting}
        missing = [place for place, content in contents.items() if content is None]
        if missing and (prefetch := getattr(self._opened(), "prefetch", None)) is not None:
            prefetch([tuple(place) for place in missing])
        for place in missing:
            contents[place] = content = self._read(*place)
            _chunks.put((self._path, *place), content)
        self._held = {place: content for place, content in contents.items() if content is not None}

    def close(self) -> None:
        self._held = {}
        if self._stream is not None:
            self._stream.close()

    def _opened(self) -> InputStream:
        if self._stream is None:
            self._stream = self._io.new_input(self._path).open()
        return self._stream

    def _read(self, start: int, end: int) -> bytes:
        stream = self._opened()
        stream.seek(start)
        content = bytearray()
        while len(content) < end - start and (more := stream.read(end - start - len(content))):
            content += more
        return bytes(content)
