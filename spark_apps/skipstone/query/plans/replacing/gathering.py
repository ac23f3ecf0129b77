"""Which rows of the driver are aggregated in one task: few rows, spread over all cores, would be shuffled for nothing.

Used by ``substitution``. Must not change a plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from skipstone.query.plans.analysis.catalyst import Node

#: Nodes that give out rows one by one as they get them.
_ROW_BY_ROW = frozenset({"Filter", "Project", "SubqueryAlias", "View"})
#: Functions of people, which may take any time for a row.
_FOREIGN = re.compile(r"UDA?F|Invoke|Aggregator|ApplyFunction|CallMethod|TypedAggregate")


def aggregated_at_once(tree: Node, is_here: Callable[[Node], bool]) -> frozenset[Node]:
    """The nodes right below aggregates whose rows come from a leaf that ``is_here``, row by row."""
    aggregates = (node for node in tree.walk() if node.name == "Aggregate")
    return frozenset(node.children[0] for node in aggregates if is_here(_leaf(node)) and not _has_foreign(node))


def _chain(aggregate: Node) -> Iterator[Node]:
    """The aggregate, the nodes below it that work row by row, and what is below these."""
    yield aggregate
    node = aggregate.children[0]
    while node.name in _ROW_BY_ROW:
        yield node
        node = node.children[0]
    yield node


def _leaf(aggregate: Node) -> Node:
    *_, last = _chain(aggregate)
    return last


def _has_foreign(aggregate: Node) -> bool:
    expressions = (expression for node in _chain(aggregate) for expression in node.expressions.values())
    return any(_FOREIGN.search(node.name) for expression in expressions for node in expression.walk())
