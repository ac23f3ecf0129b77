"""What takes the place of the planned relations of a query: rows that the driver reads, and scans of the other files.

Used by the rules. What fails, or is refused, of a relation becomes the decision about it. No plan that is made here
lets Iceberg lose rows. Must not judge relations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from skipstone_core.errors import BadData

from skipstone.compat.catalyst import UNION, Dataset, LocalRelation, LogicalPlan, Relation
from skipstone.compat.java import scala_object
from skipstone.query.planner import ReadPlan, plan_read
from skipstone.query.plans.analysis.demands import find_used
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.analysis.uses import Key, is_relation, key_of, uses_of
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.fallback import first_line, or_else
from skipstone.query.plans.guarding.pushdown import keys_at_risk
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacing.choice import RelationRead, after_driver
from skipstone.query.plans.replacing.driver import driver_columns, driver_scan, read_rows, to_spark, with_rows
from skipstone.query.plans.replacing.gathering import aggregated_at_once
from skipstone.query.plans.replacing.indexscan import IndexScan, PlanMaker, StagedEntries, stage_entries
from skipstone.query.plans.replacing.rebuild import Rebuilder, closed
from skipstone.query.plans.replacing.replacement import Replacement, Replacements
from skipstone.query.plans.replacing.residuals import Json, residual_of
from skipstone.query.plans.replacing.staging import StagedScan, held_back, pinned, with_table
from skipstone.query.plans.replacing.trial import ReadTwice, Unplannable, try_plan
from skipstone.query.plans.state import Decision, Planned, PlanRefused, QueryState, Session

logger = logging.getLogger("skipstone.query")

#: Makes the plan of a query, or of a part of it, of what takes the place of its relations.
PlanOf = Callable[[Replacements], LogicalPlan]


@dataclass(frozen=True, eq=False)
class Substituted:
    """The decision on a relation, and its replacement; None: it stays."""

    decision: Decision
    replacement: Replacement | None = None


# --- datasets of whole queries ---


def substituted(state: QueryState) -> QueryState:
    """The state with the Dataset that reads what takes the place of relations; without one if the query stays as it is.

    A query of which parts ran, or are joined by buckets, has one also where no relation is replaced, and so has one of
    which Iceberg would lose rows.
    """
    planned = runnable(state, lambda replaced: rebuilt(state, replaced))
    if planned.dataset is not None:
        return planned
    if planned.is_transformed:
        consequence = f"{Refusal.CANNOT_PLAN.value}: joins run as Spark runs them"
        return or_else(lambda: _without_indexes(planned), lambda _: planned, consequence)
    return _without_loss(planned)


def _without_indexes(state: QueryState) -> QueryState:
    return as_it_is(state, lambda replaced: rebuilt(state, replaced))


def _without_loss(state: QueryState) -> QueryState:
    """The state with the Dataset of a query of which Iceberg would lose rows; without one of any other."""
    facts = state.facts
    if not facts.risks or not keys_at_risk(state.session.jvm, _optimized(state), facts.risks):
        return state
    if not state.sites:  # not looked at closely until now
        uses = {} if facts.is_recursive else uses_of(state.session.jvm, state.query)
        state = replace(state, sites=facts.relations, uses=uses)
    return _without_indexes(state)


def _optimized(state: QueryState) -> LogicalPlan:
    """Return Spark's analyzed plan of the query as it is: its execution has one already, or will need it."""
    facts = state.facts
    execution = facts.execution or facts.session.dataset(facts.query.handle()).queryExecution()
    return execution.optimizedPlan()


def rebuilt(state: QueryState, replaced: Replacements) -> LogicalPlan:
    """The query with what was ``replaced`` in place of its relations. What is cached Spark finds by its name."""
    session, replaceable = state.session, _replaceable(state)
    few = frozenset(key for key, replacement in replaced.items() if replacement.is_few)
    lacks_columns = any(replacement.lacks_columns for replacement in replaced.values())
    at_once = aggregated_at_once(state.query.tree, lambda leaf: is_relation(leaf) and key_of(leaf) in few)

    def node(key: Key, java: Relation) -> LogicalPlan:
        return node_of(session, replaced, key, java)

    plan = Rebuilder(session.jvm, replaceable, node, at_once).plan(state.query)
    if lacks_columns:
        plan = closed(session.jvm, plan)
    plan.setAnalyzed()
    return plan


def _replaceable(state: QueryState) -> frozenset[Key]:
    """The relations of which no use is answered from Spark's cache."""
    return frozenset(state.sites.keys() - state.facts.cached)


# --- datasets of plans ---


def runnable(state: QueryState, plan_of: PlanOf) -> QueryState:
    """The state with the Dataset of the plan that ``plan_of`` makes of what was replaced, or of as much of it as Spark
    can plan; without one when there is nothing of it.
    """
    if not state.replaced:
        return replace(state, dataset=None)

    def in_full() -> QueryState:
        try:
            return _planned(state, plan_of)
        except ReadTwice as error:
            logger.debug("planned again without unions: %s", first_line(error))
            return _plainly(state, plan_of, Refusal.READ_TWICE)

    def plainly(_: str) -> QueryState:
        return _plainly(state, plan_of, Refusal.NOT_NARROWING)

    return or_else(in_full, plainly, "planned again without rows of the driver and residuals", logging.DEBUG)


def _plainly(state: QueryState, plan_of: PlanOf, reason: Refusal) -> QueryState:
    """The Dataset without what some queries cannot be planned with: unions that the user did not write, and residuals,
    as the optimizer may copy a relation without the columns that its residual names.

    ``reason``: why it is made, for relations that nothing narrows then.
    """

    def plainer(key: Key, planned: Planned) -> Substituted:
        replacement = state.replaced[key]
        is_plain = replacement.is_local or (reason is Refusal.READ_TWICE and not replacement.is_united)
        return Substituted(planned, replacement) if is_plain else _staged(state.session, planned, reason)

    def refused(text: str) -> QueryState:
        return reduce(lambda left, key: left.refused(key, Refusal.CANNOT_PLAN, text), plain.replaced, plain)

    plain = _each(state, frozenset(state.replaced), plainer)
    if not plain.replaced:
        return plain
    consequence = f"{Refusal.CANNOT_PLAN.value}: the query runs without indexes"
    return or_else(lambda: _planned(plain, plan_of, with_residuals=False), refused, consequence)


def as_it_is(state: QueryState, plan_of: PlanOf) -> QueryState:
    """The state with the Dataset in which only what Iceberg would lose rows of is replaced.

    Raises when Spark cannot run it.
    """
    state = replace(state, replaced={})
    try:
        return _planned(state, plan_of)
    except Unplannable:
        return _planned(state, plan_of, with_residuals=False)


def _planned(state: QueryState, plan_of: PlanOf, *, with_residuals: bool = True) -> QueryState:
    """The Dataset of a plan with what was replaced, and with all that Iceberg would lose rows of read otherwise.

    Raises when Spark cannot run it.
    """
    session, risks, replaced = state.session, state.facts.risks, state.replaced
    dataset = session.dataset(plan_of(replaced))
    while risks and (lost := _lost(state, dataset) - replaced.keys()):
        for key in lost:
            state, replacement = _guarded(state, key, with_residual=with_residuals)
            replaced = {**replaced, key: replacement}
        dataset = session.dataset(plan_of(replaced))
    try_plan(dataset, is_united=any(replacement.is_united for replacement in state.replaced.values()))
    return replace(state, dataset=dataset)


def _lost(state: QueryState, dataset: Dataset) -> frozenset[Key]:
    return keys_at_risk(state.session.jvm, dataset.queryExecution().optimizedPlan(), state.facts.risks) & _replaceable(
        state
    )


def _guarded(state: QueryState, key: Key, *, with_residual: bool) -> tuple[QueryState, Replacement]:
    """A relation whose files Iceberg does not choose: we do, or all are read where we cannot."""
    why = state.facts.risks[key].text()

    def listed() -> tuple[QueryState, Replacement]:
        relation, predicate = state.opened(key), state.predicate(key)
        plan = plan_read(relation.table, predicate, replace(state.options(relation), use_indexes=False))
        is_plain = predicate is None or not with_residual or len(state.uses.get(key, ())) > 1
        residual = None if is_plain or predicate is None else residual_of(predicate)
        staged = _tasks(state.session, relation, plan, residual)
        text = f"{why}: it gets a list of files"
        return state.guarded(key, text, replace(plan, no_index=None)), Replacement(None, staged)

    def held(_: str) -> tuple[QueryState, Replacement]:  # what Iceberg's tasks cannot have is read whole
        text = f"{why}: it gets no conditions, and all files are read"
        return state.guarded(key, text, None), Replacement(None, None, is_held_back=True)

    return or_else(listed, held, "conditions are held back from Iceberg", logging.DEBUG)


# --- relations ---


def read(state: QueryState, keys: frozenset[Key] | None = None) -> QueryState:
    """The state in which planned relations are replaced by rows that the driver reads, by what tasks read of indexes,
    and by the other files; those with ``keys``, None: all.
    """
    return _each(state, keys, lambda _, planned: _read(state.session, planned))


def scan(state: QueryState, keys: frozenset[Key]) -> Replacements:
    """Rows that the driver reads of those of some relations that no index narrows: of small ones it has them before a
    job begins.
    """
    replaced: dict[Key, Replacement] = {}
    for key in (keys & state.sites.keys()) - state.planned.keys():
        rows = _scanned_or_not(state, key)
        if rows is not None:
            replaced[key] = Replacement(rows, None)
    return replaced


def _scanned_or_not(state: QueryState, key: Key) -> LocalRelation | None:
    """What the driver cannot read, Spark reads."""
    return or_else(lambda: _scanned(state, key), lambda _: None, "a relation is left to tasks", logging.DEBUG)


def _scanned(state: QueryState, key: Key) -> LocalRelation | None:
    """All rows that a relation may give; None when that takes longer than a job, or they are too many."""
    relation, known, limits = state.opened(key), state.plan(key), state.session.limits.driver
    columns = driver_columns(state.session.jvm, relation.java, relation.schema, find_used(relation, state.uses[key]))
    if columns is None:
        return None
    options = replace(state.options(relation), use_indexes=False)
    plan = plan_read(relation.table, known.predicate if known else None, options)
    chosen = driver_scan(plan, columns, limits)
    rows = read_rows(relation.table, plan, chosen, limits) if chosen else None
    return None if rows is None or rows.rest else to_spark(state.session.spark, columns, rows.rows)


def node_of(session: Session, replaced: Replacements, key: Key, java: Relation) -> LogicalPlan:
    """What stands in the place of a relation. One that was not ``replaced`` is pinned, so that all of a query is of one
    moment whenever it runs.
    """
    if key not in replaced:
        return pinned(session.jvm, java)
    if replaced[key].is_held_back:
        return held_back(session.jvm, java)
    return reduce(scala_object(session.jvm, UNION).apply, _parts(session, java, replaced[key]))


def _parts(session: Session, java: Relation, replacement: Replacement) -> Iterator[LogicalPlan]:
    """Yield the replacement of a relation in pieces, at least one."""
    if replacement.staged is not None:
        yield with_table(session.jvm, java, replacement.staged)
    if replacement.rows is not None:
        yield with_rows(session.jvm, java, replacement.rows)
    if replacement.entries is not None:
        yield PlanMaker(session.jvm, session.spark, session.java).with_entries(java, replacement.entries)


def _each(
    state: QueryState, keys: frozenset[Key] | None, substitute: Callable[[Key, Planned], Substituted]
) -> QueryState:
    """The state in which the planned relations with ``keys`` (None: all), and no others, are replaced."""
    results = {
        key: _attempted(key, planned, substitute)
        for key, planned in state.planned.items()
        if keys is None or key in keys
    }
    replaced = {key: result.replacement for key, result in results.items() if result.replacement is not None}
    decided = state.with_decisions({key: result.decision for key, result in results.items()})
    return replace(decided, replaced=replaced, dataset=None)


def _attempted(key: Key, planned: Planned, substitute: Callable[[Key, Planned], Substituted]) -> Substituted:
    """Return the replacement of a relation; one that fails is read as Spark reads it."""
    name = planned.relation.name

    def unless_refused() -> Substituted:
        try:
            return substitute(key, planned)
        except PlanRefused as refused:
            return Substituted(RelationExplanation(name, refused.refusal, plan=refused.plan))

    def failed(text: str) -> Substituted:
        return Substituted(RelationExplanation(name, Refusal.FAILED, text))

    return or_else(unless_refused, failed, f"{Refusal.FAILED.value}: {name} is read without indexes")


def _read(session: Session, planned: Planned) -> Substituted:
    reading, rows, left = planned.reading, None, planned.plan.ordinals
    if reading.driver is not None:
        try:
            result = read_rows(planned.relation.table, planned.plan, reading.driver, session.limits.driver)
        except BadData:  # of a format, or with deletes, that only Spark reads
            return _staged(session, planned)
        rows = to_spark(session.spark, reading.driver.columns, result.rows) if result.read else None
        reading = after_driver(planned.demand, reading, result.read)
        left = tuple(np.intersect1d(result.rest, reading.plan.ordinals).tolist())
    return _with_tasks(session, replace(planned, reading=reading), rows, left)


def _with_tasks(session: Session, planned: Planned, rows: LocalRelation | None, left: tuple[int, ...]) -> Substituted:
    """The ``rows`` of the driver, and what tasks read: of an index, and of the files that are ``left``."""
    # a use reads the columns of its own condition only, and a residual must not name others
    predicate = None if planned.is_shared else planned.plan.predicate
    residual = None if predicate is None else residual_of(predicate)
    entries = _entries(session, planned.reading.scan, residual)
    index_scan = entries.scan if entries else None
    decision = replace(planned, reading=replace(planned.reading, scan=index_scan))
    left = left if index_scan is None else tuple(np.setdiff1d(left, index_scan.ordinals).tolist())
    is_helped = rows is not None or entries is not None
    if not left and is_helped:
        return Substituted(decision, Replacement(rows, None, entries))
    if not is_helped and len(left) >= planned.files_of_spark:
        raise PlanRefused(Refusal.NOT_NARROWING, planned.plan)
    plan = replace(planned.plan, ordinals=left)
    return Substituted(decision, Replacement(rows, _tasks(session, planned.relation, plan, residual), entries))


def _entries(session: Session, index_scan: IndexScan | None, residual: Json | None) -> StagedEntries | None:
    return stage_entries(session.staging, index_scan, residual, _cores(session)) if index_scan else None


def _staged(session: Session, planned: Planned, reason: Refusal = Refusal.NOT_NARROWING) -> Substituted:
    """All files as tasks, and nothing else. Raises PlanRefused when these are all files that Spark would read."""
    if len(planned.plan.ordinals) >= planned.files_of_spark:
        raise PlanRefused(reason, planned.plan)
    staged = _tasks(session, planned.relation, planned.plan, None)
    return Substituted(replace(planned, reading=RelationRead(planned.plan)), Replacement(None, staged))


def _tasks(session: Session, relation: IcebergRelation, plan: ReadPlan, residual: Json | None) -> StagedScan:
    return session.staging.scan(relation, plan, residual, _cores(session))


def _cores(session: Session) -> int:
    return session.limits.driver.parallelism
