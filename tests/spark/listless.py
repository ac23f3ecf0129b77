"""Manifest lists as some writers have them: without bounds of partitions that have values.

Used by the tests of queries and of upkeep.
"""

from __future__ import annotations

from collections.abc import Callable

from pyiceberg.manifest import PartitionFieldSummary, write_manifest_list
from pyiceberg.table import Table
from skipstone.compat.lineage.reading import read_manifests

#: Changes a summary of a partition field in place.
Change = Callable[[PartitionFieldSummary], None]


def without_any(summary: PartitionFieldSummary) -> None:
    """As ClickHouse 26.9.2 writes buckets: neither bound, and no null."""
    summary._data[2] = summary._data[3] = None


def without_lower(summary: PartitionFieldSummary) -> None:
    """As iceberg-go 0.7.0 writes a text cut off where one is empty: no lower bound, and a null that is not there."""
    summary._data[0], summary._data[2] = True, None


def forget_bounds(table: Table, change: Change) -> None:
    """Write the manifest list of the head of ``table`` again in its place, with each summary changed."""
    head = table.current_snapshot()
    assert head is not None
    manifests = read_manifests(head, table.io, table.format_version)
    for manifest in manifests:
        for summary in manifest.partitions or ():
            change(summary)
    table.io.delete(head.manifest_list)
    output = table.io.new_output(head.manifest_list)
    numbers = head.snapshot_id, head.parent_snapshot_id, head.sequence_number
    with write_manifest_list(table.format_version, output, *numbers, "null") as writer:
        writer.add_manifests(manifests)
