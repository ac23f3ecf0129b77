"""Which snapshots of another table a consumer has read into a table, remembered in the commits that hold the rows.

Used by loads and merges that consume a table. The newest reads stand in a table property (core ``tablereads``).
Must not read the other table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table import Table
from skipstone_core.errors import ContractViolation, DependencyUnavailable
from skipstone_core.history.commits import Conflicted
from skipstone_core.history.tablereads import TableRead, decode_reads, encode_reads, read_property
from skipstone_core.reasons import Reason

from skipstone.tables.records.histories import was_picked, was_rolled_back
from skipstone.tables.records.txns import txn_records


def find_reads(table: Table, consumer: str) -> tuple[TableRead, ...]:
    """The reads of ``consumer`` whose commits are in the history of main, the newest first, as far as remembered.

    Raises DependencyUnavailable when they cannot be told.
    """
    name = read_property(consumer)
    try:
        reads = decode_reads(table.properties.get(name))
    except ContractViolation as error:
        raise _unavailable(consumer, str(error), f"restore the table property {name}") from error
    records = txn_records(table)
    gone = [was_rolled_back(table, int(read.commit_id), read.sequence_number, records) for read in reads]
    first = next((at for at, is_gone in enumerate(gone) if not is_gone), len(reads))
    if first == len(reads) and reads and reads[-1].number > 1:
        why = f"all of the last {len(reads)} commits that it read into this table were rolled back"
        raise _unavailable(consumer, why, "roll back to a commit that is not older than these")
    kept = reads[first:]
    picked = next((at for at, read in enumerate(kept) if not was_picked(table, int(read.commit_id))), len(kept))
    if picked and any(gone[first + picked : first + picked + 1]):
        why = f"snapshot {kept[0].commit_id} was cherry-picked without snapshot {kept[picked].commit_id} before it"
        raise _unavailable(consumer, why, "cherry-pick that one too, or roll both back")
    return kept


@dataclass(frozen=True, kw_only=True)
class SourceReading:
    """A read of a table by one change: the ledger of its commit. ``after``: the commit of the consumer's last read.

    ``until``: the snapshot up to which the source is read; ``start``: where the job says that it begins, or empty;
    ``where``: the condition of its rows, or empty.
    """

    consumer: str
    after: str
    table_uuid: str
    until: int
    start: str
    where: str = ""

    def find_conflict(self, table: Table) -> Conflicted | None:
        """Return a conflict if another job of this consumer read the table since. Raises DependencyUnavailable."""
        if newest_commit(find_reads(table, self.consumer)) == self.after:
            return None
        message = (
            f"another job of {self.consumer} read the table meanwhile, or a commit of one was rolled back; nothing was "
            "applied, and the next job reads what is still new."
        )
        return Conflicted(Reason.SOURCE_ALREADY_APPLIED, message)

    def properties(self, table: Table, snapshot_id: int) -> Mapping[str, str]:
        """The property that remembers the read. Raises DependencyUnavailable."""
        before = find_reads(table, self.consumer)
        read = TableRead(
            number=before[0].number + 1 if before else 1,
            table_uuid=self.table_uuid,
            snapshot_id=str(self.until),
            commit_id=str(snapshot_id),
            sequence_number=table.metadata.next_sequence_number(),
            start=self.start,
            where=self.where,
        )
        return {read_property(self.consumer): encode_reads((read, *before))}


def newest_commit(reads: Sequence[TableRead]) -> str:
    """The commit of the newest read; empty without one."""
    return reads[0].commit_id if reads else ""


def _unavailable(consumer: str, why: str, way_out: str) -> DependencyUnavailable:
    return DependencyUnavailable(
        Reason.STORAGE_UNAVAILABLE,
        f"up to which snapshot {consumer} has read its source cannot be told: {why}; {way_out}, or set "
        "source.table.fromSnapshot to the snapshot after which to begin",
    )
