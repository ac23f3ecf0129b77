"""The fields of an Avro data file by field id, and how their values become those of a table's columns.

Source of the format: "Avro" in the appendices of Iceberg's specification. Files without field ids, which other tools
wrote, go by the table's name mapping. Must not read records.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import (
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    StringType,
    StructType,
)
from pyiceberg.utils.decimal import unscaled_to_decimal

from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.files.avro.containers import Damaged

#: Gives the value of a column from that of a record.
Convert = Callable[[Any], Any]
#: Gives how values of a node of a file's schema become those of a type; None where they do not.
_Stored = Callable[[Any, IcebergType], Convert | None]
_NAMED = ("record", "error", "enum", "fixed")
_MILLIS, _UUID_BYTES = 1000, 16


class UnfitField(ValueError):
    """A field of a file cannot be read as the type of its column; says why."""


@dataclass(frozen=True)
class AvroField:
    """A field of a record: its ``name`` in the file and its type. ``below``: what its own fields are called."""

    name: str
    tree: Any
    below: Sequence[MappedField] = ()


@dataclass(frozen=True)
class AvroFields:
    """The fields of a file at its top by field id; ``layout``: its schema for reading plain values."""

    top: Mapping[int, AvroField]
    layout: Any
    _types: Mapping[str, Any] = field(repr=False)

    def convert(self, number: int, kind: IcebergType) -> Convert:
        """How values of the field ``number`` become those of a column of type ``kind``. Raises UnfitField."""
        avro_field = self.top[number]
        return _Converting(self._types).convert(avro_field.tree, kind, avro_field.below)


def avro_fields(text: str, mapping: NameMapping | None) -> AvroFields:
    """The fields of a file whose schema is ``text``.

    Raises Damaged, or UnfitField when it has no field ids and there is no mapping.
    """
    try:
        tree = json.loads(text)
        types: dict[str, Any] = {}
        _collect(tree, types)
        fields = dict(_fields(tree["fields"], mapping.root if mapping is not None else None))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, UnfitField):
            raise
        raise Damaged(f"its schema is not a schema of records ({error})") from error
    return AvroFields(fields, _plain(tree), types)


def _fields(trees: Sequence[Any], names: Sequence[MappedField] | None) -> Iterator[tuple[int, AvroField]]:
    """Those that have a field id or, in files without, a name that is mapped."""
    if any("field-id" in record_field for record_field in trees):
        yield from (
            (record_field["field-id"], AvroField(record_field["name"], record_field["type"]))
            for record_field in trees
            if "field-id" in record_field
        )
        return
    if names is None:
        raise UnfitField("it has no field ids and the table has no name mapping")
    by_name = {name: mapped_field for mapped_field in names for name in mapped_field.names}
    for tree in trees:
        mapped = by_name.get(tree["name"])
        if mapped is not None and mapped.field_id is not None:
            yield mapped.field_id, AvroField(tree["name"], tree["type"], mapped.fields)


def _collect(tree: Any, types: dict[str, Any]) -> None:
    """Remember types by their names: where one stands again, only its name does."""
    if isinstance(tree, list):
        for part in tree:
            _collect(part, types)
    elif isinstance(tree, dict):
        if tree.get("type") in _NAMED and "name" in tree:
            short = str(tree["name"]).rpartition(".")[2]
            space = tree.get("namespace", "")
            types |= {short: tree, str(tree["name"]): tree, f"{space}.{short}": tree}
        for key in ("type", "items", "values", "fields"):
            _collect(tree.get(key), types)


def _plain(tree: Any) -> Any:
    """A schema whose values are read as they are stored."""
    if isinstance(tree, list):
        return [_plain(part) for part in tree]
    if isinstance(tree, dict):
        return {key: _plain(part) for key, part in tree.items() if key not in ("logicalType", "default")}
    return tree


@dataclass(frozen=True)
class _Converting:
    types: Mapping[str, Any]

    def convert(self, tree: Any, kind: IcebergType, names: Sequence[MappedField]) -> Convert:
        node = self._resolved(tree)
        if isinstance(node, list):
            return self._optional(node, kind, names)
        match kind:
            case StructType():
                return self._struct(node, kind, names)
            case ListType():
                if node["type"] != "array":
                    raise _unfit(node, kind)
                item = self.convert(node["items"], kind.element_type, _below(names, kind.element_id))
                return lambda value: [item(element) for element in value]
            case MapType():
                return self._map(node, kind, names)
            case _:
                stored = _STORED.find(kind)
                convert = stored(node, kind) if stored is not None else None
                if convert is None:
                    raise _unfit(node, kind)
                return convert

    def _resolved(self, tree: Any) -> Any:
        """A union as a list, else an object with its ``type``; named types as they were told."""
        while isinstance(tree, dict) and isinstance(tree.get("type"), dict | list):
            tree = tree["type"]
        if isinstance(tree, str):
            return self.types.get(tree) or {"type": tree}
        if isinstance(tree, dict) and tree["type"] in self.types:
            return self.types[tree["type"]]
        return tree

    def _optional(self, branches: Sequence[Any], kind: IcebergType, names: Sequence[MappedField]) -> Convert:
        values = [branch for branch in branches if branch not in ("null", {"type": "null"})]
        if len(values) != 1:
            raise UnfitField(f"it is a union of several types, and the column is {kind}")
        inner = self.convert(values[0], kind, names)
        return lambda value: None if value is None else inner(value)

    def _struct(self, node: Any, kind: StructType, names: Sequence[MappedField]) -> Convert:
        if node["type"] not in ("record", "error"):
            raise _unfit(node, kind)
        known = dict(_fields(node["fields"], names))
        by_id = {part.field_id: part for part in kind.fields}
        parts = [
            (
                by_id[number].name,
                avro_field.name,
                self.convert(avro_field.tree, by_id[number].field_type, avro_field.below),
            )
            for number, avro_field in known.items()
            if number in by_id
        ]
        return lambda value: {to: convert(value[name]) for to, name, convert in parts}

    def _map(self, node: Any, kind: MapType, names: Sequence[MappedField]) -> Convert:
        values = _below(names, kind.value_id)
        if node["type"] == "map":
            if not isinstance(kind.key_type, StringType):
                raise _unfit(node, kind)
            item = self.convert(node["values"], kind.value_type, values)
            return lambda value: [(key, item(element)) for key, element in value.items()]
        pair = self._resolved(node.get("items")) if node["type"] == "array" else {}
        parts = {part["name"]: part["type"] for part in pair.get("fields", ())}
        if set(parts) != {"key", "value"}:
            raise _unfit(node, kind)
        key = self.convert(parts["key"], kind.key_type, _below(names, kind.key_id))
        item = self.convert(parts["value"], kind.value_type, values)
        return lambda value: [(key(entry["key"]), item(entry["value"])) for entry in value]


def _below(names: Sequence[MappedField], number: int) -> Sequence[MappedField]:
    return next((mapped.fields for mapped in names if mapped.field_id == number), ())


def _unfit(node: Any, kind: IcebergType) -> UnfitField:
    logical = f" ({node['logicalType']})" if node.get("logicalType") else ""
    return UnfitField(f"it is {node['type']}{logical}, and the column is {kind}")


def _same(value: Any) -> Any:
    return value


def _stored_as(*names: str) -> _Stored:
    """Values of the file are those of the column where a type of ``names`` stands for nothing else."""
    return lambda node, _kind: _same if node["type"] in names and node.get("logicalType") not in _LOGICAL else None


def _numbers(forms: Mapping[tuple[str, str], int], *, is_utc: bool | None = None) -> _Stored:
    """Numbers of the logical types ``forms``, each with the factor that makes them those of the column.

    ``is_utc``: what a file says that says whether its timestamps are instants; None: it may say either.
    """

    def convert(node: Any, _kind: IcebergType) -> Convert | None:
        scale = forms.get((node["type"], node.get("logicalType")))
        if scale is None or (is_utc is not None and node.get("adjust-to-utc") not in (None, is_utc)):
            return None
        return (lambda value: value * scale) if scale > 1 else _same

    return convert


def _decimal(node: Any, kind: IcebergType) -> Convert | None:
    scale = cast(DecimalType, kind).scale
    is_decimal = node.get("logicalType") == "decimal" and node["type"] in ("bytes", "fixed")
    if not is_decimal or node.get("scale", 0) != scale:
        return None
    return lambda value: unscaled_to_decimal(int.from_bytes(value, "big", signed=True), scale)


def _uuid(node: Any, _kind: IcebergType) -> Convert | None:
    if node["type"] == "string":
        return lambda value: UUID(value).bytes
    return _fixed(node, _UUID_BYTES)


def _fixed(node: Any, size: int) -> Convert | None:
    return _same if node["type"] == "fixed" and node["size"] == size else None


_MOMENTS = {
    ("long", "timestamp-micros"): 1,
    ("long", "timestamp-millis"): _MILLIS,
}
_LOCAL_MOMENTS = {
    ("long", "local-timestamp-micros"): 1,
    ("long", "local-timestamp-millis"): _MILLIS,
}
_DATES = {("int", "date"): 1}
_TIMES = {("long", "time-micros"): 1, ("int", "time-millis"): _MILLIS}
_LOGICAL = frozenset({"decimal", *(logical for _, logical in (_DATES | _TIMES | _MOMENTS | _LOCAL_MOMENTS))})
#: How values of the file become those of a column of each type, None where they do not; None for types that no Avro
#: file is read as.
_STORED: ByPrimitive[_Stored | None] = ByPrimitive(
    boolean=_stored_as("boolean"),
    integer=_stored_as("int"),
    long=_stored_as("int", "long"),
    float=_stored_as("float"),
    double=_stored_as("float", "double"),
    decimal=_decimal,
    date=_numbers(_DATES),
    time=_numbers(_TIMES),
    timestamp=_numbers(_MOMENTS | _LOCAL_MOMENTS, is_utc=False),
    timestamptz=_numbers(_MOMENTS, is_utc=True),
    timestamp_ns=None,
    timestamptz_ns=None,
    string=_stored_as("string", "enum"),
    uuid=_uuid,
    fixed=lambda node, kind: _fixed(node, len(cast(FixedType, kind))),
    binary=_stored_as("bytes"),
    opaque=None,
)
