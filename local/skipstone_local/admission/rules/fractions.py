"""Floats in whole-number fields: 30.0 is valid there, but Kubernetes' CEL cannot read it, not even by has(). Pure.

Whether a rule reads such a field shows when the rule is evaluated with other values in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skipstone_local.admission.schemas.nodes import Node

#: What Kubernetes says of a rule that reads such a value.
SENTENCE = "invalid data, expected int, got float64"
_DROPPED = object()


def has_fraction(value: Any, node: Node | None) -> bool:
    """Return whether a whole-number field at ``node`` and below holds a float."""
    if node is None:
        return False
    if isinstance(value, dict):
        return any(has_fraction(item, node.child(name)) for name, item in value.items())
    if isinstance(value, list):
        return any(has_fraction(item, node.items) for item in value)
    return isinstance(value, float) and "integer" in node.types


def stand_ins(value: Any, node: Node) -> list[Any]:
    """Return ``value`` with each such float dropped, with bytes in its place, and with a whole number."""
    replacements: tuple[Callable[[float], Any], ...] = (lambda _: _DROPPED, lambda number: repr(number).encode(), int)
    return [_replaced(value, node, replacement) for replacement in replacements]


def _replaced(value: Any, node: Node | None, replacement: Callable[[float], Any]) -> Any:
    if node is None:
        return value
    if isinstance(value, dict):
        items = {name: _replaced(item, node.child(name), replacement) for name, item in value.items()}
        return {name: item for name, item in items.items() if item is not _DROPPED}
    if isinstance(value, list):
        return [_replaced(item, node.items, replacement) for item in value]
    return replacement(value) if isinstance(value, float) and "integer" in node.types else value
