"""Which column of a Parquet file feeds which column of a table, as readers of the table will find it.

By field ids when the file has any, else by names. Used when files are registered; whatever a reader might take for
something else is refused with the file, the column, and the type that it has and that it needs. Must not read rows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from skipstone_core.errors import BadData, BadSpec, UserError
from skipstone_core.merging.unused import listed
from skipstone_core.reasons import Reason

from skipstone.files.registering.storedtypes import StoredType, is_read_as, stored_type
from skipstone.tables.arrow import LINEAGE_NAMES, field_id

_FIELD = "source"
COPY_INSTEAD = "or load the file with the mode Copy"
#: Whether a load that copies converts a file's column to a type of the table.
Copies = Callable[[pa.DataType, IcebergType], bool]
#: Parts of paths for what Parquet keeps one level deeper than Arrow tells.
_ELEMENT, _KEY = "[element]", "[key]"


@dataclass(frozen=True)
class Leaf:
    """A primitive column of a file, and the field of the table that it feeds. ``is_required``: of that field."""

    field_id: int
    kind: IcebergType
    stored: StoredType
    is_required: bool


@dataclass(frozen=True)
class FileNames:
    """The name of a file for people, and how its columns go with those of a table.

    ``sources``: names in files by column, where they differ. ``given``: columns whose values folders tell.
    ``copies`` decides whether a message may send people to the mode Copy.
    """

    name: str
    sources: Mapping[str, str]
    copies: Copies
    given: Collection[str] = ()


@dataclass(frozen=True)
class FileColumns:
    """The columns of a file. ``leaves``: by their path in the file; ``names``: of those at the top, by field id."""

    leaves: Mapping[str, Leaf]
    names: Mapping[int, str]
    has_ids: bool


def match_columns(file: FileNames, footer: pq.FileMetaData, schema: Schema) -> FileColumns:
    """The columns of a file, each fitting a column of the table.

    Raises BadSpec: COLUMN_NOT_FOUND, SCHEMA_MISMATCH, COLUMN_TYPE_UNSUPPORTED; BadData: SOURCE_COLUMN_MISSING,
    SOURCE_UNREADABLE.
    """
    try:
        arrow = footer.schema.to_arrow_schema()
    except pa.ArrowException as error:
        message = f"'{file.name}' has a column that cannot be read: {error}; write the file again without it"
        raise BadData(Reason.SOURCE_UNREADABLE, message, field=_FIELD) from error
    top = {file.sources.get(table_field.name, table_field.name): table_field for table_field in schema.fields}
    fed = {column: source for column, source in file.sources.items() if column != source}
    matching = _Matching(file.name, footer.schema, file.copies, fed, has_ids=any(map(_has_id, arrow)))
    for name, table_field in top.items():
        if name not in arrow.names and (
            table_field.name in file.sources or (table_field.required and table_field.name not in file.given)
        ):
            raise matching.missing((name,), arrow.names)
    if not top.keys() & set(arrow.names) and not _are_alike(arrow.names, top):
        raise _no_column(file.name, arrow.names, [table_field.name for table_field in schema.fields])
    matching.fields(list(arrow), top, ())
    return FileColumns(matching.leaves, {top[name].field_id: name for name in arrow.names}, matching.has_ids)


def _are_alike(names: Sequence[str], known: Iterable[str]) -> bool:
    """Return whether one of ``names`` is one of those ``known`` in another case, or the lineage of rows."""
    lower = {name.lower() for name in known} | set(LINEAGE_NAMES)
    return any(name.lower() in lower for name in names)


def _no_column(file: str, names: Sequence[str], known: Sequence[str]) -> BadSpec:
    message = (
        f"'{file}' has {listed(names)}, and none of them is in the table, which has {listed(known)}: name what feeds "
        "which column in source.mapping"
    )
    return BadSpec(Reason.COLUMN_NOT_FOUND, message, field=_FIELD)


def _has_id(arrow_field: pa.Field) -> bool:
    return field_id(arrow_field) is not None or any(map(_has_id, _below(arrow_field.type)))


def _below(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(at) for at in range(kind.num_fields)] if pa.types.is_nested(kind) else []


@dataclass
class _Matching:
    """One file on its way; ``leaves`` are filled in the order in which Parquet has them.

    ``fed``: names in files of table columns that are called otherwise.
    """

    file: str
    parquet: pq.ParquetSchema
    copies: Copies
    fed: Mapping[str, str]
    has_ids: bool
    leaves: dict[str, Leaf] = field(default_factory=dict)

    def fields(self, columns: Sequence[pa.Field], wanted: Mapping[str, NestedField], path: tuple[str, ...]) -> None:
        """Match the ``columns`` of the file below ``path`` with those ``wanted``, by their names in the file."""
        names = [column.name for column in columns]
        if len(set(names)) < len(names):
            below = f" below '{_shown(path)}'" if path else ""
            message = f"'{self.file}': two columns{below} have one name: give each its own name"
            raise BadData(Reason.SOURCE_UNREADABLE, message, field=_FIELD)
        unknown = [name for name in names if name not in wanted]
        if unknown:
            first = next((name for name in unknown if _are_alike([name], wanted)), unknown[0])
            raise self._unknown((*path, first), [*wanted])
        for column in columns:
            self._field(column, wanted[column.name], (*path, column.name))

    def _field(self, column: pa.Field, wanted: NestedField, path: tuple[str, ...]) -> None:
        number = field_id(column)
        if self.has_ids and number != wanted.field_id:
            has = "has no field id beside columns that have one" if number is None else f"has the field id {number}"
            raise BadSpec(
                Reason.SCHEMA_MISMATCH,
                f"'{self.file}': column '{_shown(path)}' {has}, and in the table it is field {wanted.field_id}: the "
                f"file was written for another table. Write it without field ids, {COPY_INSTEAD}",
                field=_FIELD,
            )
        self._type(column.type, wanted, path)

    def _type(self, arrow_type: pa.DataType, wanted: NestedField, path: tuple[str, ...]) -> None:
        match wanted.field_type:
            case StructType() as kind if pa.types.is_struct(arrow_type):
                self._struct(_below(arrow_type), kind, path)
            case ListType() as kind if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
                self._field(arrow_type.value_field, kind.element_field, (*path, _ELEMENT))
            case MapType() as kind if pa.types.is_map(arrow_type):
                self._field(arrow_type.key_field, kind.key_field, (*path, _KEY))
                self._field(arrow_type.item_field, kind.value_field, (*path, "value"))
            case StructType() | ListType() | MapType():
                raise self._unfit(path, str(arrow_type), wanted.field_type, arrow_type)
            case _ if pa.types.is_nested(arrow_type):
                raise self._unfit(path, str(arrow_type), wanted.field_type, arrow_type)
            case _:
                self._leaf(arrow_type, wanted, path)

    def _struct(self, columns: Sequence[pa.Field], kind: StructType, path: tuple[str, ...]) -> None:
        names = [column.name for column in columns]
        for table_field in kind.fields:
            if table_field.required and table_field.name not in names:
                raise self.missing((*path, table_field.name), names)
        self.fields(columns, {table_field.name: table_field for table_field in kind.fields}, path)

    def _leaf(self, arrow_type: pa.DataType, wanted: NestedField, path: tuple[str, ...]) -> None:
        column = self.parquet.column(len(self.leaves))
        stored = stored_type(column, arrow_type)
        if not is_read_as(stored, wanted.field_type):
            raise self._unfit(path, str(stored), wanted.field_type, arrow_type)
        if column.max_repetition_level and column.path.count(".") < _levels(path):
            raise self._unfit(path, "a list of the old form with two levels", wanted.field_type, arrow_type)
        self.leaves[column.path] = Leaf(wanted.field_id, wanted.field_type, stored, wanted.required)

    def _unfit(self, path: tuple[str, ...], shown: str, wanted: IcebergType, arrow_type: pa.DataType) -> BadSpec:
        copied = len(path) == 1 and self.copies(arrow_type, wanted)
        instead = f", {COPY_INSTEAD}, which converts values that lose nothing by it" if copied else ""
        return BadSpec(
            Reason.COLUMN_TYPE_UNSUPPORTED,
            f"'{self.file}': column '{_shown(path)}' is {shown}, and not every reader takes that for the table's type "
            f"{wanted}: write the file with that type{instead}",
            field=_FIELD,
        )

    def _unknown(self, path: tuple[str, ...], known: Sequence[str]) -> BadSpec:
        if len(path) == 1 and path[0] in LINEAGE_NAMES:
            message = f"'{self.file}': column '{path[0]}' holds the lineage of rows of another table: write the file"
            return BadSpec(Reason.COLUMN_NOT_FOUND, f"{message} without it, {COPY_INSTEAD}", field=_FIELD)
        if len(path) == 1 and path[0] in self.fed:
            message = (
                f"'{self.file}': source.mapping feeds the table's '{path[0]}' from '{self.fed[path[0]]}', and the "
                f"file has a column '{path[0]}' besides: write the file without it, {COPY_INSTEAD}, which leaves it out"
            )
            return BadSpec(Reason.COLUMN_NOT_FOUND, message, field=_FIELD)
        alike = [name for name in known if name.lower() == path[-1].lower()]
        problem = f"differs from the table's column '{alike[0]}' in case" if alike else "is not in the table"
        if len(path) > 1:
            fix = "write the file with the table's name" if alike else "write the file without it"
        elif alike:
            fix = "name it in source.mapping"
        else:
            fix = f"add it to the table, {COPY_INSTEAD}, which leaves out what the table does not have"
        message = f"'{self.file}': column '{_shown(path)}' {problem}: {fix}"
        return BadSpec(Reason.COLUMN_NOT_FOUND, message, field=_FIELD)

    def missing(self, path: tuple[str, ...], names: Sequence[str]) -> UserError:
        """Return the error for a file that lacks a column; ``names``: those beside which it should be."""
        if alike := [name for name in names if name.lower() == path[-1].lower()]:
            return self._unknown((*path[:-1], alike[0]), [path[-1]])
        return BadData(
            Reason.SOURCE_COLUMN_MISSING,
            f"'{self.file}' has no column '{_shown(path)}', which the table requires or source.mapping names: write "
            "the file with it, or change the mapping",
            field=_FIELD,
        )


def _levels(path: tuple[str, ...]) -> int:
    """How many dots a column at ``path`` has in Parquet's own path, at least."""
    return len(path) - 1 + sum(part.count(".") + (part in (_ELEMENT, _KEY)) for part in path)


def _shown(path: tuple[str, ...]) -> str:
    return ".".join(part.strip("[]") if part in (_ELEMENT, _KEY) else part for part in path)
