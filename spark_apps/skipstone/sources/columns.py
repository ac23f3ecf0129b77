"""Which source column feeds which column of the frame, and as what type.

Called by ``reading`` for loads and merges. Names are exact: nothing is matched by position, case or likeness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, NestedField, StringType, TimeType, UnknownType
from skipstone_core.columntypes import MOVED_ONLY
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import SourceSpec
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.language.paths import split_path
from skipstone_core.merging.clauses import MergeColumn
from skipstone_core.merging.evolution import refuse_closed, refuse_names, refuse_own_names
from skipstone_core.merging.unused import (
    Names,
    SourceNames,
    refuse_mixed,
    refuse_twins,
    refuse_unknown,
    require_delimiter,
    require_used,
)
from skipstone_core.reasons import Reason

from skipstone.compat.lineage.opaque import holds_opaque
from skipstone.sources.groups import ColumnGroup, RawColumn
from skipstone.sources.text.options import text_options
from skipstone.sources.typed.filetypes import added_type


@dataclass(frozen=True, kw_only=True)
class SourceColumn:
    """A data column of the frame: its Iceberg type and the source column it comes from.

    In the frame uuid is string and time is bigint (microseconds of the day), because Spark has no such types;
    ``sources.arrow.table_batch`` turns them into what the table's Arrow schema wants. The type is unknown where no file
    holds a value or tells what it would be; such a column is text, all null.

    ``is_field``: in the source it is a field within a column.
    """

    name: str
    type: IcebergType
    source: str
    required: bool = False
    is_field: bool = False


def table_columns(source: SourceSpec, schema: Schema, groups: Sequence[ColumnGroup]) -> tuple[SourceColumn, ...]:
    """The table columns that some file feeds, in the table's order, then those that the source asks to add to it.

    Raises BadSpec (COLUMN_NOT_FOUND) for a mapping to no table column, (COLUMN_TYPE_UNSUPPORTED) for a column whose
    values are only moved, BadData (SOURCE_COLUMN_MISSING) for a required column, or one named by the mapping, that a
    file lacks (all files may lack one that has a write default), and (SOURCE_COLUMNS_UNUSED) for names that are
    probably meant otherwise than they are written, as ``unused`` of the core judges them.
    """
    mapping = column_mapping(source, schema)
    _require_cut(source, schema, groups)
    names = _load_names(source, schema, groups)
    refuse_twins(names)
    refuse_mixed(names)
    fed = []
    for field in schema.fields:
        name = mapping.get(field.name, field.name)
        lacking = next((group for group in groups if name not in group.columns), None)
        is_fed = any(name in group.columns for group in groups)
        needs_value = field.required and (is_fed or field.write_default is None)
        if lacking is not None and (needs_value or field.name in mapping):
            if holds_opaque(field.field_type):
                raise _unmade(field)
            raise _missing(lacking, name, f"column '{field.name}' of the table needs")
        if is_fed:
            if holds_opaque(field.field_type):
                raise _unmade(field)
            fed.append(SourceColumn(name=field.name, type=field.field_type, source=name, required=field.required))
    require_used(names)
    if source.unknown_columns is UnknownColumns.REFUSE:
        refuse_unknown(names)
    refuse_own_names((column.name for column in fed), "spec.tableRef")
    refuse_own_names((column.source for column in fed), "spec.source.mapping")
    return (*fed, *_added(source, schema, groups))


def _added(source: SourceSpec, schema: Schema, groups: Sequence[ColumnGroup]) -> tuple[SourceColumn, ...]:
    """Columns that the table lacks, under their own names. Raises BadSpec for a name that no table should get."""
    if source.unknown_columns is not UnknownColumns.ADD:
        return ()
    declared = declared_types(source)
    types = {
        name: declared.get(name) or _added_type(name, groups) for name in _load_names(source, schema, groups).unknown
    }
    kinds = {name: kind for name, kind in types.items() if kind is not None and not isinstance(kind, UnknownType)}
    added = [MergeColumn(name=name, type=str(kind)) for name, kind in kinds.items()]
    refuse_closed(added, "spec.source.unknownColumns")
    refuse_names((field.name for field in schema.fields), [*kinds], "spec.source.unknownColumns")
    return tuple(SourceColumn(name=name, type=kind, source=name) for name, kind in kinds.items())


def source_columns(
    source: SourceSpec, schema: Schema, groups: Sequence[ColumnGroup], needed: Collection[str] | None = None
) -> tuple[SourceColumn, ...]:
    """All loadable source columns under their own names, in the order of the first file.

    ``needed``: columns that every file must have; None: all. With a choice, the columns of the table are columns of the
    source too, whether a file has them or not: what a merge may name must not depend on what changed today.
    Raises BadSpec for a mapping or a declared type that cannot be used, BadData (SOURCE_COLUMN_MISSING) when a file
    lacks a column that it must have: files differ, or one lacks a declared one; (SOURCE_COLUMNS_UNUSED) for a header of
    Csv that another delimiter cuts.
    """
    _require_cut(source, schema, groups)
    fed = fed_types(source, schema)
    declared = declared_types(source)
    names = list(dict.fromkeys(chain.from_iterable(group.columns for group in groups)))
    unnamed = {name for group in groups for name, column in group.columns.items() if column.is_unnamed}
    named = list(dict.fromkeys(chain(names, declared, (pair.from_ for pair in source.mapping))))
    for group in groups:
        for name in named if needed is None else needed:
            if name not in group.columns and name not in unnamed:
                who = "the other files, the mapping or source.columns name" if needed is None else "the merge needs"
                raise _missing(group, name, who)
    names = names if needed is None else list(dict.fromkeys(chain(named, _known(source, schema))))
    refuse_own_names(names, "spec.source")
    own = _added_type if _adds_text_for_times(source, schema) else _own_type
    types = {name: fed.get(name) or declared.get(name) or own(name, groups) for name in names}
    fields = {name for group in groups for name, column in group.columns.items() if column.is_field}
    return tuple(
        SourceColumn(name=name, type=kind, source=name, is_field=name in fields)
        for name, kind in types.items()
        if kind is not None
    )


def _added_type(name: str, groups: Sequence[ColumnGroup]) -> IcebergType | None:
    kind = _own_type(name, groups)
    return None if kind is None else added_type(kind)


def _adds_text_for_times(source: SourceSpec, schema: Schema) -> bool:
    """Return whether times of a day are added as text: not if the table has a time column, which a clause may feed."""
    has_times = any(isinstance(field.field_type, TimeType) for field in schema.fields)
    return source.unknown_columns is UnknownColumns.ADD and not has_times


def table_names(source: SourceSpec, schema: Schema, groups: Sequence[ColumnGroup]) -> Names:
    """The names on both sides of a load, which adds some to the table if it is asked to."""
    names = _load_names(source, schema, groups)
    return replace(names, used=frozenset(column.source for column in _added(source, schema, groups)))


def _load_names(source: SourceSpec, schema: Schema, groups: Sequence[ColumnGroup]) -> Names:
    mapping = column_mapping(source, schema)
    columns = [field.name for field in schema.fields]
    return Names(files=file_names(groups), table=columns, fed={name: mapping.get(name, name) for name in columns})


def file_names(groups: Sequence[ColumnGroup]) -> tuple[SourceNames, ...]:
    """The names of the columns of each group; of fields within columns that are read alone, those of the columns."""
    return tuple(
        SourceNames(
            group.example,
            tuple(
                dict.fromkeys(
                    split_path(name)[0] if column.is_field else name for name, column in group.columns.items()
                )
            ),
            group.instead,
        )
        for group in groups
    )


def _require_cut(source: SourceSpec, schema: Schema, groups: Sequence[ColumnGroup]) -> None:
    if source.format is SourceFormat.CSV:
        known = {field.name for field in schema.fields} | {pair.from_ for pair in source.mapping}
        known |= {column.name for column in source.columns}
        require_delimiter(file_names(groups), text_options(source).delimiter, known)


def column_mapping(source: SourceSpec, schema: Schema) -> Mapping[str, str]:
    """The source column of each table column that ``source.mapping`` names. Raises BadSpec."""
    known = {field.name for field in schema.fields}
    for pair in source.mapping:
        if pair.column not in known:
            raise BadSpec(
                Reason.COLUMN_NOT_FOUND,
                f"'{pair.column}' is not a column of the table: names are exact, write it as the table does",
                field="source.mapping",
            )
    twice = [name for name, n in Counter(pair.column for pair in source.mapping).items() if n > 1]
    if twice:
        raise BadSpec(Reason.INVALID_SPEC, f"column '{twice[0]}' is mapped twice: keep one", field="source.mapping")
    return {pair.column: pair.from_ for pair in source.mapping}


def fed_types(source: SourceSpec, schema: Schema) -> Mapping[str, IcebergType]:
    """Types by source column, there or not: of the table column that the mapping says it feeds, else of the one of its
    name. Raises BadSpec.
    """
    mapping = column_mapping(source, schema)
    by_name = {field.name: field.field_type for field in schema.fields}
    fed = {name: kind for name, kind in by_name.items() if not holds_opaque(kind)}
    mapped: dict[str, IcebergType] = {}
    for column, name in mapping.items():
        if mapped.setdefault(name, by_name[column]) != by_name[column]:
            raise BadSpec(
                Reason.INVALID_SPEC,
                f"source column '{name}' feeds columns of types {mapped[name]} and {by_name[column]}: map one of them",
                field="source.mapping",
            )
    return {**fed, **{name: kind for name, kind in mapped.items() if not holds_opaque(kind)}}


def _unmade(field: NestedField) -> BadSpec:
    way_out = "make the column optional" if field.required else "leave it out of the source"
    return BadSpec(
        Reason.COLUMN_TYPE_UNSUPPORTED,
        f"column '{field.name}' of the table is {field.field_type}, and {MOVED_ONLY}: {way_out}, or load with another "
        "engine",
        field="source",
    )


def _known(source: SourceSpec, schema: Schema) -> Iterator[str]:
    """The table's columns that a source column of equal name feeds, if there is one."""
    mapped = {pair.column for pair in source.mapping}
    return (field.name for field in schema.fields if _is_fed(field) and field.name not in mapped)


def _is_fed(field: NestedField) -> bool:
    return bool(field.field_type.is_primitive) and not holds_opaque(field.field_type)


def declared_types(source: SourceSpec) -> Mapping[str, IcebergType]:
    """Types by source column, of those to which the source gives one. Raises BadSpec (COLUMN_TYPE_UNSUPPORTED)."""
    of_folders = source.hive_partitions.columns if source.hive_partitions else ()
    return {column.name: _declared_type(column.name, column.type) for column in (*source.columns, *of_folders)}


def _declared_type(name: str, text: str) -> IcebergType:
    try:
        return IcebergType.model_validate(text)
    except (ValidationError, ValueError) as error:
        raise BadSpec(
            Reason.COLUMN_TYPE_UNSUPPORTED, f"'{text}' of column '{name}' is no Iceberg type", field="source.columns"
        ) from error


def _own_type(name: str, groups: Sequence[ColumnGroup]) -> IcebergType | None:
    """What the files themselves say: string for text, else their type; None when it cannot be loaded."""
    having = [group for group in groups if name in group.columns]
    telling = [group for group in having if not group.columns[name].is_empty]
    if not telling:
        natural = [kind for group in having if (kind := _natural(group.columns[name]))]
        return natural[0] if natural else UnknownType() if having else None
    kinds = [_natural(group.columns[name]) for group in telling]
    other = next((i for i, kind in enumerate(kinds) if kind != kinds[0]), None)
    if other is not None:
        first, second = telling[0].example, telling[other].example
        raise BadSpec(
            Reason.COLUMN_TYPE_UNSUPPORTED,
            f"column '{name}' is {kinds[0]} in '{first}' and {kinds[other]} in '{second}': "
            "give it one type in all files",
            field="source.paths",
        )
    return kinds[0]


def _natural(column: RawColumn) -> IcebergType | None:
    if column.is_text:
        return column.text_type or StringType()
    return column.file_type.natural if column.file_type is not None and not column.file_type.inside else None


def _missing(group: ColumnGroup, name: str, who: str) -> BadData:
    alike = [candidate for candidate in group.columns if candidate.strip().lower() == name.strip().lower()]
    hint = f" (it has '{alike[0]}': names are exact)" if alike else ""
    return BadData(
        Reason.SOURCE_COLUMN_MISSING,
        f"'{group.example}' has no column '{name}', which {who}{hint}: fix the file or the mapping",
        field="source",
    )
