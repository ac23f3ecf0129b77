"""Leaves relations to Spark that it filters by the rows of a join when the query runs, unless an index saves more.

A rule of ``optimizer``. Must not plan reads.
"""

from __future__ import annotations

from skipstone_core.indexing.use import leaves_few

from skipstone.query.plans.analysis.catalyst import output_ids
from skipstone.query.plans.analysis.layouts import has_joins
from skipstone.query.plans.analysis.uses import Key
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.state import QueryState


class LeaveToSpark:
    """Does not rewrite tables whose partitions Spark filters when the query runs."""

    @staticmethod
    def apply(state: QueryState, _: QueryCost) -> QueryState:
        """The state in which these relations are refused."""
        if not may_use_layout(state):
            return state
        limits = state.session.limits.cost
        for key, planned in state.planned.items():
            filtered = columns_of(state, key) & state.facts.layout.filtered - {fact.column for fact in planned.known}
            if filtered and not leaves_few(planned.reading.task_files, planned.files_of_spark, limits):
                state = state.refused(key, Refusal.RUNTIME_FILTER)
        return state


def may_use_layout(state: QueryState) -> bool:
    """Return whether Spark may make something of the layout of a planned table: it makes a plan of its own to tell."""
    return any(planned.is_partitioned for planned in state.planned.values()) and has_joins(state.facts.query)


def columns_of(state: QueryState, key: Key) -> frozenset[int]:
    """Ids of the columns of a relation, in all its places."""
    return frozenset(number for site in state.sites[key] for number in output_ids(site.node))
