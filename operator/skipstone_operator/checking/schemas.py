"""Whether the CRDs of the cluster know every field of this version.

An API server drops fields that a CRD does not know from what is written. An operator of a newer version than its CRDs
would therefore lose what it writes in statuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from skipstone_operator.resources.kinds import GROUP, KINDS, VERSION
from skipstone_operator.resources.publishing.crds import root_schema

OPENAPI = f"/openapi/v3/apis/{GROUP}/{VERSION}"
PARTS = ("spec", "status")


def find_unknown_fields(openapi: Mapping[str, Any]) -> dict[str, list[str]]:
    """Fields of this version that the cluster lacks, by kind; kinds that lack none are absent.

    ``openapi`` is what the API server answers to OPENAPI.
    """
    served = {_kind_of(schema): schema for schema in openapi.get("components", {}).get("schemas", {}).values()}
    own = {name: set(_paths(root_schema(kind))) for name, kind in KINDS.items()}
    missing = {name: sorted(fields - set(_paths(served.get(name, {})))) for name, fields in own.items()}
    return {name: fields for name, fields in missing.items() if fields}


def _kind_of(schema: Mapping[str, Any]) -> str:
    marks = schema.get("x-kubernetes-group-version-kind", ())
    return next((str(mark["kind"]) for mark in marks if mark.get("group") == GROUP), "")


def _paths(schema: Mapping[str, Any]) -> Iterator[str]:
    for part, below in schema.get("properties", {}).items():
        if part in PARTS:
            yield from _below(below, part)


def _below(schema: Mapping[str, Any], path: str) -> Iterator[str]:
    yield path
    for name, field in schema.get("properties", {}).items():
        yield from _below(field, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), Mapping):
            yield from _below(schema[key], f"{path}[]")
