"""Joins relations by the buckets of their covering indexes, where something is gained.

A rule of ``optimizer``; ``covering`` finds out what is gained. Must not decide how other relations are read.
"""

from __future__ import annotations

from skipstone.query.plans.analysis.uses import open_scope
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.covering.candidates import Normal, has_covering_index
from skipstone.query.plans.covering.planning import join_by_buckets
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.rules.normalize_joins import as_joins
from skipstone.query.plans.state import QueryState


class BucketJoins:
    """Joins tables by their covering indexes, without a shuffle."""

    @staticmethod
    def apply(state: QueryState, _: QueryCost) -> QueryState:
        """The state of the query in which covering indexes stand in the place of relations that they join faster."""
        if not has_covering_index(state) or (normal := as_joins(state)) is None:
            return state
        covered = join_by_buckets(state, Normal(normal.handle(), normal.tree))
        joined = covered.joined.items()
        state = state.with_decisions(
            {key: RelationExplanation(facts.table, joined=tuple(facts.lines())) for key, facts in joined}
        )
        for key, unjoined in covered.unjoined.items():
            state = state.noted(key, [index.text() for index in unjoined])
        return state if covered.plan is None else state.with_query(open_scope(state.session.jvm, covered.plan))
