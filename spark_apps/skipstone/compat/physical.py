"""Nodes of Spark's physical plans in the JVM, and the methods that we call of each.

A new version of Spark breaks in the test of ``catalyst``. Must not decide anything.
"""

from __future__ import annotations

from typing import Protocol

from skipstone.compat.catalyst import CATALYST, EXECUTION, Expression, SparkPlan
from skipstone.compat.java import Seq, described


@described(f"{EXECUTION}.adaptive.AdaptiveSparkPlanExec")
class AdaptivePlan(SparkPlan, Protocol):
    """A physical plan that changes while it runs."""

    def initialPlan(self) -> SparkPlan: ...


@described(f"{EXECUTION}.datasources.v2.BatchScanExec")
class BatchScan(SparkPlan, Protocol):
    """A scan of a table."""

    def runtimeFilters(self) -> Seq[RuntimeFilter]: ...


@described(f"{CATALYST}.expressions.DynamicPruningExpression")
class RuntimeFilter(Expression, Protocol):
    """A filter of a scan that is known when the query runs."""

    def child(self) -> Expression: ...


@described(f"{EXECUTION}.InSubqueryExec")
class InSubquery(Expression, Protocol):
    """A test for being among the rows of a subquery."""

    def plan(self) -> SparkPlan: ...


@described(f"{EXECUTION}.SubqueryAdaptiveBroadcastExec")
class AdaptiveBroadcast(SparkPlan, Protocol):
    """A subquery that may be answered from what a join broadcasts."""

    def onlyInBroadcast(self) -> bool: ...
