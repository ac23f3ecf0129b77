"""Which columns of a query a condition may be about, or a smallest or largest value, by the ids that its plan names.

Used by ``risks`` and the rule ``no_index_applies``. Leaves nothing out: what is unclear counts. Must not open tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone.query.plans.analysis.catalyst import COLUMN, Node, column_ids, is_tree, read_tree
from skipstone.query.plans.analysis.uses import RELATION, Scope

#: Nodes whose columns keep their ids, so that what nothing names by its id no condition is about. Those of a union, for
#: instance, have ids of their own.
KEEP_IDS = frozenset(
    {
        *("Aggregate", "Filter", "GlobalLimit", "Join", "LocalLimit", "LocalRelation", "Offset", "OneRowRelation"),
        *("Project", "Range", RELATION, "Sort", "SubqueryAlias", "Window"),
    }
)
#: Nodes that give out columns in lists: what stands there is not a condition until another node names it.
_LISTS = frozenset({"Aggregate", "Project", "Sort", "Window"})
#: Iceberg answers these from its bounds.
_FROM_BOUNDS = frozenset({"Max", "Min"})


def keeps_ids(query: Scope) -> bool:
    """Return whether columns have the same ids everywhere in a query."""
    return all(node.name in KEEP_IDS for scope in query.all() for node in scope.tree.walk())


def conditioned_ids(query: Scope) -> frozenset[int] | None:
    """Ids of the columns that a condition may be about; None: maybe all of them."""
    if not keeps_ids(query):
        return None
    ids, aliases = set[int](), dict[int, set[int]]()
    for scope in query.all():
        for node in scope.tree.walk():
            is_list = scope is query and node.name in _LISTS
            for value in node.fields.values() if node.name != RELATION else ():
                for tree in _trees(value) if is_list else ():
                    aliases |= _aliases(tree)
                    ids |= _from_bounds(tree)
                ids.update(() if is_list else column_ids(value))
    return _with_aliased(ids, aliases)


def _with_aliased(ids: set[int], aliases: dict[int, set[int]]) -> frozenset[int]:
    """``ids`` with the columns that their aliases are made of."""
    left = list(ids)
    while left:
        more = aliases.get(left.pop(), set()) - ids
        ids |= more
        left.extend(more)
    return frozenset(ids)


def _trees(value: object) -> Iterator[Node]:
    """The trees of a field, without plans inside them."""
    if is_tree(value):
        yield read_tree(value)  # type: ignore[arg-type]
    elif isinstance(value, list):
        for item in value:
            yield from _trees(item)


def _aliases(tree: Node) -> dict[int, set[int]]:
    named = (node for node in tree.walk() if node.name == "Alias")
    return {int(node.fields["exprId"]["id"]): _below(node) for node in named}


def _from_bounds(tree: Node) -> set[int]:
    return {number for node in tree.walk() if node.name in _FROM_BOUNDS for number in _below(node)}


def _below(node: Node) -> set[int]:
    return {int(descendant.fields["exprId"]["id"]) for descendant in node.walk() if descendant.name == COLUMN}
