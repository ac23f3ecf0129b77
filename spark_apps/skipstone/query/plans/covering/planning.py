"""Joins a query by buckets where covering indexes save more than they cost.

Called by ``rewriting``. Spark's own plan of the query says which relations it shuffles; these are replaced where an
index holds what the query needs of them, and stay replaced where Spark then shuffles them no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from skipstone.compat.catalyst import DATASETS, PROJECT, Dataset, LogicalPlan
from skipstone.compat.java import java_class, scala_object, scala_seq
from skipstone.query.plans.analysis.catalyst import Node, descend
from skipstone.query.plans.analysis.uses import Key, field_of
from skipstone.query.plans.covering.candidates import Candidate, Normal, find_candidates
from skipstone.query.plans.covering.choosing import Choice, Chosen, NotChosen
from skipstone.query.plans.covering.equalities import Equality, Path
from skipstone.query.plans.covering.partitions import NotBucketed
from skipstone.query.plans.covering.refusals import JoinedByBuckets, NotJoined, Unjoined
from skipstone.query.plans.covering.shuffles import ROWS, SCAN, shuffled_columns
from skipstone.query.plans.planning import RelationPlans, Session
from skipstone.query.plans.replacing.rebuild import with_expression, with_operand
from skipstone.query.plans.replacing.trial import try_plan


@dataclass(frozen=True, eq=False)
class Covered:
    """What became of a query: its plan with relations replaced, None when none is. By the keys of relations: how those
    are read, and which covering indexes of the others are not used.
    """

    plan: LogicalPlan | None
    joined: Mapping[Key, JoinedByBuckets]
    unjoined: Mapping[Key, Sequence[Unjoined]]


def join_by_buckets(session: Session, relations: RelationPlans, query: Normal, names: LogicalPlan) -> Covered:
    """The query joined through covering indexes. ``names``: a plan whose output people know.

    Raises what Spark raises when it cannot plan the query.
    """
    covering = _Covering(session, relations, query, names)
    chosen = covering.chosen([*find_candidates(relations, query)])
    plan = covering.settled(chosen)
    return Covered(plan, {one.candidate.key: one.facts for one in chosen}, covering.unjoined)


class _Covering:
    """The work on one query. ``unjoined`` collects what is not used."""

    def __init__(self, session: Session, relations: RelationPlans, query: Normal, names: LogicalPlan) -> None:
        self._session, self._query, self._names = session, query, names
        self._choice = Choice(session, relations, query)
        self.unjoined: dict[Key, list[Unjoined]] = {}

    def chosen(self, candidates: Sequence[Candidate]) -> list[Chosen]:
        """The relations that Spark shuffles and that are worth replacing, with what replaces them."""
        for candidate in candidates:
            for index in candidate.indexes:
                if all(offer.index is not index for offer in candidate.offers):
                    self._refuse(candidate, index.name, NotJoined.NOT_OFFERED)
        offered = [candidate for candidate in candidates if candidate.offers]
        if not offered:
            return []
        plain = shuffled_columns(self._session.jvm, self._dataset(self._query.plan).queryExecution(), SCAN)
        return [one for candidate in offered for one in self._chosen(candidate, offered, plain)]

    def _chosen(self, candidate: Candidate, others: Sequence[Candidate], shuffled: frozenset[int]) -> Sequence[Chosen]:
        offer = candidate.best(others)
        try:
            if not shuffled & candidate.ids:
                raise NotChosen(NotJoined.NOT_SHUFFLED)
            return [self._choice.choose(candidate, offer)]
        except NotChosen as refused:
            self._refuse(candidate, offer.index.name, refused.reason, refused.detail)
        except NotBucketed as error:
            self._refuse(candidate, offer.index.name, NotJoined.NOT_BUCKETED, str(error))
        return []

    def settled(self, chosen: list[Chosen]) -> LogicalPlan | None:
        """The plan in which none of the ``chosen`` is shuffled; those that still are leave the list."""
        while chosen:
            plan = self._replaced(chosen)
            dataset = self._dataset(plan)
            try_plan(dataset)
            shuffled = shuffled_columns(self._session.jvm, dataset.queryExecution(), ROWS)
            lost = [one for one in chosen if shuffled & one.candidate.ids]
            if not lost:
                return plan
            for one in lost:
                chosen.remove(one)
                self._refuse(one.candidate, one.offer.index.name, NotJoined.STILL_SHUFFLED)
        return None

    def _refuse(self, candidate: Candidate, index: str, reason: NotJoined, detail: str = "") -> None:
        self.unjoined.setdefault(candidate.key, []).append(Unjoined(index, reason, detail))

    # --- plans ---

    def _replaced(self, chosen: Iterable[Chosen]) -> LogicalPlan:
        plans = {one.candidate.node.path: one.plan for one in chosen}
        widened: dict[Path, set[Equality]] = {}
        for join, equality in (pair for one in chosen for pair in one.widened):
            widened.setdefault(join, set()).add(equality)
        rebuilt = self._node(self._query.plan, self._query.tree, plans, widened)
        # people may name columns by the aliases of their relations
        plan = scala_object(self._session.jvm, PROJECT).apply(self._names.output(), rebuilt)
        plan.setAnalyzed()
        return plan

    def _node(
        self, java: LogicalPlan, node: Node, plans: Mapping[Path, LogicalPlan], widened: Mapping[Path, set[Equality]]
    ) -> LogicalPlan:
        if node.path in plans:
            return plans[node.path]
        if not any(path[: len(node.path)] == node.path for path in plans):
            return java
        children = [
            self._node(child, below, plans, widened)
            for child, below in ((java.children().apply(at), below) for at, below in enumerate(node.children))
        ]
        java = java.withNewChildren(scala_seq(self._session.jvm, children))
        for equality in widened.get(node.path, ()):
            java = self._widened(java, equality)
        return java

    def _widened(self, join: LogicalPlan, equality: Equality) -> LogicalPlan:
        """A join with an equality of integers as one of longs, which says the same."""
        jvm, condition = self._session.jvm, field_of(join, equality.slot)
        found = descend(condition, equality.path)
        sides = [self._choice.widened(found.children().apply(side)) for side in range(2)]
        found = found.withNewChildren(scala_seq(jvm, sides))
        return with_expression(jvm, join, equality.slot, with_operand(jvm, condition, equality.path, found))

    def _dataset(self, plan: LogicalPlan) -> Dataset:
        return java_class(self._session.jvm, DATASETS).ofRows(self._session.java, plan)
