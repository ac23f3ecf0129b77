"""Data manifests from Avro to Arrow without a Python object per entry.

Called by manifests. Manifests of one schema are decoded together: many small ones cost no more than one large one.
Never guesses: whatever is not exactly as the schema says raises NotDecodable, and PyIceberg's reader has to judge.

A record's beginning is known only after the record before it was read. So records are read from the middle: the file's
format is spelled the same in every record and is easily found. From there each record is read to its end, which is the
beginning of the next one, and then from its beginning to the middle. Every record must end exactly where the next one
begins, and the last of each block at the block's end; then the result is that of reading one after another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntryStatus, ManifestFile
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from skipstone.compat.avro.doubles import exact_reader
from skipstone.compat.avro.naming import read_schema
from skipstone.compat.lineage.reading import manifest_row_id
from skipstone.tables.decoding.avro import (
    AvroRecord,
    AvroType,
    Container,
    NotDecodable,
    parse_type,
)
from skipstone.tables.decoding.cursor import PADDING, Cursor, Ints
from skipstone.tables.decoding.entries import ENTRY_SCHEMA, DataManifest, Partition, canonical_partition
from skipstone.tables.decoding.fields import DATA_FILE, FORMAT, PARTITION, Fields, Reading, map_column

#: How a format is spelled, with its length before it; first as it follows a path that ends as usual.
_SPELLINGS = (
    re.compile(rb"\.parquet(?=\x0ePARQUET)"),
    re.compile(rb"(?=\x0ePARQUET|\x06ORC|\x08AVRO|\x0eparquet|\x06orc|\x08avro)"),
)
#: Arrow's offsets have 32 bits.
_MAX_PAYLOAD = 2**31 - 1
#: Schemas of manifests whose reading is worked out once: one for each form of a table and its partitions.
_SCHEMAS_KEPT = 64


def decode_manifests(containers: Sequence[Container], manifests: Sequence[ManifestFile]) -> list[DataManifest]:
    """The live entries of each manifest, with inherited sequence numbers, snapshot and spec; all have one schema.

    Raises NotDecodable when any of them is not exactly what this decoder knows.
    """
    try:
        return _decode(containers, manifests)
    except (IndexError, ValueError, KeyError, EOFError, pa.ArrowException) as error:
        raise NotDecodable(f"the manifest does not keep to its schema: {error}") from error


def _decode(containers: Sequence[Container], manifests: Sequence[ManifestFile]) -> list[DataManifest]:
    layout = _layout(containers[0].schema)
    columns = _read_columns(layout.fields, containers)
    which = np.repeat(np.arange(len(manifests)), [sum(container.counts) for container in containers])
    entries, live = _entries(columns, manifests, which)
    counts = np.bincount(live, minlength=len(manifests))
    ends = np.cumsum(counts)
    return [
        _manifest(entries.slice(end - count, count), manifest.partition_spec_id, layout.read_partition)
        for manifest, count, end in zip(manifests, counts.tolist(), ends.tolist(), strict=True)
    ]


@dataclass(frozen=True)
class _Layout:
    """The layout in the Avro schema of manifests: the fields of an entry, and how a partition is read."""

    fields: Fields
    read_partition: Callable[[bytes], Partition]


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _layout(schema: str) -> _Layout:
    tree = read_schema(schema)
    return _Layout(_flat_fields(parse_type(tree)), _partition_reader(tree))


def _flat_fields(entry: AvroType) -> Fields:
    """The fields of an entry in the order in which they are written; the data file's stand in its place."""
    return tuple(
        chain.from_iterable(
            _record_fields(kind) if field_id == DATA_FILE else ((field_id, kind),)
            for field_id, kind in _record_fields(entry)
        )
    )


def _record_fields(kind: AvroType) -> Fields:
    if not isinstance(kind, AvroRecord):
        raise NotDecodable("an entry or its data file is not a record")
    return kind.fields


def _read_columns(fields: Fields, containers: Sequence[Container]) -> dict[str, pa.Array]:
    """Each known field of all records."""
    payload = b"".join([*(block for container in containers for block in container.blocks), PADDING])
    counts = np.array([count for container in containers for count in container.counts], np.int64)
    ends = np.cumsum([len(block) for container in containers for block in container.blocks], dtype=np.int64)
    _require(len(payload) <= _MAX_PAYLOAD and (counts > 0).all())
    middle = [field_id for field_id, _ in fields].index(FORMAT)
    anchors = _anchors(payload, int(counts.sum()))
    tails = Reading(Cursor(payload, anchors, np.append(anchors, len(payload))[1:]), pa.py_buffer(payload))
    columns = tails.columns(fields[middle:])
    _require((tails.cursor.at[np.cumsum(counts) - 1] == ends).all())
    starts = np.concatenate([np.zeros(1, np.int64), tails.cursor.at])[: len(anchors)]
    heads = Reading(Cursor(payload, starts, anchors), pa.py_buffer(payload))
    columns |= heads.columns(fields[:middle])
    _require((heads.cursor.at == anchors).all())
    return columns


def _anchors(payload: bytes, count: int) -> Ints:
    """Where the format of each record stands: as many places as there are records."""
    for spelling in _SPELLINGS:
        places = np.fromiter((match.end() for match in spelling.finditer(payload)), np.int64)
        if len(places) == count:
            return places
    raise NotDecodable("the formats of the files are not found")


def _entries(
    columns: dict[str, pa.Array], manifests: Sequence[ManifestFile], which: Ints
) -> tuple[pa.RecordBatch, Ints]:
    """The live entries, ``partition`` still encoded, and the manifest of each; ``which``: the manifest of each row."""
    columns = {**_absent(len(which)), **columns, **_inherited(columns, manifests, which)}
    columns["first_row_id"] = _row_ids(columns, manifests, which)
    _check_known(columns["status"], ManifestEntryStatus)
    _check_known(columns["content"], DataFileContent)
    columns["format"] = _formats(columns["format"])
    columns["path"] = columns["path"].cast(pa.string())
    columns["sort_order_id"] = columns["sort_order_id"].cast(pa.int32())
    entries = pa.RecordBatch.from_arrays([columns[name] for name in ENTRY_SCHEMA.names], ENTRY_SCHEMA.names)
    live = columns["status"].to_numpy() != ManifestEntryStatus.DELETED.value
    return (entries, which) if live.all() else (entries.filter(pa.array(live)), which[live])


def _check_known(numbers: pa.Array, kinds: type[Enum]) -> None:
    _require(np.isin(numbers.to_numpy(), [kind.value for kind in kinds]).all())


def _absent(rows: int) -> dict[str, pa.Array]:
    """Columns of fields that a manifest need not have."""
    numbers = ("snapshot_id", "sequence", "file_sequence", "first_row_id")
    missing = {name: pa.nulls(rows, pa.int64()) for name in numbers}
    others = ("split_offsets", "sort_order_id", "key_metadata")
    missing |= {name: pa.nulls(rows, ENTRY_SCHEMA.field(name).type) for name in others}
    missing["content"] = pa.array(np.full(rows, DataFileContent.DATA.value))
    nothing = np.zeros(rows + 1, np.int64)
    for name in ("column_sizes", "value_counts", "null_counts", "nan_counts"):
        missing[name] = map_column(nothing, nothing[:0], pa.array([], pa.int64()))
    for name in ("lower", "upper"):
        missing[name] = map_column(nothing, nothing[:0], pa.array([], pa.binary()))
    return missing


def _inherited(columns: dict[str, pa.Array], manifests: Sequence[ManifestFile], which: Ints) -> dict[str, pa.Array]:
    """Sequence numbers, snapshot and spec: what an entry does not say its manifest says; both 0 in format v1."""
    missing = pa.nulls(len(which), pa.int64())
    is_added = pc.equal(columns["status"], ManifestEntryStatus.ADDED.value)
    sequences = pa.array([manifest.sequence_number or 0 for manifest in manifests], pa.int64()).take(pa.array(which))
    sequence = pc.if_else(is_added, sequences, 0)
    snapshots = pa.array([manifest.added_snapshot_id for manifest in manifests], pa.int64()).take(pa.array(which))
    return {
        "segment": pc.coalesce(columns.get("file_sequence", missing), sequence),
        "data_sequence": pc.coalesce(columns.get("sequence", missing), sequence),
        "added_snapshot_id": pc.coalesce(columns.get("snapshot_id", missing), snapshots),
        "spec_id": pa.array([manifest.partition_spec_id for manifest in manifests], pa.int32()).take(pa.array(which)),
    }


def _row_ids(columns: dict[str, pa.Array], manifests: Sequence[ManifestFile], which: Ints) -> pa.Array:
    """The row id of each file's first row: its own, else the manifest's after the rows of earlier files without one.

    Source: "First Row ID Inheritance" of the table specification of Apache Iceberg.
    """
    firsts = [manifest_row_id(manifest) for manifest in manifests]
    if all(first is None for first in firsts):
        return pa.nulls(len(which), pa.int64())
    live = columns["status"].to_numpy() != ManifestEntryStatus.DELETED.value
    without = live & pc.is_null(columns["first_row_id"]).to_numpy(zero_copy_only=False)
    rows = np.where(without, columns["records"].to_numpy(), 0)
    before = np.cumsum(rows) - rows
    starts = np.searchsorted(which, np.arange(len(manifests)))
    of_manifest = before[np.minimum(starts, len(which) - 1)]
    first = pa.array(firsts, pa.int64()).take(pa.array(which))
    given = pc.add(first, pa.array(before - of_manifest[which]))
    return pc.if_else(pc.is_null(first), None, pc.coalesce(columns["first_row_id"], given))


def _formats(formats: pa.Array) -> pa.Array:
    """The formats as PyIceberg spells them; raises ValueError for one that it does not know."""
    encoded = formats.cast(pa.string()).dictionary_encode()
    names = [FileFormat(name).value for name in encoded.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(encoded.indices)


def _manifest(entries: pa.RecordBatch, spec_id: int, read_partition: Callable[[bytes], Partition]) -> DataManifest:
    """One manifest's entries with each distinct partition decoded once."""
    encoded = entries.column("partition").dictionary_encode()
    numbers: dict[Partition, int] = {}
    ordinals = [numbers.setdefault(read_partition(value), len(numbers)) for value in encoded.dictionary.to_pylist()]
    partition = pa.array(ordinals, pa.int32()).take(encoded.indices)
    arrays = [partition if name == "partition" else entries.column(name) for name in ENTRY_SCHEMA.names]
    return DataManifest(spec_id, pa.RecordBatch.from_arrays(arrays, schema=ENTRY_SCHEMA), tuple(numbers))


def _partition_reader(schema: Any) -> Callable[[bytes], Partition]:
    """PyIceberg's own reader of partition values of a manifest with the Avro ``schema``."""
    reader = exact_reader(AvroSchemaConversion().avro_to_iceberg(schema).find_type(PARTITION))

    def read(value: bytes) -> Partition:
        decoder = new_decoder(value)
        record = reader.read(decoder)
        _require(decoder.tell() == len(value))
        return canonical_partition(record[position] for position in range(len(record)))

    return read


def _require(condition: object) -> None:
    if not condition:
        raise NotDecodable("the manifest does not keep to its schema")
