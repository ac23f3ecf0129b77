"""Upper bounds of texts and bytes that were cut short. Must not know how bounds are stored."""

from __future__ import annotations


def upper_bound(value: str | bytes, length: int | None) -> str | bytes | None:
    """An upper bound of ``value`` in at most ``length`` characters (None: as many as it has); None when there is none.

    Text is ordered by its code points, as its UTF-8 is.
    """
    if length is None or len(value) <= length:
        return value
    return least_above(value[:length]) if isinstance(value, str) else _least_bytes_above(value[:length])


def least_above(prefix: str) -> str | None:
    """The least text greater than all texts that begin with ``prefix``, None when there is none.

    Surrogates are not characters: what follows U+D7FF is U+E000. Nothing follows U+10FFFF.
    """
    for end in range(len(prefix), 0, -1):
        point = ord(prefix[end - 1])
        if point < 0x10FFFF:
            return prefix[: end - 1] + chr(0xE000 if point == 0xD7FF else point + 1)
    return None


def _least_bytes_above(prefix: bytes) -> bytes | None:
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
