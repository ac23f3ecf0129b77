"""Predicates as Iceberg expressions in JSON: what readers may skip row groups by.

Used by ``substitution``. Only what Iceberg and Spark understand alike: no floats (NaN, -0.0), no UUIDs, no negations.
Must not be used to drop rows: Spark filters what is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from skipstone_core.language import predicates as core

Json = dict[str, Any]
#: Every task carries its residual, and Iceberg ignores the bounds of row groups for longer lists.
MAX_VALUES = 200
_NAMES: dict[core.Operator, str] = {"=": "eq", "<": "lt", "<=": "lt-eq", ">": "gt", ">=": "gt-eq"}


def residual_of(predicate: core.Predicate) -> Json | None:
    """The expression of a predicate; None where it says nothing that readers could use.

    Conjuncts on one column only: of others Spark's optimizer might find that a column does not matter and not read it,
    and Iceberg fails on residuals that name columns which are not read.
    """
    parts = predicate.root.parts if isinstance(predicate.root, core.And) else (predicate.root,)
    expressions = [_expression(part) for part in parts if len(core.Predicate(part, "").columns) == 1]
    return _folded("and", [part for part in expressions if part is not None])


def columns_of(residual: Json | None) -> tuple[str, ...]:
    """The columns that an expression names."""
    if residual is None:
        return ()
    inner = [columns_of(residual[side]) for side in ("left", "right") if side in residual]
    return tuple(sorted({name for names in inner for name in names} or {residual["term"]}))


def renamed(residual: Json | None, names: Mapping[str, str]) -> Json | None:
    """Return the part of an expression on the columns in ``names``, with the names there."""
    if residual is None:
        return None
    if "left" not in residual:
        known = names.get(residual["term"])
        return None if known is None else {**residual, "term": known}
    sides = [renamed(residual[side], names) for side in ("left", "right")]
    kept = [side for side in sides if side is not None]
    return _folded(residual["type"], kept) if residual["type"] == "and" or len(kept) == len(sides) else None


def _expression(node: core.Node) -> Json | None:
    match node:
        case core.And():
            return _folded("and", [expression for part in node.parts if (expression := _expression(part)) is not None])
        case core.Or():
            parts = [_expression(part) for part in node.parts]
            known = [part for part in parts if part is not None]
            return _folded("or", known) if len(known) == len(parts) else None
        case core.Comparison(left=core.ColumnRef(name=name), right=core.Constant(value=value)):
            literal = _literal(value)
            return None if literal is None else {"type": _NAMES[node.op], "term": name, "value": literal}
        case core.InList(operand=core.ColumnRef(name=name)) if 0 < len(node.values) <= MAX_VALUES:
            literals = [_literal(constant.value) for constant in node.values]
            return None if None in literals else {"type": "in", "term": name, "values": literals}
        case core.IsNull(operand=core.ColumnRef(name=name)):
            return {"type": "is-null", "term": name}
        case core.StartsWith(operand=core.ColumnRef(name=name)):
            return {"type": "starts-with", "term": name, "value": node.prefix}
        case _:
            return None


def _folded(kind: str, parts: Sequence[Json]) -> Json | None:
    if not parts:
        return None
    folded = parts[0]
    for part in parts[1:]:
        folded = {"type": kind, "left": folded, "right": part}
    return folded


def _literal(value: core.Value) -> Any:
    """A literal as unbound expressions hold it; binding turns it into the column's type."""
    match value:
        case float() | bytes():
            return None
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case _:
            return value
