"""Lists of the types set and map: no item, and no key, is there twice. Pure."""

from __future__ import annotations

from typing import Any

from skipstone_local.admission.failures import DUPLICATE, INVALID, Failures, FieldFailure
from skipstone_local.admission.gotext import to_json
from skipstone_local.admission.schemas.nodes import Node


def find_duplicates(value: Any, node: Node, path: str = "") -> Failures:
    """Return a failure for the second of each item of a set, or key of a map, at ``path`` and below."""
    found: Failures = []
    if isinstance(value, list):
        found += _of_list(value, node, path)
        if node.items is not None:
            for index, item in enumerate(value):
                found += find_duplicates(item, node.items, f"{path}[{index}]")
    elif isinstance(value, dict):
        for name, item in value.items():
            inner = node.properties.get(name)
            if inner is not None:
                found += find_duplicates(item, inner, f"{path}.{name}" if path else name)
            elif node.additional is not None:
                found += find_duplicates(item, node.additional, f"{path}[{name}]")
    return found


def _of_list(items: list[Any], node: Node, path: str) -> Failures:
    if node.list_type == "set":
        return [FieldFailure(DUPLICATE, f"{path}[{index}]", items[index]) for index in _second_ones(items)]
    if node.list_type != "map":
        return []
    for index, item in enumerate(items):
        if item is not None and not isinstance(item, dict):
            detail = "must be an object for an array of list-type map"
            return [FieldFailure(INVALID, f"{path}[{index}]", item, detail)]
    keys = [{key: item[key] for key in node.map_keys if key in (item or {})} for item in items]
    return [FieldFailure(DUPLICATE, f"{path}[{index}]", keys[index]) for index in _second_ones(keys)]


def _second_ones(items: list[Any]) -> list[int]:
    seen: dict[str, int] = {}
    found = []
    for index, item in enumerate(items):
        text = f"{type(item).__name__} {to_json(item)}"
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:
            found.append(index)
    return found
