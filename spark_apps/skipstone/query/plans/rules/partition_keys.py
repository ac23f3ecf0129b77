"""Lets the keys of parts that ran narrow partitioned relations without an index on them, too.

A rule of ``optimizer``: while these parts were in the plan, Spark could filter partitions by them when the query ran.
Must not run anything but a projection of rows that are here.
"""

from __future__ import annotations

from dataclasses import replace

from skipstone.query.plans.analysis.uses import Key
from skipstone.query.plans.cost import QueryCost, kind_of_values
from skipstone.query.plans.rules.join_keys import known_by_keys
from skipstone.query.plans.rules.narrow_relations import narrowed
from skipstone.query.plans.state import QueryState


class PartitionKeys:
    """Narrows partitioned tables by these keys, too, if no index begins with their column."""

    @staticmethod
    def apply(state: QueryState, cost: QueryCost) -> QueryState:
        """The state in which these keys are known of the relations."""
        if state.joins is None or not state.joins.done:
            return state
        for key in state.joins.columns:
            if not state.form.is_gone(key) and cost.is_partitioned(state, key):
                state = _narrowed(state, key)
        return state


def _narrowed(state: QueryState, key: Key) -> QueryState:
    form = state.form
    known = dict(form.known.get(key, {}))
    before = len(known)
    for column in form.columns[key]:
        ran = [source for source in column.sources if source.path in form.done]
        kind = kind_of_values(state, key, column.column) if ran and column not in known else ""
        if kind and (fact := known_by_keys(state, column, ran[0], kind)) is not None:
            known[column] = fact
    if len(known) == before:
        return state
    state = replace(state, joins=form.with_known(key, known))
    return narrowed(state, key, tuple(known.values()))
