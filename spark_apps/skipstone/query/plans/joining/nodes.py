"""What the nodes of a plan do to rows and columns, as far as joins and keys are concerned.

Used by ``columns``. Works on plans that ``normalize`` made. Must not know relations of Iceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skipstone.query.plans.analysis.catalyst import Node, expression_id, read_tree

LEFT, RIGHT = 0, 1
_BOTH, _LEFT, _RIGHT = frozenset({LEFT, RIGHT}), frozenset({LEFT}), frozenset({RIGHT})
_NONE: frozenset[int] = frozenset()
#: Of each kind of join, the sides whose rows matter only where the other side has their key.
_NARROWED: Mapping[str, frozenset[int]] = {
    "Inner": _BOTH,
    "Cross": _BOTH,
    "LeftOuter": _RIGHT,
    "RightOuter": _LEFT,
    "LeftSemi": _BOTH,
    "LeftAnti": _RIGHT,
    "ExistenceJoin": _RIGHT,
}
#: Of each kind, the sides of which every row comes out with its own columns, or not at all.
_PASSED: Mapping[str, frozenset[int]] = {
    "Inner": _BOTH,
    "Cross": _BOTH,
    "LeftOuter": _LEFT,
    "RightOuter": _RIGHT,
    "LeftSemi": _LEFT,
    "LeftAnti": _LEFT,
    "ExistenceJoin": _LEFT,
}
#: Kinds that give out only rows for which their condition is true.
_STRICT = frozenset({"Inner", "Cross", "LeftSemi"})
_ONLY_LEFT = frozenset({"LeftSemi", "LeftAnti"})
#: Nodes that give out rows of their child as they are.
ROWS_AS_THEY_ARE = frozenset(
    {"Filter", "Sort", "Repartition", "RepartitionByExpression", "RebalancePartitions"},
)
#: Those that give out some of them.
SOME_ROWS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail"})
_LISTS = {"Project": "projectList", "Aggregate": "aggregateExpressions"}


def narrowed_sides(join: Node) -> frozenset[int]:
    """The sides whose rows matter only where the other side has their key."""
    return _NARROWED.get(_kind(join), _NONE)


def passed_sides(join: Node) -> frozenset[int]:
    """The sides of which every row comes out with its own columns, or not at all."""
    return _PASSED.get(_kind(join), _NONE)


def is_strict(join: Node) -> bool:
    """Return whether a join gives out only rows for which its condition is true."""
    return _kind(join) in _STRICT


def _kind(join: Node) -> str:
    """The name of the kind of a join: a singleton, or a class with the column that it adds."""
    kind = join.fields["joinType"]
    name = str(kind.get("object") or kind.get("product-class") or "")
    return name.rstrip("$").rsplit(".", 1)[-1]


def output(node: Node) -> tuple[int, ...] | None:
    """Ids of the columns that a node gives out, in their order; None when nobody knows."""
    match node.name:
        case "Join":
            return _output_of_join(node)
        case "Union":
            return output(node.children[0])
        case "Window":
            return _joined(output(node.children[0]), ids_of(named(node, "windowExpressions")))
        case "Project" | "Aggregate":
            return ids_of(named(node, _LISTS[node.name]))
        case name if name in ROWS_AS_THEY_ARE | SOME_ROWS:
            return output(node.children[0])
        case _:
            return _own_output(node)


def _own_output(leaf: Node) -> tuple[int, ...] | None:
    """That of a leaf which says so: each column is a tree of its own."""
    if leaf.children or "output" not in leaf.fields:
        return None
    return ids_of(read_tree(column) for column in leaf.fields["output"])


def _output_of_join(join: Node) -> tuple[int, ...] | None:
    left, right = (output(child) for child in join.children)
    kind = _kind(join)
    if kind in _ONLY_LEFT:
        return left
    if kind == "ExistenceJoin":
        return left if left is None else (*left, expression_id(read_tree(join.fields["joinType"]["exists"])))
    return _joined(left, right)


def _joined(left: tuple[int, ...] | None, right: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if left is None or right is None else left + right


def named(node: Node, field: str) -> list[Node]:
    """The expressions in one field of a node."""
    position = list(node.fields).index(field)
    return [expression for slot, expression in node.expressions.items() if slot.field == position]


def ids_of(columns: Iterable[Node]) -> tuple[int, ...]:
    """Ids of named expressions."""
    return tuple(expression_id(column) for column in columns)


def used_ids(expression: Node) -> frozenset[int]:
    """Ids of the columns that an expression names."""
    return frozenset(expression_id(node) for node in expression.walk() if node.name == "AttributeReference")


def conjuncts(condition: Node) -> list[Node]:
    """The parts of which all must hold."""
    if condition.name != "And":
        return [condition]
    return [part for child in condition.children for part in conjuncts(child)]
