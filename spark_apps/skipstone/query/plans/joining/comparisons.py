"""Columns of relations that a condition compares with the one value of a subquery.

Used by ``choosing``. Works on plans that ``normalize`` made. Must not run anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.catalyst import Node, expression_id, is_tree, read_tree
from skipstone.query.plans.analysis.uses import RELATION, Inner
from skipstone.query.plans.joining.columns import ExpressionPlace
from skipstone.query.plans.joining.nodes import conjuncts, ids_of, used_ids

_SCALAR = "ScalarSubquery"
_OPERATORS: Mapping[str, core.Operator] = {
    "EqualTo": "=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_MIRRORED: Mapping[core.Operator, core.Operator] = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, eq=False)
class ComparedColumn:
    """A ``column`` of a ``relation``, as it has it, that must be as the operator says to what is made of the value of a
    ``subquery`` by the expression at ``place``.
    """

    relation: Node
    column: Node
    operator: core.Operator
    subquery: Inner
    place: ExpressionPlace


def compared_columns(subqueries: tuple[Inner, ...]) -> Iterator[ComparedColumn]:
    """All such columns: of conditions directly above their relations, on subqueries that refer to nothing outside."""
    for one in subqueries:
        below = one.owner.children
        is_alone = one.expression.name == _SCALAR and not one.expression.fields["outerAttrs"]
        if is_alone and one.owner.name == "Filter" and below[0].name == RELATION and below[0].fields["output"]:
            yield from _compared(one, below[0])


def _compared(subquery: Inner, relation: Node) -> Iterator[ComparedColumn]:
    outputs = [read_tree(attribute) for attribute in relation.fields["output"]]
    columns = dict(zip(ids_of(outputs), outputs, strict=True))
    for part in conjuncts(subquery.owner.expressions[subquery.slot]):
        operator = _OPERATORS.get(part.name)
        if operator is None:
            continue
        for own, their, found in ((0, 1, operator), (1, 0, _MIRRORED[operator])):
            mine = part.children[own]
            is_column = mine.name == "AttributeReference" and expression_id(mine) in columns
            if is_column and _is_made_of(part.children[their], subquery):
                place = ExpressionPlace(subquery.owner.path, subquery.slot, part.children[their].path)
                yield ComparedColumn(relation, columns[expression_id(mine)], found, subquery, place)


def _is_made_of(operand: Node, subquery: Inner) -> bool:
    """Whether an expression names nothing but the subquery."""
    plans = [node for node in operand.walk() if is_tree(node.fields.get("plan", ()))]
    return plans == [subquery.expression] and not used_ids(operand)
