"""Brings a copy of an analyzed plan into a form that shows what must hold for every row of each relation.

Used by ``uses``, ``opening`` and the rule ``normalize_joins``. Spark's own optimizer rules do the work, so that what
they do not push we do not push either. Must not touch the plan that it is given.
"""

from __future__ import annotations

from typing import cast

from skipstone.compat.catalyst import (
    INLINE_CTE,
    JOIN,
    JOIN_HINTS,
    LOCAL_RELATION,
    LateralJoin,
    LogicalPlan,
    Rule,
    optimizer_rule,
)
from skipstone.compat.java import EMPTY_SEQ, NONE, Jvm, java_class, scala_object, scala_seq
from skipstone.compat.scalafunctions import rule_everywhere, rules_in_turn
from skipstone.query.plans.analysis.catalyst import Node
from skipstone.query.plans.refusals import Refusal, RelationRefused

_FIRST = (
    Rule.ELIMINATE_SUBQUERY_ALIASES,
    Rule.ELIMINATE_PIPE_OPERATORS,
    Rule.ELIMINATE_VIEW,
    Rule.ELIMINATE_SQL_FUNCTION_NODE,
    Rule.ELIMINATE_RESOLVED_HINT,
    Rule.REPLACE_EXPRESSIONS,
    Rule.REWRITE_WITH_EXPRESSION,
)
_REPEATED = (
    Rule.ELIMINATE_OUTER_JOIN,
    Rule.PUSH_DOWN_PREDICATES,
    Rule.INFER_FILTERS_FROM_CONSTRAINTS,
    Rule.CONSTANT_FOLDING,
    Rule.NULL_PROPAGATION,
    Rule.BOOLEAN_SIMPLIFICATION,
    Rule.SIMPLIFY_CASTS,
    Rule.UNWRAP_CAST_IN_BINARY_COMPARISON,
    Rule.LIKE_SIMPLIFICATION,
)
#: As Spark replaces what compares whole rows.
_SETS_AS_JOINS = (
    Rule.REPLACE_INTERSECT_WITH_SEMI_JOIN,
    Rule.REPLACE_EXCEPT_WITH_ANTI_JOIN,
    Rule.REPLACE_DISTINCT_WITH_AGGREGATE,
)
#: Tables in a list are multiplied only where no condition joins them.
_JOINED = (Rule.REORDER_JOIN,)
#: As Spark does once, at the end: what each side must hold of an OR over both sides of a join. That reaches a relation
#: as a condition above others, so all of them are made one. Then says which columns of a relation are used, by a
#: projection over its condition.
_LAST = (
    Rule.PUSH_EXTRA_PREDICATE_THROUGH_JOIN,
    Rule.PUSH_DOWN_PREDICATES,
    Rule.COMBINE_FILTERS,
    Rule.COLUMN_PRUNING,
)
#: Inferred conditions are pushed in the second pass, and what they reach is simplified there.
_PASSES = 2
#: As often as Spark's optimizer, at most, is a condition with subqueries simplified.
_NESTED = 100
#: As Spark's optimizer takes what refers to a query out of its subqueries.
_DECORRELATING = (Rule.PULL_UP_CORRELATED_PREDICATES, Rule.REWRITE_CORRELATED_SCALAR_SUBQUERY)
#: InlineCTE: not always, and no dangling definitions.
_AS_SPARK_DOES = (False, False)
_LATERAL, _NOT_STREAMING = "LateralJoin", False


def normalized(jvm: Jvm, plan: LogicalPlan, *, as_joins: bool = False) -> LogicalPlan:
    """An equivalent of ``plan`` with conditions and projections next to its relations.

    Plans inside expressions stay as they are. ``as_joins``: tables are joined where a condition says so, and sets of
    rows that are compared as a whole are joined too.
    """
    first, then = (_FIRST + _SETS_AS_JOINS, _JOINED) if as_joins else (_FIRST, ())
    rules = first + _REPEATED + then + _REPEATED * (_PASSES - 1) + _LAST
    return cast(LogicalPlan, rules_in_turn(jvm, rules).apply(plan))


def with_joins_of_subqueries(jvm: Jvm, plan: LogicalPlan, depth: int) -> LogicalPlan:
    """An equivalent of ``plan`` with joins in place of the subqueries that Spark runs as such.

    ``depth``: of subqueries in subqueries. Only for subqueries that ``subqueries.become_joins`` is true of.
    """
    plan = _simplified(jvm, plan, depth)
    for rule in _DECORRELATING:
        plan = _applied(jvm, rule, plan, depth)
    for _ in range(depth):
        plan = optimizer_rule(jvm, Rule.REWRITE_PREDICATE_SUBQUERY).apply(plan)
    return plan


def has_lateral(tree: Node) -> bool:
    """Return whether a plan has lateral joins."""
    return any(node.name == _LATERAL for node in tree.walk())


def with_known_sides(jvm: Jvm, plan: LogicalPlan, tree: Node) -> LogicalPlan:
    """``plan``, of that ``tree``, with plain joins in place of lateral ones, of whose right sides it has the columns
    alone: what must hold for the rows of the left side does not depend on more.
    """
    if not has_lateral(tree):
        return plan
    children = [
        with_known_sides(jvm, plan.children().apply(position), child) for position, child in enumerate(tree.children)
    ]
    if tree.name != _LATERAL:
        return plan.withNewChildren(scala_seq(jvm, children))
    lateral = cast(LateralJoin, plan)
    columns, no_rows, none = lateral.right().plan().output(), scala_object(jvm, EMPTY_SEQ), scala_object(jvm, NONE)
    right = scala_object(jvm, LOCAL_RELATION).apply(columns, no_rows, _NOT_STREAMING, none)
    hint = scala_object(jvm, JOIN_HINTS).NONE()
    return scala_object(jvm, JOIN).apply(children[0], right, lateral.joinType(), lateral.condition(), hint)


def _simplified(jvm: Jvm, plan: LogicalPlan, depth: int) -> LogicalPlan:
    """``plan`` with each ``not`` as far inside as it gets. Spark's rule for subqueries relies on that: it knows ``not``
    directly above ``in``, and takes any other ``in`` that is null for one that is false.
    """
    for _ in range(_NESTED):
        before, plan = plan, _applied(jvm, Rule.BOOLEAN_SIMPLIFICATION, plan, depth)
        if plan.fastEquals(before):
            return plan
    raise RelationRefused(Refusal.CONDITION, f"conditions are nested more than {_NESTED} deep")


def _applied(jvm: Jvm, rule: Rule, plan: LogicalPlan, depth: int) -> LogicalPlan:
    """``plan`` after a rule. Spark optimizes a subquery, with those in it, before it makes a join of it."""
    if depth == 1:
        return optimizer_rule(jvm, rule).apply(plan)
    return plan.transformDownWithSubqueries(rule_everywhere(jvm, rule))


def with_inlined_ctes(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` with one copy of each common table expression per use, as Spark's optimizer begins."""
    return java_class(jvm, INLINE_CTE)(*_AS_SPARK_DOES).apply(plan)


def with_needed_columns(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` without columns that nothing needs: pandas on Spark numbers the rows of every frame, needed or not."""
    prune = optimizer_rule(jvm, Rule.COLUMN_PRUNING)
    for _ in range(_NESTED):
        before, plan = plan, prune.apply(plan)
        if plan.fastEquals(before):
            break
    return plan


def with_fixed_time(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` with the current date and time as literals, so that what is planned on them is what is run."""
    return optimizer_rule(jvm, Rule.COMPUTE_CURRENT_TIME).apply(plan)
