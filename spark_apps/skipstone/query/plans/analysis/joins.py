"""Which relations of a plan matter only where a column of them has a value that the other side of a join has.

Used by ``joining``. An equi-join drops rows whose key the other side does not have, unless it keeps the rows of their
side for their own sake. Works on plans that ``normalize`` made. Must not run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone.query.plans.analysis.catalyst import Node, Slot, expression_id, output_ids, read_tree
from skipstone.query.plans.analysis.uses import RELATION, ancestors

LEFT, RIGHT = 0, 1
#: Of each kind of join, the sides whose rows matter only where the other side has their key.
_NARROWED: Mapping[str, frozenset[int]] = {
    "Inner": frozenset({LEFT, RIGHT}),
    "Cross": frozenset({LEFT, RIGHT}),
    "LeftOuter": frozenset({RIGHT}),
    "RightOuter": frozenset({LEFT}),
    "LeftSemi": frozenset({LEFT, RIGHT}),
    "LeftAnti": frozenset({RIGHT}),
    "ExistenceJoin": frozenset({RIGHT}),
}
#: Of each kind, the sides of which every row comes out with its own columns, or not at all.
_PASSED: Mapping[str, frozenset[int]] = {
    "Inner": frozenset({LEFT, RIGHT}),
    "Cross": frozenset({LEFT, RIGHT}),
    "LeftOuter": frozenset({LEFT}),
    "RightOuter": frozenset({RIGHT}),
    "LeftSemi": frozenset({LEFT}),
    "LeftAnti": frozenset({LEFT}),
    "ExistenceJoin": frozenset({LEFT}),
}
#: Casts of a column under which no two of its values become one.
_WIDENING = frozenset({("integer", "long")})


@dataclass(frozen=True, eq=False)
class JoinedColumn:
    """A column of a relation, and the side of a join whose values it must have.

    ``column``: the attribute, as the relation has it. ``join``: path of the join in the plan. ``side``: which child of
    it the other one is. ``slot`` and ``path``: where in the join the expression of the other side is; ``kind``: of it.
    """

    relation: Node
    column: Node
    join: tuple[int, ...]
    side: int
    slot: Slot
    path: tuple[int, ...]
    kind: str

    @property
    def other(self) -> tuple[int, ...]:
        """Path of the other side in the plan."""
        return (*self.join, self.side)


def joined_columns(tree: Node) -> Iterator[JoinedColumn]:
    """All such columns of the relations of a plan, those of the nearest join first."""
    for relation in tree.walk():
        if relation.name == RELATION and relation.fields["output"]:
            yield from _of_relation(tree, relation)


def _of_relation(tree: Node, relation: Node) -> Iterator[JoinedColumn]:
    """Follows the relation's columns upwards as long as each row keeps its own."""
    outputs = [read_tree(attribute) for attribute in relation.fields["output"]]
    columns = dict(zip(output_ids(relation), outputs, strict=True))
    below = relation
    for node in reversed(ancestors(tree, relation)):
        side = below.path[len(node.path)]
        match node.name:
            case "Join":
                if side in _NARROWED.get(_kind(node), ()):
                    yield from _equalities(relation, columns, node, side)
                if side not in _PASSED.get(_kind(node), ()):
                    return
            case "Project":
                columns |= _renamed(_expressions(node, "projectList"), columns)
            case "Aggregate":
                columns = _grouped(node, columns)
            case "Filter" | "Sort":
                pass
            case _:
                return
        below = node


def _kind(join: Node) -> str:
    """The name of the kind of a join: a singleton, or a class with the column that it adds."""
    kind = join.fields["joinType"]
    name = str(kind.get("object") or kind.get("product-class") or "")
    return name.rstrip("$").rsplit(".", 1)[-1]


def _equalities(relation: Node, columns: Mapping[int, Node], join: Node, side: int) -> Iterator[JoinedColumn]:
    """The conjuncts of a join's condition that say that a column equals something of the other side."""
    other = 1 - side
    known = _ids(join.children[other])
    for slot, condition in join.expressions.items():
        for equality in _conjuncts(condition):
            if equality.name != "EqualTo":
                continue
            for mine, theirs in (equality.children, equality.children[::-1]):
                column = _column(mine, columns)
                used = {expression_id(node) for node in theirs.walk() if node.name == "AttributeReference"}
                if column is not None and used and used <= known:
                    kind = str(mine.fields["dataType"])
                    yield JoinedColumn(relation, column, join.path, other, slot, theirs.path, kind)


def _conjuncts(condition: Node) -> Iterator[Node]:
    if condition.name == "And":
        for child in condition.children:
            yield from _conjuncts(child)
    else:
        yield condition


def _column(node: Node, columns: Mapping[int, Node]) -> Node | None:
    """The column of a relation that an expression is, maybe widened."""
    if node.name == "Cast":
        inner = node.children[0]
        kinds = (str(inner.fields.get("dataType")), str(node.fields["dataType"]))
        return _column(inner, columns) if inner.name == "AttributeReference" and kinds in _WIDENING else None
    return columns.get(expression_id(node)) if node.name == "AttributeReference" else None


def _expressions(node: Node, name: str) -> list[Node]:
    """The expressions in one field of a node."""
    position = list(node.fields).index(name)
    return [expression for slot, expression in node.expressions.items() if slot.field == position]


def _renamed(expressions: list[Node], columns: Mapping[int, Node]) -> dict[int, Node]:
    """Columns by the ids that a list of expressions gives them."""
    aliases = (one for one in expressions if one.name == "Alias" and one.children[0].name == "AttributeReference")
    known = ((expression_id(alias), columns.get(expression_id(alias.children[0]))) for alias in aliases)
    return {number: column for number, column in known if column is not None}


def _grouped(aggregate: Node, columns: Mapping[int, Node]) -> dict[int, Node]:
    """The columns that an aggregate groups by: all rows of a group have the same value of them."""
    grouping = _expressions(aggregate, "groupingExpressions")
    kept = {expression_id(one) for one in grouping if one.name == "AttributeReference"} & columns.keys()
    found = {number: columns[number] for number in kept}
    return found | _renamed(_expressions(aggregate, "aggregateExpressions"), found)


def _ids(node: Node) -> frozenset[int]:
    """Ids of all columns that are made or used below a node."""
    found: set[int] = set()
    for one in node.walk():
        if one.name == RELATION:
            found.update(output_ids(one))
        for expression in one.expressions.values():
            found.update(expression_id(part) for part in expression.walk() if "exprId" in part.fields)
    return frozenset(found)
