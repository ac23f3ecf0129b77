"""Rewrites one query: for each Iceberg relation the files to read, then the plan that reads them.

Called by ``session``. Each relation is judged by itself; what is refused, or fails, stays as it was.
Must not know Python DataFrames.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from skipstone_core.errors import BadData

from skipstone.compat.catalyst import (
    DATASETS,
    Dataset,
    JavaSession,
    LocalRelation,
    LogicalPlan,
    Relation,
)
from skipstone.compat.java import Jvm, items, java_class
from skipstone.query.planner import ReadOptions, ReadPlan, plan_keys, plan_read
from skipstone.query.plans.analysis.catalyst import Node, descend, output_ids
from skipstone.query.plans.analysis.demands import find_predicate, find_used
from skipstone.query.plans.analysis.layouts import Layout, has_joins, layout_of, leaves_few
from skipstone.query.plans.analysis.normalize import with_fixed_time, with_inlined_ctes
from skipstone.query.plans.analysis.relations import (
    IcebergRelation,
    RelationRefused,
    is_iceberg,
    open_relation,
    reads_row_lineage,
)
from skipstone.query.plans.analysis.uses import Key, Scope, Use, ancestors, key_of, open_scope, uses_of
from skipstone.query.plans.explanation import Explanation, RelationExplanation
from skipstone.query.plans.joining import Joined, KeysOfJoin, Runner, Target, with_small_sides
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacing.driver import (
    DriverRead,
    DriverReadLimits,
    driver_columns,
    driver_read,
    read_rows,
    to_spark,
    with_rows,
)
from skipstone.query.plans.replacing.rebuild import Rebuilder
from skipstone.query.plans.replacing.residuals import Json, columns_of, residual_of
from skipstone.query.plans.replacing.staging import StagedScan, pinned, split_size, staged_table, with_table
from skipstone.query.plans.replacing.trial import try_plan

logger = logging.getLogger("skipstone.query")

_RECURSIVE = frozenset({"UnionLoop", "UnionLoopRef"})


@dataclass(frozen=True)
class Session:
    """What rewriting needs of a Spark session."""

    jvm: Jvm
    spark: SparkSession
    java: JavaSession
    index_namespace: str | None
    wap_branch: str | None
    limits: DriverReadLimits
    join_rows: int = 0


@dataclass(frozen=True, eq=False)
class _Site:
    """Where a relation is: in which plan, and its handle."""

    scope: Scope
    node: Node
    java: Relation


@dataclass(frozen=True, eq=False)
class _Planned:
    """A relation with the files to read of it."""

    relation: IcebergRelation
    plan: ReadPlan
    is_shared: bool
    driver: DriverRead | None
    keys: tuple[KeysOfJoin, ...] = ()

    def explained(self) -> RelationExplanation:
        """What is done with it."""
        joined = tuple(one.text() for one in self.keys)
        return RelationExplanation(self.relation.name, plan=self.plan, driver=self.driver, joined=joined)

    def refused(self, refusal: Refusal, detail: str = "") -> RelationExplanation:
        """Why it is read as Spark reads it after all."""
        return RelationExplanation(self.relation.name, refusal, detail, self.plan)

    @property
    def is_partitioned(self) -> bool:
        """Whether files of the table are, or were, partitioned."""
        return any(spec.fields for spec in self.relation.table.specs().values())

    @property
    def files_of_spark(self) -> int:
        """How many files Spark would read: it prunes by bounds too, but does not know the keys of joins."""
        return self.plan.funnel.total if self.keys else self.plan.funnel.min_max

    @property
    def task_files(self) -> int:
        """How many files are left for tasks to read."""
        here: set[int] = set()
        if self.driver is not None:
            here |= {*self.driver.ordinals, *self.driver.scanned}
            if self.driver.takes_answer and self.plan.answer is not None:
                here |= set(self.plan.answer.ordinals.tolist())
        return len(set(self.plan.ordinals) - here)


@dataclass(frozen=True, eq=False)
class _Replaced:
    """What a relation becomes: rows that the driver read, and what is staged of the rest."""

    rows: LocalRelation | None
    staged: StagedScan | None


class Rewriting:
    """The rewriting of one analyzed plan, of which Spark has run the commands.

    ``with_cached``: gives the plan with what Spark's cache answers; None: nothing. Raises RelationRefused when queries
    like it are never rewritten.
    """

    def __init__(
        self, session: Session, analyzed: LogicalPlan, with_cached: Callable[[], LogicalPlan] | None = None
    ) -> None:
        self._session = session
        self._jvm = session.jvm
        self._query = _opened(session.jvm, analyzed)
        self._joined = self._with_small_sides()
        if self._joined is not None:
            self._query = open_scope(session.jvm, self._joined.plan)
        self._sites = self._found_sites()
        self._cached = self._cached_keys(analyzed, with_cached) if self._sites and with_cached else frozenset()
        self._judged: dict[Key, _Planned | RelationExplanation] = {}
        if self._sites:
            uses = uses_of(session.jvm, self._query)
            self._judged = {key: self._judge(key, sites, uses[key]) for key, sites in self._sites.items()}

    @property
    def explanation(self) -> Explanation:
        """What became of each relation, in the order of the plan."""
        own = (one if isinstance(one, RelationExplanation) else one.explained() for one in self._judged.values())
        ran = (one for side in (self._joined.sides if self._joined else ()) for one in side.relations)
        return Explanation((*own, *ran))

    def rewritten(self) -> Dataset | None:
        """The Dataset that reads the files planned, as Spark will run it; None when nothing was planned."""
        found = self._narrowed()
        return self.as_it_is() if found is None and self._joined is not None else found

    def as_it_is(self) -> Dataset:
        """The Dataset that reads all files of the relations, of the snapshots that they have."""
        return self._dataset_of(self._rebuilt({}))

    def _narrowed(self) -> Dataset | None:
        """The Dataset that reads the files planned; None when no relation was."""
        layout = self._layout()
        if layout is not None:
            self._leave_filtered(layout)
        found = self._replaced_all(self._read)
        rewritten = self._runnable(found)
        if rewritten is None or layout is None or not (grouped := self._joined_by_partition(layout, rewritten)):
            return rewritten
        for key in grouped:
            self._judged[key] = self._planned()[key].refused(Refusal.PARTITIONED_JOIN)
        return self._runnable({key: one for key, one in found.items() if key not in grouped})

    def _layout(self) -> Layout | None:
        """What Spark makes of the layout of the tables when it runs the query as it is; None: nothing of interest."""
        partitioned = any(one.is_partitioned for one in self._planned().values())
        if not partitioned or not has_joins(self._query):
            return None
        return layout_of(self._dataset_of(self._query.handle()).queryExecution())

    def _leave_filtered(self, layout: Layout) -> None:
        """Leave relations to Spark that it filters when the query runs, unless their index saves more."""
        for key, one in self._planned().items():
            is_filtered = bool(self._columns(key) & layout.filtered)
            if is_filtered and not leaves_few(one.task_files, one.files_of_spark):
                self._judged[key] = one.refused(Refusal.RUNTIME_FILTER)

    def _joined_by_partition(self, layout: Layout, rewritten: Dataset) -> frozenset[Key]:
        """The relations that Spark joins by their partitions as long as they are not rewritten."""
        grouped = frozenset(key for key in self._planned() if self._columns(key) & layout.grouped)
        if not grouped or layout_of(rewritten.queryExecution()).shuffles <= layout.shuffles:
            return frozenset()
        return grouped

    def _columns(self, key: Key) -> frozenset[int]:
        return frozenset(number for site in self._sites[key] for number in output_ids(site.node))

    def _runnable(self, found: dict[Key, _Replaced]) -> Dataset | None:
        """The Dataset with what was ``found`` in place of its relations, or with as much of it as Spark can plan."""
        if not found:
            return None
        try:
            return self._dataset(found)
        except Exception as error:  # noqa: BLE001 - there is a plainer way
            logger.debug("planned again without rows of the driver and residuals: %s", first_line(error))
        return self._plainly_rewritten(found)

    def _plainly_rewritten(self, found: dict[Key, _Replaced]) -> Dataset | None:
        """The Dataset without what some queries cannot be planned with: unions that the user did not write, and
        residuals, as the optimizer may copy a relation without the columns that its residual names.
        """
        plain = self._replaced_all(lambda key, one: found[key] if found[key].staged is None else self._staged(key, one))
        try:
            return self._dataset(plain) if plain else None
        except Exception as error:  # noqa: BLE001 - the query runs as Spark runs it
            for key, one in self._planned().items():
                self._judged[key] = one.refused(Refusal.CANNOT_PLAN, first_line(error))
            logger.warning("%s: the query runs without indexes: %s", Refusal.CANNOT_PLAN.value, first_line(error))
            return None

    def _dataset(self, found: dict[Key, _Replaced]) -> Dataset:
        """The query with what was ``found`` in place of its relations. Raises when Spark cannot run it."""
        dataset = self._dataset_of(self._rebuilt(found))
        try_plan(dataset)
        return dataset

    def _rebuilt(self, found: Mapping[Key, _Replaced]) -> LogicalPlan:
        """The query with what was ``found`` in place of its relations. The others are pinned, so that all of it is of
        one moment whenever it runs; but what is cached Spark finds by its name.
        """

        def replace(key: Key, java: Relation) -> LogicalPlan:
            if key not in found:
                return pinned(self._jvm, java)
            one = found[key]
            staged = None if one.staged is None else with_table(self._jvm, java, one.staged)
            if one.rows is None:  # then something is staged
                return cast(LogicalPlan, staged)
            return with_rows(self._jvm, java, one.rows, staged)

        plan = Rebuilder(self._jvm, self._sites.keys() - self._cached, replace).plan(self._query)
        plan.setAnalyzed()
        return plan

    def _dataset_of(self, plan: LogicalPlan) -> Dataset:
        """The Dataset that runs an analyzed plan."""
        return java_class(self._jvm, DATASETS).ofRows(self._session.java, plan)

    def _with_small_sides(self) -> Joined | None:
        """The query with the small sides of joins run; None when nothing is gained, or something goes wrong."""
        session, query = self._session, self._query
        cache = session.java.sharedState().cacheManager()
        if not session.join_rows or not query.relations or not has_joins(query) or not cache.isEmpty():
            return None
        runner = Runner(session.jvm, session.spark, session.java, self._prepared, self._target, session.join_rows)
        try:
            found = with_small_sides(runner, query)
            if found is not None:
                try_plan(self._dataset_of(found.plan))
            return found
        except Exception as error:  # noqa: BLE001 - a join can always run as Spark runs it
            logger.warning("no side of a join runs first: %s", first_line(error))
            return None

    def _prepared(self, plan: LogicalPlan) -> tuple[Dataset, Explanation]:
        """A side of a join as a query of its own."""
        side = Rewriting(self._session, plan)
        return side.rewritten() or side.as_it_is(), side.explanation

    def _target(self, node: Node, java: Relation) -> Target | None:
        """What an index could leave out of a relation if keys were known."""
        if not is_iceberg(java):
            return None
        relation = open_relation(self._session.jvm, node, java, self._session.wap_branch)
        options = ReadOptions(snapshot_id=relation.snapshot_id, index_namespace=self._session.index_namespace)
        served, cost = plan_keys(relation.table, options)
        columns = {number: column for number, column in relation.columns.items() if column[0] in served}
        return Target(columns, cost) if columns else None

    def _planned(self) -> dict[Key, _Planned]:
        return {key: one for key, one in self._judged.items() if isinstance(one, _Planned)}

    def _replaced_all(self, replaced: Callable[[Key, _Planned], _Replaced]) -> dict[Key, _Replaced]:
        """What takes the place of each relation; where that fails or is refused, it becomes its explanation."""
        found: dict[Key, _Replaced] = {}
        for key, one in self._planned().items():
            try:
                found[key] = replaced(key, one)
            except _NotUsed as refused:
                self._judged[key] = RelationExplanation(one.relation.name, refused.refusal, plan=refused.plan)
            except Exception as error:  # noqa: BLE001 - a relation that fails is read as Spark reads it
                self._judged[key] = _failed(one.relation.name, error)
        return found

    def _read(self, key: Key, planned: _Planned) -> _Replaced:
        """The rows that the driver reads, and the other files as tasks."""
        plan, rows = planned.plan, None
        if planned.driver is not None:
            try:
                found = read_rows(planned.relation.table, plan, planned.driver, self._session.limits)
            except BadData:  # of a format, or with deletes, that only Spark reads
                return self._staged(key, planned)
            self._judged[key] = dataclasses.replace(planned, driver=found.read)
            rows = to_spark(self._session.spark, planned.driver.columns, found.rows) if found.read else None
            plan = dataclasses.replace(plan, ordinals=found.rest)
        if rows is not None and not plan.ordinals:
            return _Replaced(rows, None)
        # a use reads the columns of its own condition only, and a residual must not name others
        residual = None if planned.is_shared or plan.predicate is None else residual_of(plan.predicate)
        return _Replaced(rows, self._tasks(planned.relation, plan, residual))

    def _staged(self, key: Key, planned: _Planned) -> _Replaced:
        """All files as tasks, and nothing else. Raises _NotUsed when these are all files that Spark would read."""
        if len(planned.plan.ordinals) >= planned.files_of_spark:
            raise _NotUsed(Refusal.NOT_NARROWING, planned.plan)
        self._judged[key] = dataclasses.replace(planned, driver=None)
        return _Replaced(None, self._tasks(planned.relation, planned.plan, None))

    def _tasks(self, relation: IcebergRelation, plan: ReadPlan, residual: Json | None) -> StagedScan:
        size = split_size(plan, self._session.limits.parallelism)
        return StagedScan(staged_table(self._jvm, relation, plan, residual), columns_of(residual), size)

    def _found_sites(self) -> dict[Key, list[_Site]]:
        """Every place of each Iceberg relation."""
        found: dict[Key, list[_Site]] = {}
        for scope in self._query.all():
            for node in scope.relations:
                java = cast(Relation, descend(scope.handle(), node.path))
                if is_iceberg(java):
                    found.setdefault(key_of(node), []).append(_Site(scope, node, java))
        return found

    def _cached_keys(self, analyzed: LogicalPlan, with_cached: Callable[[], LogicalPlan]) -> frozenset[Key]:
        """Relations of which some use is answered from Spark's cache."""
        answered = with_cached()  # in any case: Spark looks once for all runs of a DataFrame
        if self._session.java.sharedState().cacheManager().isEmpty():
            return frozenset()
        before, after = (_counts(open_scope(self._jvm, plan)) for plan in (analyzed, answered))
        lost = frozenset(key for key, count in before.items() if after[key] < count)
        return frozenset(self._sites) if lost and not lost <= self._sites.keys() else lost

    def _judge(self, key: Key, sites: list[_Site], uses: list[Use]) -> _Planned | RelationExplanation:
        name = str(sites[0].java.table().name())
        try:
            if key in self._cached:
                raise RelationRefused(Refusal.CACHED)
            for site in sites:
                _require_stable(site)
            return self._plan(sites[0], uses)
        except _NotUsed as refused:
            return RelationExplanation(name, refused.refusal, refused.detail, refused.plan)
        except RelationRefused as refused:
            return RelationExplanation(name, refused.refusal, refused.detail)
        except Exception as error:  # noqa: BLE001 - a relation that fails is read as Spark reads it
            return _failed(name, error)

    def _plan(self, site: _Site, uses: list[Use]) -> _Planned:
        keys = self._joined.keys.get(key_of(site.node), ()) if self._joined else ()
        if not keys and (unconditional := [use for use in uses if use.condition is None]):
            raise RelationRefused(unconditional[0].refusal)
        relation = open_relation(self._jvm, site.node, site.java, self._session.wap_branch)
        predicate = find_predicate(relation, uses, [one.condition for one in keys])
        namespace = self._session.index_namespace
        limits, used = self._session.limits, find_used(relation, uses)
        columns = driver_columns(site.java, relation.schema, used) if limits.rows else None
        by_position = columns is not None
        options = ReadOptions(snapshot_id=relation.snapshot_id, index_namespace=namespace, by_position=by_position)
        plan = plan_read(relation.table, predicate, options, columns.names if columns else None)
        if not plan.indexes:
            raise _NotUsed(Refusal.NO_INDEX, plan)
        planned = _Planned(relation, plan, len(uses) > 1, None, keys)
        if not any(use.used for use in plan.indexes) and planned.files_of_spark == plan.funnel.read:
            raise _NotUsed(Refusal.INDEX_NOT_USED, plan)
        driver = driver_read(plan, columns, limits) if columns else None
        if driver is None and plan.funnel.read == planned.files_of_spark:
            raise _NotUsed(Refusal.NOT_NARROWING, plan)
        return dataclasses.replace(planned, driver=driver)


class _NotUsed(RelationRefused):
    """Refused after planning: the plan says why."""

    def __init__(self, refusal: Refusal, plan: ReadPlan) -> None:
        super().__init__(refusal)
        self.plan = plan


def _opened(jvm: Jvm, analyzed: LogicalPlan) -> Scope:
    """The query as it will run: common table expressions inlined, the current time fixed."""
    if analyzed.isStreaming():
        raise RelationRefused(Refusal.STREAMING)
    query = open_scope(jvm, analyzed)
    names = {node.name for scope in query.all() for node in scope.tree.walk()}
    if "CommandResult" in names:
        raise RelationRefused(Refusal.COMMAND)
    if names & _RECURSIVE:
        raise RelationRefused(Refusal.RECURSIVE)
    if not any(scope.relations for scope in query.all()):
        return query
    final = with_fixed_time(jvm, with_inlined_ctes(jvm, analyzed) if "WithCTE" in names else analyzed)
    return query if final.fastEquals(analyzed) else open_scope(jvm, final)


def _counts(query: Scope) -> Counter[Key]:
    return Counter(key_of(node) for scope in query.all() for node in scope.relations)


def _require_stable(site: _Site) -> None:
    """Refuse a relation when an expression above it would see other rows, or in another order, and answer otherwise."""
    if reads_row_lineage(site.node):
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
