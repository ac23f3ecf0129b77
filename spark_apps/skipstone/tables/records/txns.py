"""What a table remembers of transactions: its properties and the summaries of its snapshots.

Used by the commit loop, by runs before they plan, and by confirm runs. Reads the table, and nothing but metadata as
long as that can tell. Must not commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from skipstone_core.errors import ContractViolation
from skipstone_core.history.archives import plan_moves
from skipstone_core.history.commits import (
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
    txn_property,
)
from skipstone_core.history.lineages import Standing
from skipstone_core.ids import ARCHIVE_PROPERTY, PARTIAL_PROPERTY, TXN_PROPERTY_PREFIX, TXN_SUMMARY, aborted_txn
from skipstone_core.reasons import Reason

from skipstone.compat.pyiceberg import summary_of
from skipstone.tables.answers.branches import BranchTable, main_of
from skipstone.tables.records.archive import TxnArchive
from skipstone.tables.records.histories import History


def find_txn(table: Table, txn: str) -> TxnState:
    """Return the state of ``txn`` in ``table`` (freshly loaded).

    Raises ContractViolation when its record is damaged, DependencyUnavailable when the archive of older records cannot
    be read, OSError when manifests cannot.
    """
    text = table.properties.get(txn_property(txn))
    record = decode_record(text) if text is not None else TxnArchive(table).find(txn)
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
    source = _find_source(table, digest)
    return source[0] if source else None


def find_source_conflict(table: Table, digest: str) -> Conflicted | None:
    """Why a source of this digest must not be applied to ``table`` (freshly loaded), or None. Raises as find_txn."""
    source = _find_source(table, digest)
    if source is None:
        return None
    message = f"The job with uid {source[0]} already applied the same source; set source.duplicates to Allow."
    if isinstance(source[1], Untold):
        message = (
            f"The job with uid {source[0]} already applied the same source, and whether that was rolled back since "
            "cannot be told because its snapshot expired; look for its rows, and set source.duplicates to Allow if "
            "they are not in the table."
        )
    return Conflicted(Reason.SOURCE_ALREADY_APPLIED, message)


@dataclass(frozen=True)
class Memory:
    """Table properties that the swap of a transaction sets and removes."""

    updates: Mapping[str, str]
    removals: tuple[str, ...]


def plan_memory(table: Table, txn: str, record: TxnRecord, *, is_partial: bool = False) -> Memory:
    """How the next commit on the head of ``table``, or of its branch, remembers ``txn``.

    Older records move to the archive in batches.
    ``is_partial``: the segment of that commit lacks rows of its source.
    Raises DependencyUnavailable when the archive cannot be read, OSError when it cannot be written.
    """
    records = txn_records(table)
    history = History(main_of(table), records)
    numbered = {name: replace(r, sequence_number=history.sequence_number(r)) for name, r in records.items()}
    moved = plan_moves({name: (known.sequence_number, known.time_ms) for name, known in numbered.items()})
    partial = _partial_property(table) + ((record.sequence_number,) if is_partial else ())
    updates, removals = history.properties_beside() if isinstance(table, BranchTable) else history.properties()
    updates |= {name: encode_record(r) for name, r in numbered.items() if r != records[name] and name not in moved}
    updates[txn_property(txn)] = encode_record(record)
    if moved:
        kept = _archive(table, {name: numbered[name] for name in moved}, partial, updates)
        removals, partial = (*removals, *moved), kept
    if partial:
        updates[PARTIAL_PROPERTY] = ",".join(str(segment) for segment in partial)
    elif PARTIAL_PROPERTY in table.properties:
        removals = (*removals, PARTIAL_PROPERTY)
    return Memory(updates, removals)


def _archive(
    table: Table, moved: Mapping[str, TxnRecord], partial: tuple[int, ...], updates: dict[str, str]
) -> tuple[int, ...]:
    """Write ``moved`` with the segments of their time, of ``partial``, and list the file; the segments that stay."""
    newest = max(record.sequence_number for record in moved.values())
    records = {name.removeprefix(TXN_PROPERTY_PREFIX): record for name, record in moved.items()}
    old = tuple(segment for segment in partial if segment <= newest)
    updates[ARCHIVE_PROPERTY] = TxnArchive(table).extended(records, old)
    return tuple(segment for segment in partial if segment > newest)


def partial_segments(table: Table) -> frozenset[int]:
    """Segments whose load left rows out. Raises DependencyUnavailable when the archive cannot be read."""
    return frozenset(_partial_property(table)) | TxnArchive(table).partial_segments()


def _partial_property(table: Table) -> tuple[int, ...]:
    listed = table.properties.get(PARTIAL_PROPERTY, "").split(",")
    return tuple(int(text) for text in listed if text.strip().isdecimal())


def txn_records(table: Table) -> dict[str, TxnRecord]:
    """The readable transaction records of ``table`` by property name."""
    records = {}
    for name, text in table.properties.items():
        if name.startswith(TXN_PROPERTY_PREFIX):
            try:
                records[name] = decode_record(text)
            except ContractViolation:
                continue  # somebody else's property: not a record, so not ours to count or drop
    return records


def _find_source(table: Table, digest: str) -> tuple[str, TxnState] | None:
    """The transaction that applied a source; one that is certainly applied before one that is in doubt."""
    doubtful = None
    for txn, record in _applied(table, digest):
        source = txn, _judge(table, record)
        if isinstance(source[1], Present):
            return source
        doubtful = source if isinstance(source[1], Untold) else doubtful
    return doubtful


def _applied(table: Table, digest: str) -> Iterator[tuple[str, TxnRecord]]:
    """Transactions that committed a source of this digest, newer ones first."""
    for name, record in txn_records(table).items():
        if record.source_digest == digest and not record.is_aborted:
            yield name.removeprefix(TXN_PROPERTY_PREFIX), record
    for txn, record in TxnArchive(table).find_sources(digest):
        if not record.is_aborted:
            yield txn, record


def _judge(table: Table, record: TxnRecord) -> TxnState:
    history = History(table, txn_records(table))
    known = replace(record, sequence_number=history.sequence_number(record))
    match history.standing(known):
        case Standing.APPLIED:
            return Present(record, record.snapshot_id)
        case Standing.ROLLED_BACK:
            return RolledBack(record)
        case Standing.UNREPORTED:
            return Untold(record)


def _snapshot_of(table: Table, txn: str) -> Snapshot | None:
    wanted = (txn, aborted_txn(txn))
    for snapshot in reversed(table.metadata.snapshots):
        if _summary_txn(snapshot) in wanted:
            return snapshot
    return None


def _summary_txn(snapshot: Snapshot) -> str | None:
    return summary_of(snapshot).get(TXN_SUMMARY)
