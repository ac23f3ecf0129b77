"""What the annotation by which users ask for a reindex says: a mark that is new each time, and perhaps that it is full.

The operator reads it, the command line writes it. Pure.
"""

from __future__ import annotations

_FULL = "full"


def reindex_mark(mark: str, *, full: bool) -> str:
    """The value that asks for a reindex, or for a full one: ``full/MARK``."""
    return f"{_FULL}/{mark}" if full else mark


def is_full_reindex(value: str) -> bool:
    """Return whether the value asks for a full rebuild: ``full``, or ``full/`` with anything behind it."""
    return value.partition("/")[0].strip().lower() == _FULL
