"""What becomes of an object before it is judged: unknown fields and nulls go, defaults come. Changes its arguments."""

from __future__ import annotations

import copy
from typing import Any

from skipstone_local.admission.failures import JsonObject
from skipstone_local.admission.schemas.nodes import Node

_OF_EVERY_OBJECT = frozenset({"apiVersion", "kind", "metadata"})


def prune_unknown(obj: JsonObject, root: Node) -> list[str]:
    """Remove fields that the schema does not know; return their paths, in order."""
    removed: list[str] = []
    for name in [name for name in obj if name not in _OF_EVERY_OBJECT]:
        node = root.child(name)
        if node is None:
            removed.append(name)
            del obj[name]
        else:
            _prune(obj[name], node, name, removed)
    return sorted(removed)


def _prune(value: Any, node: Node | None, path: str, removed: list[str]) -> None:
    if isinstance(value, dict):
        for name in list(value):
            inner = node.child(name) if node else None
            if inner is not None:
                _prune(value[name], inner, f"{path}.{name}", removed)
            elif node is None or not node.preserve:
                removed.append(f"{path}.{name}")
                del value[name]
    elif isinstance(value, list) and (node is None or not node.preserve or node.items):
        for index, item in enumerate(value):
            _prune(item, node.items if node else None, f"{path}[{index}]", removed)


def prune_nulls(value: Any, node: Node | None) -> None:
    """Remove nulls of fields that take none and have no default."""
    if isinstance(value, dict):
        for name in list(value):
            inner = node.child(name) if node else None
            if value[name] is None and inner is not None and not inner.nullable and inner.default is None:
                del value[name]
            else:
                prune_nulls(value[name], inner)
    elif isinstance(value, list):
        for item in value:
            prune_nulls(item, node.items if node else None)


def set_defaults(value: Any, node: Node | None) -> None:
    """Set fields that are absent, or null without being nullable, to their defaults."""
    if node is None or not node.has_defaults:
        return
    if isinstance(value, dict):
        _default_fields(value, node)
        for name, item in value.items():
            set_defaults(item, node.child(name))
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            if item is None and not node.items.nullable:
                value[index] = copy.deepcopy(node.items.default)
            set_defaults(value[index], node.items)


def _default_fields(value: JsonObject, node: Node) -> None:
    for name, inner in node.properties.items():
        if inner.default is not None and (name not in value or (value[name] is None and not inner.nullable)):
            value[name] = copy.deepcopy(inner.default)
    extra = node.additional
    if extra is not None and not extra.nullable and extra.default is not None:
        for name in [name for name, item in value.items() if item is None and name not in node.properties]:
            value[name] = copy.deepcopy(extra.default)
