"""Puts what was planned in the place of relations, and gives Spark the query.

A rule of ``optimizer``; ``substitution`` does the work. Must not judge relations.
"""

from __future__ import annotations

from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.state import QueryState
from skipstone.query.plans.substitution import read, substituted


class Substitute:
    """Replaces tables by the files that are left, and by rows that the driver reads; without it, the query runs as in
    plain Spark.
    """

    @staticmethod
    def apply(state: QueryState, _: QueryCost) -> QueryState:
        """The state with the Dataset that runs the query."""
        return substituted(read(state))
