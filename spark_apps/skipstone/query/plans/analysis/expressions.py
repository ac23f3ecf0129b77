"""Catalyst conditions as predicates of ours: what may be TRUE where the condition is TRUE.

Used by ``demands``. A conjunct that is not understood is left out, which is always right: Spark filters the rows again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.catalyst import Node, expression_id
from skipstone.query.plans.analysis.literals import (
    BINARY_COLLATION,
    UUID_TYPE,
    Hidden,
    column_kind,
    constant,
    held,
    instant,
    is_null,
    literal_kind,
    nearest,
    uuid_of,
    uuids_from,
)
from skipstone.query.plans.analysis.rowvalues import FieldValue, fields_of, is_row, members_of, values_of
from skipstone.query.plans.refusals import Refusal

#: A literal's microseconds are fetched from the JVM one by one; longer lists of moments are not understood.
MAX_MOMENTS = 100
#: So many rows of a list are looked up as rows, of longer ones each column by itself.
MAX_ROWS = 1_000
_SPECIFIC = (Refusal.CONDITION, Refusal.CAST, Refusal.COLLATED)
_NULL = Node("Literal", {"value": None, "dataType": "void"}, (), ())
_NEVER = core.InList(core.Constant(value=False), ())
_OPERATORS: dict[str, core.Operator] = {
    "EqualTo": "=",
    "EqualNullSafe": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
#: Operators of conditions that hold only beyond the last value that Python holds, or before the first.
_TOWARDS: dict[bool, tuple[core.Operator, ...]] = {True: (">", ">="), False: ("<", "<=")}
_MIRRORED: dict[core.Operator, core.Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NEGATED: dict[core.Operator, core.Operator] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_STRICT: dict[core.Operator, core.Operator] = {"<": "<", "<=": "<", ">": ">", ">=": ">"}
#: Gives what may be so of a condition, such as TRUE.
_Judge = Callable[[Node], core.Node | None]


@dataclass(frozen=True, eq=False)
class _Case:
    """A value that an expression may have, and what holds then; None when nothing is known of that."""

    guard: core.Node | None
    value: Node


def find_moments(condition: Node) -> frozenset[Node]:
    """The literals of a condition whose moments are asked of the JVM: the first ones, MAX_MOMENTS at most."""
    literals = (node for node in condition.walk() if node.name == "Literal" and not is_null(node))
    return frozenset(islice((node for node in literals if node.fields["dataType"] == "timestamp"), MAX_MOMENTS))


@dataclass(frozen=True)
class Translator:
    """Translates a condition on one relation.

    ``columns``: attribute id to (name, Iceberg type) of top-level columns. ``moments``: see ``find_moments``.
    """

    columns: Mapping[int, tuple[str, str]]
    hidden: Hidden
    moments: frozenset[Node]

    def why_not(self, condition: Node) -> Refusal | None:
        """The code of a condition of which nothing could be translated; None when it tests for null only."""
        in_sets = (node for node in condition.walk() if node.name == "InSet")
        return Refusal.LIST_TOO_LONG if any(map(self._is_too_long, in_sets)) else why_not(condition)

    def _is_too_long(self, in_set: Node) -> bool:
        operand = in_set.children[0]
        if is_row(operand):
            return members_of(in_set, self.hidden) is None
        is_known = self._column(operand) is not None and bool(self._kind(operand))
        return is_known and self.hidden.members(in_set) is None

    def may_be_true(self, node: Node) -> core.Node | None:
        """A condition that holds wherever ``node`` is TRUE; None when nothing is known."""
        match node.name:
            case "And":
                return _all([self.may_be_true(child) for child in node.children])
            case "Or":
                return _any([self.may_be_true(child) for child in node.children])
            case "Not":
                return self.may_be_false(node.children[0])
            case "AttributeReference":
                return self._flag(node, value=True)
            case "Literal":
                return None if node.fields["value"] == "true" else _NEVER
            case _ if cases := list(self._cases_below(node)):
                return self._in_any_case(cases, self.may_be_true)
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
            case _ if cases := list(self._cases_below(node)):
                return self._in_any_case(cases, self.may_be_false)
            case _:
                return self._comparison(node, is_negated=True)

    def _leaf(self, node: Node) -> core.Node | None:
        match node.name:
            case "In" | "InSet":
                return self._in(node)
            case "IsNull" | "IsNotNull":
                return self._null_test(node, is_null=node.name == "IsNull")
            case "IsNaN":
                column = self._column(node.children[0])
                is_float = column is not None and self._kind(node.children[0]) in ("float", "double")
                return core.Comparison("=", column, core.Constant(math.nan)) if column and is_float else None
            case "StartsWith":
                return self._prefix(node)
            case _:
                return self._comparison(node, is_negated=False)

    # --- values that depend on conditions ---

    def _cases_below(self, node: Node) -> Iterator[_Case]:
        """Yield ``node`` in each case that it, or an operand that is compared with literals, distinguishes."""
        if node.name not in _OPERATORS and node.name not in ("In", "InSet"):
            yield from self._cases(node)
            return
        for at, operand in enumerate(node.children):
            others = [child for child in node.children if child is not operand]
            if (at == 0 or node.name in _OPERATORS) and all(other.name == "Literal" for other in others):
                for case in self._cases(operand):
                    children = tuple(case.value if child is operand else child for child in node.children)
                    yield _Case(case.guard, Node(node.name, node.fields, children, node.path))

    def _cases(self, node: Node) -> Iterator[_Case]:
        """The values that an expression may have, each with what holds then, as far as it is known."""
        match node.name:
            case "If":
                condition, then, otherwise = node.children
                yield _Case(self.may_be_true(condition), then)
                yield _Case(None, otherwise)
            case "CaseWhen":
                for at in range(0, len(node.children) - 1, 2):
                    yield _Case(self.may_be_true(node.children[at]), node.children[at + 1])
                yield _Case(None, node.children[-1] if len(node.children) % 2 else _NULL)
            case "Coalesce":
                before: core.Node | None = None
                for child in node.children:
                    yield _Case(before, child)
                    column = self._column(child)
                    before = _all([before, core.IsNull(column) if column else None])
                yield _Case(before, _NULL)

    @staticmethod
    def _in_any_case(cases: Sequence[_Case], judge: _Judge) -> core.Node | None:
        return _any([_all([case.guard, judge(case.value)]) for case in cases])

    # --- columns and literals ---

    def _flag(self, node: Node, *, value: bool) -> core.Node | None:
        column = self._column(node)
        if column is None or self._kind(node) != "boolean":
            return None
        return core.Comparison("=", column, core.Constant(value))

    def _null_test(self, node: Node, *, is_null: bool) -> core.Node | None:
        column = self._column(node.children[0])
        if column is None:
            return None
        return core.IsNull(column) if is_null else core.Not(core.IsNull(column))

    def _comparison(self, node: Node, *, is_negated: bool) -> core.Node | None:
        op = _OPERATORS.get(node.name)
        if op is None or (is_negated and op not in _NEGATED):
            return None
        op = _NEGATED[op] if is_negated else op
        left, right = node.children
        if left.name == "Literal":
            op, left, right = _MIRRORED[op], right, left
        if is_row(left):
            return self._row_comparison(op, left, right)
        if is_null(left) or is_null(right):
            return self._of_null(left, right) if node.name == "EqualNullSafe" else _NEVER
        return _of_literals(op, left, right) if left.name == "Literal" else self._compared(op, left, right)

    def _of_null(self, left: Node, right: Node) -> core.Node | None:
        """Return the predicate of ``<=>`` with a null literal on one side, at least; not only the left is a literal."""
        if left.name == "Literal":
            return None if is_null(left) and is_null(right) else _NEVER
        column = self._column(left)
        return core.IsNull(column) if column else None

    def _compared(self, op: core.Operator, left: Node, right: Node) -> core.Node | None:
        """A column compared with a literal that is not null."""
        column = self._column(left)
        if column is None:
            return None
        if self._is_text_of_uuid(left, right):
            return _uuid_comparison(op, column, str(right.fields["value"]))
        value = self._value(right, left)
        return core.Comparison(op, column, value) if value else self._far(op, column, right, self._kind(left))

    @staticmethod
    def _far(op: core.Operator, column: core.ColumnRef, literal: Node, kind: str) -> core.Node | None:
        """A column compared with a day or a moment that Python cannot hold: it lies beyond all that it can."""
        end = nearest(str(literal.fields.get("value")), kind) if literal.name == "Literal" else None
        if end is None or op not in ("=", *_TOWARDS[end.is_last]):
            return None
        return core.Comparison(">" if end.is_last else "<", column, end.value)

    def _in(self, node: Node) -> core.Node | None:
        operand, *items = node.children
        if is_row(operand):
            return self._row_list(node, operand, items)
        if operand.name == "Literal" and node.name == "In":
            return _any([self._leaf(Node("EqualTo", {}, (operand, item), ())) for item in items])
        if is_null(operand):
            return _NEVER
        column = self._column(operand)
        if column is None or not self._kind(operand):
            return None
        constants = self._listed(operand, items) if node.name == "In" else self._members(node)
        known = [value for value in constants or () if value is not None]
        if constants is None or len(known) == len(constants):
            return None if constants is None else core.InList(column, tuple(known))
        equal = [Node("EqualTo", {}, (operand, item), ()) for item in items if not is_null(item)]
        return _any([self._leaf(equality) for equality in equal]) if node.name == "In" else None

    def _listed(self, operand: Node, items: Sequence[Node]) -> list[core.Constant | None]:
        """The values of a list that the column may have; None for one that is not understood."""
        values = [item for item in items if not is_null(item)]
        return [self._value(item, operand) for item in values if not self._is_no_uuid(operand, item)]

    def _members(self, node: Node) -> list[core.Constant | None] | None:
        """As ``_listed``, of a set; None when it holds too many."""
        kind, texts = self._kind(node.children[0]), self.hidden.members(node)
        if texts is None:
            return None
        return [held(text, kind) for text in texts if kind != UUID_TYPE or uuid_of(text)]

    def _prefix(self, node: Node) -> core.Node | None:
        operand, prefix = node.children
        column = self._column(operand)
        if column is None or is_null(prefix):
            return None
        if self._is_text_of_uuid(operand, prefix):
            ends = uuids_from(str(prefix.fields["value"]))
            return _between(column, *ends) if ends else _NEVER
        value = self._value(prefix, operand)
        return core.StartsWith(column, value.value) if value and isinstance(value.value, str) else None

    def _column(self, node: Node) -> core.ColumnRef | None:
        if node.name != "AttributeReference" or expression_id(node) not in self.columns:
            return None
        return core.ColumnRef("", self.columns[expression_id(node)][0])

    def _kind(self, node: Node) -> str:
        """Return the type of a column's values in literals; empty when Spark shows other values than it holds."""
        return column_kind(str(node.fields["dataType"]), self.columns[expression_id(node)][1])

    def _is_text_of_uuid(self, column: Node, literal: Node) -> bool:
        return self._kind(column) == UUID_TYPE and literal.name == "Literal" and literal.fields["dataType"] == "string"

    def _is_no_uuid(self, column: Node, literal: Node) -> bool:
        return self._is_text_of_uuid(column, literal) and uuid_of(str(literal.fields["value"])) is None

    def _value(self, literal: Node, column: Node) -> core.Constant | None:
        kind = self._kind(column)
        if literal.name != "Literal" or not kind or literal.fields["dataType"] != literal_kind(kind):
            return None
        match kind:
            case "timestamp":
                return instant(self.hidden.micros(literal)) if literal in self.moments else None
            case "binary":
                return core.Constant(self.hidden.octets(literal))
            case "uuid":
                return held(str(literal.fields["value"]), kind)
            case _:
                return constant(str(literal.fields["value"]), kind)

    # --- rows of values ---

    def _row_comparison(self, op: core.Operator, left: Node, right: Node) -> core.Node | None:
        """Rows compare field by field, and nulls in them are values: equal to one another, and the least."""
        if op == "=":
            return self._row_equality(fields_of(left), right)
        values = values_of(right, self.hidden)
        if values is None or any(value.text is None for value in values):
            return None
        return self._in_order(op, fields_of(left), values)

    def _in_order(self, op: core.Operator, operands: Sequence[Node], values: Sequence[FieldValue]) -> core.Node | None:
        column, known = self._field(operands[0]), self._field_constant(operands[0], values[0])
        if column is None or known is None:
            return None
        least = core.IsNull(column) if op in ("<", "<=") else None
        if len(operands) == 1:
            return _any([core.Comparison(op, column, known), *([least] if least else [])])
        equal = _all([core.Comparison("=", column, known), self._in_order(op, operands[1:], values[1:])])
        return _any([core.Comparison(_STRICT[op], column, known), equal, *([least] if least else [])])

    def _row_equality(self, operands: Sequence[Node], other: Node) -> core.Node | None:
        values = values_of(other, self.hidden)
        if values is not None:
            return self._row_values(operands, values)
        if not is_row(other):
            return None
        pairs = zip(operands, fields_of(other), strict=True)
        return _all([self.may_be_true(Node("EqualNullSafe", {}, pair, ())) for pair in pairs])

    def _row_values(self, operands: Sequence[Node], values: Sequence[FieldValue]) -> core.Node | None:
        return _all([self._field_equality(*pair) for pair in zip(operands, values, strict=True)])

    def _row_list(self, node: Node, operand: Node, items: Sequence[Node]) -> core.Node | None:
        """The rows of a list, and first the values of each column by itself, which says less and is soon tested."""
        operands = fields_of(operand)
        rows = [values_of(item, self.hidden) for item in items] if node.name == "In" else members_of(node, self.hidden)
        if rows is None:
            return None
        known = [row for row in rows if row is not None]
        if len(known) < len(rows):
            return _any([self._row_equality(operands, item) for item in items])
        columns = [self._field_list(part, [row[at] for row in known]) for at, part in enumerate(operands)]
        together = [self._row_values(operands, row) for row in known] if 1 < len(known) <= MAX_ROWS else []
        return _all(
            [*columns, _any(together) if together and sum(column is not None for column in columns) > 1 else None]
        )

    def _field_list(self, operand: Node, values: Sequence[FieldValue]) -> core.Node | None:
        column = self._field(operand)
        if column is None:
            return None
        constants = [self._field_constant(operand, value) for value in dict.fromkeys(values) if value.text is not None]
        known = tuple(value for value in constants if value is not None)
        listed = core.InList(column, known) if len(known) == len(constants) else None
        return _any([listed, *([core.IsNull(column)] if any(value.may_be_null for value in values) else [])])

    def _field_equality(self, operand: Node, value: FieldValue) -> core.Node | None:
        column = self._field(operand)
        if column is None:
            return None
        null = [core.IsNull(column)] if value.may_be_null else []
        if value.text is None:
            return null[0]
        known = self._field_constant(operand, value)
        return _any([None if known is None else core.Comparison("=", column, known), *null])

    def _field(self, operand: Node) -> core.ColumnRef | None:
        """The column that a field of a row is, maybe widened."""
        return self._column(_unwidened(operand))

    def _field_constant(self, operand: Node, value: FieldValue) -> core.Constant | None:
        kind = self._kind(_unwidened(operand))
        if value.text is None or kind == "binary" or literal_kind(kind) not in (value.kind, _NARROWER.get(value.kind)):
            return None
        return held(value.text, kind if literal_kind(kind) == value.kind else value.kind)


def without_binary_collation(node: Node) -> Node:
    """A condition without ``collate UTF8_BINARY``, which compares texts as every text without a collation."""
    if node.name == "Collate" and node.children[1].fields.get("collationName") == BINARY_COLLATION:
        return without_binary_collation(node.children[0])
    children = tuple(map(without_binary_collation, node.children))
    return node if children == node.children else Node(node.name, node.fields, children, node.path)


#: Types whose values are values of a wider one.
_NARROWER = {"long": "integer"}


def _unwidened(operand: Node) -> Node:
    if operand.name != "Cast":
        return operand
    inner = operand.children[0]
    is_wider = _NARROWER.get(str(operand.fields["dataType"])) == inner.fields.get("dataType")
    return inner if is_wider else operand


def _of_literals(op: core.Operator, left: Node, right: Node) -> core.Node | None:
    """Two literals that are not null: nothing, or that they differ; floats may be equal in other ways than Python's."""
    kind = left.fields["dataType"]
    if op != "=" or not isinstance(kind, str) or kind != right.fields["dataType"] or right.name != "Literal":
        return None
    values = [constant(str(literal.fields["value"]), kind) for literal in (left, right)]
    first, other = (value.value if value else None for value in values)
    return (
        _NEVER if first is not None and other is not None and not isinstance(first, float) and first != other else None
    )


def _uuid_comparison(op: core.Operator, column: core.ColumnRef, text: str) -> core.Node | None:
    """A UUID, which Spark compares as text, with a text; texts of UUIDs are in the order of their bytes."""
    uuid_bytes = uuid_of(text)
    if uuid_bytes is not None:
        return core.Comparison(op, column, core.Constant(uuid_bytes))
    if op == "=":
        return _NEVER
    ends = uuids_from(text)
    if ends is None:
        return None
    return core.Comparison("<" if op in ("<", "<=") else ">=", column, core.Constant(ends[0]))


def _between(column: core.ColumnRef, first: bytes, last: bytes) -> core.Node:
    bounds = core.Comparison(">=", column, core.Constant(first)), core.Comparison("<=", column, core.Constant(last))
    return core.And(bounds)


def _all(parts: Sequence[core.Node | None]) -> core.Node | None:
    """Conjunction of what is known, flat, without the tests for null that its comparisons imply."""
    flat: list[core.Node] = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, core.And) else [] if part is None else [part])
    if _NEVER in flat:
        return _NEVER
    compared = {part.left for part in flat if isinstance(part, core.Comparison)}
    compared |= {part.operand for part in flat if isinstance(part, core.InList | core.StartsWith)}
    known = tuple(part for part in flat if not (isinstance(part, core.Not) and _operand(part) in compared))
    return core.And(known) if len(known) > 1 else next(iter(known), None)


def _operand(test: core.Not) -> core.Operand | None:
    return test.inner.operand if isinstance(test.inner, core.IsNull) else None


def _any(parts: Sequence[core.Node | None]) -> core.Node | None:
    """Disjunction, flat, without arms that never hold; None when nothing is known of one."""
    flat: list[core.Node] = []
    for part in parts:
        if part is None:
            return None
        flat.extend(part.parts if isinstance(part, core.Or) else [] if part == _NEVER else [part])
    return core.Or(tuple(flat)) if len(flat) > 1 else next(iter(flat), _NEVER)


def is_narrowing(node: core.Node) -> bool:
    """Return whether a translated condition says more than that columns are not null, which Spark infers of many."""
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
