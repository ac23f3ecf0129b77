"""Who reads what of a relation: the driver some rows, tasks the entries of an index, or files.

Used by ``substitution`` and the rule ``narrow_relations``. Must not judge relations, and must not make plans of Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from skipstone_core.indexing.use import USUAL_LIMITS, CostLimits, ScanCost, is_scan_cheaper
from skipstone_core.language.predicates import Predicate

from skipstone.query.planner import ReadOptions, ReadPlan, plan_read
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.replacing.driver import DriverColumns, DriverRead, DriverReadLimits, driver_read
from skipstone.query.plans.replacing.indexscan import IndexScan, plan_index_scan
from skipstone.tables.shaping.writeproperties import page_rows_of


@dataclass(frozen=True)
class ReadLimits:
    """The limits of a session: rows that the driver reads, whether tasks read indexes, and when an index pays off.

    ``remembers``: seconds in which no catalog is asked again which indexes a table has.
    """

    driver: DriverReadLimits
    index_namespace: str | None = None
    scans_indexes: bool = True
    cost: CostLimits = USUAL_LIMITS
    remembers: float = 0.0


@dataclass(frozen=True, eq=False)
class RelationRead:
    """How the files of ``plan`` are read: by the driver, by tasks from an index, and the others by tasks."""

    plan: ReadPlan
    driver: DriverRead | None = None
    scan: IndexScan | None = None

    @property
    def left(self) -> tuple[int, ...]:
        """The files that are left for tasks to read."""
        here: set[int] = set(self.scan.ordinals) if self.scan else set()
        if self.driver is not None:
            here |= {*self.driver.ordinals, *self.driver.scanned}
            if self.driver.takes_answer and self.plan.answer is not None:
                here |= set(self.plan.answer.ordinals.tolist())
        return tuple(ordinal for ordinal in self.plan.ordinals if ordinal not in here)

    @property
    def task_files(self) -> int:
        """How many files tasks read, those of an index among them."""
        return len(self.left) + (len(self.scan.files) if self.scan else 0)


@dataclass(frozen=True, eq=False)
class Demand:
    """The demand on a relation: rows on which ``predicate`` may be true.

    ``columns``: those that the driver or an index may give; None: only files have all that is needed. ``only_rows``:
    whether the query may fail on rows that it does not have, such as deleted ones.
    """

    relation: IcebergRelation
    predicate: Predicate
    columns: DriverColumns | None
    limits: ReadLimits
    only_rows: bool = False

    def plan(self, *, by_answer: bool) -> ReadPlan:
        """The files to read; ``by_answer``: an index may answer for some of them."""
        limits, names = self.limits, self.columns.names if self.columns else None
        options = ReadOptions(
            snapshot_id=self.relation.snapshot_id,
            index_namespace=limits.index_namespace,
            by_position=self.columns is not None and limits.driver.rows > 0,
            most_rows=limits.driver.rows,
            reads=names,
            limits=limits.cost,
            hint=self.relation.hint,
        )
        return plan_read(self.relation.table, self.predicate, options, names if by_answer else None)

    def driver(self, plan: ReadPlan) -> DriverRead | None:
        """Return the part of ``plan`` that the driver reads."""
        limits = replace(self.limits.driver, page_rows=page_rows_of(self.relation.table))
        return driver_read(plan, self.columns, limits) if self.columns and limits.rows else None

    def scan(self, plan: ReadPlan, instead_of: Sequence[int]) -> IndexScan | None:
        """How tasks take the answer of ``plan``; None when reading files, ``instead_of`` which they do, is cheaper."""
        answer = plan.answer
        if self.columns is None or answer is None or not self.limits.scans_indexes:
            return None
        common = np.intersect1d(answer.ordinals, np.array(instead_of, np.int64))  # which may be none at all
        rows = int(plan.files.files["records"].to_numpy()[common].sum())
        files = ScanCost(answer.cost_of(instead_of), rows)
        if not is_scan_cheaper(ScanCost(answer.probe.whole, answer.probe.whole_rows), files, self.limits.cost):
            return None
        return plan_index_scan(self.relation.table, plan, self.columns, only_rows=self.only_rows)


def choose_reading(demand: Demand) -> RelationRead:
    """Who reads what. An answer too large for the driver is weighed against reading the files that are hit."""
    plan = demand.plan(by_answer=True)
    read = RelationRead(plan, demand.driver(plan))
    if plan.answer is None or (read.driver and read.driver.takes_answer):
        return read
    hit = demand.plan(by_answer=False)
    other = RelationRead(hit, demand.driver(hit))
    scan = demand.scan(plan, other.left)
    if scan is None:
        return other
    at_least = max(plan.at_least, hit.at_least)
    return replace(read, scan=scan, plan=replace(plan, at_least=at_least))


def after_driver(demand: Demand, reading: RelationRead, read: DriverRead | None) -> RelationRead:
    """How the rest is read when the driver has ``read`` that: an answer that turned out too large is left to tasks."""
    answer = reading.plan.answer
    if answer is None or not (reading.driver and reading.driver.takes_answer) or (read and read.takes_answer):
        return replace(reading, driver=read)
    hit = demand.plan(by_answer=False).ordinals
    scan = demand.scan(reading.plan, hit)
    if scan is not None:
        return RelationRead(reading.plan, read, scan)
    missed = np.setdiff1d(answer.ordinals, hit)
    kept = tuple(np.setdiff1d(reading.plan.ordinals, missed).tolist())
    funnel = replace(reading.plan.funnel, read=len(kept))
    return RelationRead(replace(reading.plan, ordinals=kept, answer=None, funnel=funnel), read)
