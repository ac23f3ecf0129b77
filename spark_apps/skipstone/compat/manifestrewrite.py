"""The snapshot that writes manifests again and changes no file: PyIceberg has none.

Used by the rewriting of manifests only. Entries keep their snapshots, sequence numbers and statistics; those of files
that were taken away are dropped. Must not decide which manifests are written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Operation, Summary

from skipstone.compat.rowdelta import DeleteFiles, RowDelta

#: What a summary carries over from the snapshot before.
_TOTAL = "total-"


class ManifestRewrite(RowDelta):
    """Writes groups of manifests of the head again, each as few manifests sorted by partition."""

    def __init__(
        self,
        transaction: Transaction,
        listed: Sequence[ManifestFile],
        groups: Sequence[Sequence[ManifestFile]],
        target_bytes: int,
        summary: Mapping[str, str],
    ) -> None:
        """``listed``: the head's; ``groups`` of them: of one spec and content each. ``target_bytes``: of a manifest."""
        super().__init__(transaction, DeleteFiles((), ()), summary, lambda _: False)
        self._operation = Operation.REPLACE
        self._listed, self._groups, self._target_bytes = listed, groups, target_bytes
        self.counts: dict[str, int] = {}

    def _manifests(self) -> list[ManifestFile]:
        """The new ones, then those that stay as they are; one that names no live file is of no use."""
        replaced = {manifest.manifest_path for group in self._groups for manifest in group}
        written = [manifest for group in self._groups for manifest in self._rewritten_group(group)]
        kept = [
            manifest
            for manifest in self._listed
            if manifest.manifest_path not in replaced and self._is_worth_keeping(manifest)
        ]
        self.counts = {
            "manifests-created": len(written),
            "manifests-kept": len(kept),
            "manifests-replaced": len(self._listed) - len(kept),
            "entries-processed": sum((manifest.existing_files_count or 0) for manifest in written),
        }
        return [*written, *kept]

    def _rewritten_group(self, group: Sequence[ManifestFile]) -> Iterator[ManifestFile]:
        entries = [
            self._entry(ManifestEntryStatus.EXISTING, entry.data_file, entry)
            for manifest in group
            for entry in self.fetch_manifest_entry(manifest)
        ]
        entries.sort(key=_place)
        size = sum(manifest.manifest_length for manifest in group)
        parts = max(1, -(-size // self._target_bytes))
        most = max(1, -(-len(entries) // parts))
        for start in range(0, len(entries), most):
            yield self._written(group[0], entries[start : start + most])

    def _written(self, like: ManifestFile, entries: Sequence[ManifestEntry]) -> ManifestFile:
        if like.content == ManifestContent.DELETES:
            return self._delete_manifest(like.partition_spec_id, entries)
        with self.new_manifest_writer(self.spec(like.partition_spec_id)) as writer:
            for entry in entries:
                writer.add_entry(entry)
        return writer.to_manifest_file()

    def _summary(self, snapshot_properties: Mapping[str, str] | None = None) -> Summary:
        """Counts, and the totals of the snapshot before: they stay."""
        metadata = self._transaction.table_metadata
        before = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id is not None else None
        properties = before.summary.additional_properties if before is not None and before.summary is not None else {}
        totals = {name: value for name, value in properties.items() if name.startswith(_TOTAL)}
        counts = {name: str(count) for name, count in self.counts.items()}
        return Summary(Operation.REPLACE, **{**(snapshot_properties or {}), **totals, **counts})


def _place(entry: ManifestEntry) -> tuple[Any, ...]:
    """Where an entry is in the order of partitions, and among those of one in that of their commits."""
    partition = entry.data_file.partition
    values = (_ordered(partition[at]) for at in range(len(partition)))
    return (*values, entry.sequence_number or 0)


def _ordered(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (0,)
    return (2,) if isinstance(value, float) and isnan(value) else (1, value)
