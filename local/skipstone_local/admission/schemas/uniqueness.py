"""Lists of the types set and map: no item, and no key, is there twice. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from skipstone_local.admission.failures import DUPLICATE, INVALID, Failures, FieldFailure
from skipstone_local.admission.schemas.nodes import Node


def find_duplicates(value: Any, node: Node, path: str = "") -> Failures:
    """Return a failure for the second of each item of a set, or key of a map, at ``path`` and below."""
    if not node.has_keys:
        return []
    failures = _of_list(value, node, path) if isinstance(value, list) else []
    for item, inner, at in _parts(value, node, path):
        failures += find_duplicates(item, inner, at)
    return failures


def _parts(value: Any, node: Node, path: str) -> Iterator[tuple[Any, Node, str]]:
    if isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            yield item, node.items, f"{path}[{index}]"
    elif isinstance(value, dict):
        for name, item in value.items():
            inner = node.properties.get(name)
            if inner is not None:
                yield item, inner, f"{path}.{name}" if path else name
            elif node.additional is not None:
                yield item, node.additional, f"{path}[{name}]"


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
    seen: dict[Any, int] = {}
    indexes = []
    for index, item in enumerate(items):
        mark = _mark(item)
        seen[mark] = seen.get(mark, 0) + 1
        if seen[mark] == 2:
            indexes.append(index)
    return indexes


def _mark(value: Any) -> Any:
    """Return what equals that of another value when both are the same, types of numbers included."""
    if isinstance(value, dict):
        return frozenset((name, _mark(item)) for name, item in value.items())
    return tuple(map(_mark, value)) if isinstance(value, list) else (type(value), value)
