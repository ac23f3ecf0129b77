"""By which columns of its relations a plan joins.

Used by ``candidates``. A column is followed upwards from its relation as long as the rows stay in the partitions that
they have, which is why aggregates by the column are passed and outer joins that supply nulls for it are not. Works on
plans that ``normalize`` made. Must not know indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone.query.plans.analysis.catalyst import Node, Slot, expression_id, output_ids
from skipstone.query.plans.analysis.uses import RELATION, ancestors

Path = tuple[int, ...]
_LEFT, _RIGHT = frozenset({0}), frozenset({1})
#: Of each kind of join, the sides whose partitions are those of its rows.
_PASSED: Mapping[str, frozenset[int]] = {
    "Inner": _LEFT | _RIGHT,
    "Cross": _LEFT | _RIGHT,
    "LeftOuter": _LEFT,
    "RightOuter": _RIGHT,
    "LeftSemi": _LEFT,
    "LeftAnti": _LEFT,
    "ExistenceJoin": _LEFT,
}
_PLAIN = frozenset({"Filter", "Sort"})


@dataclass(frozen=True)
class Equality:
    """A conjunct of a join's condition which says that a column equals something of the other side.

    ``slot`` and ``path``: where it is in the join. ``kind``: Spark's type of the values that are compared.
    """

    slot: Slot
    path: Path
    kind: str


@dataclass(frozen=True, eq=False)
class EquiJoin:
    """A relation and a join above it: the equalities of the join by the ids of the relation's columns.

    ``side``: which child of the join the relation is below.
    """

    relation: Node
    join: Path
    side: int
    columns: Mapping[int, Equality]


def equi_joins(tree: Node) -> Iterator[EquiJoin]:
    """The joins of every relation of a plan by columns of it, the nearest first."""
    for relation in tree.walk():
        if relation.name == RELATION and relation.fields["output"]:
            yield from _of_relation(tree, relation)


def _of_relation(tree: Node, relation: Node) -> Iterator[EquiJoin]:
    columns = {number: number for number in output_ids(relation)}
    for node in reversed(ancestors(tree, relation)):
        if node.name == "Join":
            side = relation.path[len(node.path)]
            if equalities := _equalities(node, columns):
                yield EquiJoin(relation, node.path, side, equalities)
            if side not in _PASSED.get(_kind(node), frozenset()):
                return
        elif node.name == "Project":
            columns |= _renamed(_expressions(node, "projectList"), columns)
        elif node.name == "Aggregate":
            columns = _grouped(node, columns)
        elif node.name not in _PLAIN:
            return


def _kind(join: Node) -> str:
    """The name of the kind of a join: a singleton, or a class with the column that it adds."""
    kind = join.fields["joinType"]
    name = str(kind.get("object") or kind.get("product-class") or "")
    return name.rstrip("$").rsplit(".", 1)[-1]


def _equalities(join: Node, columns: Mapping[int, int]) -> dict[int, Equality]:
    """The equalities of a join by columns; the other side of one of these is not a column of the same relation."""
    equalities: dict[int, Equality] = {}
    for slot, condition in join.expressions.items():
        for equality in conjuncts(condition):
            if equality.name != "EqualTo":
                continue
            sides = [_column(side, columns) for side in equality.children]
            for mine, own in zip(equality.children, sides, strict=True):
                if own is not None and sides.count(None) == 1:
                    equalities.setdefault(own, Equality(slot, equality.path, str(mine.fields["dataType"])))
    return equalities


def conjuncts(condition: Node) -> Iterator[Node]:
    """The parts of a condition of which all must hold."""
    if condition.name == "And":
        for child in condition.children:
            yield from conjuncts(child)
    else:
        yield condition


def _column(node: Node, columns: Mapping[int, int]) -> int | None:
    """The column of the relation that an expression is, maybe as an integer that was widened."""
    if node.name == "Cast" and str(node.fields["dataType"]) == "long":
        inner = node.children[0]
        return _column(inner, columns) if str(inner.fields.get("dataType")) == "integer" else None
    return columns.get(expression_id(node)) if node.name == "AttributeReference" else None


def _expressions(node: Node, name: str) -> list[Node]:
    """The expressions in one field of a node."""
    position = list(node.fields).index(name)
    return [expression for slot, expression in node.expressions.items() if slot.field == position]


def _renamed(expressions: list[Node], columns: Mapping[int, int]) -> dict[int, int]:
    """Columns by the ids that a list of expressions gives them."""
    aliases = (
        expression
        for expression in expressions
        if expression.name == "Alias" and expression.children[0].name == "AttributeReference"
    )
    known = ((expression_id(alias), columns.get(expression_id(alias.children[0]))) for alias in aliases)
    return {number: column for number, column in known if column is not None}


def _grouped(aggregate: Node, columns: Mapping[int, int]) -> dict[int, int]:
    """The columns that an aggregate groups by: all rows of a group have the same value of them."""
    grouping = _expressions(aggregate, "groupingExpressions")
    kept = {
        expression_id(expression) for expression in grouping if expression.name == "AttributeReference"
    } & columns.keys()
    grouped = {number: columns[number] for number in kept}
    return grouped | _renamed(_expressions(aggregate, "aggregateExpressions"), grouped)
