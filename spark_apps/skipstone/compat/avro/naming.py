"""Avro schemas in which a type stands by its name: each such name is replaced by the type, for PyIceberg too.

Iceberg's Java library writes a type in full once, as a partition of two decimals of one precision has it, and PyIceberg
knows no names. Must not know manifests.
"""

from __future__ import annotations

import json
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

Avro = str | int | None | list["Avro"] | dict[str, "Avro"]
_NAMED = ("fixed", "enum", "record")


def read_schema(text: str) -> dict[str, Avro]:
    """An Avro schema that is a record, without names in the place of types."""
    tree = _spelled(json.loads(text), {})
    if not isinstance(tree, dict):
        raise ValueError("the Avro schema is not a record")
    return tree


_as_shipped = AvroSchemaConversion.avro_to_iceberg


def read_named_types() -> None:
    """Make all of this process read Avro files in which a type is named again; a process that commits has to.

    PyIceberg reads the manifests that a commit rewrites.
    """
    AvroSchemaConversion.avro_to_iceberg = _by_names  # type: ignore[method-assign, assignment]


def _by_names(conversion: AvroSchemaConversion, avro_schema: dict[str, Any]) -> Schema:
    return _as_shipped(conversion, _spelled(avro_schema, {}))  # type: ignore[arg-type]


def _spelled(avro: Avro, known: dict[str, Avro]) -> Avro:
    match avro:
        case str():
            return known.get(avro, avro)
        case list():
            return [_spelled(each, known) for each in avro]
        case dict():
            return _spelled_type(avro, known)
        case _:
            return avro


def _spelled_type(avro: dict[str, Avro], known: dict[str, Avro]) -> Avro:
    """Names are known from where they are given on: in the order of the text, as Avro has it."""
    spelled = dict(avro)
    for key in ("type", "items", "values"):
        if key in avro and avro.get("type") not in _NAMED:
            spelled[key] = _spelled(avro[key], known)
    fields = avro.get("fields")
    if isinstance(fields, list):
        spelled["fields"] = [_spelled(field, known) for field in fields]
    name = avro.get("name")
    if avro.get("type") in _NAMED and isinstance(name, str):
        known[name] = spelled
    return spelled
