"""What predicates and expressions are made of: columns and literals, and how a column that is missing is told.

Imported by both trees. Must not know either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import NoReturn

from skipstone_core.errors import BadSpec
from skipstone_core.language.paths import is_path, like_hint
from skipstone_core.reasons import Reason

#: Bytes are of binary and fixed columns, and the 16 bytes of a UUID; resources cannot write them.
Value = bool | int | float | Decimal | str | date | datetime | bytes
#: Whose columns a merge can name.
SIDES = ("source", "target")


@dataclass(frozen=True)
class ColumnRef:
    """A column. ``side`` is ``source`` or ``target`` in merges, else empty. ``name`` may be a path: see ``paths``."""

    side: str
    name: str

    def __str__(self) -> str:
        return f"{self.side}.{self.name}" if self.side else self.name


@dataclass(frozen=True)
class Constant:
    """A literal value; never null."""

    value: Value


@dataclass(frozen=True)
class DefaultValue:
    """``default``: what the table gives a column of a new row, else null."""


class UnsupportedPredicate(Exception):
    """A literal or a shape that the grammar lets through and the language does not."""


def refuse(field: str, message: str) -> NoReturn:
    """Raise BadSpec for the predicate in ``field``."""
    raise BadSpec(Reason.INVALID_SPEC, message, field=field) from None


def missing_column(operand: ColumnRef, types: Mapping[str, str]) -> UnsupportedPredicate:
    """Return the error for a column that is none of ``types``."""
    lead, like = f"there is no column {operand}", {name.lower(): name for name in types}.get(str(operand).lower())
    if like is not None:
        return UnsupportedPredicate(f"{lead}: write {like}, names are exact")
    sides = sorted({name.split(".", 1)[0] for name in types if "." in name} & {*SIDES})
    if not operand.side and sides:
        named = [f"{side}.{operand.name}" for side in sides]
        return UnsupportedPredicate(f"{lead}: write {' or '.join([name for name in named if name in types] or named)}")
    if operand.side == "target" and is_path(operand.name):
        return UnsupportedPredicate(f"{lead}: name a column of the table, or a field within one that is a struct")
    start = f"{operand.side}." if operand.side else ""
    own = [name.removeprefix(start) for name in types if name.startswith(start)]
    return UnsupportedPredicate(f"{lead}: {like_hint(operand.name, own)}")
