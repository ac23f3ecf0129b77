"""How a table is by its policy, counted from what a run has in hand: metadata, the manifest list, the live files.

Called for a table's state (``states``), and by what needs the same facts. Never lists a location and reads no data
file. Must not decide what is due.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.refs import SnapshotRefType
from skipstone_core.contract.requests import MAX_COMMIT_BYTES
from skipstone_core.indexing.snapshots import DeleteKind
from skipstone_core.maintenance.expiry import (
    ExpiryPlan,
    HeadFacts,
    HistoryFacts,
    RefFacts,
    SnapshotFacts,
    plan_expiry,
)
from skipstone_core.maintenance.health import TableHealth
from skipstone_core.maintenance.manifests import TARGET_BYTES, ManifestFacts, plan_manifest_groups
from skipstone_core.maintenance.policies import CompactionPolicy, MaintenancePolicy, SnapshotPolicy

from skipstone.compat.lineage.reading import read_manifests
from skipstone.tables.decoding.summaries import without_bounds
from skipstone.tables.filesets import FileSet
from skipstone.tables.upkeep.layout import count_due

_HOUR_MS = 3_600_000
#: Ages by name, with the milliseconds up to which they go.
_AGES = (("hour", _HOUR_MS), ("day", 24 * _HOUR_MS), ("week", 7 * 24 * _HOUR_MS), ("month", 30 * 24 * _HOUR_MS))
_OLDER = "older"


def table_health(
    table: Table, files: FileSet, policy: MaintenancePolicy, deleted_rows: int, now_ms: int | None = None
) -> TableHealth:
    """Counts of the head of ``table``, whose live files are ``files``. Raises OSError when metadata cannot be read.

    ``deleted_rows``: as the state of the table counts them.
    """
    now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
    head, snapshots = table.current_snapshot(), table.metadata.snapshots
    manifests = read_manifests(head, table.io, table.format_version) if head else []
    lists = [len(table.io.new_input(head.manifest_list))] if head else []
    expiry = expiry_plan(table, policy.snapshots, now) if policy.snapshots else ExpiryPlan()
    facts = manifest_facts(manifests, table.io)
    groups = plan_manifest_groups(facts, manifest_target(table))
    due = count_due(table, files, policy.compaction, MAX_COMMIT_BYTES) if policy.compaction else (0, 0)
    return TableHealth(
        small_files=_small_files(files, policy.compaction or CompactionPolicy()),
        due_files=due[0],
        due_bytes=due[1],
        delete_files=len(files.delete_files),
        equality_delete_files=sum(delete.kind is DeleteKind.EQUALITY for delete in files.delete_files),
        deleted_rows=deleted_rows,
        snapshots=len(snapshots),
        expirable_snapshots=len(expiry.snapshots),
        oldest_snapshot_ms=min((snapshot.timestamp_ms for snapshot in snapshots), default=None),
        next_expiry_ms=expiry.next_ms,
        manifests=len(manifests),
        due_manifests=sum(len(group) for group in groups),
        manifests_without_bounds=sum(fact.lacks_bounds for fact in facts),
        metadata_bytes=sum((len(table.io.new_input(table.metadata_location)), *lists, *_sizes(manifests))),
        bytes_by_age=_bytes_by_age(table, files, now),
    )


def expiry_plan(table: Table, policy: SnapshotPolicy, now_ms: int, *, in_use_since_ms: int | None = None) -> ExpiryPlan:
    """Return the plan of the policy for ``table`` at ``now_ms``; see core ``expiry``."""
    metadata = table.metadata
    snapshots = [
        SnapshotFacts(snapshot.snapshot_id, snapshot.parent_snapshot_id, snapshot.timestamp_ms)
        for snapshot in metadata.snapshots
    ]
    refs = [
        RefFacts(
            name=name,
            snapshot_id=ref.snapshot_id,
            is_branch=ref.snapshot_ref_type == SnapshotRefType.BRANCH,
            max_ref_age_ms=ref.max_ref_age_ms,
            max_snapshot_age_ms=ref.max_snapshot_age_ms,
            min_snapshots=ref.min_snapshots_to_keep,
        )
        for name, ref in metadata.refs.items()
    ]
    log = [HeadFacts(entry.snapshot_id, entry.timestamp_ms) for entry in metadata.snapshot_log]
    history = HistoryFacts(snapshots=snapshots, refs=refs, log=log)
    return plan_expiry(history, policy, now_ms, in_use_since_ms=in_use_since_ms)


def manifest_facts(manifests: Sequence[ManifestFile], io: FileIO) -> list[ManifestFacts]:
    """Return the facts for core's rule of manifests. Raises OSError when a doubtful manifest cannot be read."""
    faulty = {manifest.manifest_path for manifest in without_bounds(manifests, io)}
    return [
        ManifestFacts(
            number=number,
            kind=(manifest.content, manifest.partition_spec_id),
            size=manifest.manifest_length,
            live=_live(manifest),
            gone=manifest.deleted_files_count or 0,
            lacks_bounds=manifest.manifest_path in faulty,
        )
        for number, manifest in enumerate(manifests)
    ]


def manifest_target(table: Table) -> int:
    """Bytes of the manifests that are left as they are, by the table's own property."""
    value = table.properties.get(TableProperties.MANIFEST_TARGET_SIZE_BYTES, "")
    return int(value) if value.isascii() and value.isdecimal() and int(value) > 0 else TARGET_BYTES


def _live(manifest: ManifestFile) -> int:
    """Its live files; one where a manifest list does not tell."""
    added, existing = manifest.added_files_count, manifest.existing_files_count
    return 1 if added is None or existing is None else added + existing


def _sizes(manifests: Sequence[ManifestFile]) -> list[int]:
    return [manifest.manifest_length for manifest in manifests]


def _small_files(files: FileSet, policy: CompactionPolicy) -> int:
    return int(pc.sum(pc.less(files.files["size"], policy.small_below)).as_py() or 0)


def _bytes_by_age(table: Table, files: FileSet, now_ms: int) -> Mapping[str, int]:
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.metadata.snapshots}
    added, sizes = files.files["added_snapshot_id"].to_numpy(), files.files["size"].to_numpy()
    by_age: dict[str, int] = {}
    ids, numbers = np.unique(added, return_inverse=True)
    for snapshot_id, size in zip(ids.tolist(), np.bincount(numbers, weights=sizes, minlength=len(ids)), strict=True):
        age = _age_of(times.get(snapshot_id), now_ms)
        by_age[age] = by_age.get(age, 0) + int(size)
    return by_age


def _age_of(time_ms: int | None, now_ms: int) -> str:
    if time_ms is None:
        return _OLDER
    return next((name for name, most in _AGES if now_ms - time_ms < most), _OLDER)
