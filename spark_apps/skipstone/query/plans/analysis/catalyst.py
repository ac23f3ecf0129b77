"""Spark's logical plans as Python sees them: the JSON that Catalyst writes of a whole tree, read in one call.

Used by the modules of this package. One round trip to the JVM costs 0.2 ms, so trees are never walked through py4j.
Must not know tables or indexes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from itertools import pairwise
from typing import Any

#: Handles of objects in the JVM.
Java = Any

_INITIALISED = (True,)
ICEBERG = "org.apache.iceberg"
#: Characters of a text that go over at once, fewer than a buffer of the gateway has bytes.
_PIECE = 6_000
_HEAD = ("class", "num-children")


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
    def expressions(self) -> dict[tuple[int, int | None], Node]:
        """Expressions among the fields, by position of the field and position in it when it is a list."""
        found: dict[tuple[int, int | None], Node] = {}
        for position, value in enumerate(self.fields.values()):
            if is_tree(value):
                found[position, None] = read_tree(value)
            elif isinstance(value, list):
                trees = ((at, one) for at, one in enumerate(value) if is_tree(one))
                found.update({(position, at): read_tree(one) for at, one in trees})
        return found

    def walk(self) -> Iterator[Node]:
        """This node and all below it, parents first; plans inside expressions are not visited."""
        yield self
        for child in self.children:
            yield from child.walk()


def is_tree(value: object) -> bool:
    """Whether a field's JSON is a tree: a list of nodes in pre-order."""
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


def plan_tree(jvm: Java, plan: Java) -> Node:
    """The tree of a plan or expression in the JVM."""
    return read_tree(json.loads(_json(jvm, plan)))


def _json(jvm: Java, plan: Java) -> str:
    """``plan.toJSON()`` in pieces: what is longer than a buffer of the gateway waits 40 ms for the network to agree."""
    arguments = java_class(jvm, "java.util.ArrayList")()
    arguments.add(plan)
    return text_in_pieces(_json_builder(jvm).invokeWithArguments(arguments))


def text_in_pieces(builder: Java) -> str:
    """What a StringBuilder in the JVM holds. A character of two units that is cut in two would arrive as two others."""
    length = builder.length()
    if length <= _PIECE:
        return str(builder.toString())
    characters = builder.codePointCount(0, length)
    if characters == length:
        return "".join(builder.substring(start, min(length, start + _PIECE)) for start in range(0, length, _PIECE))
    ends = [0]
    for first in range(0, characters, _PIECE):
        ends.append(builder.offsetByCodePoints(ends[-1], min(_PIECE, characters - first)))
    return "".join(builder.substring(start, end) for start, end in pairwise(ends))


@lru_cache(maxsize=1)
def _json_builder(jvm: Java) -> Java:
    """A method handle that writes the JSON of a tree into a StringBuilder, which stays in the JVM."""
    handles, types = (java_class(jvm, f"java.lang.invoke.{name}") for name in ("MethodHandles", "MethodType"))
    text = java_type(jvm, "java.lang.String")
    to_json = handles.publicLookup().findVirtual(
        java_type(jvm, "org.apache.spark.sql.catalyst.trees.TreeNode"), "toJSON", types.methodType(text)
    )
    builder = handles.publicLookup().findConstructor(
        java_type(jvm, "java.lang.StringBuilder"), types.methodType(jvm.java.lang.Void.TYPE, text)
    )
    return handles.filterReturnValue(to_json, builder)


def java_type(jvm: Java, name: str) -> Java:
    """The class object of ``name``."""
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return jvm.java.lang.Class.forName(name, *_INITIALISED, loader)


@lru_cache(maxsize=256)
def java_class(jvm: Java, name: str) -> Java:
    """The class ``name``: its constructor and static methods. Looked up once, as each dot is a round trip."""
    return reduce(getattr, name.split("."), jvm)


@lru_cache(maxsize=256)
def scala_object(jvm: Java, name: str) -> Java:
    """The singleton ``name``."""
    return java_type(jvm, f"{name}$").getField("MODULE$").get(None)


def json_mapper(jvm: Java) -> Java:
    """Reads and writes JSON: whole collections go over in one call."""
    return java_class(jvm, f"{ICEBERG}.shaded.com.fasterxml.jackson.databind.ObjectMapper")()


def descend(root: Java, path: Iterable[int]) -> Java:
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
