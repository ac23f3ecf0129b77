"""Joins a query by buckets where covering indexes save more than they cost.

Called by the rule ``bucket_joins``. Spark's own plan of the query says which relations it shuffles; these are replaced
where an index holds what the query needs of them, and stay replaced where Spark then shuffles them no more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from skipstone.compat.catalyst import PROJECT, LogicalPlan
from skipstone.compat.java import scala_object, scala_seq
from skipstone.query.plans.analysis.catalyst import Node, descend
from skipstone.query.plans.analysis.uses import Key, field_of
from skipstone.query.plans.covering.candidates import Candidate, Normal, find_candidates
from skipstone.query.plans.covering.choosing import Choice, Chosen, NotChosen
from skipstone.query.plans.covering.equalities import Equality, Path
from skipstone.query.plans.covering.partitions import NotBucketed
from skipstone.query.plans.covering.refusals import JoinedByBuckets, NotJoined, Unjoined
from skipstone.query.plans.covering.shuffles import ROWS, SCAN, shuffled_columns
from skipstone.query.plans.replacing.rebuild import with_expression, with_operand
from skipstone.query.plans.replacing.trial import try_plan
from skipstone.query.plans.state import QueryState


@dataclass(frozen=True, eq=False)
class Covered:
    """The outcome of a query: its plan with relations replaced, None when none is. By the keys of relations: how those
    are read, and which covering indexes of the others are not used.
    """

    plan: LogicalPlan | None
    joined: Mapping[Key, JoinedByBuckets]
    unjoined: Mapping[Key, Sequence[Unjoined]]


@dataclass(frozen=True, eq=False)
class _Left:
    """A covering index of a relation that is not used."""

    key: Key
    index: Unjoined


def join_by_buckets(state: QueryState, query: Normal) -> Covered:
    """A query joined through covering indexes; ``query``: its form as joins.

    Raises what Spark raises when it cannot plan the query.
    """
    covering, candidates = _Covering(state, query), [*find_candidates(state, query)]
    results = [
        *_not_offered(candidates),
        *covering.choices([candidate for candidate in candidates if candidate.offers]),
    ]
    chosen = [result for result in results if isinstance(result, Chosen)]
    settled = covering.settled(chosen)
    unjoined: dict[Key, list[Unjoined]] = {}
    for left in (*(result for result in results if isinstance(result, _Left)), *settled.left):
        unjoined.setdefault(left.key, []).append(left.index)
    return Covered(settled.plan, {choice.candidate.key: choice.facts for choice in settled.chosen}, unjoined)


def _not_offered(candidates: Sequence[Candidate]) -> Iterator[_Left]:
    for candidate in candidates:
        for index in candidate.indexes:
            if all(offer.index is not index for offer in candidate.offers):
                yield _Left(candidate.key, Unjoined(index.name, NotJoined.NOT_OFFERED))


@dataclass(frozen=True, eq=False)
class _Settled:
    """The plan in which none of the ``chosen`` is shuffled, None when that is none; and which had to be ``left``."""

    plan: LogicalPlan | None
    chosen: Sequence[Chosen]
    left: Sequence[_Left]


@dataclass(frozen=True, eq=False)
class _Covering:
    """The work on one query."""

    state: QueryState
    query: Normal

    @property
    def _choice(self) -> Choice:
        return Choice(self.state, self.query)

    def choices(self, candidates: Sequence[Candidate]) -> Sequence[Chosen | _Left]:
        """Return the replacements of the shuffled relations that are worth it, and why others are left."""
        if not candidates:
            return []
        session = self.state.session
        plain = shuffled_columns(session.jvm, session.dataset(self.query.plan).queryExecution(), SCAN)
        return [self._chosen(candidate, candidates, plain) for candidate in candidates]

    def _chosen(self, candidate: Candidate, others: Sequence[Candidate], shuffled: frozenset[int]) -> Chosen | _Left:
        offer = candidate.best(others)
        try:
            if not shuffled & candidate.ids:
                raise NotChosen(NotJoined.NOT_SHUFFLED)
            return self._choice.choose(candidate, offer)
        except NotChosen as refused:
            return _Left(candidate.key, Unjoined(offer.index.name, refused.reason, refused.detail))
        except NotBucketed as error:
            return _Left(candidate.key, Unjoined(offer.index.name, NotJoined.NOT_BUCKETED, str(error)))

    def settled(self, chosen: Sequence[Chosen]) -> _Settled:
        """The plan of as many of the ``chosen`` as Spark does not shuffle nevertheless."""
        session, left = self.state.session, list[_Left]()
        while chosen:
            plan = self._replaced(chosen)
            dataset = session.dataset(plan)
            try_plan(dataset)
            shuffled = shuffled_columns(session.jvm, dataset.queryExecution(), ROWS)
            lost = [choice for choice in chosen if shuffled & choice.candidate.ids]
            if not lost:
                return _Settled(plan, chosen, left)
            chosen = [choice for choice in chosen if choice not in lost]
            for choice in lost:
                left.append(_Left(choice.candidate.key, Unjoined(choice.offer.index.name, NotJoined.STILL_SHUFFLED)))
        return _Settled(None, (), left)

    # --- plans ---

    def _replaced(self, chosen: Iterable[Chosen]) -> LogicalPlan:
        plans = {choice.candidate.node.path: choice.plan for choice in chosen}
        widened: dict[Path, set[Equality]] = {}
        for join, equality in (pair for choice in chosen for pair in choice.widened):
            widened.setdefault(join, set()).add(equality)
        rebuilt = self._node(self.query.plan, self.query.tree, plans, widened)
        # people may name columns by the aliases of their relations
        plan = scala_object(self.state.session.jvm, PROJECT).apply(self.state.query.handle().output(), rebuilt)
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
        java = java.withNewChildren(scala_seq(self.state.session.jvm, children))
        for equality in widened.get(node.path, ()):
            java = self._widened(java, equality)
        return java

    def _widened(self, join: LogicalPlan, equality: Equality) -> LogicalPlan:
        """A join with an equality of integers as one of longs, which says the same."""
        jvm, condition = self.state.session.jvm, field_of(join, equality.slot)
        comparison = descend(condition, equality.path)
        sides = [self._choice.widened(comparison.children().apply(side)) for side in range(2)]
        comparison = comparison.withNewChildren(scala_seq(jvm, sides))
        return with_expression(jvm, join, equality.slot, with_operand(jvm, condition, equality.path, comparison))
