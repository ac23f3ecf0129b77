"""The whole content of .gz and .bz2 files, which may have several packed members.

Called by ``headers``. At unknown bytes behind a member, Python's own reader of .bz2 files ends without an error, and
drops the members after them.
"""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import BinaryIO, Protocol, cast

#: Packed bytes that are read at once, and unpacked ones that are held.
_PIECE = 64 * 1024
_BEHIND = "other bytes than packed ones stand behind a packed part: unpack the file, and pack it again"


class _Member(Protocol):
    """What unpacks one member, as ``bz2.BZ2Decompressor`` does."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def unpacked(name: str, opened: BinaryIO) -> BinaryIO:
    """The content of the file ``name``, which is ``opened`` itself unless its ending says that it is packed.

    Closes both. Reading raises OSError for damaged content, and for other bytes behind or between packed members, and
    EOFError for a member that is cut.
    """
    match PurePosixPath(name).suffix.lower():
        case ".gz":
            return cast(BinaryIO, _Closing(_Unpacked(opened, _GzipMember, b"\x1f\x8b"), opened))
        case ".bz2":
            return cast(BinaryIO, _Closing(_Unpacked(opened, bz2.BZ2Decompressor, b"BZh"), opened))
        case _:
            return opened


class _GzipMember:
    """One member of a .gz file."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(zlib.MAX_WBITS | 16)
        self._held = b""

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._held

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """As ``bz2.BZ2Decompressor`` does. Raises OSError for damaged content."""
        try:
            content = self._inner.decompress(self._held + data, max_length)
        except zlib.error as error:
            raise gzip.BadGzipFile(str(error)) from error
        self._held = self._inner.unconsumed_tail
        return content


class _Unpacked(io.RawIOBase):
    """The content of members, each of which begins with ``mark``."""

    def __init__(self, packed: BinaryIO, new: Callable[[], _Member], mark: bytes) -> None:
        super().__init__()
        self._packed, self._new, self._mark = packed, new, mark
        self._member: _Member | None = None
        self._rest, self._is_first = b"", True

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """As files do."""
        while (member := self._member or self._begun()) is not None:
            if not self._rest and member.needs_input:
                self._rest = self._packed.read(_PIECE)
            is_ended = not self._rest and member.needs_input
            content = member.decompress(self._rest, len(buffer))
            self._rest = member.unused_data if member.eof else b""
            if member.eof:
                self._member = None
            elif is_ended and not content:
                raise EOFError("the file ends within a packed part")
            if content:
                buffer[: len(content)] = content
                return len(content)
        return 0

    def _begun(self) -> _Member | None:
        """The next member; None at the end of the file."""
        if len(self._rest) < len(self._mark):
            self._rest += self._packed.read(_PIECE)
        if not self._rest:
            return None
        if not self._is_first and not self._mark.startswith(self._rest[: len(self._mark)]):
            raise OSError(_BEHIND)
        self._is_first = False
        self._member = self._new()
        return self._member


class _Closing(io.BufferedReader):
    """Unpacked content that closes the packed file too."""

    def __init__(self, content: io.RawIOBase, packed: BinaryIO) -> None:
        super().__init__(content, _PIECE)
        self._packed = packed

    def close(self) -> None:
        """Close both."""
        super().close()
        self._packed.close()
