"""Which relations of a plan matter only where a column of them has a value that the other side of a join has.

Used by ``form`` and the rules about joins. An equi-join drops rows whose key the other side does not have, unless it
keeps the rows of their side for their own sake. A column is followed upwards from its relation as long as every row
keeps its own; the keys are followed downwards to smaller and smaller parts of the other side that have them all. Must
not run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone.query.plans.analysis.catalyst import Node, Slot, expression_id, is_tree, read_tree
from skipstone.query.plans.analysis.uses import RELATION, ancestors
from skipstone.query.plans.joining.nodes import (
    ROWS_AS_THEY_ARE,
    SOME_ROWS,
    conjuncts,
    ids_of,
    is_strict,
    named,
    narrowed_sides,
    output,
    passed_sides,
    used_ids,
)

Path = tuple[int, ...]
#: Casts of a column under which no two of its values become one.
_WIDENING = frozenset({("integer", "long")})
_EQUALITIES = frozenset({"EqualTo", "EqualNullSafe"})


@dataclass(frozen=True)
class ExpressionPlace:
    """Where an expression is: in which node, in which field of it, and where in that."""

    node: Path
    slot: Slot
    within: Path


@dataclass(frozen=True)
class KeySource:
    """A part of a plan that has all keys that matter: the values of the expression at ``place`` on its rows."""

    path: Path
    place: ExpressionPlace


@dataclass(frozen=True, eq=False)
class JoinedColumn:
    """A column of a relation, and parts of the other side of a join whose values it must have, the largest first.

    ``column``: the attribute, as the relation has it. ``own``: the expression on its side of the ``equality``, of
    Spark's type ``kind``. ``takes_null``: null equals null.
    """

    relation: Node
    column: Node
    join: Path
    own: ExpressionPlace
    equality: ExpressionPlace
    kind: str
    takes_null: bool
    sources: tuple[KeySource, ...]


@dataclass(frozen=True, eq=False)
class _Located:
    """An expression with its place."""

    node: Node
    place: ExpressionPlace

    def at(self, child: int) -> _Located:
        """An operand of it."""
        place = ExpressionPlace(self.place.node, self.place.slot, (*self.place.within, child))
        return _Located(self.node.children[child], place)

    @property
    def column_id(self) -> int | None:
        """Its id when it is a column."""
        return expression_id(self.node) if self.node.name == "AttributeReference" else None


def joined_columns(tree: Node) -> Iterator[JoinedColumn]:
    """All such columns of the relations of a plan, those of the nearest join first."""
    for relation in tree.walk():
        if relation.name == RELATION and relation.fields["output"]:
            yield from _of_relation(tree, relation)


# --- upwards ---


def _of_relation(tree: Node, relation: Node) -> Iterator[JoinedColumn]:
    """Follows the relation's columns upwards as long as each row keeps its own."""
    outputs = [read_tree(attribute) for attribute in relation.fields["output"]]
    columns: Mapping[int, Node] = dict(zip(ids_of(outputs), outputs, strict=True))
    for node in reversed(ancestors(tree, relation)):
        side = relation.path[len(node.path)]
        if node.name == "Join":
            if side in narrowed_sides(node):
                yield from _equalities(relation, columns, node, side)
            columns = columns if side in passed_sides(node) else {}
        else:
            columns = _above(node, side, columns)
        if not columns:
            return


def _above(node: Node, side: int, columns: Mapping[int, Node]) -> Mapping[int, Node]:
    """The columns by the ids that they have above a node; none where its rows depend on all that are below it."""
    match node.name:
        case "Project":
            return {**columns, **_renamed(named(node, "projectList"), columns)}
        case "Aggregate":
            return _grouped(node, columns)
        case "Window":
            return _kept(columns, named(node, "partitionSpec"))
        case "Union":
            return _by_position(node, side, columns)
        case "Generate":
            return columns
        case name:
            return columns if name in ROWS_AS_THEY_ARE else {}


def _renamed(expressions: list[Node], columns: Mapping[int, Node]) -> dict[int, Node]:
    """Columns by the ids that a list of expressions gives them."""
    aliases = (
        expression
        for expression in expressions
        if expression.name == "Alias" and expression.children[0].name == "AttributeReference"
    )
    known = ((expression_id(alias), columns.get(expression_id(alias.children[0]))) for alias in aliases)
    return {number: column for number, column in known if column is not None}


def _kept(columns: Mapping[int, Node], by: list[Node]) -> dict[int, Node]:
    """The columns by which rows are grouped: all rows of a group have the same value of them."""
    kept = {expression_id(expression) for expression in by if expression.name == "AttributeReference"}
    return {number: column for number, column in columns.items() if number in kept}


def _grouped(aggregate: Node, columns: Mapping[int, Node]) -> dict[int, Node]:
    kept = _kept(columns, named(aggregate, "groupingExpressions"))
    return kept | _renamed(named(aggregate, "aggregateExpressions"), kept)


def _by_position(union: Node, side: int, columns: Mapping[int, Node]) -> dict[int, Node]:
    """A union names its columns as its first child does."""
    above, below = output(union), output(union.children[side])
    if above is None or below is None:
        return {}
    pairs = zip(above, (columns.get(number) for number in below), strict=True)
    return {number: column for number, column in pairs if column is not None}


# --- equalities ---


def _equalities(relation: Node, columns: Mapping[int, Node], join: Node, side: int) -> Iterator[JoinedColumn]:
    """The conjuncts of a join's condition that say that a column equals something of the other side."""
    other = join.children[1 - side]
    known = output(other)
    for equality in _equal_operands(join) if known is not None else ():
        for own, their in ((0, 1), (1, 0)):
            mine, theirs = equality.at(own), equality.at(their)
            column = _column(mine.node, columns)
            if column is None or not _is_plain(theirs.node) or not used_ids(theirs.node) <= set(known or ()):
                continue
            takes_null = equality.node.name == "EqualNullSafe"
            sources = (KeySource(other.path, theirs.place), *_below(other, theirs, takes_null=takes_null))
            kind = str(mine.node.fields["dataType"])
            yield JoinedColumn(
                relation, column, join.path, mine.place, equality.place, kind, takes_null, tuple(dict.fromkeys(sources))
            )


def _equal_operands(join: Node) -> Iterator[_Located]:
    for slot, condition in join.expressions.items():
        for part in conjuncts(condition):
            if part.name in _EQUALITIES:
                yield _Located(part, ExpressionPlace(join.path, slot, part.path))


def _column(node: Node, columns: Mapping[int, Node]) -> Node | None:
    """The column of a relation that an expression is, maybe widened."""
    if node.name == "Cast":
        inner = node.children[0]
        kinds = (str(inner.fields.get("dataType")), str(node.fields["dataType"]))
        return _column(inner, columns) if inner.name == "AttributeReference" and kinds in _WIDENING else None
    return columns.get(expression_id(node)) if node.name == "AttributeReference" else None


# --- downwards ---


def _below(node: Node, keys: _Located, *, takes_null: bool) -> Iterator[KeySource]:
    """Parts of a plan below ``node`` that have all values, but null maybe, that ``keys`` has on its rows."""
    match node.name:
        case "Join":
            yield from _below_join(node, keys, takes_null=takes_null)
        case "Project":
            located = _before(node, keys)
            if located is not None:
                yield from _below(node.children[0], located, takes_null=takes_null)
        case "Aggregate":
            located = _before(node, keys)
            if located is not None:
                yield KeySource(node.children[0].path, located.place)
                yield from _below(node.children[0], located, takes_null=takes_null)
        case name if name in ROWS_AS_THEY_ARE | SOME_ROWS | {"Window", "Generate"}:
            if _gives(node.children[0], keys):
                yield from _below(node.children[0], keys, takes_null=takes_null)


def _below_join(join: Node, keys: _Located, *, takes_null: bool) -> Iterator[KeySource]:
    for side, child in enumerate(join.children):
        # where a join supplies nulls, an expression may have a value of which no row of the side knows
        is_plain = keys.column_id is not None and not takes_null
        if _gives(child, keys) and (side in passed_sides(join) or is_plain):
            yield KeySource(child.path, keys.place)
            yield from _below(child, keys, takes_null=takes_null)
    if is_strict(join) and not takes_null and keys.column_id is not None:
        yield from _equal_below(join, keys.column_id)


def _equal_below(join: Node, column_id: int) -> Iterator[KeySource]:
    """The parts of a join that have a column which equals another one."""
    for equality in _equal_operands(join):
        for own, their in ((0, 1), (1, 0)):
            theirs = equality.at(their)
            if equality.node.name != "EqualTo" or equality.at(own).column_id != column_id:
                continue
            for child in join.children:
                if _gives(child, theirs):
                    yield KeySource(child.path, theirs.place)
                    yield from _below(child, theirs, takes_null=False)


def _gives(node: Node, keys: _Located) -> bool:
    """Return whether an expression can be computed of what a node gives out."""
    used = used_ids(keys.node)
    return bool(used) and used <= set(output(node) or ())


def _before(node: Node, keys: _Located) -> _Located | None:
    """Return an expression as it is below a projection or aggregate; None when it is not a value of a row there."""
    field = "projectList" if node.name == "Project" else "aggregateExpressions"
    if node.name == "Aggregate":
        grouped = set(
            ids_of(group for group in named(node, "groupingExpressions") if group.name == "AttributeReference")
        )
    else:
        grouped = set(output(node.children[0]) or ())
    if used_ids(keys.node) <= grouped:
        return keys
    position = list(node.fields).index(field)
    for slot, expression in node.expressions.items():
        if slot.field == position and expression.name == "Alias" and expression_id(expression) == keys.column_id:
            located = _Located(expression, ExpressionPlace(node.path, slot, ())).at(0)
            is_of_row = node.name == "Project" or located.column_id is not None
            return located if is_of_row and _is_plain(located.node) and used_ids(located.node) <= grouped else None
    return None


def _is_plain(expression: Node) -> bool:
    """Return whether an expression names columns and holds no plan."""
    return bool(used_ids(expression)) and not any(is_tree(part.fields.get("plan", ())) for part in expression.walk())
