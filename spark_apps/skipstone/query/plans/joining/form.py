"""A query as joins: the form in which small sides are looked for, the parts of it that ran, and what their keys say.

Changed by the rules about joins, which make another one. Must not run anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from skipstone_core.language import predicates as core

from skipstone.compat.catalyst import Expression, LocalRelation, LogicalPlan
from skipstone.query.plans.analysis.catalyst import Node, descend
from skipstone.query.plans.analysis.uses import Key, Scope, field_of, is_relation, key_of
from skipstone.query.plans.joining.columns import ExpressionPlace, JoinedColumn, KeySource, Path, joined_columns

#: The types of a column and of the cast that widens it.
_WIDENED = ("integer", "long")


@dataclass(frozen=True)
class Known:
    """A condition on a ``column`` that holds for every row of a relation that matters, and how it is known, as text."""

    column: int
    condition: core.Node
    text: str


@dataclass(frozen=True, eq=False)
class EarlyRows:
    """The rows of a part of a plan that ran, and how many they are."""

    rows: LocalRelation
    count: int


@dataclass(frozen=True, eq=False)
class JoinForm:
    """A query, normalized, with joins in place of subqueries. ``plan``: with the values of the subqueries that ran.

    ``columns``: by which relations are joined. ``done``: the parts that ran, by their paths; ``refused``: those that
    turned out to be too large. ``matched``: columns of the relation at a path of which only rows with a key of a part
    that ran go on. ``known``: what keys and values say of the rows of relations, by what they were learned from.
    """

    normal: Scope
    plan: LogicalPlan
    uses: Mapping[Key, int]
    columns: Mapping[Key, tuple[JoinedColumn, ...]]
    done: Mapping[Path, EarlyRows] = field(default_factory=dict)
    refused: frozenset[Path] = frozenset()
    matched: Mapping[Path, tuple[tuple[JoinedColumn, KeySource], ...]] = field(default_factory=dict)
    known: Mapping[Key, Mapping[object, Known]] = field(default_factory=dict)

    @property
    def tree(self) -> Node:
        """The tree of the plan."""
        return self.normal.tree

    def with_known(self, key: Key, known: Mapping[object, Known]) -> JoinForm:
        """The form in which that is ``known`` of the rows of a relation."""
        return replace(self, known={**self.known, key: known})

    def node(self, path: Path) -> Node:
        """The node at a path."""
        node = self.tree
        for position in path:
            node = node.children[position]
        return node

    def leaves(self, path: Path) -> Iterator[Node]:
        """The leaves below a path that are not in a part that ran."""
        for node in self.node(path).walk():
            if not node.children and not self.has_run(node.path):
                yield node

    def has_run(self, path: Path) -> bool:
        """Return whether it leads into a part that ran."""
        return any(path[: len(done)] == done for done in self.done)

    def is_gone(self, key: Key) -> bool:
        """Return whether a relation that is joined is in a part that ran."""
        return self.has_run(self.columns[key][0].relation.path)

    def is_column(self, place: ExpressionPlace) -> bool:
        """Return whether the expression at a place is a column, as it is or as a wider type."""
        node = self.expression_node(place)
        if node.name == "Cast" and (node.children[0].fields.get("dataType"), node.fields["dataType"]) == _WIDENED:
            node = node.children[0]
        return node.name == "AttributeReference"

    def expression_node(self, place: ExpressionPlace) -> Node:
        """The expression at a place of the tree."""
        node = self.node(place.node).expressions[place.slot]
        for position in place.within:
            node = node.children[position]
        return node

    def expression(self, place: ExpressionPlace) -> Expression:
        """The expression at a place of the plan."""
        return descend(field_of(descend(self.plan, place.node), place.slot), place.within)


def join_form(normal: Scope) -> JoinForm:
    """The form of a normalized query of which nothing ran yet."""
    uses = Counter(key_of(node) for node in normal.tree.walk() if is_relation(node))
    columns: dict[Key, tuple[JoinedColumn, ...]] = {}
    for column in joined_columns(normal.tree):
        key = key_of(column.relation)
        if uses[key] == 1:  # what holds for one use of several need not hold for all
            columns[key] = (*columns.get(key, ()), column)
    return JoinForm(normal, normal.handle(), uses, columns)
