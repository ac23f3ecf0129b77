"""Filters as engines send them, in the JSON of Iceberg's expressions: the forms of its Java library and of PyIceberg.

Called by who plans scans. Negations are moved into the tests, as Iceberg does before it prunes. What is malformed, or
names columns that cannot be known, is refused; a test that nobody here understands is ``Unjudged``. Must not know
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from skipstone_core.columntypes import METADATA_NAMES
from skipstone_core.errors import BadSpec
from skipstone_core.language.filters import (
    IDENTITY,
    AllOf,
    Always,
    AnyOf,
    ColumnTest,
    Filter,
    FilterOperator,
    Never,
    Term,
    Unjudged,
)
from skipstone_core.language.icebergtransforms import find_transform
from skipstone_core.language.icebergvalues import OutOfType, Plain, greatest_and_least, has_scale, read_value
from skipstone_core.language.paths import like_hint
from skipstone_core.language.predicates import Value
from skipstone_core.reasons import Reason

#: How deep nodes may nest, not counting chains of one and or or; how many there may be; how long a list may be.
MOST_LEVELS: Final = 200
MOST_NODES: Final = 100_000
MOST_VALUES: Final = 1_000_000
_SHOWN = 60

_OPERATORS: Mapping[str, FilterOperator] = {
    "eq": "=",
    "not-eq": "!=",
    "lt": "<",
    "lt-eq": "<=",
    "gt": ">",
    "gt-eq": ">=",
    "in": "in",
    "not-in": "not-in",
    "starts-with": "starts-with",
    "not-starts-with": "not-starts-with",
    "is-null": "is-null",
    "not-null": "not-null",
    "is-nan": "is-nan",
    "not-nan": "not-nan",
}
_PAIRS: Sequence[tuple[FilterOperator, FilterOperator]] = (
    ("=", "!="),
    ("<", ">="),
    (">", "<="),
    ("in", "not-in"),
    ("starts-with", "not-starts-with"),
    ("is-null", "not-null"),
    ("is-nan", "not-nan"),
)
_NEGATED = {**dict(_PAIRS), **{right: left for left, right in _PAIRS}}
_ORDER = frozenset({"<", "<=", ">", ">="})
#: Tests that values beyond all of a type pass, and null with them: so both libraries have it.
_TRUE_BEYOND: Mapping[OutOfType, frozenset[str]] = {
    OutOfType.ABOVE: frozenset({"<", "<=", "!="}),
    OutOfType.BELOW: frozenset({">", ">=", "!="}),
}


@dataclass(frozen=True)
class FilterColumns:
    """Columns that a filter can name. ``schemas``: for each schema that its names may be of, name to field id, with
    dotted names for nested fields. ``types``: field id to Iceberg type text, the newest one of each field.
    """

    schemas: tuple[Mapping[str, int], ...]
    types: Mapping[int, str]


def read_filter(tree: object, columns: FilterColumns, *, case_sensitive: bool) -> Filter:
    """Read a decoded JSON expression. Raises BadSpec for what is malformed, too large, or names unknown columns."""
    return _Reader(columns, case_sensitive=case_sensitive).read(tree, is_negated=False, level=0)


def _by_name(names: Mapping[str, int], *, case_sensitive: bool) -> Mapping[str, frozenset[int]]:
    by_name: dict[str, set[int]] = {}
    for name, field_id in names.items():
        by_name.setdefault(name if case_sensitive else name.lower(), set()).add(field_id)
    return {name: frozenset(field_ids) for name, field_ids in by_name.items()}


@dataclass(frozen=True)
class _Operand:
    """The operand of a test: ``term`` None when it is unknown."""

    field_ids: frozenset[int]
    term: Term | None
    type_name: str
    what: str

    def unjudged(self, what: str = "") -> Unjudged:
        return Unjudged(self.field_ids, what or self.what)


class _Reader:
    def __init__(self, columns: FilterColumns, *, case_sensitive: bool) -> None:
        self._columns = columns
        self._case_sensitive = case_sensitive
        self._schemas = tuple(_by_name(names, case_sensitive=case_sensitive) for names in columns.schemas)
        self._nodes = 0

    def read(self, node: object, *, is_negated: bool, level: int) -> Filter:
        self._count()
        if level > MOST_LEVELS:
            raise _bad(f"it nests deeper than {MOST_LEVELS} levels; join its parts by chains of and and or")
        if isinstance(node, bool):
            return Always() if node is not is_negated else Never()
        if not isinstance(node, dict):
            raise _bad("a part is neither true, false nor an object; send an Iceberg expression")
        match kind := _kind(node):
            case "literal" | "true" | "false":
                return self.read(_constant(node, kind), is_negated=is_negated, level=level)
            case "not":
                return self.read(_required(node, "child"), is_negated=not is_negated, level=level + 1)
            case "and" | "or":
                return self._read_chain(node, kind, is_negated=is_negated, level=level)
            case _:
                return self._read_test(node, kind, is_negated=is_negated)

    def _read_chain(self, node: Mapping[str, Any], kind: str, *, is_negated: bool, level: int) -> Filter:
        """A chain is read in one step, however long: engines write a conjunction of many as a tree of pairs."""
        parts: list[Filter] = []
        waiting: list[object] = [node]
        while waiting:
            current = waiting.pop()
            if isinstance(current, dict) and _kind(current) == kind:
                self._count()
                waiting += [_required(current, "right"), _required(current, "left")]
            else:
                parts.append(self.read(current, is_negated=is_negated, level=level + 1))
        return _all_of(parts) if (kind == "and") is not is_negated else _any_of(parts)

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise _bad(f"it has more than {MOST_NODES} parts; send long lists of values as in or not-in")

    def _read_test(self, node: Mapping[str, Any], kind: str, *, is_negated: bool) -> Filter:
        operand = self._operand(_required(node, "term", "child", "left"))
        operator = _OPERATORS.get(kind)
        if operator is None:
            return operand.unjudged(f"the operator {kind[:_SHOWN]}")
        if is_negated:
            operator = _NEGATED[operator]
        match operator:
            case "is-null" | "not-null" | "is-nan" | "not-nan":
                return _unary(operand, operator)
            case "in" | "not-in":
                return _listed(operand, operator, _values(node))
            case _:
                tested = _compared(operand, operator, _plain(_required(node, "value", "right")))
                return _or_nan(tested, operand) if is_negated and operator in ("<", "<=") else tested

    def _operand(self, node: object) -> _Operand:
        if isinstance(node, str):
            return self._column(node)
        if isinstance(node, dict):
            match _kind(node):
                case "reference" if isinstance(field_id := node.get("id"), int):
                    return self._field(frozenset({field_id}), f"the field {field_id}")
                case "reference":
                    return self._column(_required(node, "term", "name"))
                case "transform":
                    return self._transformed(node)
        raise _bad("a term is neither a column's name, a reference nor a transform; send one of them")

    def _transformed(self, node: Mapping[str, Any]) -> _Operand:
        name, inner = node.get("transform"), _required(node, "term")
        if not isinstance(name, str):
            raise _bad("the transform of a term has no name; send one such as bucket[16]")
        if isinstance(inner, dict) and _kind(inner) != "reference":
            raise _bad("a transform of a transform has no meaning; send one transform of a column")
        operand = self._operand(inner)
        if name.lower() == IDENTITY or operand.term is None:
            return operand
        transform = find_transform(name, operand.type_name)
        what = f"the transform {name[:_SHOWN]} of {operand.what}"
        if transform is None:
            return _Operand(operand.field_ids, None, "", what)
        return _Operand(operand.field_ids, Term(operand.term.field_id, transform.name), transform.result_type, what)

    def _column(self, name: object) -> _Operand:
        if not isinstance(name, str):
            raise _bad("the name of a column is not a text; send names as texts")
        field_ids: frozenset[int] = frozenset().union(*self._matches(name))
        if field_ids:
            return self._field(field_ids, f"the column {name[:_SHOWN]}")
        if name.partition(".")[0].lower() in METADATA_NAMES:
            return _Operand(field_ids, None, "", f"the column {name[:_SHOWN]}")
        known = sorted({each for names in self._columns.schemas for each in names})
        raise _bad(f"the table has no column {name[:_SHOWN]!r}: {like_hint(name, known)}")

    def _matches(self, name: str) -> Iterable[frozenset[int]]:
        for schema in self._schemas:
            field_ids = schema.get(name if self._case_sensitive else name.lower(), frozenset())
            if len(field_ids) > 1:
                raise _bad(
                    f"the name {name[:_SHOWN]!r} is of several columns if case does not count; rename one of them"
                )
            yield field_ids

    def _field(self, field_ids: frozenset[int], what: str) -> _Operand:
        """A name may mean other columns in other schemas: the client does not say which of them it reads."""
        (field_id, *others) = field_ids
        type_name = self._columns.types.get(field_id)
        if others or type_name is None:
            return _Operand(field_ids, None, "", what)
        return _Operand(field_ids, Term(field_id), type_name, what)


def _unary(operand: _Operand, operator: FilterOperator) -> Filter:
    """A transform makes null of null and of nothing else, so that the column is asked."""
    if operand.term is None:
        return operand.unjudged()
    if operator in ("is-null", "not-null"):
        return ColumnTest(Term(operand.term.field_id), operator)
    if operand.type_name not in ("float", "double"):
        return Never() if operator == "is-nan" else Always()
    return ColumnTest(operand.term, operator)


def _compared(operand: _Operand, operator: FilterOperator, literal: Plain | None) -> Filter:
    if operand.term is None or not _is_applicable(operator, operand.type_name):
        return operand.unjudged()
    value = read_value(literal, operand.type_name)
    if value is OutOfType.UNFIT:
        return operand.unjudged(f"a value compared with {operand.what}")
    if isinstance(value, OutOfType):
        return Always() if operator in _TRUE_BEYOND[value] else Never()
    if (ends := greatest_and_least(operand.type_name)) and (operator, value) in ((">", ends[0]), ("<", ends[1])):
        return Never()
    return ColumnTest(operand.term, operator, (value,))


def _or_nan(tested: Filter, operand: _Operand) -> Filter:
    """``not x > v`` finds NaN where a client compares as IEEE does, of which PyArrow is one: nothing is above NaN."""
    if isinstance(tested, ColumnTest) and operand.type_name in ("float", "double"):
        return AnyOf((tested, ColumnTest(tested.term, "is-nan")))
    return tested


def _is_applicable(operator: FilterOperator, type_name: str) -> bool:
    """Prefixes are of texts only. Java orders UUIDs by signed numbers, PyIceberg by bytes: that order means nothing."""
    if operator in ("starts-with", "not-starts-with"):
        return type_name == "string"
    return not (operator in _ORDER and type_name == "uuid")


def _listed(operand: _Operand, operator: FilterOperator, literals: Sequence[Plain | None]) -> Filter:
    if operand.term is None:
        return operand.unjudged()
    values: dict[Value, None] = {}
    for literal in literals:
        value = read_value(literal, operand.type_name)
        if value is OutOfType.UNFIT:
            return operand.unjudged(f"a value of a list compared with {operand.what}")
        is_found = operator == "in" or len(literals) == 1 or has_scale(literal, operand.type_name)
        if not isinstance(value, OutOfType) and is_found:
            values[value] = None
    match tuple(values):
        case ():
            return Never() if operator == "in" else Always()
        case (value,):
            return ColumnTest(operand.term, "=" if operator == "in" else "!=", (value,))
        case several:
            return ColumnTest(operand.term, operator, several)


def _all_of(parts: Iterable[Filter]) -> Filter:
    kept: list[Filter] = []
    for part in parts:
        if isinstance(part, Never):
            return part
        if not isinstance(part, Always):
            kept += part.parts if isinstance(part, AllOf) else (part,)
    return AllOf(tuple(kept)) if len(kept) > 1 else next(iter(kept), Always())


def _any_of(parts: Iterable[Filter]) -> Filter:
    kept: list[Filter] = []
    for part in parts:
        if isinstance(part, Always):
            return part
        if not isinstance(part, Never):
            kept += part.parts if isinstance(part, AnyOf) else (part,)
    return AnyOf(tuple(kept)) if len(kept) > 1 else next(iter(kept), Never())


def _kind(node: Mapping[str, Any]) -> str:
    kind = node.get("type")
    if not isinstance(kind, str):
        raise _bad("a part has no type; send an Iceberg expression")
    return kind.lower().replace("_", "-")


def _constant(node: Mapping[str, Any], kind: str) -> bool:
    if kind != "literal":
        return kind == "true"
    value = _required(node, "value")
    if isinstance(value, bool):
        return value
    raise _bad("a literal that stands alone is neither true nor false; compare a column with it")


def _required(node: Mapping[str, Any], *names: str) -> object:
    """The first of ``names`` that is there: later ones are those of newer versions of the protocol."""
    for name in names:
        if name in node:
            return cast("object", node[name])
    raise _bad(f"a part of the type {_kind(node)[:_SHOWN]} has no {names[0]}; send an Iceberg expression")


def _values(node: Mapping[str, Any]) -> Sequence[Plain | None]:
    listed = _required(node, "values")
    if isinstance(listed, dict):
        listed = _required(listed, "values")
    if not isinstance(listed, list):
        raise _bad("the values of a list are not an array; send an array")
    if len(listed) > MOST_VALUES:
        raise _bad(f"a list has more than {MOST_VALUES} values; send several queries of fewer values")
    return [_plain(literal) for literal in listed]


def _plain(literal: object) -> Plain | None:
    """A literal as JSON has it. PyIceberg writes null for infinities."""
    if isinstance(literal, dict) and _kind(literal) == "literal":
        literal = _required(literal, "value")
    if literal is None or isinstance(literal, bool | int | float | str):
        return literal
    raise _bad("a value is neither a text, a number nor a boolean; send literals as Iceberg writes them")


def _bad(message: str) -> BadSpec:
    return BadSpec(Reason.INVALID_SPEC, message, field="filter")
