"""Bytes of messages: in base64, plain or safe for URLs, and never in an encoding that is not certain.

Called by ``columns``.
"""

from __future__ import annotations

import base64
import re

from pyiceberg.types import FixedType

from skipstone.sources.feeds.shapes import Raw, Semantic
from skipstone.sources.feeds.values.encodings import NotCertain, ReadAs, content_of

_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
#: UUIDs and dates, which would be base64 for URLs as well.
_DASHED = re.compile(r"[0-9a-fA-F]*-[0-9a-fA-F-]*", re.ASCII)
_URL_SAFE = re.compile(r"[0-9A-Za-z_-]*[_-][0-9A-Za-z_-]*=*", re.ASCII)
#: bit(n) of more than one bit, and bit varying.
_BITS = "io.debezium.data.Bits"


def binary(value: Raw, of: ReadAs) -> object:
    """Return bytes, as they are or as the tool writes them, by default in base64. Raises ValueError or TypeError."""
    content = _octets(value, of) if isinstance(value, str) else content_of(value)
    if isinstance(of.type, FixedType) and len(content) != len(of.type):
        raise ValueError(value)
    return content


def _octets(text: str, of: ReadAs) -> bytes:
    style = of.rules.style
    if style.octets is not None:
        return style.octets(text)
    if style.is_text or _may_be_otherwise(text, of.semantic):
        raise ValueError(text)
    return base64.urlsafe_b64decode(text) if _URL_SAFE.fullmatch(text) else content_of(text)


def refuse_bits(semantic: Semantic | None) -> None:
    """Raise NotCertain for a string of bits: Debezium writes its bytes from last to first, and not its length."""
    if semantic is not None and semantic.name == _BITS:
        raise NotCertain(
            "it is a bit string, whose bytes Debezium writes in reverse order: leave the column out "
            "(column.exclude.list), or keep the bits as text or as a number in the database"
        )


def _may_be_otherwise(text: str, semantic: Semantic | None) -> bool:
    """Return whether ``text`` may be in base64 as well as in hexadecimal (``binary.handling.mode``), or a UUID.

    Only where a schema says bytes, it is in base64.
    """
    is_binary = semantic is not None and semantic.is_bytes
    is_hex = bool(_HEX.fullmatch(text)) and len(text) % 4 == 0
    return not is_binary and (is_hex or bool(_DASHED.fullmatch(text)))
