"""Tables with random specs and the partitions of random rows, for tests of partition pruning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.types import NestedField, PrimitiveType, UUIDType
from skipstone.tables.decoding.entries import ENTRY_SCHEMA, DataManifest, canonical_partition
from skipstone.tables.decoding.manifests import ManifestCounters
from skipstone.tables.deletes import DeleteIndex
from skipstone.tables.filesets import FileSet, SnapshotContent
from skipstone_core.indexing.snapshots import Pinned

from tests.unit.filter_cases import Column, stored

_WIDTHS = ("[1]", "[3]", "[16]")
_NOT_BUCKETED = frozenset({"boolean", "float", "double"})
_PERIODS = {
    "date": ("year", "month", "day"),
    "timestamp": ("year", "month", "day", "hour"),
    "timestamptz": ("year", "month", "day", "hour"),
}
_TRUNCATED = frozenset({"int", "long", "decimal", "string", "binary"})


def transforms_of(column: Column) -> list[str]:
    """The transforms of a column's type, void ones apart."""
    family = column.kind.name.partition("(")[0].partition("[")[0]
    found = ["identity", *_PERIODS.get(family, ())]
    found += [f"bucket{width}" for width in _WIDTHS if family not in _NOT_BUCKETED]
    return found + [f"truncate{width}" for width in _WIDTHS if family in _TRUNCATED]


@st.composite
def specs(draw: st.DrawFn, columns: list[Column], spec_id: int) -> PartitionSpec:
    """Up to three fields; now and then a void one."""
    fields = []
    for number in range(draw(st.integers(0, 3))):
        column = draw(st.sampled_from(columns))
        transform = draw(st.sampled_from([*transforms_of(column), "identity", "void"]))
        fields.append(PartitionField(column.field_id, 1000 + number, parse_transform(transform), f"p{number}"))
    return PartitionSpec(*fields, spec_id=spec_id)


def type_of(column: Column) -> PrimitiveType:
    """The Iceberg type of a column."""
    return PrimitiveType.model_validate(column.kind.name)


def schema_of(columns: list[Column]) -> Schema:
    """The schema of the columns."""
    return Schema(
        *(NestedField(each.field_id, each.name, type_of(each), required=each.is_required) for each in columns)
    )


def partition_of(spec: PartitionSpec, columns: list[Column], row: list[Any]) -> tuple[object, ...]:
    """The partition of a row, by PyIceberg."""
    places = {column.field_id: place for place, column in enumerate(columns)}

    def value(field: PartitionField) -> object:
        place = places[field.source_id]
        kind, plain = type_of(columns[place]), row[place]
        held = plain if isinstance(kind, UUIDType) else stored(plain)
        return None if held is None else field.transform.transform(kind)(held)

    return canonical_partition(value(field) for field in spec.fields)


@dataclass(frozen=True)
class PartitionedTable:
    """A table, and a file for each of some partitions, in their order."""

    table: Table
    files: FileSet


def partitioned(
    columns: list[Column], known: Sequence[PartitionSpec], partitions: Sequence[tuple[int, tuple[object, ...]]]
) -> PartitionedTable:
    """``partitions``: spec id and values of each file."""
    schema = schema_of(columns)
    metadata = TableMetadataV2(
        location="file:/t",
        last_column_id=len(columns),
        schemas=[schema],
        current_schema_id=schema.schema_id,
        partition_specs=list(known),
        default_spec_id=known[0].spec_id,
        sort_orders=[UNSORTED_SORT_ORDER],
    )
    table = Table(("ns", "t"), metadata, "file:/t/metadata.json", PyArrowFileIO(), NoopCatalog("none"))
    manifests = [_manifest(number, *partition) for number, partition in enumerate(partitions)]
    pinned = Pinned(table_uuid="t", snapshot_id=1, schema_id=0, spec_id=0, format_version=2)
    content = SnapshotContent(manifests, DeleteIndex(), ManifestCounters())
    return PartitionedTable(table, FileSet(pinned, None, schema, content))


def _manifest(number: int, spec_id: int, partition: tuple[object, ...]) -> DataManifest:
    entry = {"path": f"file:/t/{number}.parquet", "size": 1, "records": 1, "segment": 1, "data_sequence": 1}
    more = {"spec_id": spec_id, "partition": 0, "format": "PARQUET", "added_snapshot_id": 1}
    rows: list[dict[str, Any]] = [{**entry, **more}]
    return DataManifest(spec_id, pa.RecordBatch.from_pylist(rows, ENTRY_SCHEMA), (partition,))
