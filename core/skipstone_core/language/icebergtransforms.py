"""Iceberg's transforms as terms of filters: which there are, of which types, and what type they give.

Called by ``icebergjson``. Must not compute a transform.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_PARAMETRIZED = re.compile(r"(bucket|truncate)\[(\d{1,10})\]", re.ASCII)
_MOST = (1 << 31) - 1
_MOMENTS = frozenset({"timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"})
_TRUNCATED = frozenset({"int", "long", "decimal", "string", "binary"})
_SOURCES: Mapping[str, frozenset[str]] = {
    "year": _MOMENTS | {"date"},
    "month": _MOMENTS | {"date"},
    "day": _MOMENTS | {"date"},
    "hour": _MOMENTS,
    "truncate": _TRUNCATED,
    "bucket": _MOMENTS | _TRUNCATED | {"date", "time", "uuid", "fixed"},
}


@dataclass(frozen=True)
class TermTransform:
    """A transform by its name as table specs write it, such as ``bucket[16]``; ``result_type``: Iceberg type text."""

    name: str
    result_type: str


def find_transform(name: str, source_type: str) -> TermTransform | None:
    """The transform of a name in any case, of columns of a type; None when there is none that is of use."""
    written = name.strip().lower()
    parametrized = _PARAMETRIZED.fullmatch(written)
    kind = parametrized[1] if parametrized else written
    if (kind in ("bucket", "truncate")) is not bool(parametrized):
        return None
    if parametrized:
        parameter = int(parametrized[2])
        if not 0 < parameter <= _MOST:
            return None
        written = f"{kind}[{parameter}]"
    source = re.split(r"[(\[]", source_type.strip().lower(), maxsplit=1)[0]
    if source not in _SOURCES.get(kind, frozenset()):
        return None
    results = {"truncate": source_type, "day": "date"}
    return TermTransform(written, results.get(kind, "int"))
