"""Conditions as text for people.

Used by ``demands``. Must not know plans.
"""

from __future__ import annotations

from skipstone_core.language import predicates as core

_SHOWN_VALUES = 5
_SHOWN_TESTS = 20


def shown(node: core.Node) -> str:
    """A condition as text for people; of many tests the first ones, and how many arms and conjuncts follow."""
    return _Text(_SHOWN_TESTS).of(node)


class _Text:
    """Writes conditions of up to so many tests."""

    def __init__(self, tests: int) -> None:
        self._left = tests

    def of(self, node: core.Node) -> str:
        """The text of a condition."""
        if isinstance(node, core.And | core.Or):
            return self._joined(node)
        self._left -= 1
        match node:
            case core.Not(inner=core.IsNull(operand=operand)):
                return f"{operand} is not null"
            case core.Not():
                return f"not {self.of(node.inner)}"
            case core.Comparison():
                return f"{_text(node.left)} {node.op} {_text(node.right)}"
            case core.InList():
                return _list_text(node)
            case core.IsNull():
                return f"{_text(node.operand)} is null"
            case core.StartsWith():
                return f"{_text(node.operand)} like {node.prefix + '%'!r}"

    def _joined(self, node: core.And | core.Or) -> str:
        parts: list[str] = []
        for part in node.parts:
            if parts and self._left <= 0:
                parts.append(f"{len(node.parts) - len(parts)} more")
                break
            parts.append(self.of(part))
        return "(" + (" and " if isinstance(node, core.And) else " or ").join(parts) + ")"


def _list_text(node: core.InList) -> str:
    if not node.values:
        return "false"
    values = [_text(value) for value in node.values[:_SHOWN_VALUES]]
    more = len(node.values) - len(values)
    return f"{_text(node.operand)} in ({', '.join(values)}{f' and {more} more' if more else ''})"


def _text(operand: core.Operand) -> str:
    if isinstance(operand, core.ColumnRef):
        return str(operand)
    value = operand.value
    if isinstance(value, bytes):
        return value.hex()
    return repr(value) if isinstance(value, str) else str(value)
