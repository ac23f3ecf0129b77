"""How a value is written, apart from its type: in which unit, zone and encoding of bytes.

Called by ``columns``, ``numbers`` and ``times``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from pyiceberg.types import IcebergType
from skipstone_core.contract.feeds import Infinity, NonFinite, TimePrecision

from skipstone.sources.feeds.shapes import PLAIN, Raw, Semantic, ValueStyle


@dataclass(frozen=True, kw_only=True)
class ValueRules:
    """``zone``: of timestamps without offset (None: UTC). ``unit``: of times in messages without schema.

    ``style``: how the tool writes values. ``is_column_unit``: the spec names the unit for this very column. ``is_key``:
    the column is a key. ``non_finite``, ``infinity``: what is stored for values that the types do not have; None
    refuses them.
    """

    zone: ZoneInfo | None = None
    unit: TimePrecision | None = None
    style: ValueStyle = PLAIN
    is_column_unit: bool = False
    is_key: bool = False
    non_finite: NonFinite | None = None
    infinity: Infinity | None = None


@dataclass(frozen=True)
class ReadAs:
    """What a value is read as."""

    type: IcebergType
    semantic: Semantic | None
    rules: ValueRules


class NotCertain(ValueError):
    """The value that arrived may not be the one in the database; the text says why, and a way out."""


def is_scaled(semantic: Semantic | None) -> bool:
    """Return whether text is that of a decimal's bytes."""
    return semantic is not None and semantic.scale is not None


def is_bytes(semantic: Semantic | None) -> bool:
    """Return whether the schema says that text is bytes in base64, and not those of a decimal."""
    return semantic is not None and semantic.is_bytes and semantic.scale is None


def is_plain_text(semantic: Semantic | None) -> bool:
    """Return whether text stands for itself."""
    return not is_scaled(semantic) and not is_bytes(semantic)


def content_of(value: Raw) -> bytes:
    """Bytes, as they are or in base64."""
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise TypeError(value)
    return base64.b64decode(value, validate=True)
