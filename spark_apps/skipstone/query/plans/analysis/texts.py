"""Conditions as text for people.

Used by ``demands``. Must not know plans.
"""

from __future__ import annotations

from skipstone_core.language import predicates as core

_SHOWN_VALUES = 5
_SHOWN_TESTS = 20


def shown(node: core.Node) -> str:
    """A condition as text for people; of many tests the first ones, and how many arms and conjuncts follow."""
    return _shown(node, _SHOWN_TESTS)[0]


def _shown(node: core.Node, tests: int) -> tuple[str, int]:
    """The text of a condition of up to so many tests, and how many are left then."""
    match node:
        case core.And() | core.Or():
            return _joined(node, tests)
        case core.Not(inner=core.IsNull(operand=operand)):
            return f"{operand} is not null", tests - 1
        case core.Not():
            text, tests = _shown(node.inner, tests - 1)
            return f"not {text}", tests
        case core.Comparison():
            return f"{_text(node.left)} {node.op} {_text(node.right)}", tests - 1
        case core.InList():
            return _list_text(node), tests - 1
        case core.IsNull():
            return f"{_text(node.operand)} is null", tests - 1
        case core.StartsWith() | core.Like():
            pattern = node.pattern if isinstance(node, core.Like) else f"{node.prefix}%"
            return f"{_text(node.operand)} like {pattern!r}", tests - 1


def _joined(node: core.And | core.Or, tests: int) -> tuple[str, int]:
    texts: list[str] = []
    for part in node.parts:
        if texts and tests <= 0:
            texts.append(f"{len(node.parts) - len(texts)} more")
            break
        text, tests = _shown(part, tests)
        texts.append(text)
    return "(" + (" and " if isinstance(node, core.And) else " or ").join(texts) + ")", tests


def _list_text(node: core.InList) -> str:
    if not node.values:
        return "false"
    values = [_text(value) for value in node.values[:_SHOWN_VALUES]]
    more = len(node.values) - len(values)
    return f"{_text(node.operand)} in ({', '.join(values)}{f' and {more} more' if more else ''})"


def _text(operand: core.Operand) -> str:
    if not isinstance(operand, core.Constant):
        return operand.text if isinstance(operand, core.Computed) else str(operand)
    value = operand.value
    if isinstance(value, bytes):
        return value.hex()
    return repr(value) if isinstance(value, str) else str(value)
