"""Brings a copy of an analyzed plan into a form that shows what must hold for every row of each relation.

Used by ``uses`` and ``joining``. Spark's own optimizer rules do the work, so that what they do not push we do not push
either. Must not touch the plan that it is given.
"""

from __future__ import annotations

from skipstone.compat.catalyst import INLINE_CTE, LogicalPlan, PlanRule, Rule, optimizer_rule
from skipstone.compat.java import Jvm, java_class

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
#: As Spark does once, at the end: what each side must hold of an OR over both sides of a join. Then says which columns
#: of a relation are used, by a projection over its condition.
_LAST = (Rule.PUSH_EXTRA_PREDICATE_THROUGH_JOIN, Rule.PUSH_DOWN_PREDICATES, Rule.COLUMN_PRUNING)
#: Inferred conditions are pushed in the second pass, and what they reach is simplified there.
_PASSES = 2
#: As Spark's optimizer turns subqueries into joins.
_AS_JOINS = (
    Rule.PULL_UP_CORRELATED_PREDICATES,
    Rule.REWRITE_CORRELATED_SCALAR_SUBQUERY,
    Rule.REWRITE_PREDICATE_SUBQUERY,
)
#: InlineCTE: not always, and no dangling definitions.
_AS_SPARK_DOES = (False, False)


def normalized(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """An equivalent of ``plan`` with conditions and projections next to its relations.

    Plans inside expressions stay as they are.
    """
    for rule in _rules(jvm, _FIRST):
        plan = rule.apply(plan)
    for rule in _rules(jvm, _REPEATED) * _PASSES + _rules(jvm, _LAST):
        plan = rule.apply(plan)
    return plan


def with_joins_of_subqueries(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """An equivalent of ``plan`` with joins in place of the subqueries that Spark runs as such."""
    for rule in _rules(jvm, _AS_JOINS):
        plan = rule.apply(plan)
    return plan


def with_inlined_ctes(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` with one copy of each common table expression per use, as Spark's optimizer begins."""
    return java_class(jvm, INLINE_CTE)(*_AS_SPARK_DOES).apply(plan)


def with_fixed_time(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` with the current date and time as literals, so that what is planned on them is what is run."""
    return optimizer_rule(jvm, Rule.COMPUTE_CURRENT_TIME).apply(plan)


def _rules(jvm: Jvm, rules: tuple[Rule, ...]) -> tuple[PlanRule, ...]:
    return tuple(optimizer_rule(jvm, rule) for rule in rules)
