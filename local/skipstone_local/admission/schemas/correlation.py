"""Which old value a new one is compared with: what did not change is not refused by a newer schema. Pure."""

from __future__ import annotations

from typing import Any

from skipstone_local.admission.schemas.nodes import Node


class _Absent:
    """The type of ABSENT."""


#: There is no old value to compare with.
ABSENT = _Absent()


def old_entry(old: Any, name: str) -> Any:
    """Return the old value of a field, or ABSENT."""
    return old.get(name, ABSENT) if isinstance(old, dict) else ABSENT


def old_items(old: Any, items: list[Any], node: Node) -> list[Any]:
    """Return for each item the old one with the same keys in a list of the type map, else ABSENT."""
    if node.list_type != "map" or not isinstance(old, list):
        return [ABSENT] * len(items)
    known = {identity(item, node): item for item in reversed(old) if isinstance(item, dict)}
    return [known.get(identity(item, node), ABSENT) if isinstance(item, dict) else ABSENT for item in items]


def identity(item: Any, node: Node) -> str:
    """Return what an item of a set, or of a list of the type map, is told apart by."""
    is_keyed = node.list_type == "map" and isinstance(item, dict)
    return repr([item.get(key, ABSENT) for key in node.map_keys] if is_keyed else item)


def is_same(value: Any, other: Any) -> bool:
    """Return whether both are equal, types of numbers included: 1, 1.0 and true differ."""
    if type(value) is not type(other):
        return False
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(is_same(item, other[key]) for key, item in value.items())
    if isinstance(value, list):
        return len(value) == len(other) and all(map(is_same, value, other))
    return bool(value == other)
