"""Which document of discovery is at which path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from skipstone_local.server.discovery.groups import (
    VERSION,
    describe_core,
    describe_group,
    describe_groups,
    describe_resources,
)
from skipstone_local.server.discovery.openapi import describe_index, describe_version
from skipstone_local.server.kinds.served import Catalog
from skipstone_local.store import JsonObject


def describe(path: str, catalog: Catalog) -> JsonObject | None:
    """The document at a path, None when there is none of discovery."""
    parts = path.strip("/").split("/")
    if path.strip("/") in WHOLE:
        return WHOLE[path.strip("/")](catalog)
    if parts[:2] == ["openapi", "v3"]:
        return _schemas(catalog, parts[2:])
    match parts:
        case ["apis", group] if group in catalog.groups():
            return describe_group(group, catalog.groups()[group])
        case ["api", version]:
            return _resources(catalog, "", version)
        case ["apis", group, version]:
            return _resources(catalog, group, version)
    return None


WHOLE: Mapping[str, Callable[[Catalog], JsonObject]] = {
    "version": lambda _catalog: VERSION,
    "api": lambda _catalog: describe_core(),
    "apis": describe_groups,
    "openapi/v3": describe_index,
}


def _schemas(catalog: Catalog, parts: list[str]) -> JsonObject | None:
    group, version = ("", parts[1]) if parts[:1] == ["api"] and len(parts) == 2 else ("", "")
    if parts[:1] == ["apis"] and len(parts) == 3:
        group, version = parts[1:]
    kinds = catalog.within(group, version)
    return describe_version(kinds) if kinds else None


def _resources(catalog: Catalog, group: str, version: str) -> JsonObject | None:
    kinds = catalog.within(group, version)
    return describe_resources(kinds) if kinds else None
