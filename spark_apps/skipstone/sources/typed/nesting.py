"""Values of lists, maps and structs in the types of the table's columns: fields by name, at every depth.

Called by ``projection`` for columns of all formats. Pure: column expressions. What is within a value follows the same
rules as columns do: ``leaf`` says them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import Column
from pyspark.sql import functions as F
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from skipstone.sources.groups import quoted
from skipstone.sources.text.values import Conversion
from skipstone.sources.typed.filetypes import FileType, is_unchanged, spark_type
from skipstone.tables.arrow import arrow_type_of, default_scalar

#: What a value that is neither list, map nor struct becomes, by its type in the file (None: text) and in the table.
#: None where it cannot.
Leaf = Callable[[Column, FileType | None, IcebergType], Conversion | None]
_WHAT = "of the column's type without loss and with all fields that it requires"


def is_nested(kind: IcebergType) -> bool:
    """Return whether values hold others."""
    return isinstance(kind, ListType | MapType | StructType)


@dataclass(frozen=True)
class _Made:
    """``fits``: whether nothing is lost, never null. ``is_same``: a value that fits is what was read."""

    value: Column
    fits: Column
    is_same: bool


@dataclass(frozen=True)
class NestedRead:
    """A column to convert: its name, and its type in the file, None where it is text within, of which some is null."""

    name: str
    type: FileType | None
    null_text: str | None = None


def convert_nested(raw: Column, read: NestedRead, target: IcebergType, leaf: Leaf) -> Conversion:
    """``raw`` as ``target``.

    Raises BadSpec (COLUMN_TYPE_UNSUPPORTED) for what cannot feed the type, and for fields that it does not have.
    BadData (SOURCE_COLUMN_MISSING) for a required one that the file lacks.
    """
    made = _Nesting(leaf, read.null_text).convert(raw, read.type, target, (read.name,))
    return Conversion(F.when(made.fits, made.value), _WHAT)


@dataclass(frozen=True)
class _Nesting:
    """The way down into a value; paths are for sentences."""

    leaf: Leaf
    null_text: str | None

    def convert(self, raw: Column, source: FileType | None, target: IcebergType, path: tuple[str, ...]) -> _Made:
        """As ``convert_nested``."""
        if not is_nested(target):
            return self._leaf(raw, source, target, path)
        if source is not None and type(source.natural) is not type(target):
            raise _unfit(path, source, target)
        inside = dict(source.inside) if source is not None else None
        match target:
            case ListType():
                return self._list(raw, inside, target, path)
            case MapType():
                return self._map(raw, inside, target, path)
            case StructType():
                return self._struct(raw, inside, target, path)
        raise TypeError(str(target))

    def _leaf(self, raw: Column, source: FileType | None, target: IcebergType, path: tuple[str, ...]) -> _Made:
        if source is None and self.null_text is not None:
            raw = F.when(raw != self.null_text, raw)
        made = None if source is not None and source.inside else self.leaf(raw, source, target)
        if made is None:
            raise _unfit(path, source, target)
        return _Made(
            made.value, raw.isNull() | made.value.isNotNull(), source is not None and is_unchanged(source, target)
        )

    def _list(self, raw: Column, inside: _Inside, target: ListType, path: tuple[str, ...]) -> _Made:
        def item(value: Column) -> _Made:
            return self.convert(value, _at(inside, "element", path), target.element_type, (*path, "element"))

        fits = F.forall(raw, lambda element: _fits(item(element), required=target.element_required))
        made = F.transform(raw, lambda element: item(element).value)
        is_same = item(F.lit(None)).is_same
        return _Made(raw if is_same else made, raw.isNull() | fits, is_same)

    def _map(self, raw: Column, inside: _Inside, target: MapType, path: tuple[str, ...]) -> _Made:
        def key(value: Column) -> _Made:
            return self.convert(value, _at(inside, "key", path), target.key_type, (*path, "key"))

        def item(value: Column) -> _Made:
            return self.convert(value, _at(inside, "value", path), target.value_type, (*path, "value"))

        keys = F.forall(F.map_keys(raw), lambda element: _fits(key(element), required=True))
        values = F.forall(F.map_values(raw), lambda element: _fits(item(element), required=target.value_required))
        made, nothing = raw, F.lit(None)
        if not item(nothing).is_same:
            made = F.transform_values(made, lambda _, element: item(element).value)
        if not key(nothing).is_same:
            made = F.transform_keys(made, lambda element, _: key(element).value)
        is_same = item(nothing).is_same and key(nothing).is_same
        return _Made(made, raw.isNull() | (keys & values), is_same)

    def _struct(self, raw: Column, inside: _Inside, target: StructType, path: tuple[str, ...]) -> _Made:
        names = [field.name for field in target.fields]
        for extra in () if inside is None else (name for name in inside if name not in names):
            raise unknown_field((*path, extra))
        values, fits = list[Column](), raw.isNotNull()
        is_same = inside is not None and [*inside] == names
        for field in target.fields:
            if inside is not None and field.name not in inside:
                if field.required and field.write_default is None:
                    raise _missing((*path, field.name))
                values.append(_default(field).alias(field.name))
                continue
            value = raw.getField(field.name)
            made = self.convert(value, _at(inside, field.name, path), field.field_type, (*path, field.name))
            values.append(made.value.alias(field.name))
            fits = fits & _fits(made, required=field.required)
            is_same = is_same and made.is_same
        held = raw if is_same else F.when(raw.isNotNull(), F.struct(*values))
        return _Made(held, raw.isNull() | fits, is_same)


def _default(field: NestedField) -> Column:
    """What a field has in values that come without it."""
    if field.write_default is None:
        return F.lit(None).cast(spark_type(field.field_type))
    held = default_scalar(field.write_default, arrow_type_of(field.field_type))
    match field.field_type:
        case UUIDType():
            return F.lit(str(UUID(bytes=held.as_py())))
        case TimeType():
            return F.lit(held.cast(pa.int64()).as_py())
        case TimestampType():  # a literal of Spark's would be of the session's time zone
            return F.lit(held.as_py().isoformat(" ")).cast("timestamp_ntz")
        case TimestamptzType():
            return F.timestamp_micros(F.lit(held.cast(pa.int64()).as_py()))
    return F.lit(held.as_py()).cast(spark_type(field.field_type))


_Inside = dict[str, FileType | None] | None


def _at(inside: _Inside, name: str, path: tuple[str, ...]) -> FileType | None:
    """The type of what is within a value of a file; None for text."""
    if inside is None:
        return None
    if (inner := inside[name]) is None:
        raise _unfit((*path, name), None, None)
    return inner


def _fits(made: _Made, *, required: bool) -> Column:
    return made.fits & made.value.isNotNull() if required else made.fits


def _unfit(path: Sequence[str], source: FileType | None, target: IcebergType | None) -> BadSpec:
    shown = "of a type that is not loaded" if source is None else str(source.natural)
    wanted = "" if target is None else f" ({target})"
    return BadSpec(
        Reason.COLUMN_TYPE_UNSUPPORTED,
        f"{_place(path)} is {shown} in the source and cannot feed the table's{wanted} without loss: write it in "
        "another type, or leave the column out of the files",
        field="source",
    )


def unknown_field(path: Sequence[str]) -> BadSpec:
    """The error for a field that the table's column does not have."""
    return BadSpec(
        Reason.COLUMN_TYPE_UNSUPPORTED,
        f"{_place(path)} of the source is not a field of the table's column, and its values would be lost: add the "
        "field to the table, or leave it out of the files",
        field="source",
    )


def _missing(path: Sequence[str]) -> BadData:
    message = f"the source lacks {_place(path)}, which the table's column requires: write it, or make it optional"
    return BadData(Reason.SOURCE_COLUMN_MISSING, message, field="source")


def _place(path: Sequence[str]) -> str:
    return f"field '{'.'.join(path[1:])}' in column '{path[0]}'"


def text_type(target: IcebergType) -> str:
    """The Spark type of a value of ``target`` that is text wherever it is not nested."""
    match target:
        case ListType():
            return f"array<{text_type(target.element_type)}>"
        case MapType():
            return f"map<string, {text_type(target.value_type)}>"
        case StructType():
            return (
                f"struct<{', '.join(f'{quoted(part.name)}: {text_type(part.field_type)}' for part in target.fields)}>"
            )
    return "string"
