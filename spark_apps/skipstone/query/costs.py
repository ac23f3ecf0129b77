"""What reads of a table cost, by the columns that are read: all of it, what a plan leaves, and what keys could save.

Used by the rewriting of Spark plans, which weighs relations against each other. Must not read data files.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyiceberg.table import Table
from skipstone_core.indexing.use import PAGE_ROWS, ReadCost

from skipstone.query.advice import leading_columns
from skipstone.query.readplan import ReadOptions, ReadPlan
from skipstone.tables.filesets import FileSet, known_file_set

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class KeyedFiles:
    """The files of a table, and which of them an index covers that begins with one of the columns ``served``."""

    files: FileSet
    served: frozenset[str]
    covered: npt.NDArray[np.bool_]

    def savings(self, columns: AbstractSet[str] | None, plan: ReadPlan | None) -> ReadCost:
        """What the columns (None: all) cost of the files that keys could leave out; ``plan``: what is left already."""
        left = self.covered.copy()
        if plan is not None:
            left &= np.isin(np.arange(len(left)), plan.ordinals)
        sizes = _sizes(self.files, columns)[left]
        return ReadCost(len(sizes), int(sizes.sum()))


def plan_keys(table: Table, options: ReadOptions) -> KeyedFiles:
    """The columns of ``table`` by whose keys an index can leave files out."""
    files = known_file_set(table, options.snapshot_id)
    return KeyedFiles(files, *leading_columns(table, files, options))


def whole_cost(files: FileSet, columns: AbstractSet[str] | None) -> ReadCost:
    """What reading the columns (None: all) of all files costs."""
    return ReadCost(len(files), int(_sizes(files, columns).sum()))


def planned_cost(plan: ReadPlan, columns: AbstractSet[str] | None) -> ReadCost:
    """What is left to read of the columns (None: all)."""
    answered = set() if plan.answer is None else set(plan.answer.ordinals.tolist())
    ordinals = [ordinal for ordinal in plan.ordinals if ordinal not in answered]
    parts = np.array([_part(plan, ordinal) for ordinal in ordinals])
    sizes = _sizes(plan.files, columns)[ordinals]
    cost = ReadCost(len(ordinals), int((sizes * parts).sum()))
    return cost if plan.answer is None else cost + plan.answer.probe.cost


def _part(plan: ReadPlan, ordinal: int) -> float:
    """The part of a file that is decoded: pages with hits, or row groups with hits."""
    if ordinal in plan.positions:
        records = int(plan.files.files["records"][ordinal].as_py())
        return min(1.0, len(plan.positions[ordinal]) * PAGE_ROWS / max(1, records))
    if ordinal in plan.row_groups:
        return min(1.0, len(plan.row_groups[ordinal]) / max(1, int(plan.files.row_group_counts[ordinal])))
    return 1.0


def _sizes(files: FileSet, columns: AbstractSet[str] | None) -> Int64s:
    """Bytes of the columns in each file."""
    if columns is None:
        return np.asarray(files.files["size"].to_numpy(), np.int64)
    numbers: Sequence[int] = [field.field_id for field in files.schema.fields if field.name in columns]
    return files.column_bytes(numbers) if numbers else np.zeros(len(files), np.int64)
