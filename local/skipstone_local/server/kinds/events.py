"""Events, which are the same objects in two groups with different names for their fields."""

from __future__ import annotations

from collections.abc import Mapping

from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.store import JsonObject

GROUP = "events.k8s.io"
#: Names in the core group by those in the other one.
NAMES: Mapping[str, str] = {
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
BACK = {core: other for other, core in NAMES.items()}


def to_stored(kind: ServedKind, obj: JsonObject) -> JsonObject:
    """The object as the store has it: an Event in the form of the core group."""
    if kind.plural != "events" or kind.group != GROUP:
        return obj
    api_version = obj.get("apiVersion") or kind.api_version
    return {**_renamed(obj, NAMES), "apiVersion": "v1" if api_version == kind.api_version else api_version}


def to_served(kind: ServedKind, obj: JsonObject) -> JsonObject:
    """A stored object as a group serves it."""
    if kind.plural != "events":
        return obj
    served = {**obj, "apiVersion": kind.api_version}
    return _renamed(served, BACK) if kind.group == GROUP else served


def stored_path(kind: ServedKind, path: str) -> str:
    """Where the store has the field at a path that a group names."""
    if kind.plural != "events" or kind.group != GROUP:
        return path
    first, dot, rest = path.partition(".")
    return f"{NAMES.get(first, first)}{dot}{rest}"


def _renamed(obj: JsonObject, names: Mapping[str, str]) -> JsonObject:
    return {names.get(name, name): value for name, value in obj.items()}
