"""Which scans of a physical plan are shuffled before they are joined.

Used by ``planning``: the plan that Spark makes of a query says whether a covering index saves a shuffle, and that of
the rewritten query says whether it did. Must not know tables or indexes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from skipstone.compat.catalyst import QueryExecution
from skipstone.compat.java import Jvm
from skipstone.compat.physical import AdaptivePlan
from skipstone.query.plans.analysis.catalyst import Node, expression_id, plan_tree, read_tree

_ADAPTIVE, _SHUFFLE = "AdaptiveSparkPlanExec", "ShuffleExchangeExec"
_JOINS = frozenset({"SortMergeJoinExec", "ShuffledHashJoinExec"})
#: Leaves of physical plans: a scan of a table, and rows that have their partitions already.
SCAN, ROWS = "BatchScanExec", "RDDScanExec"


def shuffled_columns(jvm: Jvm, execution: QueryExecution, leaf: str) -> frozenset[int]:
    """Ids of the columns of leaves that are shuffled for a join, or for anything else below a join."""
    plan = execution.executedPlan()
    if plan.getClass().getSimpleName() == _ADAPTIVE:
        plan = cast(AdaptivePlan, plan).initialPlan()
    leaves = _shuffled(plan_tree(jvm, plan), is_joined=False, is_shuffled=False)
    # a scan that other relations filter when the query runs reads less than an index has
    unfiltered = (node for node in leaves if node.name == leaf and not node.fields.get("runtimeFilters"))
    columns = (column for node in unfiltered for column in node.fields["output"])
    return frozenset(expression_id(read_tree(column)) for column in columns)


def _shuffled(node: Node, *, is_joined: bool, is_shuffled: bool) -> Iterator[Node]:
    """The leaves with a shuffle between them and the nearest join."""
    if node.name in _JOINS:
        is_joined, is_shuffled = True, False
    elif node.name == _SHUFFLE:
        is_shuffled = is_joined
    if is_shuffled and not node.children:
        yield node
    for child in node.children:
        yield from _shuffled(child, is_joined=is_joined, is_shuffled=is_shuffled)
