"""Catalyst's literals as values of columns, whose types are never guessed: a literal has the type that Spark gives the
column, and the column's Iceberg type holds the same values.

Used by ``expressions``. The JSON of a plan shows some literals as they are and others not; those are asked for one by
one. Must not know conditions.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import MINYEAR, UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NamedTuple, NoReturn
from uuid import UUID

from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.catalyst import Node

#: What Spark shows in place of bytes that are not UTF-8.
NO_TEXT = "\ufffd"
#: The type of columns that Spark shows as strings and Iceberg holds as 16 bytes.
UUID_TYPE = "uuid"
#: The collation by which texts are compared where none is named: by their bytes, as indexes hold them.
BINARY_COLLATION = "UTF8_BINARY"
#: How Spark shows days and moments, with a sign where the year has more than four digits or is before 0.
_FAR_YEAR = re.compile(r"(?P<sign>[+-]?)(?P<year>\d{4,7})-\d\d-\d\d(?: .*)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (end.replace(tzinfo=UTC) for end in (datetime.min, datetime.max))  # noqa: DTZ901
#: The texts of the first and the last UUID.
_ENDS = (str(UUID(int=0)), str(UUID(int=(1 << 128) - 1)))
_ICEBERG_TYPES = {
    "boolean": "boolean",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "binary",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}


@dataclass(frozen=True)
class Hidden:
    """Values of a condition that its JSON does not show as they are.

    ``micros``: of a timestamp literal, which it shows in the session's time zone. ``octets``: of a binary literal.
    ``members``: of a set of literals, as texts of what Catalyst holds, without null; None when they are too many.
    ``fields``: of a struct literal, as such texts. ``rows``: of a set of struct literals; None when they are too many.
    """

    micros: Callable[[Node], int]
    octets: Callable[[Node], bytes]
    members: Callable[[Node], Sequence[str] | None]
    fields: Callable[[Node], Sequence[str]]
    rows: Callable[[Node], Sequence[Sequence[str]] | None]


def _nothing(node: Node) -> NoReturn:
    raise LookupError(f"{node.name} of a use without condition")


NOTHING_HIDDEN = Hidden(_nothing, _nothing, _nothing, _nothing, _nothing)


def are_same_type(spark: str, iceberg: str) -> bool:
    """Return whether a type of Spark's, as JSON has it, holds the same values as one of Iceberg's, in the same form."""
    expected = _ICEBERG_TYPES.get(spark) or (spark.replace(",", ", ") if spark.startswith("decimal") else None)
    return expected == iceberg


def column_kind(spark: str, iceberg: str) -> str:
    """The type of a column as its literals have it; empty where its values are not those that Spark shows."""
    if spark == "string" and iceberg == "uuid":
        return UUID_TYPE
    if spark == "binary" and iceberg.startswith("fixed["):
        return spark
    return spark if are_same_type(spark, iceberg) else ""


def literal_kind(kind: str) -> str:
    """The Spark type of literals that are compared with a column of a kind."""
    return "string" if kind == UUID_TYPE else kind


def is_null(literal: Node) -> bool:
    """Return whether an expression is a null."""
    return literal.name == "Literal" and literal.fields["value"] is None


def constant(text: str, kind: str) -> core.Constant | None:
    """A value from the text that JSON has of a literal; None for one that Python cannot hold."""
    match kind:
        case "boolean":
            return core.Constant(text == "true")
        case "integer" | "long":
            return core.Constant(int(text))
        case "double":
            return core.Constant(float(text))
        case "float":
            return core.Constant(struct.unpack("f", struct.pack("f", float(text)))[0])
        case "string":
            return None if NO_TEXT in text else core.Constant(text)
        case "date":
            return _day(text)
        case "timestamp_ntz":
            return _local(int(text)) if text.lstrip("-").isdigit() else None
        case _:
            return core.Constant(Decimal(text)) if kind.startswith("decimal") else None


def held(text: str, kind: str) -> core.Constant | None:
    """A value from the text of what Catalyst holds: days and moments are numbers, bytes are in hexadecimal digits."""
    match kind:
        case "date":
            return _days(int(text))
        case "timestamp":
            return instant(int(text))
        case "binary":
            return core.Constant(bytes.fromhex(text))
        case "uuid":
            uuid_bytes = uuid_of(text)
            return None if uuid_bytes is None else core.Constant(uuid_bytes)
        case _:
            return constant(text, kind)


def instant(micros: int) -> core.Constant | None:
    """A moment; None for one beyond the years that Python knows."""
    try:
        return core.Constant(_EPOCH + timedelta(microseconds=micros))
    except OverflowError:
        return None


class Nearest(NamedTuple):
    """The first or the last value that Python holds of a type."""

    value: core.Constant
    is_last: bool


def nearest(text: str, kind: str) -> Nearest | None:
    """The value that is nearest to a day or a moment of which the year is before 1 or after 9999; None for others."""
    if kind == "timestamp_ntz":
        is_number = text.lstrip("-").isdigit()
        return None if not is_number or _local(int(text)) else _end(kind, is_last=int(text) > 0)
    year = _FAR_YEAR.fullmatch(text) if kind in ("date", "timestamp") else None
    if year is None or (not year["sign"] and int(year["year"]) >= MINYEAR):
        return None
    return _end(kind, is_last=year["sign"] == "+")


def _end(kind: str, *, is_last: bool) -> Nearest:
    moment = _LAST if is_last else _FIRST
    known = {"date": moment.date(), "timestamp_ntz": moment.replace(tzinfo=None)}
    return Nearest(core.Constant(known.get(kind, moment)), is_last)


def _local(micros: int) -> core.Constant | None:
    try:
        return core.Constant(_EPOCH.replace(tzinfo=None) + timedelta(microseconds=micros))
    except OverflowError:
        return None


def _days(number: int) -> core.Constant | None:
    try:
        return core.Constant(_EPOCH.date() + timedelta(days=number))
    except OverflowError:
        return None


def _day(text: str) -> core.Constant | None:
    try:
        return core.Constant(date.fromisoformat(text))
    except ValueError:
        return None


def uuid_of(text: str) -> bytes | None:
    """The UUID that Spark shows as ``text``, in lower case with hyphens; None for a text that it shows of none."""
    try:
        uuid = UUID(text)
    except ValueError:
        return None
    return uuid.bytes if str(uuid) == text else None


def uuids_from(prefix: str) -> tuple[bytes, bytes] | None:
    """The first and the last UUID whose text begins with ``prefix``; None when there is none."""
    first, last = (uuid_of(prefix + end[len(prefix) :]) for end in _ENDS)
    return None if first is None or last is None else (first, last)
