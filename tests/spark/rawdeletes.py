"""Delete files made by hand: PyIceberg writes none, and Spark writes no equality deletes.

A delete manifest is written by PyIceberg's own Avro writer and added to the manifest list of a new snapshot.
"""

from __future__ import annotations

import itertools
import json
import struct
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.puffin import MAGIC_BYTES
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import IntegerType, ListType, NestedField, StructType
from skipstone.files.deletions import REFERENCED_FILE, encode_vector
from skipstone.files.positions import WrittenDeletes
from skipstone.tables.arrow import FIELD_ID_KEY, arrow_schema, field_id
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone.tables.storage import plain_location
from skipstone_core.contract.requests import TableRef
from skipstone_core.history.commits import Committed

_NUMBERS = itertools.count()
_PATH_ID, _POS_ID = "2147483546", "2147483545"
#: What every deletion vector in a Puffin file says of itself.
_VECTOR = {"type": "deletion-vector-v1", "fields": [2147483645], "snapshot-id": -1, "sequence-number": -1}


class _DeletesWriter(ManifestWriterV2):
    """A manifest of deletes."""

    def content(self) -> ManifestContent:
        """Deletes."""
        return ManifestContent.DELETES

    def _with_partition(self, format_version: TableVersion) -> Schema:
        """Field ids as int, as the format says: PyIceberg writes long, which Spark cannot read."""
        schema = super()._with_partition(format_version)
        entry = {field.name: field for field in schema.fields}
        file = entry["data_file"].field_type
        ids = ListType(136, IntegerType(), element_required=True)
        fields = [NestedField(f.field_id, f.name, ids) if f.name == "equality_ids" else f for f in file.fields]
        narrowed = NestedField(2, "data_file", StructType(*fields), required=True)
        return Schema(*(narrowed if name == "data_file" else field for name, field in entry.items()))

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    """An append whose one new manifest holds delete files."""

    def _manifests(self) -> list[ManifestFile]:
        (spec_id,) = {file.spec_id for file in self._added_data_files}
        spec = self._transaction.table_metadata.specs()[spec_id]
        writer = _DeletesWriter(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, "deflate")
        with writer:
            for file in self._added_data_files:
                writer.add(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, data_file=file
                    )
                )
        return [writer.to_manifest_file(), *self._existing_manifests()]


def add_position_delete(table: Table, target: DataFile, positions: list[int]) -> None:
    """Delete rows of ``target`` by position."""
    schema = pa.schema(
        [
            pa.field("file_path", pa.string(), nullable=False, metadata={FIELD_ID_KEY: _PATH_ID.encode()}),
            pa.field("pos", pa.int64(), nullable=False, metadata={FIELD_ID_KEY: _POS_ID.encode()}),
        ]
    )
    rows = pa.table([[target.file_path] * len(positions), positions], schema=schema)
    partition = tuple(target.partition[n] for n in range(len(target.partition)))
    bound = {int(_PATH_ID): target.file_path.encode()}
    _add(
        table,
        rows,
        partition,
        target.spec_id,
        content=DataFileContent.POSITION_DELETES,
        lower_bounds=bound,
        upper_bounds=bound,
    )


def add_equality_delete(
    table: Table, values: dict[str, list[Any]], *partition: Any, spec_id: int | None = None
) -> None:
    """Delete the rows of ``partition`` that have these values. ``spec_id``: of an older spec than the table's."""
    whole = arrow_schema(table.schema())
    schema = pa.schema([whole.field(name) for name in values])
    ids = [field_id(field) for field in schema]
    rows = pa.table(list(values.values()), schema=schema)
    _add(table, rows, partition, spec_id, content=DataFileContent.EQUALITY_DELETES, equality_ids=ids)


def add_raw_equality_delete(table: Table, rows: pa.Table, ids: list[int]) -> None:
    """Delete by the fields ``ids``, in an unpartitioned table, with a file that holds just ``rows``."""
    _add(table, rows, (), content=DataFileContent.EQUALITY_DELETES, equality_ids=ids)


def add_vectors(table: Table, rows: Mapping[int, Sequence[int]]) -> None:
    """Delete rows of data files, by number in the file set: all that are deleted of each, in one Puffin file."""
    files, path = read_file_set(table), f"{table.location()}/data/delete-{next(_NUMBERS)}-{uuid.uuid4()}.puffin"
    content, blobs = MAGIC_BYTES, list[dict[str, Any]]()
    for number, positions in rows.items():
        blob = encode_vector(np.array(positions))
        told = {REFERENCED_FILE: files.data_file(number).file_path, "cardinality": str(len(positions))}
        blobs.append({"offset": len(content), "length": len(blob), "properties": told, **_VECTOR})
        content += blob
    footer = json.dumps({"blobs": blobs}).encode()
    content += MAGIC_BYTES + footer + struct.pack("<ii", len(footer), 0) + MAGIC_BYTES
    with table.io.new_output(path).create() as sink:
        sink.write(content)
    marked = tuple(files.data_file(number) for number in rows)
    places = [
        WrittenDeletes(
            path=path,
            size=len(content),
            spec_id=file.spec_id,
            partition=files.partition(number),
            data_path=file.file_path,
            rows=len(positions),
            first=positions[0],
            last=positions[-1],
            place=(blob["offset"], blob["length"]),
        )
        for file, (number, positions), blob in zip(marked, rows.items(), blobs, strict=True)
    ]
    change = TableCommit(
        pinned=files.pinned,
        marked=marked,
        deletes=tuple(place.to_delete_file() for place in places),
        replaced=tuple(one.file for number in rows for one in files.applying_deletes(number) if one.is_replaceable),
    )
    outcome = commit_table(table.catalog, _ref(table), change)
    assert isinstance(outcome, Committed), outcome


def _ref(table: Table) -> TableRef:
    return TableRef(namespace=".".join(table.name()[:-1]), name=table.name()[-1], uid="")


def upgrade(table: Table) -> None:
    """To format version 3, which PyIceberg refuses: as other engines do, but in the metadata file that is there."""
    place = Path(plain_location(table.metadata_location))
    place.write_text(json.dumps({**json.loads(place.read_text()), "format-version": 3, "next-row-id": 0}))


def _add(table: Table, rows: pa.Table, partition: tuple[Any, ...], spec_id: int | None = None, **values: Any) -> None:
    path = f"{table.location()}/data/delete-{next(_NUMBERS)}-{uuid.uuid4()}.parquet"
    with table.io.new_output(path).create() as sink:
        pq.write_table(rows, sink)
    file = DataFile.from_args(
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=Record(*partition),
        record_count=rows.num_rows,
        file_size_in_bytes=len(table.io.new_input(path)),
        **values,
    )
    file.spec_id = table.spec().spec_id if spec_id is None else spec_id
    if table.metadata.format_version > 2:  # PyIceberg commits to older ones only
        outcome = commit_table(table.catalog, _ref(table), TableCommit(pinned=pin_table(table), deletes=(file,)))
        assert isinstance(outcome, Committed), outcome
        return
    transaction = table.transaction()
    update = transaction.update_snapshot()
    producer = _AddDeletes(operation=update.fast_append()._operation, transaction=transaction, io=table.io)
    producer.append_data_file(file)
    producer.commit()
    transaction.commit_transaction()
