"""Files that whenNotMatchedBySource must read: those whose bounds may satisfy one of its conditions.

Called by the merge run after the prune funnel and by its guard. These files join the candidates, they drop none.
Must not read data files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from skipstone_core.merges import BoundClause, FunnelStage, MergePlan
from skipstone_core.predicates import unqualified

from skipstone.indexes.keys import storage_type
from skipstone.indexes.predicates import Maybe, any_of, plan_test
from skipstone.indexes.ranges import BoundsColumn, files_that_may_match
from skipstone.pruning.funnel import Candidates
from skipstone.rewrite.canonical import Int64s
from skipstone.tables.filesets import FileSet

NOT_MATCHED_BY_SOURCE = "notMatchedBySource"


def join_by_source(
    candidates: Candidates, plan: MergePlan, files: FileSet, *, prune: bool = True
) -> tuple[Candidates, list[FunnelStage]]:
    """``candidates`` and the files of rows that the source may lack; no stage when the plan has no such clause.

    A file that joins here and was no candidate of the keys has no part of the source: no key can be in it.
    """
    if not plan.when_not_matched_by_source:
        return candidates, []
    found = _may_change(plan.when_not_matched_by_source, files) if prune else np.arange(len(files))
    joined = Candidates(np.union1d(candidates.files, found), candidates.pieces)
    counts = FunnelStage(name=NOT_MATCHED_BY_SOURCE, files_in=len(candidates.files), files_out=len(joined.files))
    return joined, [counts]


def _may_change(clauses: Sequence[BoundClause], files: FileSet) -> Int64s:
    """Files with a row that one of ``clauses`` may take: all of them for a clause without condition."""
    tests = [plan_test(unqualified(one.when.root), files.schema) if one.when else Maybe() for one in clauses]
    storages = ((field.field_id, storage_type(field.field_type)) for field in files.schema.fields)
    columns = {field_id: BoundsColumn(field_id, storage) for field_id, storage in storages if storage}
    return np.flatnonzero(files_that_may_match(any_of(tuple(tests)), files, columns))
