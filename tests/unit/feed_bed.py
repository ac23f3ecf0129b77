"""Change feeds in a folder, read as a merge reads them: the rows that they leave, without a table.

Used by the tests of feeds only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from skipstone.kernels.partial import unpack_bits
from skipstone.sources.feeds.batches import batch_schema
from skipstone.sources.feeds.files import feed_batches, feed_files, feed_target
from skipstone.sources.feeds.resolving import Resolution, find_truncation, resolve_changes
from skipstone.sources.listing import list_source
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ChangeFormat,
    MergeKey,
    MergeTask,
    SourceFormat,
    SourceSpec,
    WarehouseRef,
)
from skipstone_core.keys import key_type
from skipstone_core.merging.feeds import DELETE, MISSING_COLUMN, OP_COLUMN
from skipstone_core.merging.merges import KEPT_COLUMN, BoundKey

Row = dict[str, Any]
#: Stands for the value that the table has.
KEPT = "<kept>"
#: The same, and the change cannot be inserted.
MISSING = "<missing>"

ORDERS = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "price", DecimalType(9, 2)),
    NestedField(4, "placed", TimestampType()),
)
EVERY = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "flag", BooleanType()),
    NestedField(3, "small", IntegerType()),
    NestedField(4, "ratio", FloatType()),
    NestedField(5, "wide", DoubleType()),
    NestedField(6, "price", DecimalType(9, 2)),
    NestedField(7, "day", DateType()),
    NestedField(8, "clock", TimeType()),
    NestedField(9, "local", TimestampType()),
    NestedField(10, "instant", TimestamptzType()),
    NestedField(11, "text", StringType()),
    NestedField(12, "code", UUIDType()),
    NestedField(13, "raw", BinaryType()),
    NestedField(14, "tags", ListType(20, StringType(), element_required=False)),
    NestedField(15, "counts", ListType(21, IntegerType())),
    NestedField(16, "pairs", MapType(22, StringType(), 23, StringType(), value_required=False)),
    NestedField(17, "shape", StructType(NestedField(24, "x", DoubleType()))),
    NestedField(18, "codes", ListType(25, UUIDType(), element_required=False)),
)


@dataclass
class FeedBed:
    """Files of one feed below ``root``, for a table of ``schema``."""

    root: Path
    tool: ChangeFormat
    format: SourceFormat = SourceFormat.JSON
    schema: Schema = ORDERS
    keys: tuple[str, ...] = ("id",)
    source: Mapping[str, Any] = field(default_factory=dict)
    time_zone: str = "UTC"
    paths: tuple[str, ...] = ("feed",)

    def lines(self, *messages: object, name: str = "0.json") -> FeedBed:
        """Add a file with a message a line; text stands as it is."""
        text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in messages)
        return self.text(text + "\n", name)

    def text(self, text: str, name: str) -> FeedBed:
        """Add a file of ``text``."""
        path = self.root / "feed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return self

    def avro(self, schema: Any, records: Iterable[Row], name: str = "0.avro") -> FeedBed:
        """Add a file of Avro."""
        path = self.root / "feed" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as out:
            fastavro.writer(out, fastavro.parse_schema(schema), list(records))
        return self

    @property
    def task(self) -> MergeTask:
        """The merge of the feed."""
        source = SourceSpec(format=self.format, paths=self.paths, change_format=self.tool, **self.source)
        keys = tuple(MergeKey(target=key, source=key) for key in self.keys)
        return MergeTask(source=source, keys=keys, time_zone=self.time_zone)

    def changes(self) -> pa.Table:
        """All changes as they are read."""
        warehouse = WarehouseRef(name="w", root=str(self.root), catalog=CatalogRef(type=CatalogType.SQL))
        target = feed_target(self.task, self.schema)
        files = feed_files(list_source(warehouse, self.task.source), self.tool)
        batches = [batch for file in files for batch in feed_batches(file, target)]
        return pa.Table.from_batches(batches, schema=batch_schema(target))

    def left(self) -> list[Row | str]:
        """What is left of each key, in their order: its row, or "deleted " with the key."""
        target = feed_target(self.task, self.schema)
        columns = tuple(column.name for column in target.carried)
        kinds = {column.name: key_type(str(column.type)) for column in target.carried}
        keys = tuple(BoundKey(target=key, source=key, type=kind) for key in self.keys if (kind := kinds[key]))
        changes = self.changes()
        how = replace(Resolution(keys=keys, columns=columns), truncation=find_truncation(changes))
        return told(resolve_changes(changes, how), columns, self.keys)

    def row(self) -> Row:
        """The only row that is left."""
        (found,) = self.left()
        assert isinstance(found, dict)
        return found


def told(rows: pa.Table, columns: Sequence[str], keys: Sequence[str]) -> list[Row | str]:
    kept = unpack_bits(rows.column(KEPT_COLUMN), len(columns))
    missing = unpack_bits(rows.column(MISSING_COLUMN), len(columns))
    found: list[Row | str] = []
    for at, row in enumerate(rows.to_pylist()):
        if row[OP_COLUMN] == DELETE:
            found.append("deleted " + " ".join(str(row[key]) for key in keys))
            continue
        values = {name: KEPT if kept[at, n] else row[name] for n, name in enumerate(columns)}
        found.append(values | {name: MISSING for n, name in enumerate(columns) if missing[at, n]})
    return found
