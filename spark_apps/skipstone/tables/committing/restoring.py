"""Branches and tags that a server removed with their snapshots, though somebody had made them a moment before.

A server compares the branches and tags that a commit knows; one that it does not know goes with the snapshot that it
names, without a word. So the metadata that the commit replaced is looked at afterwards, and what it named is named
again, under a new snapshot of the same files: Iceberg takes no snapshot back under its old sequence number. Must not
delete anything.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from skipstone_core.contract.requests import TableRef
from skipstone_core.ids import TXN_SUMMARY

from skipstone.compat.pyiceberg import summary_of
from skipstone.tables.catalogs import load_table
from skipstone.tables.clocks import commit_time_ms
from skipstone.tables.committing.swaps import CommitPorts
from skipstone.tables.decoding.metadatafiles import read_metadata

#: Commits that may fail before a branch or tag is given up for now.
ROUNDS = 6
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LostRef:
    """A branch or tag that is gone, and the snapshot that it named, which is gone too."""

    name: str
    ref: SnapshotRef
    snapshot: Snapshot

    @property
    def kind(self) -> str:
        """Branch or tag."""
        return str(self.ref.snapshot_ref_type.value)


def find_lost_refs(
    table: Table, removed: Collection[int], known: Collection[str], base: str
) -> tuple[LostRef, ...] | None:
    """The refs that named snapshots which are ``removed`` from ``table``, freshly loaded, when that happened.

    ``known``: names that the commit knew; ``base``: the metadata file that it was planned on, empty when that is not
    known. None: the metadata that was replaced is not listed any more, or its file is gone. Raises OSError.
    """
    before = [entry.metadata_file for entry in table.metadata.metadata_log]
    if before and before[-1] == base:
        return ()
    for path in reversed(before):
        try:
            metadata = read_metadata(table.io.new_input(path))
        except FileNotFoundError:
            return None
        if any(snapshot.snapshot_id in removed for snapshot in metadata.snapshots):
            return _lost(metadata, table, removed, known)
    return None


def _lost(
    metadata: TableMetadata, table: Table, removed: Collection[int], known: Collection[str]
) -> tuple[LostRef, ...]:
    there = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    return tuple(
        LostRef(name=name, ref=ref, snapshot=there[ref.snapshot_id])
        for name, ref in sorted(metadata.refs.items())
        if ref.snapshot_id in removed and name not in known and name not in table.metadata.refs
    )


def put_back(catalog: Catalog, ref: TableRef, lost: LostRef, ports: CommitPorts) -> int | None:
    """Name the rows of ``lost`` again; the snapshot that the name stands for now, None when the catalog refused.

    Somebody who made the name again is left alone. Raises BadSpec and DependencyUnavailable as ``load_table`` does.
    """
    for attempt in range(ROUNDS):
        table = load_table(catalog, ref)
        if current := table.metadata.refs.get(lost.name):
            return current.snapshot_id
        try:
            catalog.commit_table(table, _requirements(table, lost), _updates(table, lost, ports.now_ms()))
        except Exception as error:  # noqa: BLE001 - whatever a catalog raises here, only what the table says counts
            _log.warning("the %s %s is not put back yet: %s", lost.kind, lost.name, error)
            ports.pause(attempt)
    made = load_table(catalog, ref).metadata.refs.get(lost.name)
    return made.snapshot_id if made else None


def _requirements(table: Table, lost: LostRef) -> tuple[TableRequirement, ...]:
    absent = AssertRefSnapshotId(ref=lost.name, snapshot_id=None)  # type: ignore[call-arg]
    return AssertTableUUID(uuid=table.metadata.table_uuid), absent


def _updates(table: Table, lost: LostRef, now_ms: int) -> tuple[TableUpdate, ...]:
    metadata = table.metadata
    next_row_id = (metadata.next_row_id or 0) if isinstance(metadata, TableMetadataV3) else None
    snapshot = Snapshot(
        snapshot_id=metadata.new_snapshot_id(),  # type: ignore[call-arg]
        parent_snapshot_id=None,
        sequence_number=metadata.next_sequence_number(),
        timestamp_ms=commit_time_ms(metadata, now_ms),
        manifest_list=lost.snapshot.manifest_list,
        summary=_summary(lost.snapshot),
        schema_id=lost.snapshot.schema_id,
        first_row_id=next_row_id,
        added_rows=None if next_row_id is None else 0,
    )
    named = SetSnapshotRefUpdate(
        ref_name=lost.name,  # type: ignore[call-arg]
        type=lost.ref.snapshot_ref_type,
        snapshot_id=snapshot.snapshot_id,
        max_ref_age_ms=lost.ref.max_ref_age_ms,
        max_snapshot_age_ms=lost.ref.max_snapshot_age_ms,
        min_snapshots_to_keep=lost.ref.min_snapshots_to_keep,
    )
    return AddSnapshotUpdate(snapshot=snapshot), named


def _summary(snapshot: Snapshot) -> Summary:
    """Without the transaction: this snapshot applies nothing."""
    kept = {name: value for name, value in summary_of(snapshot).items() if name != TXN_SUMMARY}
    return Summary(snapshot.summary.operation if snapshot.summary else Operation.APPEND, **kept)
