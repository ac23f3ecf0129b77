"""A query while it is planned: what is known of it before, and a frozen state that each rule turns into the next one.

Made by ``opening``, turned by the rules, one after the other, as ``optimizer`` orders them. A state is never changed:
a rule that fails leaves the one that it was given. Must not change a plan of Spark's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from propcache.api import cached_property
from pyspark.sql import SparkSession
from skipstone_core.language import predicates as core

from skipstone.compat.catalyst import DATASETS, Dataset, JavaSession, LogicalPlan, QueryExecution
from skipstone.compat.java import Jvm, java_class
from skipstone.query.planner import ReadOptions, ReadPlan
from skipstone.query.plans.analysis.demands import find_predicate
from skipstone.query.plans.analysis.failing import may_fail
from skipstone.query.plans.analysis.layouts import Layout, layout_of
from skipstone.query.plans.analysis.relations import (
    IcebergRelation,
    QueryTables,
    Site,
    cached_keys,
    require_stable,
    sites_of,
)
from skipstone.query.plans.analysis.uses import Key, Scope, Use
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.guarding.risks import Risk
from skipstone.query.plans.joining.form import JoinForm, Known
from skipstone.query.plans.refusals import Refusal, RelationRefused
from skipstone.query.plans.replacing.choice import Demand, ReadLimits, RelationRead
from skipstone.query.plans.replacing.replacement import Replacements
from skipstone.query.plans.replacing.staging import Staging


@dataclass(frozen=True)
class Session:
    """The parts of a Spark session that planning needs.

    ``disabled``: names of the rules that are not applied. ``problems``: a sentence on each setting that does not count.
    """

    jvm: Jvm
    spark: SparkSession
    java: JavaSession
    wap_branch: str | None
    limits: ReadLimits
    staging: Staging
    join_rows: int = 0
    disabled: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()

    @property
    def is_nothing_cached(self) -> bool:
        """Return whether Spark's cache is empty."""
        return self.java.sharedState().cacheManager().isEmpty()

    def dataset(self, plan: LogicalPlan) -> Dataset:
        """The Dataset that runs an analyzed plan."""
        return java_class(self.jvm, DATASETS).ofRows(self.java, plan)


@dataclass(frozen=True, eq=False)
class Planned:
    """A relation, what is demanded of it, and how it is read.

    ``known``: what besides its conditions narrowed it. ``notes``: what else the query does with its rows.
    """

    demand: Demand
    reading: RelationRead
    is_shared: bool
    known: tuple[Known, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def relation(self) -> IcebergRelation:
        """The relation."""
        return self.demand.relation

    @property
    def plan(self) -> ReadPlan:
        """The files to read."""
        return self.reading.plan

    def explained(self) -> RelationExplanation:
        """Return the explanation of the relation."""
        read = self.reading
        return RelationExplanation(
            self.relation.name, plan=read.plan, driver=read.driver, scan=read.scan, joined=self._joined
        )

    def refused(self, refusal: Refusal, detail: str = "") -> RelationExplanation:
        """Why it is read as Spark reads it after all."""
        return RelationExplanation(self.relation.name, refusal, detail, self.plan)

    @property
    def _joined(self) -> tuple[str, ...]:
        return (*(known.text for known in self.known), *self.notes)

    @property
    def is_partitioned(self) -> bool:
        """Return whether files of the table are, or were, partitioned."""
        return any(spec.fields for spec in self.relation.table.specs().values())

    @property
    def files_of_spark(self) -> int:
        """How many files Spark would read: it prunes by bounds too, but does not know the keys of joins."""
        return self.plan.funnel.total if self.known else self.plan.funnel.min_max


class PlanRefused(RelationRefused):
    """Refused after planning: the plan says why."""

    def __init__(self, refusal: Refusal, plan: ReadPlan) -> None:
        super().__init__(refusal)
        self.plan = plan


#: How a relation is read, or why it is read as Spark reads it.
Decision = Planned | RelationExplanation


def name_of(decision: Decision) -> str:
    """The name of the table that a decision is about."""
    return decision.relation.name if isinstance(decision, Planned) else decision.table


@dataclass(frozen=True, eq=False)
class QueryFacts:
    """A query as it was opened, its relations and their tables. What is looked up here is looked up once.

    ``analyzed``: the plan that Spark analyzed; ``execution``: what runs it and knows what Spark's cache answers, None:
    nothing is cached. ``relations``: the places of each relation. ``risks``: relations of which Iceberg may lose rows.
    ``in_full``: relations are explained even if no index can serve them.
    """

    session: Session
    tables: QueryTables
    analyzed: LogicalPlan
    execution: QueryExecution | None
    query: Scope
    relations: Mapping[Key, Sequence[Site]]
    risks: Mapping[Key, Risk]
    is_recursive: bool
    in_full: bool
    _opened: dict[Key, IcebergRelation] = field(default_factory=dict)
    _stable: set[Key] = field(default_factory=set)

    @cached_property
    def cached(self) -> frozenset[Key]:
        """The relations of which some use is answered from Spark's cache."""
        if not self.relations or self.execution is None:
            return frozenset()
        answered = self.execution.withCachedData()  # in any case: Spark looks once for all runs of a DataFrame
        if self.is_nothing_cached:
            return frozenset()
        return cached_keys(self.session.jvm, self.analyzed, answered, self.relations.keys())

    @cached_property
    def is_nothing_cached(self) -> bool:
        """Return whether Spark's cache is empty."""
        return self.session.is_nothing_cached

    @cached_property
    def only_rows(self) -> bool:
        """Return whether the query may fail on rows that its relations do not have, such as deleted ones."""
        return may_fail(self.query)

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence on each setting that does not count, and on each hint that names no table of the query."""
        hints = [problem for relation in self._opened.values() for problem in relation.hint.problems]
        return tuple(dict.fromkeys([*self.session.problems, *hints]))

    @cached_property
    def layout(self) -> Layout:
        """Return the layout of tables that Spark uses when it runs the query as it is."""
        return layout_of(self.session.dataset(self.query.handle()).queryExecution())

    def require_stable(self, key: Key, sites: Sequence[Site]) -> None:
        """Raise RelationRefused for a relation of which the query would see other rows if other files were read."""
        if key in self.cached:
            raise RelationRefused(Refusal.CACHED)
        if key not in self._stable:
            for site in sites:
                require_stable(site)
            self._stable.add(key)

    def opened(self, key: Key, sites: Sequence[Site]) -> IcebergRelation:
        """A relation with its table. Raises RelationRefused when it is read as Spark reads it."""
        relation = self._opened.get(key)
        if relation is None:
            self.require_stable(key, sites)
            relation = self.tables.open_relation(key, sites[0].node, sites[0].java, self.session.wap_branch)
            self._opened[key] = relation
        return relation


@dataclass(frozen=True, eq=False)
class QueryState:
    """The decisions on a query so far.

    ``query``: as it will run. ``sites``: the places of the relations that rules may plan. ``uses``: what the query asks
    of each of them. ``decisions``: on all relations, in the order of the plan. ``joins``: its form as joins, None where
    no part of it may run first. ``ran``: relations that are only in parts that ran. ``replaced``: what stands in the
    place of relations. ``dataset``: what reads these; None: the query is left as it was.
    """

    facts: QueryFacts
    query: Scope
    sites: Mapping[Key, Sequence[Site]]
    uses: Mapping[Key, list[Use]] = field(default_factory=dict)
    decisions: Mapping[Key, Decision] = field(default_factory=dict)
    joins: JoinForm | None = None
    ran: tuple[Key, ...] = ()
    replaced: Replacements = field(default_factory=dict)
    dataset: Dataset | None = None

    @property
    def session(self) -> Session:
        """The session of the query."""
        return self.facts.session

    @property
    def form(self) -> JoinForm:
        """Its form as joins. Raises ValueError where it has none."""
        if self.joins is None:
            raise ValueError("the query has no form as joins")
        return self.joins

    @property
    def runs(self) -> Dataset:
        """The Dataset. Raises ValueError where there is none."""
        if self.dataset is None:
            raise ValueError("the query has no Dataset")
        return self.dataset

    @property
    def is_transformed(self) -> bool:
        """Return whether a part of the query ran first, or relations are joined by buckets."""
        return self.query is not self.facts.query

    @property
    def planned(self) -> dict[Key, Planned]:
        """The relations that are read through indexes."""
        decisions = self.decisions.items()
        return {key: decision for key, decision in decisions if isinstance(decision, Planned) and key in self.sites}

    def opened(self, key: Key) -> IcebergRelation:
        """A relation with its table. Raises RelationRefused when it is read as Spark reads it."""
        return self.facts.opened(key, self.sites[key])

    def options(self, relation: IcebergRelation) -> ReadOptions:
        """How a relation is read."""
        limits = self.session.limits
        return ReadOptions(
            snapshot_id=relation.snapshot_id,
            index_namespace=limits.index_namespace,
            limits=limits.cost,
            hint=relation.hint,
        )

    def plan(self, key: Key) -> ReadPlan | None:
        """The files to read of a relation, as far as they were planned."""
        return self.decisions[key].plan

    def predicate(self, key: Key) -> core.Predicate | None:
        """Return the condition that all needed rows of a relation satisfy; None: no narrowing one is known."""
        uses = self.uses.get(key)
        try:
            return find_predicate(self.opened(key), uses) if uses else None
        except RelationRefused:
            return None

    # --- the next state ---

    def with_decisions(self, decisions: Mapping[Key, Decision]) -> QueryState:
        """The state with other decisions about some relations."""
        return replace(self, decisions={**self.decisions, **decisions}) if decisions else self

    def with_query(self, query: Scope) -> QueryState:
        """The state of a query that gives the same rows."""
        return replace(self, query=query, sites=sites_of(self.session.jvm, query))

    def noted(self, key: Key, lines: Sequence[str]) -> QueryState:
        """The state in which more is said of a relation."""
        decision = self.decisions[key]
        if isinstance(decision, RelationExplanation):
            return self.with_decisions({key: replace(decision, joined=(*decision.joined, *lines))})
        return self.with_decisions({key: replace(decision, notes=(*decision.notes, *lines))})

    def refused(self, key: Key, refusal: Refusal, detail: str = "") -> QueryState:
        """The state in which a planned relation is left to Spark after all."""
        decision = self.decisions[key]
        return self.with_decisions({key: decision.refused(refusal, detail)}) if isinstance(decision, Planned) else self

    def guarded(self, key: Key, text: str, plan: ReadPlan | None) -> QueryState:
        """The state that says why Iceberg chooses no files of a relation that no index narrows, and which are read."""
        decision = self.decisions[key]
        if not isinstance(decision, RelationExplanation):
            return self
        return self.with_decisions({key: replace(decision, guard=text, plan=plan or decision.plan)})
