"""Looks into files that a planned scan left out: whether any holds a row that its filter wants after all.

Called by ``serving`` for a share of its plans. Bounds, indexes and bloom filters say of whole files that no row
matches; here some of these files are read. Must not change a plan.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table
from skipstone_core.language.filterpredicates import predicate_of
from skipstone_core.language.predicates import Predicate

from skipstone.query.planner import checked_predicate
from skipstone.query.reading import BudgetSpent, ReadBudget, rows_of_files
from skipstone.query.readplan import Funnel, ReadPlan
from skipstone.query.scans import PlannedScan
from skipstone.tables.filesets import FileSet

#: What is decoded of one file at most.
_MOST_BYTES = 512 << 20


@dataclass(frozen=True)
class Verification:
    """``read``: files that were read; ``wrong``: paths of those with a row that should have been found.

    ``is_whole`` False: one more would have been too much to read.
    """

    read: int
    wrong: tuple[str, ...] = ()
    is_whole: bool = True


def verify_scan(table: Table, scan: PlannedScan, files: int, random: Random) -> Verification:
    """Read up to ``files`` of those that bounds, indexes and bloom filters ruled out.

    Those of other partitions are not read: partitions are judged by the filter, which says less of rows than of files.
    Raises what reading a data file raises.
    """
    names = {field.field_id: field.name for field in scan.files.schema.fields}
    predicate = checked_predicate(predicate_of(scan.tree, names), scan.files.schema)
    left_out = _left_out(scan)
    if predicate is None or not len(left_out):
        return Verification(0)
    chosen = sorted(random.sample(left_out.tolist(), min(files, len(left_out))))
    return _judged(table, _whole(scan.files, predicate), chosen)


def _left_out(scan: PlannedScan) -> npt.NDArray[np.int64]:
    mask = scan.may_hold.copy()
    mask[scan.ordinals] = False
    return np.flatnonzero(mask)


def _whole(files: FileSet, predicate: Predicate) -> ReadPlan:
    """A plan of all files from beginning to end, which no index and no bounds have touched."""
    everything = tuple(range(len(files)))
    return ReadPlan(files, predicate, everything, {}, Funnel(len(files), len(files), len(files)), ())


def _judged(table: Table, plan: ReadPlan, chosen: Sequence[int]) -> Verification:
    tested = sorted(column.name for column in plan.predicate.columns) if plan.predicate else []
    wrong: list[str] = []
    for number, ordinal in enumerate(chosen):
        budget = ReadBudget(sys.maxsize, _MOST_BYTES)
        try:
            rows = sum(batch.num_rows for batch in rows_of_files(table, plan, tested, [ordinal], budget))
        except BudgetSpent:
            return Verification(number, tuple(wrong), is_whole=False)
        if rows:
            wrong.append(plan.files.facts(ordinal).path)
    return Verification(len(chosen), tuple(wrong))
