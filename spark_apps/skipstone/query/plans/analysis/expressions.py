"""Catalyst conditions as predicates of ours: what may be TRUE where the condition is TRUE.

Used by ``uses``. A conjunct that is not understood is left out, which is always right: Spark filters the rows again.
Types are never guessed: a column and its literal have one Spark type, and the column's Iceberg type is that type.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import NoReturn

from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.catalyst import Node, expression_id
from skipstone.query.plans.refusals import Refusal

#: A literal's microseconds are fetched from the JVM one by one; longer lists of moments are not understood.
MAX_MOMENTS = 100
_SHOWN_VALUES = 5
_SHOWN_PARTS = 20
_SPECIFIC = (Refusal.CONDITION, Refusal.CAST, Refusal.COLLATED)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: What Spark shows in place of bytes that are no UTF-8.
NO_TEXT = "\ufffd"
_NEVER = core.InList(core.Constant(value=False), ())
_ICEBERG_TYPES = {
    "boolean": "boolean",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "date": "date",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_OPERATORS: dict[str, core.Operator] = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_MIRRORED: dict[core.Operator, core.Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: dict[core.Operator, core.Operator] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True)
class Hidden:
    """Values of a condition that its JSON does not show as they are.

    ``micros``: of a timestamp literal, which it shows in the session's time zone. ``members``: of a set of literals,
    as texts of what Catalyst holds, without null; None when they are too many.
    """

    micros: Callable[[Node], int]
    members: Callable[[Node], Sequence[str] | None]


def are_same_type(spark: str, iceberg: str) -> bool:
    """Whether a type of Spark's, as JSON has it, holds the same values as one of Iceberg's."""
    expected = _ICEBERG_TYPES.get(spark) or (spark.replace(",", ", ") if spark.startswith("decimal") else None)
    return expected == iceberg


def _nothing(node: Node) -> NoReturn:
    raise LookupError(f"{node.name} of a use without condition")


NOTHING_HIDDEN = Hidden(_nothing, _nothing)


@dataclass
class Translator:
    """Translates conditions on one relation.

    ``columns``: attribute id to (name, Iceberg type) of top-level columns. ``refusal``: afterwards, why something was
    left out although it is understood.
    """

    columns: Mapping[int, tuple[str, str]]
    hidden: Hidden
    refusal: Refusal | None = field(default=None, init=False)
    _moments: int = field(default=0, init=False)

    def may_be_true(self, node: Node) -> core.Node | None:
        """A condition that holds wherever ``node`` is TRUE; None when nothing is known."""
        match node.name:
            case "And":
                return _all([self.may_be_true(child) for child in node.children])
            case "Or":
                return _any([self.may_be_true(child) for child in node.children])
            case "Not":
                return self.may_be_false(node.children[0])
            case "In":
                return self._in_list(node)
            case "InSet":
                return self._in_set(node)
            case "AttributeReference":
                return self._flag(node, value=True)
            case "Literal":
                return None if node.fields["value"] == "true" else _NEVER
            case _:
                return self._leaf(node)

    def may_be_false(self, node: Node) -> core.Node | None:
        """A condition that holds wherever ``node`` is FALSE; None when nothing is known."""
        match node.name:
            case "And":
                return _any([self.may_be_false(child) for child in node.children])
            case "Or":
                return _all([self.may_be_false(child) for child in node.children])
            case "Not":
                return self.may_be_true(node.children[0])
            case "IsNull" | "IsNotNull":
                return self._null_test(node, is_null=node.name == "IsNotNull")
            case "AttributeReference":
                return self._flag(node, value=False)
            case "Literal":
                return None if node.fields["value"] == "false" else _NEVER
            case _:
                found = self._comparison(node)
                if found is None or found.op not in _NEGATED:
                    return None
                return core.Comparison(_NEGATED[found.op], found.left, found.right)

    def _leaf(self, node: Node) -> core.Node | None:
        match node.name:
            case "IsNull" | "IsNotNull":
                return self._null_test(node, is_null=node.name == "IsNull")
            case "EqualNullSafe" if (operand := self._null_safe_operand(node)) is not None:
                return operand
            case "IsNaN":
                column = self._column(node.children[0])
                is_float = column is not None and self._type(node.children[0]) in ("float", "double")
                return core.Comparison("=", column, core.Constant(math.nan)) if column and is_float else None
            case "StartsWith":
                return self._prefix(node)
            case _:
                return self._of_default(node) or self._comparison(node)

    def _of_default(self, node: Node) -> core.Node | None:
        """``coalesce(column, value)`` compared with a literal: holds of a column that does, and maybe of a null one."""
        coalesce = next((child for child in node.children if child.name == "Coalesce"), None)
        if coalesce is None or len(coalesce.children) != 2:
            return None
        column, default = coalesce.children
        found = self._comparison(_with_operand(node, coalesce, column))
        if found is None or not isinstance(found.left, core.ColumnRef):
            return None
        value = self._value(default, column)
        if found.op == "=" and value is not None and _differ(value, found.right):
            return found
        return core.Or((found, core.IsNull(found.left)))

    def _flag(self, node: Node, *, value: bool) -> core.Node | None:
        column = self._column(node)
        if column is None or self._type(node) != "boolean":
            return None
        return core.Comparison("=", column, core.Constant(value))

    def _null_test(self, node: Node, *, is_null: bool) -> core.Node | None:
        column = self._column(node.children[0])
        if column is None:
            return None
        return core.IsNull(column) if is_null else core.Not(core.IsNull(column))

    def _null_safe_operand(self, node: Node) -> core.Node | None:
        """``column <=> null`` is a test for null."""
        for one, other in (node.children, node.children[::-1]):
            if other.name == "Literal" and other.fields["value"] is None and (column := self._column(one)):
                return core.IsNull(column)
        return None

    def _comparison(self, node: Node) -> core.Comparison | None:
        op = _OPERATORS.get(node.name)
        if op is None:
            return None
        left, right = node.children
        if left.name == "Literal":
            op, left, right = _MIRRORED[op], right, left
        column = self._column(left)
        value = self._value(right, left) if column else None
        return core.Comparison(op, column, value) if column and value else None

    def _in_list(self, node: Node) -> core.Node | None:
        operand, *items = node.children
        column = self._column(operand)
        if column is None:
            return None
        values = [self._value(item, operand) for item in items if not _is_null(item)]
        known = tuple(value for value in values if value is not None)
        return core.InList(column, known) if len(known) == len(values) else None

    def _in_set(self, node: Node) -> core.Node | None:
        column = self._column(node.children[0])
        kind = self._type(node.children[0]) if column else ""
        if column is None or not kind:
            return None
        found = self.hidden.members(node)
        if found is None:
            self.refusal = Refusal.LIST_TOO_LONG
            return None
        values = [_held(text, kind) for text in found]
        known = tuple(value for value in values if value is not None)
        return core.InList(column, known) if len(known) == len(values) else None

    def _prefix(self, node: Node) -> core.Node | None:
        column = self._column(node.children[0])
        value = self._value(node.children[1], node.children[0]) if column else None
        if column is None or value is None or not isinstance(value.value, str):
            return None
        return core.StartsWith(column, value.value)

    def _column(self, node: Node) -> core.ColumnRef | None:
        if node.name != "AttributeReference" or expression_id(node) not in self.columns:
            return None
        return core.ColumnRef("", self.columns[expression_id(node)][0])

    def _type(self, node: Node) -> str:
        """The Spark type of a column, when its Iceberg type is the same; else empty."""
        spark = str(node.fields["dataType"])
        return spark if are_same_type(spark, self.columns[expression_id(node)][1]) else ""

    def _value(self, literal: Node, column: Node) -> core.Constant | None:
        kind = self._type(column)
        if literal.name != "Literal" or _is_null(literal) or not kind or literal.fields["dataType"] != kind:
            return None
        if kind == "timestamp":
            return self._moment(literal)
        return _constant(str(literal.fields["value"]), kind)

    def _moment(self, literal: Node) -> core.Constant | None:
        self._moments += 1
        return None if self._moments > MAX_MOMENTS else _instant(self.hidden.micros(literal))


def _with_operand(node: Node, before: Node, after: Node) -> Node:
    """A comparison with another operand in the place of one."""
    children = tuple(after if child is before else child for child in node.children)
    return Node(node.name, node.fields, children, node.path)


def _differ(one: core.Operand, other: core.Operand) -> bool:
    """Whether two literals of a type certainly differ; floats may be equal in other ways than Python's."""
    values = [operand.value for operand in (one, other) if isinstance(operand, core.Constant)]
    return len(values) == 2 and not isinstance(values[0], float) and values[0] != values[1]


def _is_null(literal: Node) -> bool:
    return literal.name == "Literal" and literal.fields["value"] is None


def _constant(text: str, kind: str) -> core.Constant | None:
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
            moment = _instant(int(text)) if text.lstrip("-").isdigit() else None
            return moment and core.Constant(moment.value.replace(tzinfo=None))  # type: ignore[union-attr, call-arg]
        case _:
            return core.Constant(Decimal(text))


def _held(text: str, kind: str) -> core.Constant | None:
    """A value from the text of what Catalyst holds: days and moments are numbers."""
    match kind:
        case "date":
            return _days(int(text))
        case "timestamp":
            return _instant(int(text))
        case _:
            return _constant(text, kind)


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


def _instant(micros: int) -> core.Constant | None:
    try:
        return core.Constant(_EPOCH + timedelta(microseconds=micros))
    except OverflowError:
        return None


def _all(parts: Sequence[core.Node | None]) -> core.Node | None:
    """Conjunction of what is known, flat, without the tests for null that its comparisons imply."""
    flat: list[core.Node] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, core.And) else [] if part is None else [part])
    compared = {part.left for part in flat if isinstance(part, core.Comparison)}
    compared |= {part.operand for part in flat if isinstance(part, core.InList | core.StartsWith)}
    known = tuple(part for part in flat if not (isinstance(part, core.Not) and _operand(part) in compared))
    return core.And(known) if len(known) > 1 else next(iter(known), None)


def _operand(test: core.Not) -> core.Operand | None:
    return test.inner.operand if isinstance(test.inner, core.IsNull) else None


def _any(parts: Sequence[core.Node | None]) -> core.Node | None:
    known = tuple(part for part in parts if part is not None)
    return core.Or(known) if len(known) == len(parts) else None


def is_narrowing(node: core.Node) -> bool:
    """Whether a translated condition says more than that columns are not null, which Spark infers of many."""
    match node:
        case core.And():
            return any(is_narrowing(part) for part in node.parts)
        case core.Or():
            return all(is_narrowing(part) for part in node.parts)
        case _:
            return not isinstance(node, core.Not)


def why_not(condition: Node) -> Refusal | None:
    """The code of a condition of which nothing could be translated; None when it tests for null only."""
    if condition.name == "And":
        codes = [code for child in condition.children if (code := why_not(child))]
        return max(codes, key=_SPECIFIC.index) if codes else None
    if condition.name == "IsNotNull":
        return None
    casts = [node for node in condition.walk() if node.name == "Cast"]
    attributes = [cast for cast in casts if cast.children[0].name == "AttributeReference"]
    if any(_is_string(cast) and _is_string(cast.children[0]) for cast in attributes):
        return Refusal.COLLATED
    return Refusal.CAST if attributes else Refusal.CONDITION


def _is_string(node: Node) -> bool:
    return str(node.fields["dataType"]).startswith("string")


def shown(node: core.Node) -> str:
    """A condition as text for people; of many arms the first ones."""
    match node:
        case core.And() | core.Or():
            word = " and " if isinstance(node, core.And) else " or "
            parts = [shown(part) for part in node.parts[:_SHOWN_PARTS]]
            more = len(node.parts) - len(parts)
            return "(" + word.join([*parts, *([f"{more} more"] if more else [])]) + ")"
        case core.Not(inner=core.IsNull(operand=operand)):
            return f"{operand} is not null"
        case core.Not():
            return f"not {shown(node.inner)}"
        case core.Comparison():
            return f"{_text(node.left)} {node.op} {_text(node.right)}"
        case core.InList():
            return _list_text(node)
        case core.IsNull():
            return f"{_text(node.operand)} is null"
        case core.StartsWith():
            return f"{_text(node.operand)} like {node.prefix + '%'!r}"


def _list_text(node: core.InList) -> str:
    if not node.values:
        return "false"
    values = [_text(value) for value in node.values[:_SHOWN_VALUES]]
    more = len(node.values) - len(values)
    return f"{_text(node.operand)} in ({', '.join(values)}{f' and {more} more' if more else ''})"


def _text(operand: core.Operand) -> str:
    if isinstance(operand, core.ColumnRef):
        return str(operand)
    value = operand.value
    return repr(value) if isinstance(value, str) else str(value)
