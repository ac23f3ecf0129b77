"""Brings a copy of an analyzed plan into a form that shows what must hold for every row of each relation.

Used by ``uses``. Spark's own optimizer rules do the work, so that what they do not push we do not push either.
The copy is only looked at, never run. Must not touch the plan that is run.
"""

from __future__ import annotations

from skipstone.query.plans.analysis.catalyst import Java, java_class, scala_object

_CATALYST = "org.apache.spark.sql.catalyst."
_FIRST = (
    "analysis.EliminateSubqueryAliases",
    "analysis.EliminateView",
    "optimizer.EliminateResolvedHint",
    "optimizer.ReplaceExpressions",
    "optimizer.RewriteWithExpression",
)
_REPEATED = (
    "optimizer.EliminateOuterJoin",
    "optimizer.PushDownPredicates",
    "optimizer.InferFiltersFromConstraints",
    "optimizer.ConstantFolding",
    "optimizer.NullPropagation",
    "optimizer.BooleanSimplification",
    "optimizer.SimplifyCasts",
    "optimizer.UnwrapCastInBinaryComparison",
    "optimizer.LikeSimplification",
)
#: Says which columns of a relation are used, by a projection over its condition.
_LAST = ("optimizer.ColumnPruning",)
#: Inferred conditions are pushed in the second pass, and what they reach is simplified there.
_PASSES = 2
#: InlineCTE: not always, and no dangling definitions.
_AS_SPARK_DOES = (False, False)


def normalized(jvm: Java, plan: Java) -> Java:
    """An equivalent of ``plan`` with conditions and projections next to its relations.

    Plans inside expressions stay as they are.
    """
    for rule in _rules(jvm, _FIRST):
        plan = rule.apply(plan)
    for rule in _rules(jvm, _REPEATED) * _PASSES + _rules(jvm, _LAST):
        plan = rule.apply(plan)
    return plan


def with_inlined_ctes(jvm: Java, plan: Java) -> Java:
    """``plan`` with one copy of each common table expression per use, as Spark's optimizer begins."""
    return java_class(jvm, f"{_CATALYST}optimizer.InlineCTE")(*_AS_SPARK_DOES).apply(plan)


def with_fixed_time(jvm: Java, plan: Java) -> Java:
    """``plan`` with the current date and time as literals, so that what is planned on them is what is run."""
    (rule,) = _rules(jvm, ("optimizer.ComputeCurrentTime",))
    return rule.apply(plan)


def _rules(jvm: Java, names: tuple[str, ...]) -> tuple[Java, ...]:
    return tuple(scala_object(jvm, _CATALYST + name) for name in names)
