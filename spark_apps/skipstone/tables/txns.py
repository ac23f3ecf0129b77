"""What a table remembers of transactions: its properties and the summaries of its snapshots.

Used by the commit loop, by runs before they plan, and by confirm runs. Reads metadata only.
Must not commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from skipstone_core.commits import (
    Aborted,
    Absent,
    Present,
    RolledBack,
    TxnRecord,
    TxnState,
    decode_record,
    txn_property,
)
from skipstone_core.errors import ContractViolation
from skipstone_core.ids import TXN_PROPERTY_PREFIX, TXN_SUMMARY, aborted_txn


def find_txn(table: Table, txn: str) -> TxnState:
    """What ``table`` (freshly loaded) knows of ``txn``.

    A committed snapshot that was expired counts as present: what it did is in the table's history.
    Raises ContractViolation when the record is there and cannot be read.
    """
    text = table.properties.get(txn_property(txn))
    record = decode_record(text) if text is not None else None
    snapshot = _snapshot_of(table, txn)
    if record is not None and record.is_aborted:
        return Aborted(record.snapshot_id)
    if snapshot is not None and _summary_txn(snapshot) == aborted_txn(txn):
        return Aborted(snapshot.snapshot_id)
    if record is None and snapshot is None:
        return Absent()
    return _judge(table, record or TxnRecord(time_ms=snapshot.timestamp_ms, snapshot_id=snapshot.snapshot_id))  # type: ignore[union-attr]


def find_digest(table: Table, digest: str) -> str | None:
    """The transaction id that applied a source of this digest and was not rolled back, or None."""
    for name, record in txn_records(table).items():
        if record.source_digest == digest and not record.is_aborted and isinstance(_judge(table, record), Present):
            return name.removeprefix(TXN_PROPERTY_PREFIX)
    return None


def txn_records(table: Table) -> dict[str, TxnRecord]:
    """The readable transaction records of ``table`` by property name."""
    found = {}
    for name, text in table.properties.items():
        if name.startswith(TXN_PROPERTY_PREFIX):
            try:
                found[name] = decode_record(text)
            except ContractViolation:
                continue  # somebody else's property: not a record, so not ours to count or drop
    return found


def was_rolled_back(table: Table, snapshot_id: int, sequence_number: int) -> bool:
    """Whether a snapshot that was committed to main is no longer an ancestor of its head.

    Sequence numbers only grow along a chain, so this is known for expired snapshots too, unless everything that is
    retained is newer. Then the chain was cut, for which not every engine leaves a sign, and what lies behind the cut
    counts as an ancestor.
    """
    snapshot: Snapshot | None = None
    for snapshot in ancestors(table):
        if snapshot.snapshot_id == snapshot_id:
            return False
        if (snapshot.sequence_number or 0) < sequence_number:
            return True
    return snapshot is None


def is_ancestor(table: Table, snapshot_id: int) -> bool:
    """Whether ``snapshot_id`` is the head of main or one of its retained ancestors."""
    return any(snapshot.snapshot_id == snapshot_id for snapshot in ancestors(table))


def ancestors(table: Table) -> Iterator[Snapshot]:
    """The head of main and its ancestors as far as they are retained, newest first."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def _judge(table: Table, record: TxnRecord) -> TxnState:
    snapshot = table.snapshot_by_id(record.snapshot_id)
    oldest: Snapshot | None = None
    for oldest in ancestors(table):
        if oldest.snapshot_id == record.snapshot_id:
            return Present(record, record.snapshot_id)
    if snapshot is None:
        return Present(record, record.snapshot_id)
    # Expired ancestors cut the chain: what is older than its retained end cannot be told from a rollback.
    is_cut = oldest is not None and oldest.parent_snapshot_id is not None
    if is_cut and (snapshot.sequence_number or 0) < (oldest.sequence_number or 0):  # type: ignore[union-attr]
        return Present(record, record.snapshot_id)
    return RolledBack(record)


def _snapshot_of(table: Table, txn: str) -> Snapshot | None:
    wanted = (txn, aborted_txn(txn))
    for snapshot in reversed(table.metadata.snapshots):
        if _summary_txn(snapshot) in wanted:
            return snapshot
    return None


def _summary_txn(snapshot: Snapshot) -> str | None:
    return snapshot.summary.additional_properties.get(TXN_SUMMARY) if snapshot.summary is not None else None
