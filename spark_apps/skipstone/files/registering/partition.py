"""The partition that all rows of a registered file belong to, from its folders and from its rows.

Used by ``examine``. Readers take the value of an identity field for that of all rows of a file, so it has to be proven:
by the file's bounds, by reading the columns, or by a folder for a column that the file lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from propcache.api import cached_property
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, TimestampType, TimestamptzType
from skipstone_core.errors import BadData
from skipstone_core.merging.unused import plain_name
from skipstone_core.reasons import Reason

from skipstone.files.parquet import ranges_of
from skipstone.files.partitions import PartitionTuple, split_by_partition
from skipstone.files.registering.columns import COPY_INSTEAD, FileColumns
from skipstone.files.registering.folders import as_value, folder_values
from skipstone.files.registering.metrics import null_counts
from skipstone.tables.arrow import arrow_schema

_FIELD = "source.paths"
#: Types whose bounds in footers are values of the file.
_EXACT = (DateType, IntegerType, LongType, TimestampType, TimestamptzType)


@dataclass(frozen=True)
class TableLayout:
    """How the files of a table are partitioned."""

    schema: Schema
    spec: PartitionSpec

    @cached_property
    def identities(self) -> Mapping[int, int]:
        """Place in the spec of each field that keeps the values of a column, by the column's field id."""
        fields = enumerate(self.spec.fields)
        return {field.source_id: place for place, field in fields if isinstance(field.transform, IdentityTransform)}

    @cached_property
    def columns(self) -> tuple[NestedField, ...]:
        """The columns at the top of the schema that partitions are made of."""
        used = [field for field in self.spec.fields if not isinstance(field.transform, VoidTransform)]
        places = {self.schema.accessor_for_field(field.source_id).position for field in used}
        return tuple(self.schema.fields[place] for place in sorted(places))

    def values(self, partition: PartitionTuple) -> dict[int, Any]:
        """Return the values of columns in all rows of a file in ``partition``, by field id."""
        return {number: partition[place] for number, place in self.identities.items()}

    def partitions(self, columns: pa.Table) -> Iterator[PartitionTuple]:
        """The partitions of rows; ``columns`` has at least those of the layout."""
        fields = arrow_schema(self.schema)
        known = set(columns.column_names)
        rows = [columns[field.name] if field.name in known else pa.nulls(len(columns), field.type) for field in fields]
        for values, _ in split_by_partition(pa.table(rows, schema=fields.remove_metadata()), self.spec, self.schema):
            yield values


@dataclass(frozen=True)
class FolderValues:
    """The values in the folders of the file ``name``. ``texts``: by column."""

    name: str
    layout: TableLayout
    texts: Mapping[str, str | None]

    @property
    def columns(self) -> frozenset[str]:
        """The columns whose values readers take from the file's partition."""
        named = (field.name for field in self.layout.schema.fields if field.field_id in self.layout.identities)
        return frozenset(self.texts) & frozenset(named)

    @property
    def unused(self) -> tuple[str, ...]:
        """The columns that the table does not have."""
        known = {field.name for field in self.layout.schema.fields}
        return tuple(name for name in self.texts if name not in known)

    def constants(self, held: FileColumns) -> dict[int, Any]:
        """Values of columns that the file lacks, by field id. Raises BadData (SOURCE_UNREADABLE, BAD_RECORDS)."""
        lacking = [field for field in self.layout.schema.fields if field.field_id not in held.names]
        for field in lacking:
            alike = [name for name in self.unused if plain_name(name) == plain_name(field.name)]
            if field.name not in self.texts and alike:
                raise self._refused(
                    f"a folder names the column '{alike[0]}' and the table has '{field.name}', which the file lacks, "
                    "and names are exact. Rename the folder"
                )
            if field.name in self.texts and field.field_id not in self.layout.identities:
                raise self._refused(
                    f"the folders name the column '{field.name}', which the file lacks, and the table is not "
                    "partitioned by its values, so that its rows would hold null. Write the file with the column, or "
                    "partition the table by it"
                )
            if field.name not in self.texts and field.field_id in self.layout.identities:
                raise self._refused(
                    f"the table is partitioned by '{field.name}', which neither the file nor a folder '{field.name}=…' "
                    "of its path tells. Move the file to such a folder, or write it with the column, "
                    f"{COPY_INSTEAD}, which takes it for null"
                )
        return {field.field_id: self._value(field) for field in lacking if field.name in self.texts}

    def require_agreement(self, partition: PartitionTuple) -> None:
        """Raise BadData (SOURCE_UNREADABLE) when a folder says something else than the file."""
        for field in self.layout.schema.fields:
            place = self.layout.identities.get(field.field_id)
            if place is None or field.name not in self.texts:
                continue
            try:
                value = as_value(self.texts[field.name], field.field_type)
            except ValueError:
                continue  # what a folder cannot say for sure the file does
            if value != partition[place]:
                raise self._refused(
                    f"its folder and its rows differ in the column '{field.name}'. Move it to its folder, "
                    f"{COPY_INSTEAD}, which believes the rows"
                )

    def _value(self, column: NestedField) -> Any:
        text = self.texts[column.name]
        if text is None and column.required:
            message = f"its folder says that '{column.name}' is null, and the table requires it. Move it to its folder"
            raise BadData(Reason.BAD_RECORDS, f"'{self.name}': {message}", field=_FIELD)
        try:
            return as_value(text, column.field_type)
        except ValueError as error:
            message = f"its folder names no {column.field_type} for the column '{column.name}': {error}"
            raise self._refused(f"{message}. Write the file with the column") from error

    def _refused(self, message: str) -> BadData:
        # The mode Copy knows nothing of folders: what only they tell would be lost.
        return BadData(Reason.SOURCE_UNREADABLE, f"'{self.name}': {message}", field=_FIELD)


def folders_of(name: str, layout: TableLayout) -> FolderValues:
    """Return the values in the folders of a file. Raises BadData (SOURCE_UNREADABLE)."""
    return FolderValues(name, layout, folder_values(name))


def partition_by_bounds(
    footer: pq.FileMetaData, held: FileColumns, constants: Mapping[int, Any], layout: TableLayout
) -> PartitionTuple | None:
    """The partition, if what the footer says of the columns is enough; None when they have to be read."""
    if layout.spec.is_unpartitioned():
        return tuple(None for _ in layout.spec.fields)
    ends = [_ends(column, footer, held, constants) for column in layout.columns]
    if any(end is None for end in ends):
        return None
    fields = arrow_schema(layout.schema)
    pairs = zip(layout.columns, ends, strict=True)
    columns = {column.name: _typed(end, fields.field(column.name).type) for column, end in pairs}
    partitions = list(layout.partitions(pa.table(columns)))
    is_one = all(end is not None and end[0] == end[1] for end in ends)
    keeps_order = all(field.transform.preserves_order for field in layout.spec.fields)
    return partitions[0] if len(partitions) == 1 and (is_one or keeps_order) else None


def _ends(
    column: NestedField, footer: pq.FileMetaData, held: FileColumns, constants: Mapping[int, Any]
) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column; None when the footer does not tell, or some are null."""
    number = column.field_id
    if number not in held.names:
        return constants.get(number), constants.get(number)
    nulls = null_counts(footer, held).get(number)
    if nulls == footer.num_rows:
        return None, None
    if nulls != 0 or not isinstance(column.field_type, _EXACT) or not _is_whole(footer, held, number):
        return None
    return ranges_of(footer, {path: leaf.field_id for path, leaf in held.leaves.items()}, {number}).get(number)


def _is_whole(footer: pq.FileMetaData, held: FileColumns, number: int) -> bool:
    """Return whether every row group that holds rows has bounds of the column."""
    (place,) = (at for at, leaf in enumerate(held.leaves.values()) if leaf.field_id == number)
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    chunks = [group.column(place) for group in groups if group.num_rows]
    return all(chunk.is_stats_set and chunk.statistics.has_min_max for chunk in chunks)


def _typed(ends: tuple[Any, Any] | None, kind: pa.DataType) -> pa.Array:
    values = list(ends or ())
    if any(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return pa.array(values, pa.int64()).cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)
    return pa.array(values, kind)


def the_partition(name: str, layout: TableLayout, batches: Iterator[pa.RecordBatch]) -> PartitionTuple:
    """The one partition of all rows. Raises BadData (SOURCE_UNREADABLE) when there are several."""
    by_text: dict[str, PartitionTuple] = {}
    for batch in batches:
        for values in layout.partitions(pa.Table.from_batches([batch])):
            by_text.setdefault(repr(values), values)  # by text: a NaN does not equal itself
        if len(by_text) > 1:
            raise BadData(
                Reason.SOURCE_UNREADABLE,
                f"'{name}' holds rows of several partitions of the table ({layout.spec}), and a file belongs to one: "
                f"write a file for each, {COPY_INSTEAD}",
                field=_FIELD,
            )
    return next(iter(by_text.values()))
