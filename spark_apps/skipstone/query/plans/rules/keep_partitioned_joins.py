"""Leaves relations to Spark that it joins by their partitions, without a shuffle, as long as they are not replaced.

The last rule of ``optimizer``: only the plan of the rewritten query says whether a shuffle was lost. Must not plan
reads.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone.query.plans.analysis.layouts import layout_of
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.rules.leave_to_spark import columns_of, may_use_layout
from skipstone.query.plans.state import QueryState
from skipstone.query.plans.substitution import substituted


class KeepPartitionedJoins:
    """Does not rewrite tables that Spark joins by their partitions."""

    @staticmethod
    def apply(state: QueryState, _: QueryCost) -> QueryState:
        """The state in which these relations are refused, and the others replaced."""
        if state.dataset is None or not state.replaced or not may_use_layout(state):
            return state
        layout = state.facts.layout
        grouped = frozenset(key for key in state.planned if columns_of(state, key) & layout.grouped)
        if not grouped or layout_of(state.dataset.queryExecution()).shuffles <= layout.shuffles:
            return state
        for key in grouped:
            state = state.refused(key, Refusal.PARTITIONED_JOIN)
        left = {key: replacement for key, replacement in state.replaced.items() if key not in grouped}
        return substituted(replace(state, replaced=left))
