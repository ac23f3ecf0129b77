"""Schemas, partitions and orders as Python programs write them, made into the fields of a Table.

Pure; knows Arrow's types, and PyIceberg's schemas by what they have in common with Arrow's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from skipstone_cli.reading import JsonObject
from skipstone_core.contract.requests import MergeAction
from skipstone_core.errors import LakeError

#: Of a table whose name has no dot.
DEFAULT_NAMESPACE = "default"
INVALID = "InvalidSpec"
MAX_NAME = 40
TRANSFORMS = {
    "identity": "Identity", "year": "Year", "month": "Month", "day": "Day", "hour": "Hour", "bucket": "Bucket",
    "truncate": "Truncate",
}  # fmt: skip
_CALL = re.compile(r"\s*(?P<transform>\w+)\s*\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<column>[^(),]+?)\s*\)\s*")
_ORDER = re.compile(
    r"\s*(?P<column>.+?)(?:\s+(?P<direction>asc|desc))?(?:\s+nulls\s+(?P<nulls>first|last))?\s*", re.IGNORECASE
)
#: What can be joined by dashes and taken apart again.
_WORD = re.compile(r"[a-z0-9]+")
BadRecords = Literal["Fail", "Redirect", "Drop"]


class Clause(TypedDict, total=False):
    """One clause of a merge, as in a manifest."""

    action: str
    when: str
    set: Mapping[str, str]
    values: Mapping[str, str]
    columns: str


Clauses = str | Clause | Mapping[str, object] | Sequence[str | Clause | Mapping[str, object]] | None


def parse_identifier(name: str) -> tuple[str, str]:
    """Namespace and name of a table in the catalog. Raises LakeError."""
    namespace, _, last = name.rpartition(".")
    if not last or (not namespace and "." in name):
        raise LakeError(INVALID, f"{name!r} is not the name of a table", "write NAMESPACE.NAME, such as sales.orders")
    return namespace or DEFAULT_NAMESPACE, last


def resource_name(*parts: str) -> str:
    """A name that an object of Kubernetes can have, the same for the same parts, and no other's."""
    text = "-".join(parts)
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_NAME].rstrip("-")
    if plain == text and all(map(_WORD.fullmatch, parts)):
        return plain
    return f"{plain or 'x'}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:6]}"


def table_resource(name: str) -> str:
    """The name of a new Table for the table ``name``. Raises LakeError."""
    namespace, last = parse_identifier(name)
    return resource_name(last) if "." not in name else resource_name(namespace, last)


def lay_over(spec: JsonObject, fields: Mapping[str, object] | None) -> JsonObject:
    """``spec`` with further fields; those of a part that both have lie beside each other."""
    for field, value in (fields or {}).items():
        own = spec.get(field)
        spec[field] = {**own, **value} if isinstance(own, dict) and isinstance(value, Mapping) else value
    return spec


def build_columns(schema: Any, primary_key: Sequence[str]) -> list[JsonObject]:
    """``spec.columns`` out of a mapping of names to Iceberg's types, a schema of Arrow or PyIceberg, or what has one.

    Columns of the primary key are required. Raises LakeError for a type that tables cannot have.
    """
    if isinstance(schema, Mapping):
        pairs = [(name, str(kind), name in primary_key) for name, kind in schema.items()]
    else:
        fields = list(arrow_schema(schema))
        pairs = [(field.name, iceberg_type(field), not field.nullable or field.name in primary_key) for field in fields]
    return [{"name": name, "type": kind, **({"required": True} if required else {})} for name, kind, required in pairs]


def lay_columns(known: Sequence[JsonObject], given: Sequence[JsonObject]) -> list[JsonObject]:
    """The columns of a table that is there with those that are given: others stay, new ones come last."""
    columns = {column["name"]: column for column in known}
    for column in given:
        columns[column["name"]] = {**columns.get(column["name"], {}), **column}
    return list(columns.values())


def arrow_schema(schema: Any) -> Any:
    """The schema of Arrow that ``schema`` is, has or can be made into. Raises LakeError."""
    import pyarrow as pa

    if isinstance(schema, pa.Schema):
        return schema
    if hasattr(schema, "as_arrow"):
        return schema.as_arrow()
    from skipstone_local.lake.frames import open_reader

    return open_reader(schema).schema


def iceberg_type(field: Any) -> str:
    """Iceberg's name of the type of a field of Arrow. Raises LakeError."""
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = field.type
    if kinds.is_dictionary(kind):
        return iceberg_type(pa.field(field.name, kind.value_type))
    if kinds.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if kinds.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if kinds.is_fixed_size_binary(kind):
        return f"fixed[{kind.byte_width}]"
    simple = (
        (kinds.is_boolean, "boolean"), (_is_int, "int"), (kinds.is_integer, "long"), (kinds.is_float64, "double"),
        (kinds.is_floating, "float"), (kinds.is_date, "date"), (kinds.is_time, "time"), (_is_text, "string"),
        (_is_bytes, "binary"), (_is_uuid, "uuid"),
    )  # fmt: skip
    for holds, name in simple:
        if holds(kind) and not kinds.is_uint64(kind):
            return name
    raise LakeError(
        INVALID,
        f"column {field.name!r} has the type {kind}, which tables of Skipstone cannot have",
        "cast it to a type of Iceberg that is not nested, or leave the column out",
    )


def _is_int(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_integer(kind) and (kind.bit_width < 32 or kinds.is_int32(kind)))


def _is_text(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_string(kind) or kinds.is_large_string(kind) or kinds.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    import pyarrow.types as kinds

    return bool(kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind))


def _is_uuid(kind: Any) -> bool:
    return getattr(kind, "extension_name", "") == "arrow.uuid"


def build_partitioning(fields: Sequence[str]) -> list[JsonObject]:
    """``spec.partitioning`` out of texts such as ``region``, ``month(ordered_at)`` and ``bucket(16, id)``."""
    return [_partition_field(field) for field in fields]


def _partition_field(text: str) -> JsonObject:
    match = _CALL.fullmatch(text)
    if match is None:
        return {"column": text.strip(), "transform": "Identity"}
    transform = TRANSFORMS.get(match["transform"].lower().removesuffix("s"))
    if transform is None:
        raise LakeError(
            INVALID, f"the partition {text!r} has an unknown transform", f"use one of {', '.join(TRANSFORMS)}"
        )
    width = {"width": int(match["width"])} if match["width"] else {}
    return {"column": match["column"], "transform": transform, **width}


def build_sort_order(fields: Sequence[str]) -> list[JsonObject]:
    """``spec.sortOrder`` out of texts such as ``ordered_at``, ``price desc`` and ``price desc nulls last``."""
    built = []
    for text in fields:
        match = _ORDER.fullmatch(text)
        if match is None:
            raise LakeError(INVALID, f"{text!r} names no column to sort by", "write it as 'column desc nulls last'")
        direction = "Descending" if (match["direction"] or "").lower() == "desc" else "Ascending"
        nulls = {"nulls": match["nulls"].capitalize()} if match["nulls"] else {}
        built.append({"column": match["column"], "direction": direction, **nulls})
    return built


def build_keys(keys: str | Sequence[str] | Mapping[str, str]) -> list[JsonObject]:
    """``spec.keys`` of a MergeJob out of columns, or a mapping of the table's columns to the source's."""
    if isinstance(keys, str):
        keys = [keys]
    pairs = keys.items() if isinstance(keys, Mapping) else [(key, key) for key in keys]
    return [{"target": target, "source": source} for target, source in pairs]


def build_clauses(clauses: Any, default: str) -> list[JsonObject]:
    """Clauses of a merge: an action such as ``"Update"``, one clause or several as in a manifest, or None for none.

    Raises LakeError for another action.
    """
    if clauses is None:
        return []
    if isinstance(clauses, str | Mapping):
        clauses = [clauses]
    built: list[JsonObject] = [
        {"action": clause.capitalize()} if isinstance(clause, str) else {"action": default, **clause}
        for clause in clauses
    ]
    known = [action.value for action in MergeAction]
    if (wrong := next((clause["action"] for clause in built if clause["action"] not in known), None)) is not None:
        raise LakeError(INVALID, f"a clause of the merge has the action {wrong!r}", f"use one of {', '.join(known)}")
    return built


def listed(value: str | Sequence[str]) -> list[str]:
    """One text or several as a list."""
    return [value] if isinstance(value, str) else list(value)


def no_table(name: str) -> LakeError:
    """That a table is not in the lake."""
    return LakeError("TableNotFound", f"the lake has no table {name!r}", "make it by lake.table(name, schema)")
