"""Takes damaged entry files out of an index together with the coverage that rested on them, in one commit.

Called by the reindex run, which then builds the segments that are missing again. Must not touch anything that is fine
and must not delete files: the ones set aside stay where older snapshots of the index table name them.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from skipstone_core.history.commits import Outcome

from skipstone.indexes.building.build import write_covers
from skipstone.indexes.coverage import read_covers
from skipstone.indexes.damage import DamagedFile
from skipstone.indexes.stores.port import store_of
from skipstone.indexes.tables import IndexTable
from skipstone.tables.committing.commits import TableCommit
from skipstone.tables.committing.writing import CommitSite, WrittenFiles, commit_written
from skipstone.tables.filesets import pin_table

#: Why, in the summary of the commit.
QUARANTINE_SUMMARY = "skipstone.quarantine"
MAX_SUMMARY_TEXT = 300


def quarantine(catalog: Catalog, index: IndexTable, damage: Sequence[DamagedFile], run_id: str) -> Outcome:
    """Withdraw ``damage``: afterwards the files whose entries were lost are missing, all others stay covered."""
    covers = read_covers(index)
    withdrawal = store_of(index).plan_withdrawal(covers, damage)
    kept = covers.filter(pa.array(withdrawal.is_covered))
    level = max((file.level for file in index.covers), default=0)
    removed = tuple(index.files.data_file(file.ordinal) for file in (*withdrawal.entries, *index.covers))

    def write(written: WrittenFiles) -> TableCommit:
        added = written.note(write_covers(index, kept, run_id, level))
        summary = {"skipstone.run": run_id, QUARANTINE_SUMMARY: str(damage[0])[:MAX_SUMMARY_TEXT]}
        return TableCommit(pinned=pin_table(index.table), added=added, removed=removed, summary=summary)

    return commit_written(CommitSite(catalog=catalog, ref=index.ref()), index.table, write)
