"""``spec.maintenance`` of a Table as runs are told it.

Called where requests are built, and by the decider of maintain runs. Pure.
"""

from __future__ import annotations

from skipstone_core.maintenance.policies import (
    CompactionPolicy,
    EqualityDeletesPolicy,
    MaintenancePolicy,
    OrphanFilesAction,
    OrphanFilesPolicy,
    SnapshotPolicy,
)

from skipstone_operator.resources.maintenance.spec import (
    Compaction,
    CompactionMode,
    MaintenanceSpec,
    OrphanFiles,
    OrphanFilesMode,
    ResolveEqualityDeletes,
    Snapshots,
)
from skipstone_operator.resources.rules.amounts import read_permille, read_seconds, read_size
from skipstone_operator.resources.rules.bounds import find_violations


def build_policy(spec: MaintenanceSpec | None) -> MaintenancePolicy | None:
    """What is maintained; None when the Table asks for nothing, or for something that cannot be understood."""
    if spec is None or any(find_violations(spec, "spec.maintenance")):
        return None
    return MaintenancePolicy(
        compaction=_compaction(spec.compaction),
        snapshots=_snapshots(spec.snapshots),
        orphan_files=_orphan_files(spec.orphan_files),
        equality_deletes=_equality_deletes(spec.resolve_equality_deletes),
    )


def _compaction(spec: Compaction | None) -> CompactionPolicy | None:
    if spec is None or spec.policy is CompactionMode.OFF:
        return None
    return CompactionPolicy(
        target_file_size=read_size(spec.target_file_size),
        min_input_files=spec.min_input_files,
        delete_permille=read_permille(spec.delete_ratio),
        sort_by=spec.sort_by,
    )


def _snapshots(spec: Snapshots | None) -> SnapshotPolicy | None:
    if spec is None:
        return None
    return SnapshotPolicy(max_age_seconds=read_seconds(spec.max_age), min_to_keep=spec.min_to_keep)


def _orphan_files(spec: OrphanFiles | None) -> OrphanFilesPolicy | None:
    if spec is None or spec.policy is OrphanFilesMode.OFF:
        return None
    action = OrphanFilesAction(spec.policy.value)
    return OrphanFilesPolicy(action=action, older_than_seconds=read_seconds(spec.older_than))


def _equality_deletes(spec: ResolveEqualityDeletes | None) -> EqualityDeletesPolicy | None:
    return None if spec is None else EqualityDeletesPolicy(min_files=spec.min_files)
