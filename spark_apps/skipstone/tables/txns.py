"""What a table remembers of transactions: its properties and the summaries of its snapshots.

Used by the commit loop, by runs before they plan, and by confirm runs. Reads the table, and nothing but metadata as
long as that can tell. Must not commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from skipstone_core.commits import (
    Aborted,
    Absent,
    Conflicted,
    Present,
    RolledBack,
    TxnRecord,
    TxnState,
    Untold,
    decode_record,
    encode_record,
    plan_forgetting,
    txn_property,
)
from skipstone_core.errors import ContractViolation
from skipstone_core.ids import TXN_PROPERTY_PREFIX, TXN_SUMMARY, aborted_txn
from skipstone_core.lineages import Standing
from skipstone_core.reasons import Reason

from skipstone.tables.histories import History


def find_txn(table: Table, txn: str) -> TxnState:
    """What ``table`` (freshly loaded) knows of ``txn``.

    Raises ContractViolation when the record is there and cannot be read, OSError when manifests cannot be read.
    """
    text = table.properties.get(txn_property(txn))
    record = decode_record(text) if text is not None else None
    snapshot = _snapshot_of(table, txn)
    if record is not None and record.is_aborted:
        return Aborted(record.snapshot_id)
    if snapshot is not None and _summary_txn(snapshot) == aborted_txn(txn):
        return Aborted(snapshot.snapshot_id)
    if record is None and snapshot is not None:
        record = TxnRecord(time_ms=snapshot.timestamp_ms, snapshot_id=snapshot.snapshot_id)
    return _judge(table, record) if record is not None else Absent()


def find_digest(table: Table, digest: str) -> str | None:
    """The transaction id that applied a source of this digest and is not known to be rolled back, or None."""
    found = _find_source(table, digest)
    return found[0] if found else None


def find_source_conflict(table: Table, digest: str) -> Conflicted | None:
    """Why a source of this digest must not be applied to ``table`` (freshly loaded), or None. Raises as find_txn."""
    found = _find_source(table, digest)
    if found is None:
        return None
    message = f"The job with uid {found[0]} already applied the same source; set source.duplicates to Allow."
    if isinstance(found[1], Untold):
        message = (
            f"The job with uid {found[0]} already applied the same source, and whether that was rolled back since "
            "cannot be told because its snapshot expired; look for its rows, and set source.duplicates to Allow if "
            "they are not in the table."
        )
    return Conflicted(Reason.SOURCE_ALREADY_APPLIED, message)


@dataclass(frozen=True)
class Memory:
    """Table properties that the swap of a transaction sets and removes."""

    updates: Mapping[str, str]
    removals: tuple[str, ...]


def plan_memory(table: Table, txn: str, record: TxnRecord) -> Memory | None:
    """How the next commit on the head of ``table`` remembers ``txn``; None when there is no room for it."""
    records = txn_records(table)
    forgotten = plan_forgetting(records, record.time_ms)
    if forgotten is None:
        return None
    history = History(table, records)
    updates, removals = history.properties()
    for name, known in records.items():
        if not known.sequence_number and name not in forgotten and (number := history.sequence_number(known)):
            updates[name] = encode_record(replace(known, sequence_number=number))
    updates[txn_property(txn)] = encode_record(record)
    return Memory(updates, removals + forgotten)


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


def _find_source(table: Table, digest: str) -> tuple[str, TxnState] | None:
    """The transaction that applied a source; one that is certainly applied before one that is in doubt."""
    doubtful = None
    for name, record in txn_records(table).items():
        if record.source_digest != digest or record.is_aborted:
            continue
        found = name.removeprefix(TXN_PROPERTY_PREFIX), _judge(table, record)
        if isinstance(found[1], Present):
            return found
        doubtful = found if isinstance(found[1], Untold) else doubtful
    return doubtful


def _judge(table: Table, record: TxnRecord) -> TxnState:
    history = History(table, txn_records(table))
    known = replace(record, sequence_number=history.sequence_number(record))
    match history.standing(known):
        case Standing.APPLIED:
            return Present(record, record.snapshot_id)
        case Standing.ROLLED_BACK:
            return RolledBack(record)
        case Standing.UNTOLD:
            return Untold(record)


def _snapshot_of(table: Table, txn: str) -> Snapshot | None:
    wanted = (txn, aborted_txn(txn))
    for snapshot in reversed(table.metadata.snapshots):
        if _summary_txn(snapshot) in wanted:
            return snapshot
    return None


def _summary_txn(snapshot: Snapshot) -> str | None:
    return snapshot.summary.additional_properties.get(TXN_SUMMARY) if snapshot.summary is not None else None
