"""What takes the place of the planned relations of a query: rows that the driver reads, and scans of the other files.

Used by ``rewriting`` and ``joining``. Must not judge relations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from skipstone_core.errors import BadData

from skipstone.compat.catalyst import DATASETS, UNION, Dataset, LocalRelation, LogicalPlan, Relation
from skipstone.compat.java import java_class, scala_object
from skipstone.query.planner import ReadPlan, plan_read
from skipstone.query.plans.analysis.demands import find_used
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.analysis.uses import Key
from skipstone.query.plans.guarding.pushdown import keys_at_risk
from skipstone.query.plans.guarding.risks import Risk
from skipstone.query.plans.planning import Planned, PlanRefused, RelationPlans, Session, first_line
from skipstone.query.plans.refusals import Refusal
from skipstone.query.plans.replacing.choice import RelationRead, after_driver
from skipstone.query.plans.replacing.driver import driver_columns, driver_scan, read_rows, to_spark, with_rows
from skipstone.query.plans.replacing.gathering import FEW_ROWS
from skipstone.query.plans.replacing.indexscan import IndexScan, PlanMaker, StagedEntries, stage_entries
from skipstone.query.plans.replacing.residuals import Json, residual_of
from skipstone.query.plans.replacing.staging import StagedScan, held_back, pinned, with_table
from skipstone.query.plans.replacing.trial import ReadTwice, Unplannable, try_plan

logger = logging.getLogger("skipstone.query")


@dataclass(frozen=True, eq=False)
class Replacement:
    """What a relation becomes: rows that the driver read, what is staged of the rest, and what of an index.

    ``is_held_back``: it stays, and Spark moves no condition to it.
    """

    rows: LocalRelation | None
    staged: StagedScan | None
    entries: StagedEntries | None = None
    is_held_back: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the driver has read all of it."""
        return self.staged is None and self.entries is None and not self.is_held_back

    @property
    def is_few(self) -> bool:
        """Whether the driver has read all of it, and that is little."""
        return self.is_local and self.rows is not None and self.rows.data().size() <= FEW_ROWS

    @property
    def is_united(self) -> bool:
        """Whether it is of several parts."""
        return sum(part is not None for part in (self.rows, self.staged, self.entries)) > 1

    @property
    def lacks_columns(self) -> bool:
        """Whether columns that the query does not use may hold anything."""
        return self.rows is not None or self.entries is not None


Replacements = Mapping[Key, Replacement]


@dataclass(frozen=True, eq=False)
class Replacing:
    """Makes what takes the place of the planned relations; what fails, or is refused, becomes its explanation.

    ``risks``: relations of which Iceberg may lose rows. No plan that is made here lets it.
    """

    session: Session
    relations: RelationPlans
    risks: Mapping[Key, Risk]

    def read(self, keys: frozenset[Key] | None = None) -> dict[Key, Replacement]:
        """Rows that the driver reads, what tasks read of indexes, and the other files; of the relations with ``keys``,
        None: of all.
        """
        return self._all(self._read, keys)

    def scan(self, keys: frozenset[Key]) -> dict[Key, Replacement]:
        """Rows that the driver reads of those of some relations that no index narrows: of small ones it has them before
        a job begins.
        """
        found: dict[Key, Replacement] = {}
        for key in keys - self.relations.planned.keys():
            try:
                rows = self._scanned(key)
            except Exception as error:  # noqa: BLE001 - Spark reads what the driver cannot
                logger.debug("a relation is left to tasks: %s", first_line(error))
                continue
            if rows is not None:
                found[key] = Replacement(rows, None)
        return found

    def _scanned(self, key: Key) -> LocalRelation | None:
        """All rows that a relation may give; None when that takes longer than a job, or they are too many."""
        relations, limits = self.relations, self.session.limits.driver
        relation, known = relations.opened(key), relations.judged[key].plan
        columns = driver_columns(relation.java, relation.schema, find_used(relation, relations.uses[key]))
        if columns is None:
            return None
        options = replace(relations.options(relation), use_indexes=False)
        plan = plan_read(relation.table, known.predicate if known else None, options)
        chosen = driver_scan(plan, columns, limits)
        found = read_rows(relation.table, plan, chosen, limits) if chosen else None
        return None if found is None or found.rest else to_spark(self.session.spark, columns, found.rows)

    def node(self, found: Replacements, key: Key, java: Relation) -> LogicalPlan:
        """What stands in the place of a relation. One that was not ``found`` is pinned, so that all of a query is of
        one moment whenever it runs.
        """
        jvm = self.session.jvm
        if key not in found:
            return pinned(jvm, java)
        if found[key].is_held_back:
            return held_back(jvm, java)
        return reduce(scala_object(jvm, UNION).apply, self._parts(java, found[key]))

    def _parts(self, java: Relation, found: Replacement) -> Iterator[LogicalPlan]:
        """What takes the place of a relation, in pieces, of which there is one at least."""
        session = self.session
        if found.staged is not None:
            yield with_table(session.jvm, java, found.staged)
        if found.rows is not None:
            yield with_rows(session.jvm, java, found.rows)
        if found.entries is not None:
            yield PlanMaker(session.jvm, session.spark, session.java).with_entries(java, found.entries)

    def runnable(self, found: Replacements, plan_of: Callable[[Replacements], LogicalPlan]) -> Dataset | None:
        """The Dataset of the plan that ``plan_of`` makes of what was ``found``, or of as much of it as Spark can plan;
        None when there is nothing of it.
        """
        if not found:
            return None
        try:
            return self._planned(found, plan_of)
        except ReadTwice as error:
            reason = Refusal.READ_TWICE
            logger.debug("planned again without unions: %s", first_line(error))
        except Exception as error:  # noqa: BLE001 - there is a plainer way
            reason = Refusal.NOT_NARROWING
            logger.debug("planned again without rows of the driver and residuals: %s", first_line(error))
        return self._plainly(found, plan_of, reason)

    def _plainly(
        self, found: Replacements, plan_of: Callable[[Replacements], LogicalPlan], reason: Refusal
    ) -> Dataset | None:
        """The Dataset without what some queries cannot be planned with: unions that the user did not write, and
        residuals, as the optimizer may copy a relation without the columns that its residual names.

        ``reason``: why it is made, for relations that nothing narrows then.
        """

        def plainer(key: Key, planned: Planned) -> Replacement:
            return found[key] if self._is_plain(found[key], reason) else self._staged(key, planned, reason)

        plain = self._all(plainer, frozenset(found))
        try:
            return self._planned(plain, plan_of, with_residuals=False) if plain else None
        except Exception as error:  # noqa: BLE001 - the query runs as Spark runs it
            for key in plain:
                self.relations.refuse(key, Refusal.CANNOT_PLAN, first_line(error))
            logger.warning("%s: the query runs without indexes: %s", Refusal.CANNOT_PLAN.value, first_line(error))
            return None

    @staticmethod
    def _is_plain(found: Replacement, reason: Refusal) -> bool:
        """Whether a replacement has nothing of what is to be avoided."""
        return found.is_local or (reason is Refusal.READ_TWICE and not found.is_united)

    def as_it_is(self, plan_of: Callable[[Replacements], LogicalPlan]) -> Dataset:
        """The Dataset in which only what Iceberg would lose rows of is replaced. Raises when Spark cannot run it."""
        try:
            return self._planned({}, plan_of)
        except Unplannable:
            return self._planned({}, plan_of, with_residuals=False)

    def _planned(
        self, found: Replacements, plan_of: Callable[[Replacements], LogicalPlan], *, with_residuals: bool = True
    ) -> Dataset:
        """The Dataset of a plan with what was ``found``, and with all that Iceberg would lose rows of read otherwise.

        Raises when Spark cannot run it.
        """
        is_united = any(one.is_united for one in found.values())
        dataset = self.dataset(plan_of(found))
        while self.risks and (lost := self._lost(dataset) - found.keys()):
            found = {**found, **{key: self._guarded(key, with_residual=with_residuals) for key in lost}}
            dataset = self.dataset(plan_of(found))
        try_plan(dataset, is_united=is_united)
        return dataset

    def _lost(self, dataset: Dataset) -> frozenset[Key]:
        return keys_at_risk(dataset.queryExecution().optimizedPlan(), self.risks) & self.relations.replaceable

    def _guarded(self, key: Key, *, with_residual: bool) -> Replacement:
        """A relation whose files Iceberg does not choose: we do, or all are read where we cannot."""
        why = self.risks[key].text()
        try:
            relation, predicate = self.relations.opened(key), self.relations.predicate(key)
            plan = plan_read(relation.table, predicate, replace(self.relations.options(relation), use_indexes=False))
            is_plain = predicate is None or not with_residual or len(self.relations.uses.get(key, ())) > 1
            residual = None if is_plain or predicate is None else residual_of(predicate)
            staged = self._tasks(relation, plan, residual)
        except Exception as error:  # noqa: BLE001 - what Iceberg's tasks cannot have is read whole
            logger.debug("conditions are held back from Iceberg: %s", first_line(error))
            self.relations.guard(key, f"{why}: it gets no conditions, and all files are read", None)
            return Replacement(None, None, is_held_back=True)
        self.relations.guard(key, f"{why}: it gets a list of files", replace(plan, no_index=None))
        return Replacement(None, staged)

    def dataset(self, plan: LogicalPlan) -> Dataset:
        """The Dataset that runs an analyzed plan."""
        return java_class(self.session.jvm, DATASETS).ofRows(self.session.java, plan)

    def _all(
        self, replaced: Callable[[Key, Planned], Replacement], keys: frozenset[Key] | None = None
    ) -> dict[Key, Replacement]:
        found: dict[Key, Replacement] = {}
        for key, one in self.relations.planned.items():
            if keys is None or key in keys:
                with self.relations.explaining(key, one):
                    found[key] = replaced(key, one)
        return found

    def _read(self, key: Key, planned: Planned) -> Replacement:
        reading, rows, left = planned.reading, None, planned.plan.ordinals
        if reading.driver is not None:
            try:
                found = read_rows(planned.relation.table, planned.plan, reading.driver, self.session.limits.driver)
            except BadData:  # of a format, or with deletes, that only Spark reads
                return self._staged(key, planned)
            rows = to_spark(self.session.spark, reading.driver.columns, found.rows) if found.read else None
            reading = after_driver(planned.demand, reading, found.read)
            left = tuple(np.intersect1d(found.rest, reading.plan.ordinals).tolist())
        return self._with_tasks(key, replace(planned, reading=reading), rows, left)

    def _with_tasks(self, key: Key, planned: Planned, rows: LocalRelation | None, left: tuple[int, ...]) -> Replacement:
        """The ``rows`` of the driver, and what tasks read: of an index, and of the files that are ``left``."""
        # a use reads the columns of its own condition only, and a residual must not name others
        predicate = None if planned.is_shared else planned.plan.predicate
        residual = None if predicate is None else residual_of(predicate)
        entries = self._entries(planned.reading.scan, residual)
        scan = entries.scan if entries else None
        reading = replace(planned.reading, scan=scan)
        self.relations.judged[key] = replace(planned, reading=reading)
        left = left if scan is None else tuple(np.setdiff1d(left, scan.ordinals).tolist())
        is_helped = rows is not None or entries is not None
        if not left and is_helped:
            return Replacement(rows, None, entries)
        if not is_helped and len(left) >= planned.files_of_spark:
            raise PlanRefused(Refusal.NOT_NARROWING, planned.plan)
        plan = replace(planned.plan, ordinals=left)
        return Replacement(rows, self._tasks(planned.relation, plan, residual), entries)

    def _entries(self, scan: IndexScan | None, residual: Json | None) -> StagedEntries | None:
        return stage_entries(self.session.staging, scan, residual, self._cores) if scan else None

    def _staged(self, key: Key, planned: Planned, reason: Refusal = Refusal.NOT_NARROWING) -> Replacement:
        """All files as tasks, and nothing else. Raises PlanRefused when these are all files that Spark would read."""
        if len(planned.plan.ordinals) >= planned.files_of_spark:
            raise PlanRefused(reason, planned.plan)
        self.relations.judged[key] = replace(planned, reading=RelationRead(planned.plan))
        return Replacement(None, self._tasks(planned.relation, planned.plan, None))

    def _tasks(self, relation: IcebergRelation, plan: ReadPlan, residual: Json | None) -> StagedScan:
        return self.session.staging.scan(relation, plan, residual, self._cores)

    @property
    def _cores(self) -> int:
        return self.session.limits.driver.parallelism
