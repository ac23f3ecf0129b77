"""Spark's logical plans as Python sees them: the JSON that Catalyst writes of a whole tree, read in one call.

Used by the modules of this package. One round trip to the JVM costs 0.2 ms, so trees are never walked through py4j.
Must not know tables or indexes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from propcache.api import cached_property

from skipstone.compat.catalyst import Tree, TreeNode, plan_json
from skipstone.compat.java import Jvm

_HEAD = ("class", "num-children")
#: The class of columns in expressions.
COLUMN = "AttributeReference"


class Slot(NamedTuple):
    """Where a node has an expression: the position of the field, and the place in it when the field is a list."""

    field: int
    place: int | None


@dataclass(frozen=True, eq=False)
class Node:
    """A node of a plan or of an expression.

    ``name``: simple class name. ``fields``: its other fields, as JSON, in the order of the class's own.
    ``path``: from the root, which child is next.
    """

    name: str
    fields: dict[str, Any]
    children: tuple[Node, ...]
    path: tuple[int, ...]

    @cached_property
    def expressions(self) -> dict[Slot, Node]:
        """Expressions among the fields."""
        expressions: dict[Slot, Node] = {}
        for position, value in enumerate(self.fields.values()):
            if is_tree(value):
                expressions[Slot(position, None)] = read_tree(value)
            elif isinstance(value, list):
                trees = ((at, tree) for at, tree in enumerate(value) if is_tree(tree))
                expressions.update({Slot(position, at): read_tree(tree) for at, tree in trees})
        return expressions

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first; plans inside expressions are not visited."""
        yield self
        for child in self.children:
            yield from child.walk()


def is_tree(value: object) -> bool:
    """Return whether a field's JSON is a tree: a list of nodes in pre-order."""
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "num-children" in value[0]


def read_tree(nodes: list[dict[str, Any]]) -> Node:
    """The tree of a pre-order list of nodes."""
    root, rest = _read(nodes, 0, ())
    if rest != len(nodes):
        raise ValueError(f"{len(nodes) - rest} nodes are left over in the JSON of a plan")
    return root


def _read(nodes: list[dict[str, Any]], at: int, path: tuple[int, ...]) -> tuple[Node, int]:
    head = nodes[at]
    children = []
    at += 1
    for position in range(head["num-children"]):
        child, at = _read(nodes, at, (*path, position))
        children.append(child)
    fields = {name: value for name, value in head.items() if name not in _HEAD}
    return Node(str(head["class"]).rsplit(".", 1)[-1], fields, tuple(children), path), at


def plan_tree(jvm: Jvm, plan: TreeNode) -> Node:
    """The tree of a plan or expression in the JVM."""
    return read_tree(json.loads(plan_json(jvm, plan)))


def descend(root: Tree, path: Iterable[int]) -> Tree:
    """The node in the JVM that ``path`` leads to."""
    for position in path:
        root = root.children().apply(position)
    return root


def expression_id(attribute: Node) -> int:
    """The id by which Catalyst knows an attribute."""
    return int(attribute.fields["exprId"]["id"])


def output_ids(relation: Node) -> tuple[int, ...]:
    """The ids of a relation's columns."""
    return tuple(expression_id(read_tree(tree)) for tree in relation.fields["output"])


def column_ids(value: object) -> Iterator[int]:
    """Ids of the columns in the JSON of a field; plans inside it are scopes of their own."""
    if isinstance(value, list):
        for item in value:
            yield from column_ids(item)
    elif isinstance(value, dict):
        fields = cast(dict[str, object], value)
        if str(fields.get("class", "")).endswith(f".{COLUMN}"):
            yield int(value["exprId"]["id"])
        for name, field in fields.items():
            if name != "plan":
                yield from column_ids(field)
