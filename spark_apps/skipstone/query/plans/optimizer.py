"""Plans a query by an ordered list of rules: each turns a frozen state into the next one.

Called by ``session``. One loop applies the rules, takes their times, leaves out those that the session disabled by
name, and goes on with the state before a rule that failed. Must not know Python DataFrames, or what a rule does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

from skipstone.compat.catalyst import Dataset, LogicalPlan, QueryExecution
from skipstone.query.plans.cost import QueryCost
from skipstone.query.plans.explanation import Explanation, RelationExplanation, RuleOutcome, RuleReport
from skipstone.query.plans.fallback import or_else
from skipstone.query.plans.opening import open_query
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.rules.bucket_joins import BucketJoins
from skipstone.query.plans.rules.join_keys import JoinKeys
from skipstone.query.plans.rules.keep_partitioned_joins import KeepPartitionedJoins
from skipstone.query.plans.rules.leave_to_spark import LeaveToSpark
from skipstone.query.plans.rules.match_before_grouping import MatchBeforeGrouping
from skipstone.query.plans.rules.narrow_relations import NarrowRelations
from skipstone.query.plans.rules.no_index_applies import NoIndexApplies
from skipstone.query.plans.rules.normalize_joins import NormalizeJoins
from skipstone.query.plans.rules.partition_keys import PartitionKeys
from skipstone.query.plans.rules.scalar_subqueries import ScalarSubqueries
from skipstone.query.plans.rules.substitute import Substitute
from skipstone.query.plans.state import Decision, QueryState, Session
from skipstone.query.plans.substitution import rebuilt


class OptimizerRule(Protocol):
    """A step of planning. Its class name is what ``skipstone.rules.<name>`` disables it by; the first paragraph of its
    docstring is its row in the guide to indexes (`make generate`).
    """

    @staticmethod
    def apply(state: QueryState, cost: QueryCost, /) -> QueryState:
        """The next state; the same one if there is nothing to do. Whatever it raises leaves the state as it was."""


#: In the order in which they are applied.
RULES: tuple[type[OptimizerRule], ...] = (
    NoIndexApplies,
    NormalizeJoins,
    NarrowRelations,
    ScalarSubqueries,
    JoinKeys,
    PartitionKeys,
    MatchBeforeGrouping,
    BucketJoins,
    LeaveToSpark,
    Substitute,
    KeepPartitionedJoins,
)
#: Those that run parts of a query first, or join by buckets: a query built upon such a one may not be planned by Spark.
_TRANSFORMING = (NormalizeJoins, ScalarSubqueries, JoinKeys, PartitionKeys, MatchBeforeGrouping, BucketJoins)
#: Nodes by which users choose partitions: so many files are written, for instance.
_PARTITIONING = frozenset({"RebalancePartitions", "Repartition", "RepartitionByExpression"})


@dataclass(frozen=True, eq=False)
class OptimizedQuery:
    """A query after the last rule, and what became of each rule."""

    state: QueryState
    rules: tuple[RuleReport, ...]

    @property
    def dataset(self) -> Dataset | None:
        """Return the query that reads the planned files, as Spark will run it; None when the query stays as it is."""
        return self.state.dataset

    @property
    def is_at_risk(self) -> bool:
        """Return whether Iceberg may lose rows of the query as it is."""
        return bool(self.state.facts.risks)

    @property
    def is_transformed(self) -> bool:
        """Return whether a part of the query ran first, or relations are joined by buckets."""
        return self.state.is_transformed

    @property
    def reads_few(self) -> bool:
        """Return whether all relations are few rows that the driver has read, or rows of parts that ran.

        False where users say into how many partitions rows go: rows of an answer are in as many as Spark likes.
        """
        state = self.state
        is_here = state.sites.keys() <= state.replaced.keys() and all(part.is_few for part in state.replaced.values())
        return is_here and all(node.name not in _PARTITIONING for node in state.query.tree.walk())

    @property
    def explanation(self) -> Explanation:
        """Return the outcome of each relation, in the order of the plan; those of parts that ran come last."""
        state = self.state
        decisions = {key: self._explained(decision) for key, decision in state.decisions.items()}
        if state.facts.is_recursive and not any(decision.guard for decision in decisions.values()):
            return Explanation(refusal=Refusal.RECURSIVE, rules=self.rules, problems=state.facts.problems)
        keys = [*(key for key in decisions if key not in state.ran), *state.ran]
        relations = tuple(decisions[key] for key in keys)
        return Explanation(relations, rules=self.rules, problems=state.facts.problems)

    def _explained(self, decision: Decision) -> RelationExplanation:
        if isinstance(decision, RelationExplanation):
            is_left = self.dataset is None and decision.is_rewritten
            return replace(decision, refusal=Refusal.NOT_PLANNED) if is_left else decision
        return decision.explained() if self.dataset is not None else decision.refused(Refusal.NOT_PLANNED)

    def untransformed(self) -> Dataset:
        """The Dataset in whose plan nothing ran first and no bucket is joined, of the same snapshots and time."""
        facts = self.state.facts
        disabled = facts.session.disabled | {rule.__name__ for rule in _TRANSFORMING}
        plain = optimize(replace(facts.session, disabled=disabled), facts.query.handle())
        return plain.dataset or facts.session.dataset(rebuilt(plain.state, {}))


def optimize(
    session: Session, analyzed: LogicalPlan, execution: QueryExecution | None = None, *, in_full: bool = True
) -> OptimizedQuery:
    """Plan an analyzed plan, of which Spark has run the commands.

    ``execution``: what runs it as it is, and knows what Spark's cache answers; None: nothing is cached. ``in_full``:
    relations are explained even if no index can serve them. Raises RelationRefused when such queries are never planned.
    """
    state, cost = open_query(session, analyzed, execution, in_full=in_full), QueryCost()
    reports: list[RuleReport] = []
    for rule in RULES:
        if rule.__name__ in session.disabled:
            reports.append(RuleReport(rule.__name__, RuleOutcome.DISABLED))
            continue
        state, report = _applied(rule, state, cost)
        reports.append(report)
    return OptimizedQuery(state, tuple(reports))


def _applied(rule: type[OptimizerRule], state: QueryState, cost: QueryCost) -> tuple[QueryState, RuleReport]:
    """The state after a rule, or as it was, and what became of the rule."""
    name = rule.__name__

    def applied() -> tuple[QueryState, RuleOutcome, str]:
        after = rule.apply(state, cost)
        return after, RuleOutcome.UNCHANGED if after is state else RuleOutcome.CHANGED, ""

    def failed(text: str) -> tuple[QueryState, RuleOutcome, str]:
        return state, RuleOutcome.FAILED, text

    start = perf_counter()
    after, outcome, detail = or_else(
        applied, failed, f"{Refusal.FAILED.value}: the query is planned without rule {name}"
    )
    return after, RuleReport(name, outcome, perf_counter() - start, detail)
