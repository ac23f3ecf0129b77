"""What a job says of a change feed: part of what the operator asks of the data plane.

Imported by ``requests`` and by who makes or reads these. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class TimePrecision(StrEnum):
    """The unit of whole numbers that stand for times and timestamps."""

    MILLIS = "Millis"
    MICROS = "Micros"
    NANOS = "Nanos"


class EqualRows(StrEnum):
    """What a merge does whose keys are all columns, so that rows that are equal become one."""

    REFUSE = "Refuse"
    COLLAPSE = "Collapse"


class NonFinite(StrEnum):
    """What becomes of NaN and infinities in columns of decimals."""

    REFUSE = "Refuse"
    NULL = "Null"


class Infinity(StrEnum):
    """What becomes of infinite dates and timestamps. MAX: the last that the types have, and the first for -infinity."""

    REFUSE = "Refuse"
    NULL = "Null"
    MAX = "Max"


@dataclass(frozen=True, kw_only=True)
class ColumnPrecision:
    """The unit of times in one column of the table."""

    column: str
    precision: TimePrecision
