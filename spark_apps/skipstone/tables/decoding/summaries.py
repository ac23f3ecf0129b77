"""Manifests whose list says less of their partitions than it has to: other engines skip them, whatever is asked.

A bound that a manifest list lacks means that all values are null (or NaN). Some writers leave it out for others: for
buckets, or for an empty text. Skipstone never prunes by these bounds. Used by queries, which must not leave a table to
such an engine, and by whoever counts or repairs them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile, PartitionFieldSummary

from skipstone.tables.decoding.entries import Partition
from skipstone.tables.decoding.manifests import live_entries, partition_tuple, read_data_manifests


def without_bounds(manifests: Sequence[ManifestFile], io: FileIO) -> list[ManifestFile]:
    """Those of ``manifests`` that engines skip by a bound which is not there, though a file has a value.

    Only manifests that may be such are read. Raises OSError, and NotWholeError, as reading them does.
    """
    return [
        manifest
        for manifest in manifests
        if (fields := _without(manifest.partitions or ())) and _have_values(manifest, fields, io)
    ]


def _without(summaries: Iterable[PartitionFieldSummary]) -> dict[int, PartitionFieldSummary]:
    """The fields that lack a bound, by their place."""
    pairs = enumerate(summaries)
    return {place: summary for place, summary in pairs if summary.lower_bound is None or summary.upper_bound is None}


def _have_values(manifest: ManifestFile, fields: dict[int, PartitionFieldSummary], io: FileIO) -> bool:
    """Return whether a file has a value in one of ``fields``. A list that tells of none besides nulls may be right."""
    if any(not (summary.contains_null or summary.contains_nan) for summary in fields.values()) and _has_files(manifest):
        return True
    return any(_is_value(partition[place]) for partition in _partitions(manifest, io) for place in fields)


def _has_files(manifest: ManifestFile) -> bool:
    return bool(manifest.added_files_count or manifest.existing_files_count)


def _is_value(value: object) -> bool:
    return value is not None and value == value  # noqa: PLR0124 - NaN does not equal itself


def _partitions(manifest: ManifestFile, io: FileIO) -> Iterable[Partition]:
    if manifest.content == ManifestContent.DATA:
        (decoded,), _ = read_data_manifests([manifest], io)
        return decoded.partitions
    return {partition_tuple(entry.data_file) for entry in live_entries(manifest, io)}
