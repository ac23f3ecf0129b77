"""Runs subqueries of one value that a condition compares with a column of a relation, which that value then narrows.

A rule of ``optimizer``. The value stays in the query, so nothing is run twice. Must not open tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from skipstone_core.indexing.use import is_small_side
from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.catalyst import Node, expression_id, is_tree, read_tree
from skipstone.query.plans.analysis.uses import RELATION, Inner, key_of
from skipstone.query.plans.cost import QueryCost, column_name
from skipstone.query.plans.joining.columns import ExpressionPlace
from skipstone.query.plans.joining.form import Known
from skipstone.query.plans.joining.nodes import conjuncts, ids_of, used_ids
from skipstone.query.plans.rules.early_results import Keys, keys_of, one_row, run_value, with_early_results
from skipstone.query.plans.rules.narrow_relations import narrowed
from skipstone.query.plans.state import QueryState

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
class _ComparedColumn:
    """A ``column`` of a ``relation``, as it has it, that must be as the operator says to what is made of the value of a
    ``subquery`` by the expression at ``place``.
    """

    relation: Node
    column: Node
    operator: core.Operator
    subquery: Inner
    place: ExpressionPlace


class ScalarSubqueries:
    """Runs subqueries of one value first, and narrows a table by that value."""

    @staticmethod
    def apply(state: QueryState, cost: QueryCost) -> QueryState:
        """The state in which values stand in the place of the subqueries that ran."""
        if state.joins is None:
            return state
        before = state.joins.plan
        for column in _compared_columns(state.joins.normal.inner):
            state = _compared(state, cost, column)
        return with_early_results(state) if state.form.plan is not before else state


def _compared(state: QueryState, cost: QueryCost, column: _ComparedColumn) -> QueryState:
    """The state after the value of a subquery narrowed a relation, if it is worth it."""
    key = key_of(column.relation)
    if state.form.uses[key] > 1 or not (kind := cost.kind(state, key, column.column)):
        return state
    limits = state.session.limits.cost
    if not is_small_side(cost.of_value(state, column.subquery.scope), cost.savings(state, key), limits):
        return state
    before = state.form.plan
    state = run_value(state, column.subquery)
    if state.form.plan is before:
        return state
    keys = keys_of(state.session, one_row(state.session), state.form.expression(column.place), kind)
    if keys is None:
        return state
    name = column_name(state, key, expression_id(column.column))
    known = {**state.form.known.get(key, {}), column: _known(column, name, keys)}
    state = replace(state, joins=state.form.with_known(key, known))
    return narrowed(state, key, tuple(known.values()))


def _known(compared: _ComparedColumn, name: str, keys: Keys) -> Known:
    column = core.ColumnRef("", name)
    comparisons = [core.Comparison(compared.operator, column, value) for value in keys.values]
    condition = comparisons[0] if comparisons else core.InList(column, ())
    return Known(expression_id(compared.column), condition, f"compared by {name}: with a subquery, which ran first")


# --- what is compared ---


def _compared_columns(subqueries: tuple[Inner, ...]) -> Iterator[_ComparedColumn]:
    """All such columns: of conditions directly above their relations, on subqueries that refer to nothing outside."""
    for subquery in subqueries:
        below = subquery.owner.children
        is_alone = subquery.expression.name == _SCALAR and not subquery.expression.fields["outerAttrs"]
        if is_alone and subquery.owner.name == "Filter" and below[0].name == RELATION and below[0].fields["output"]:
            yield from _columns_of(subquery, below[0])


def _columns_of(subquery: Inner, relation: Node) -> Iterator[_ComparedColumn]:
    outputs = [read_tree(attribute) for attribute in relation.fields["output"]]
    columns = dict(zip(ids_of(outputs), outputs, strict=True))
    for part in conjuncts(subquery.owner.expressions[subquery.slot]):
        operator = _OPERATORS.get(part.name)
        if operator is None:
            continue
        for own, their, comparator in ((0, 1, operator), (1, 0, _MIRRORED[operator])):
            mine = part.children[own]
            is_column = mine.name == "AttributeReference" and expression_id(mine) in columns
            if is_column and _is_made_of(part.children[their], subquery):
                place = ExpressionPlace(subquery.owner.path, subquery.slot, part.children[their].path)
                yield _ComparedColumn(relation, columns[expression_id(mine)], comparator, subquery, place)


def _is_made_of(operand: Node, subquery: Inner) -> bool:
    """Return whether an expression names nothing but the subquery."""
    plans = [node for node in operand.walk() if is_tree(node.fields.get("plan", ()))]
    return plans == [subquery.expression] and not used_ids(operand)
