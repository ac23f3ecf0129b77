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
from skipstone_core.history.tablereads import (
    TableRead,
    decode_reads,
    encode_reads,
    is_remembered_whole,
    read_property,
    reads_up_to,
)
from skipstone_core.reasons import Reason

from skipstone.tables.records.histories import was_picked, was_rolled_back
from skipstone.tables.records.txns import txn_records


def find_reads(table: Table, consumer: str) -> tuple[TableRead, ...]:
    """The reads of ``consumer`` whose commits are in the history of the head, the newest first, as far as remembered.

    Raises DependencyUnavailable when they cannot be told.
    """
    reads, records = _all_reads(table, consumer), txn_records(table)

    def is_gone(read: TableRead) -> bool:
        return was_rolled_back(table, int(read.commit_id), read.sequence_number, records)

    newest = next((read for read in reads if not is_gone(read)), None)
    if newest is None:
        if not is_remembered_whole(reads):
            why = f"none of the last {len(reads)} commits that it read into this table is in the history of its head"
            raise _unavailable(consumer, why, "roll back to a commit that is not older than these")
        return ()
    kept = tuple(reads_up_to(reads, newest))
    own = next((read for read in kept if not was_picked(table, int(read.commit_id))), None)
    if own is not None and own is not newest and is_gone(own):
        why = f"snapshot {newest.commit_id} was cherry-picked without snapshot {own.commit_id} before it"
        raise _unavailable(consumer, why, "cherry-pick that one too, or roll both back")
    return kept


def _all_reads(table: Table, consumer: str) -> tuple[TableRead, ...]:
    """The newest reads into all branches, and those that were rolled back. Raises DependencyUnavailable."""
    name = read_property(consumer)
    try:
        return decode_reads(table.properties.get(name))
    except ContractViolation as error:
        raise _unavailable(consumer, str(error), f"restore the table property {name}") from error


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
        known = _all_reads(table, self.consumer)
        read = TableRead(
            number=known[0].number + 1 if known else 1,
            table_uuid=self.table_uuid,
            snapshot_id=str(self.until),
            commit_id=str(snapshot_id),
            sequence_number=table.metadata.next_sequence_number(),
            start=self.start,
            where=self.where,
            after=newest_commit(find_reads(table, self.consumer)),
        )
        return {read_property(self.consumer): encode_reads((read, *known))}


def newest_commit(reads: Sequence[TableRead]) -> str:
    """The commit of the newest read; empty without one."""
    return reads[0].commit_id if reads else ""


def _unavailable(consumer: str, why: str, way_out: str) -> DependencyUnavailable:
    return DependencyUnavailable(
        Reason.STORAGE_UNAVAILABLE,
        f"up to which snapshot {consumer} has read its source cannot be told: {why}; {way_out}, or remove the table "
        f"property {read_property(consumer)} and set source.table.fromSnapshot to the snapshot after which to begin, "
        "or source.delta.startingVersion to the first version to read",
    )
