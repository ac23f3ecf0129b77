"""Rewrites one query: for each Iceberg relation the files to read, then the plan that reads them.

Called by ``session``. Must not know Python DataFrames.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from skipstone.compat.catalyst import PROJECT, Dataset, LogicalPlan, QueryExecution
from skipstone.compat.java import Jvm, scala_object
from skipstone.query.plans.analysis.catalyst import output_ids
from skipstone.query.plans.analysis.failing import may_fail
from skipstone.query.plans.analysis.layouts import Layout, has_joins, layout_of, leaves_few
from skipstone.query.plans.analysis.longlists import with_sets
from skipstone.query.plans.analysis.normalize import (
    normalized,
    with_fixed_time,
    with_inlined_ctes,
    with_joins_of_subqueries,
    with_needed_columns,
)
from skipstone.query.plans.analysis.relations import QueryTables, RelationRefused
from skipstone.query.plans.analysis.uses import RELATION, Key, Scope, key_of, open_scope, uses_of, uses_of_normalized
from skipstone.query.plans.covering.candidates import Normal, has_covering_index
from skipstone.query.plans.covering.planning import join_by_buckets
from skipstone.query.plans.explanation import Explanation, RelationExplanation
from skipstone.query.plans.guarding.pushdown import keys_at_risk
from skipstone.query.plans.guarding.risks import find_risks
from skipstone.query.plans.joining.choosing import SmallSides
from skipstone.query.plans.joining.sides import PlanSides
from skipstone.query.plans.joining.subqueries import become_joins, depth
from skipstone.query.plans.joining.weights import Weights
from skipstone.query.plans.planning import Planned, RelationPlans, Session, Site, first_line, sites_of
from skipstone.query.plans.prospects import Prospects
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacements import Replacements, Replacing
from skipstone.query.plans.replacing.gathering import aggregated_at_once
from skipstone.query.plans.replacing.rebuild import Rebuilder, closed

logger = logging.getLogger("skipstone.query")

_RECURSIVE = frozenset({"UnionLoop", "UnionLoopRef"})
#: Nodes that see how often, or for which rows of another plan, what is below them runs.
_BOUND = frozenset({"CollectMetrics", "LateralJoin", "Sample", *_RECURSIVE})

#: The expression that numbers rows with gaps.
_NUMBERS = "MonotonicallyIncreasingID"


class Rewriting:
    """The rewriting of one analyzed plan, of which Spark has run the commands.

    ``execution``: what runs it as it is, and knows what Spark's cache answers; None: nothing is cached. ``in_full``:
    explains also what was looked at closely for nothing. Raises RelationRefused when such queries are never rewritten.
    """

    def __init__(
        self,
        session: Session,
        analyzed: LogicalPlan,
        execution: QueryExecution | None = None,
        *,
        in_full: bool = True,
    ) -> None:
        self._session = session
        self._jvm = session.jvm
        self._query = self._original = _opened(session.jvm, analyzed)
        self._analyzed, self._execution = analyzed, execution
        sites, tables = sites_of(self._jvm, self._query), QueryTables(session.jvm)
        self._sites, risks = sites, find_risks(tables, self._query, sites)
        prospects = Prospects(tables, self._query, session.limits.index_namespace)
        self._is_recursive = _names(self._query) & _RECURSIVE != frozenset()
        hopeless = None if in_full else prospects.hopeless(sites)
        if self._is_recursive:
            hopeless = {key: RelationExplanation(_name(site), Refusal.RECURSIVE) for key, (site, *_) in sites.items()}
        sites = {} if hopeless else sites
        self._relations = RelationPlans(session, tables, sites, self._cached(sites))
        self._replacing = Replacing(session, self._relations, risks)
        self._ran: tuple[Key, ...] = ()
        self._relations.judged |= hopeless or {}
        if sites:
            self._judge()

    def _judge(self) -> None:
        self._relations.only_rows = may_fail(self._query)
        if not self._judged_as_joins():
            self._relations.judge(uses_of(self._jvm, self._query))
        if self._session.by_buckets:
            self._join_by_buckets()

    @property
    def explanation(self) -> Explanation:
        """What became of each relation, in the order of the plan; those of sides that ran come last."""
        judged = self._relations.judged
        if self._is_recursive and not any(_explained(one).guard for one in judged.values()):
            return Explanation(refusal=Refusal.RECURSIVE)
        keys = [*(key for key in judged if key not in self._ran), *self._ran]
        return Explanation(tuple(_explained(judged[key]) for key in keys))

    def rewritten(self) -> Dataset | None:
        """The Dataset that reads the files planned, as Spark will run it; None when nothing was planned."""
        found = self._narrowed()
        if found is None:
            return self._with_sides() if self.has_sides else self._without_loss()
        return found

    @property
    def is_at_risk(self) -> bool:
        """Whether Iceberg may lose rows of the query as it is."""
        return bool(self._replacing.risks)

    @property
    def has_sides(self) -> bool:
        """Whether a side of a join, or a subquery, ran first, or relations are joined by buckets."""
        return self._query is not self._original

    def unjoined(self) -> Dataset:
        """The Dataset in whose plan nothing ran first and no bucket is joined, of the same snapshots and time."""
        plain = Rewriting(replace(self._session, join_rows=0, by_buckets=False), self._original.handle())
        return plain.rewritten() or plain.as_it_is()

    def as_it_is(self) -> Dataset:
        """The Dataset that reads all files of the relations, of the snapshots that they have."""
        return self._replacing.dataset(self._rebuilt({}))

    # --- small sides of joins ---

    def _judged_as_joins(self) -> bool:
        """Plan the relations of a query whose small sides run first; False for a query of which none does."""
        try:
            normal = self._as_joins() if self._session.join_rows else None
            if normal is None:
                return False
            self._relations.judge(uses_of_normalized(self._jvm, self._query, normal))
            self._run_sides(normal)
        except Exception as error:  # noqa: BLE001 - a join can always run as Spark runs it
            logger.warning("no side of a join runs first: %s", first_line(error))
            return False
        return True

    def _as_joins(self) -> Scope | None:
        """The query, normalized, with joins in place of subqueries; None when its joins stay as they are."""
        query, session = self._query, self._session
        if not has_joins(query) or not session.java.sharedState().cacheManager().isEmpty():
            return None
        if any(node.name in _BOUND for scope in query.all() for node in scope.tree.walk()):
            return None
        plan = query.handle()
        if query.inner and become_joins(query.inner):
            plan = with_joins_of_subqueries(self._jvm, plan, depth(query.inner))
        plan = with_sets(self._jvm, normalized(self._jvm, plan, as_joins=True))
        return open_scope(self._jvm, plan) if plan.deterministic() else None

    def _run_sides(self, normal: Scope) -> None:
        plan = normal.handle()
        sides = PlanSides(self._replacing, plan, normal.tree, self._session.join_rows)
        if not SmallSides(sides, Weights(self._relations), normal.inner).run():
            return
        # people may name columns by the aliases of their relations
        rows = scala_object(self._jvm, PROJECT).apply(self._query.handle().output(), sides.plan())
        self._query = open_scope(self._jvm, rows)
        sites = sites_of(self._jvm, self._query)
        self._ran = tuple(key for key in self._relations.sites if key not in sites)
        self._relations.sites = sites

    # --- joins by the buckets of covering indexes ---

    def _join_by_buckets(self) -> None:
        """Join the query through covering indexes where something is gained."""
        try:
            relations, namespace = self._relations, self._session.limits.index_namespace
            if not has_covering_index(relations, namespace) or (normal := self._as_joins()) is None:
                return
            query = Normal(normal.handle(), normal.tree)
            covered = join_by_buckets(self._session, relations, query, self._query.handle())
        except Exception as error:  # noqa: BLE001 - a join can always run as Spark runs it
            logger.warning("no join runs by buckets: %s", first_line(error))
            return
        for key, facts in covered.joined.items():
            self._relations.join(key, facts.table, facts.lines())
        for key, unjoined in covered.unjoined.items():
            self._relations.note(key, [one.text() for one in unjoined])
        if covered.plan is not None:
            self._query = open_scope(self._jvm, covered.plan)
            self._relations.sites = sites_of(self._jvm, self._query)

    def _with_sides(self) -> Dataset | None:
        """The Dataset of a query of which sides ran and no relation is narrowed; without these where it cannot run."""
        try:
            return self._replacing.as_it_is(self._rebuilt)
        except Exception as error:  # noqa: BLE001 - a join can always run as Spark runs it
            logger.warning("%s: joins run as Spark runs them: %s", Refusal.CANNOT_PLAN.value, first_line(error))
            return None

    # --- what Iceberg would lose ---

    def _without_loss(self) -> Dataset | None:
        """The Dataset of a query that no index narrows, and of which Iceberg would lose rows; None of any other."""
        relations, risks = self._relations, self._replacing.risks
        if not risks or not keys_at_risk(self._optimized(), risks):
            return None
        if not relations.sites:  # not looked at closely until now
            relations.sites, relations.cached = self._sites, self._cached(self._sites)
            relations.uses = {} if self._is_recursive else uses_of(self._jvm, self._query)
        return self._replacing.as_it_is(self._rebuilt)

    def _optimized(self) -> LogicalPlan:
        """What Spark makes of the query as it is: what runs it has that already, or will need it."""
        execution = self._execution or self._replacing.dataset(self._original.handle()).queryExecution()
        return execution.optimizedPlan()

    def _cached(self, sites: Mapping[Key, Sequence[Site]]) -> frozenset[Key]:
        if not sites or self._execution is None:
            return frozenset()
        return _cached_keys(self._session, self._analyzed, sites.keys(), self._execution.withCachedData)

    # --- the plan ---

    def _narrowed(self) -> Dataset | None:
        """The Dataset that reads the files planned; None when no relation was."""
        layout = self._layout()
        if layout is not None:
            self._leave_filtered(layout)
        found = self._replacing.read()
        rewritten = self._replacing.runnable(found, self._rebuilt)
        if rewritten is None or layout is None or not (grouped := self._joined_by_partition(layout, rewritten)):
            return rewritten
        for key in grouped:
            self._relations.refuse(key, Refusal.PARTITIONED_JOIN)
        return self._replacing.runnable({key: one for key, one in found.items() if key not in grouped}, self._rebuilt)

    def _layout(self) -> Layout | None:
        """What Spark makes of the layout of the tables when it runs the query as it is; None: nothing of interest."""
        partitioned = any(one.is_partitioned for one in self._relations.planned.values())
        if not partitioned or not has_joins(self._original):
            return None
        return layout_of(self._replacing.dataset(self._original.handle()).queryExecution())

    def _leave_filtered(self, layout: Layout) -> None:
        """Leave relations to Spark that it filters when the query runs, unless their index saves more."""
        for key, one in self._relations.planned.items():
            filtered = self._columns(key) & layout.filtered - {known.column for known in one.known}
            if filtered and not leaves_few(one.reading.task_files, one.files_of_spark):
                self._relations.refuse(key, Refusal.RUNTIME_FILTER)

    def _joined_by_partition(self, layout: Layout, rewritten: Dataset) -> frozenset[Key]:
        """The relations that Spark joins by their partitions as long as they are not rewritten."""
        grouped = frozenset(key for key in self._relations.planned if self._columns(key) & layout.grouped)
        if not grouped or layout_of(rewritten.queryExecution()).shuffles <= layout.shuffles:
            return frozenset()
        return grouped

    def _columns(self, key: Key) -> frozenset[int]:
        return frozenset(number for site in self._relations.sites[key] for number in output_ids(site.node))

    def _rebuilt(self, found: Replacements) -> LogicalPlan:
        """The query with what was ``found`` in place of its relations. What is cached Spark finds by its name."""

        relations, node = self._relations, self._replacing.node
        keys = relations.sites.keys() - relations.cached
        few = frozenset(key for key, one in found.items() if one.is_few)
        at_once = aggregated_at_once(self._query.tree, lambda leaf: leaf.name == RELATION and key_of(leaf) in few)
        plan = Rebuilder(self._jvm, keys, lambda key, java: node(found, key, java), at_once).plan(self._query)
        if any(one.lacks_columns for one in found.values()):
            plan = closed(self._jvm, plan)
        plan.setAnalyzed()
        return plan


def _explained(judged: Planned | RelationExplanation) -> RelationExplanation:
    return judged if isinstance(judged, RelationExplanation) else judged.explained()


def _names(query: Scope) -> frozenset[str]:
    """The names of all nodes."""
    return frozenset(node.name for scope in query.all() for node in scope.tree.walk())


def _numbers_rows(query: Scope) -> bool:
    """Whether rows are numbered by their place, as the frames of pandas on Spark are, whether or not that is needed."""
    nodes = (node for scope in query.all() for node in scope.tree.walk())
    return any(
        node.name == "AttachDistributedSequence" or (node.name == "Project" and _NUMBERS in str(node.fields))
        for node in nodes
    )


def _name(site: Site) -> str:
    return str(site.java.table().name())


def _opened(jvm: Jvm, analyzed: LogicalPlan) -> Scope:
    """The query as it will run: common table expressions inlined, the current time fixed."""
    if analyzed.isStreaming():
        raise RelationRefused(Refusal.STREAMING)
    query = open_scope(jvm, analyzed)
    names = _names(query)
    if "CommandResult" in names:
        raise RelationRefused(Refusal.COMMAND)
    if query.tree.name == "LocalRelation":
        raise RelationRefused(Refusal.LOCAL_ROWS)
    if names & _RECURSIVE:
        return query  # as Spark's own rules inline and fold it
    if not any(scope.relations for scope in query.all()):
        return query
    final = with_fixed_time(jvm, with_inlined_ctes(jvm, analyzed) if "WithCTE" in names else analyzed)
    final = with_needed_columns(jvm, final) if _numbers_rows(query) else final
    return query if final.fastEquals(analyzed) else open_scope(jvm, final)


def _cached_keys(
    session: Session, analyzed: LogicalPlan, sites: AbstractSet[Key], with_cached: Callable[[], LogicalPlan]
) -> frozenset[Key]:
    """Relations of which some use is answered from Spark's cache."""
    answered = with_cached()  # in any case: Spark looks once for all runs of a DataFrame
    if session.java.sharedState().cacheManager().isEmpty():
        return frozenset()
    before, after = (_counts(open_scope(session.jvm, plan)) for plan in (analyzed, answered))
    lost = frozenset(key for key, count in before.items() if after[key] < count)
    return frozenset(sites) if lost and not lost <= sites else lost


def _counts(query: Scope) -> Counter[Key]:
    return Counter(key_of(node) for scope in query.all() for node in scope.relations)
