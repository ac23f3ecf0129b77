"""Files that whenNotMatchedBySource must read: those whose bounds may satisfy one of its conditions.

Called by merge runs after the funnel, and by the commit guard. These files join the candidates; none is dropped.
Must not read data files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from skipstone_core.funnel import NOT_MATCHED_BY_SOURCE, FunnelStage
from skipstone_core.merging.merges import BoundClause

from skipstone.indexes.keytests import Maybe, any_of, plan_test
from skipstone.indexes.ranges import bounds_columns, files_that_may_match
from skipstone.kernels.canonical import Int64s
from skipstone.pruning.funnel import Candidates
from skipstone.tables.filesets import FileSet


def join_by_source(
    candidates: Candidates, clauses: Sequence[BoundClause], files: FileSet, *, prune: bool = True
) -> tuple[Candidates, list[FunnelStage]]:
    """``candidates`` and the files of rows that the source may lack; no stage when there are no such clauses.

    A file that was not a candidate of the keys has no part of the source: no row of it can match.
    """
    if not clauses:
        return candidates, []
    changeable = _may_change(clauses, files) if prune else np.arange(len(files), dtype=np.int64)
    joined = Candidates(np.union1d(candidates.files, changeable), candidates.pieces)
    before, after = len(candidates.files), len(joined.files)
    message = _unjudged(clauses, files) if prune else ""
    return joined, [FunnelStage(name=NOT_MATCHED_BY_SOURCE, files_in=before, files_out=after, message=message)]


def _unjudged(clauses: Sequence[BoundClause], files: FileSet) -> str:
    """A sentence about the first condition that bounds do not judge; empty without one."""
    for clause in clauses:
        if clause.when and isinstance(plan_test(clause.when.root, files.schema, side="target"), Maybe):
            return f"bounds cannot judge {clause.when.shown}, so every file is read"
    return ""


def _may_change(clauses: Sequence[BoundClause], files: FileSet) -> Int64s:
    """Files with a row that one of ``clauses`` may take: all of them for a clause without condition."""
    tests = [plan_test(clause.when.root, files.schema, side="target") if clause.when else Maybe() for clause in clauses]
    return np.flatnonzero(files_that_may_match(any_of(tuple(tests)), files, bounds_columns(files.schema)))
