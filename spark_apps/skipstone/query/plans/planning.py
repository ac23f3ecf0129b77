"""Plans the reads of a query's Iceberg relations: for each one the files, or why it is read as Spark reads it.

Used by ``rewriting``, and by ``joining``, which learns more of a relation's rows. Each relation is judged by itself;
what is refused, or fails, stays as it was. Must not change a plan of Spark's.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from skipstone_core.language import predicates as core

from skipstone.compat.catalyst import JavaSession, Relation
from skipstone.compat.java import Jvm, items
from skipstone.query.planner import ReadOptions, ReadPlan
from skipstone.query.plans.analysis.catalyst import Node, descend
from skipstone.query.plans.analysis.demands import find_predicate, find_used
from skipstone.query.plans.analysis.relations import (
    IcebergRelation,
    QueryTables,
    RelationRefused,
    is_iceberg,
    lineage_ids,
)
from skipstone.query.plans.analysis.uses import Key, Scope, Use, ancestors, key_of, names_any
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacing.choice import Demand, ReadLimits, RelationRead, choose_reading
from skipstone.query.plans.replacing.driver import driver_columns
from skipstone.query.plans.replacing.staging import Staging

logger = logging.getLogger("skipstone.query")


@dataclass(frozen=True)
class Session:
    """What rewriting a query needs of a Spark session."""

    jvm: Jvm
    spark: SparkSession
    java: JavaSession
    wap_branch: str | None
    limits: ReadLimits
    staging: Staging
    join_rows: int = 0
    by_buckets: bool = True


@dataclass(frozen=True)
class Known:
    """A condition on a ``column`` that holds for every row of a relation that matters, and how it is known, as text."""

    column: int
    condition: core.Node
    text: str


@dataclass(frozen=True, eq=False)
class Site:
    """Where a relation is: in which plan, and its handle."""

    scope: Scope
    node: Node
    java: Relation


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
        """What is done with it."""
        read = self.reading
        return RelationExplanation(
            self.relation.name, plan=read.plan, driver=read.driver, scan=read.scan, joined=self._joined
        )

    def refused(self, refusal: Refusal, detail: str = "") -> RelationExplanation:
        """Why it is read as Spark reads it after all."""
        return RelationExplanation(self.relation.name, refusal, detail, self.plan)

    @property
    def _joined(self) -> tuple[str, ...]:
        return (*(one.text for one in self.known), *self.notes)

    @property
    def is_partitioned(self) -> bool:
        """Whether files of the table are, or were, partitioned."""
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


Judged = Planned | RelationExplanation


class RelationPlans:
    """The Iceberg relations of a query. ``judged``: what becomes of each, in the order of the plan. ``sites``: where
    those are that have not run yet.

    ``cached``: those of which some use is answered from Spark's cache. ``only_rows``: whether the query may fail on
    rows that they do not have, such as deleted ones.
    """

    def __init__(
        self, session: Session, tables: QueryTables, sites: Mapping[Key, list[Site]], cached: frozenset[Key]
    ) -> None:
        self.sites = sites
        self.cached = cached
        self.only_rows = False
        self.judged: dict[Key, Judged] = {}
        self.uses: dict[Key, list[Use]] = {}
        self._session = session
        self._tables = tables
        self._opened: dict[Key, IcebergRelation] = {}
        self._stable: set[Key] = set()

    @property
    def planned(self) -> dict[Key, Planned]:
        """Those that are read through indexes."""
        return {key: one for key, one in self.judged.items() if isinstance(one, Planned) and key in self.sites}

    @property
    def replaceable(self) -> frozenset[Key]:
        """Those of which no use is answered from Spark's cache."""
        return frozenset(self.sites.keys() - self.cached)

    def predicate(self, key: Key) -> core.Predicate | None:
        """What holds for all rows that matter of a relation; None: nothing that narrows is known."""
        uses = self.uses.get(key)
        try:
            return find_predicate(self.opened(key), uses) if uses else None
        except RelationRefused:
            return None

    def judge(self, uses: Mapping[Key, list[Use]]) -> None:
        """Plan the read of each relation for its uses."""
        self.uses = {key: uses[key] for key in self.sites}
        self.judged = {key: self._judged(key, ()) for key in self.sites}

    def narrow(self, key: Key, known: tuple[Known, ...]) -> None:
        """Plan the read of a relation of which more is ``known``."""
        self.judged[key] = self._judged(key, known)

    def opened(self, key: Key) -> IcebergRelation:
        """A relation with its table. Raises RelationRefused when it is read as Spark reads it."""
        found = self._opened.get(key)
        if found is None:
            self._require_stable(key)
            first = self.sites[key][0]
            found = self._tables.open_relation(key, first.node, first.java, self._session.wap_branch)
            self._opened[key] = found
        return found

    def options(self, relation: IcebergRelation) -> ReadOptions:
        """How a relation is read."""
        namespace = self._session.limits.index_namespace
        return ReadOptions(snapshot_id=relation.snapshot_id, index_namespace=namespace)

    def join(self, key: Key, name: str, lines: Sequence[str]) -> None:
        """Say that a relation is read through its joins, and how."""
        self.judged[key] = RelationExplanation(name, joined=tuple(lines))

    def note(self, key: Key, lines: Sequence[str]) -> None:
        """Say more of a relation."""
        one = self.judged[key]
        if isinstance(one, RelationExplanation):
            self.judged[key] = replace(one, joined=(*one.joined, *lines))
        else:
            self.judged[key] = replace(one, notes=(*one.notes, *lines))

    def refuse(self, key: Key, refusal: Refusal, detail: str = "") -> None:
        """Leave a planned relation to Spark after all."""
        one = self.judged[key]
        if isinstance(one, Planned):
            self.judged[key] = one.refused(refusal, detail)

    def guard(self, key: Key, text: str, plan: ReadPlan | None) -> None:
        """Say why Iceberg chooses no files of a relation that no index narrows, and which are read."""
        one = self.judged.get(key)
        if isinstance(one, RelationExplanation):
            self.judged[key] = replace(one, guard=text, plan=plan or one.plan)

    @contextmanager
    def explaining(self, key: Key, planned: Planned) -> Iterator[None]:
        """What fails or is refused inside becomes the explanation of a planned relation."""
        try:
            yield
        except PlanRefused as refused:
            self.judged[key] = RelationExplanation(planned.relation.name, refused.refusal, plan=refused.plan)
        except Exception as error:  # noqa: BLE001 - a relation that fails is read as Spark reads it
            self.judged[key] = _failed(planned.relation.name, error)

    def _require_stable(self, key: Key) -> None:
        if key in self.cached:
            raise RelationRefused(Refusal.CACHED)
        for site in self.sites[key] if key not in self._stable else ():
            _require_stable(site)
        self._stable.add(key)

    def _judged(self, key: Key, known: tuple[Known, ...]) -> Judged:
        name = str(self.sites[key][0].java.table().name())
        try:
            return self._plan(key, known)
        except PlanRefused as refused:
            return RelationExplanation(name, refused.refusal, refused.detail, refused.plan)
        except RelationRefused as refused:
            return RelationExplanation(name, refused.refusal, refused.detail)
        except Exception as error:  # noqa: BLE001 - a relation that fails is read as Spark reads it
            return _failed(name, error)

    def _plan(self, key: Key, known: tuple[Known, ...]) -> Planned:
        uses, site = self.uses[key], self.sites[key][0]
        self._require_stable(key)
        if not known and (unconditional := [use for use in uses if use.condition is None]):
            raise RelationRefused(unconditional[0].refusal)
        relation = self.opened(key)
        predicate = find_predicate(relation, uses, [one.condition for one in known])
        columns = driver_columns(site.java, relation.schema, find_used(relation, uses))
        demand = Demand(relation, predicate, columns, self._session.limits, self.only_rows)
        planned = Planned(demand, choose_reading(demand), len(uses) > 1, known)
        plan, is_narrowing = planned.plan, planned.plan.funnel.read < planned.files_of_spark
        if not plan.indexes and not known and not (plan.filters and plan.filters.dropped):
            raise PlanRefused(Refusal.NO_INDEX, plan)
        if not is_narrowing and not any(use.used for use in plan.indexes):
            raise PlanRefused(Refusal.INDEX_NOT_USED if plan.indexes else Refusal.NO_INDEX, plan)
        if not is_narrowing and planned.reading.driver is None:
            raise PlanRefused(Refusal.NOT_NARROWING, plan)
        return planned


def sites_of(jvm: Jvm, query: Scope) -> dict[Key, list[Site]]:
    """Every place of each Iceberg relation of a query."""
    found: dict[Key, list[Site]] = {}
    for scope in query.all():
        relations = frozenset(scope.relations)
        leaves = scope.handle().collectLeaves() if relations else None
        for at, node in enumerate(node for node in scope.tree.walk() if not node.children):
            java = cast(Relation, leaves.apply(at)) if leaves is not None and node in relations else None
            if java is not None and is_iceberg(jvm, java):
                found.setdefault(key_of(node), []).append(Site(scope, node, java))
    return found


def _require_stable(site: Site) -> None:
    """Refuse a relation when an expression above it would see other rows, or in another order, and answer otherwise."""
    if (lineage := lineage_ids(site.node)) and names_any(site.scope, lineage):
        raise RelationRefused(Refusal.ROW_LINEAGE)
    above = ancestors(site.scope.tree, site.node)
    if any(node.name == "Sample" for node in above):
        raise RelationRefused(Refusal.SAMPLED)
    plan = site.scope.handle()
    if plan.deterministic():
        return
    for node in above:
        if not all(expression.deterministic() for expression in items(descend(plan, node.path).expressions())):
            raise RelationRefused(Refusal.NON_DETERMINISTIC)


def _failed(name: str, error: Exception) -> RelationExplanation:
    logger.warning("%s: %s is read without indexes: %s", Refusal.FAILED.value, name, first_line(error))
    return RelationExplanation(name, Refusal.FAILED, first_line(error))


def first_line(error: Exception) -> str:
    """What an error says, without stack traces of the JVM."""
    said = error.java_exception.toString() if isinstance(error, Py4JJavaError) else error
    return next((line for line in str(said).splitlines() if line.strip()), type(error).__name__)
