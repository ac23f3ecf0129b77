"""What Spark makes of the way a table is laid out, which scans of tasks do not tell it: joins of partitions without a
shuffle, and filters that are known only when the query runs.

Used by the rules ``leave_to_spark`` and ``keep_partitioned_joins``, which leave a relation to Spark where this is worth
more than an index. Reads physical plans in the JVM, so it is asked only of queries that may have either. Must not know
tables or indexes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

from skipstone.compat.catalyst import Expression, QueryExecution, SparkPlan
from skipstone.compat.java import JavaObject, items
from skipstone.compat.physical import AdaptiveBroadcast, AdaptivePlan, BatchScan, InSubquery
from skipstone.query.plans.analysis.uses import Scope

_JOINS = frozenset({"Join", "LateralJoin", "AsOfJoin", "Intersect", "Except"})
_ADAPTIVE, _SCAN, _SHUFFLE = "AdaptiveSparkPlanExec", "BatchScanExec", "ShuffleExchangeExec"
_BROADCAST_JOIN = "BroadcastHashJoinExec"
#: Subqueries that compute a filter of a scan; they repeat a part of the plan that is there already.
_FILTERING = frozenset({"SubqueryAdaptiveBroadcastExec", "SubqueryBroadcastExec"})


@dataclass(frozen=True)
class Layout:
    """A physical plan. ``shuffles``: how many there are below joins. ``filtered``: ids of the columns by which other
    relations filter scans when the query runs. ``grouped``: of scans that come partition by partition.
    """

    shuffles: int
    filtered: frozenset[int]
    grouped: frozenset[int]


def has_joins(query: Scope) -> bool:
    """Return whether a query may join relations; a plan inside an expression often becomes a join."""
    return bool(query.inner) or any(node.name in _JOINS for node in query.tree.walk())


def layout_of(execution: QueryExecution) -> Layout:
    """The layout of a query's physical plan."""
    nodes = [node for plan in _plans(execution.executedPlan()) for node in _nodes(plan, is_below_join=False)]
    broadcasts = any(node.name == _BROADCAST_JOIN for node in nodes)
    scans = [cast(BatchScan, node.java) for node in nodes if node.name == _SCAN]
    return Layout(
        shuffles=sum(node.name == _SHUFFLE and node.is_below_join for node in nodes),
        filtered=frozenset(number for scan in scans for number in _filtered(scan, broadcasts=broadcasts)),
        grouped=_columns(scan for scan in scans if _class(scan.outputPartitioning()) == "KeyGroupedPartitioning"),
    )


@dataclass(frozen=True)
class _Physical:
    name: str
    java: SparkPlan
    is_below_join: bool


def _class(java: JavaObject) -> str:
    return str(java.getClass().getSimpleName())


def _plans(plan: SparkPlan) -> Iterator[SparkPlan]:
    """A physical plan as it begins, and those of its subqueries."""
    first = cast(AdaptivePlan, plan).initialPlan() if _class(plan) == _ADAPTIVE else plan
    yield first
    for subquery in items(first.subqueriesAll()):
        if _class(subquery) not in _FILTERING:
            for child in items(subquery.children()):
                yield from _plans(child)


def _nodes(plan: SparkPlan, *, is_below_join: bool) -> Iterator[_Physical]:
    name = _class(plan)
    yield _Physical(name, plan, is_below_join)
    for child in items(plan.children()):
        yield from _nodes(child, is_below_join=is_below_join or "Join" in name)


def _filtered(scan: BatchScan, *, broadcasts: bool) -> Iterator[int]:
    """Ids of the columns by which a scan is filtered."""
    for runtime_filter in items(scan.runtimeFilters()):
        if _is_effective(runtime_filter.child(), broadcasts=broadcasts):
            for column in items(runtime_filter.references().toSeq()):
                yield int(column.exprId().id())


def _is_effective(condition: Expression, *, broadcasts: bool) -> bool:
    """Return whether a filter will filter: some do only with the rows that a join broadcasts anyway."""
    if _class(condition) == "Literal":
        return False
    subquery = cast(InSubquery, condition).plan()
    if _class(subquery) != "SubqueryAdaptiveBroadcastExec" or broadcasts:
        return True
    return not cast(AdaptiveBroadcast, subquery).onlyInBroadcast()


def _columns(scans: Iterator[BatchScan]) -> frozenset[int]:
    return frozenset(int(column.exprId().id()) for scan in scans for column in items(scan.output()))
