"""Parts of a plan that run first: their rows take their place, and hold the keys that narrow other parts.

Used by ``choosing``. Must not choose what runs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import cast

from skipstone.compat.catalyst import (
    DATASETS,
    EXPRESSION_UTILS,
    JOIN,
    JOIN_HINTS,
    LEFT_SEMI,
    LOCAL_RELATION,
    ONE_ROW,
    Attribute,
    Dataset,
    Expression,
    LocalRelation,
    LogicalPlan,
    Relation,
)
from skipstone.compat.java import NONE, Seq, java_class, scala_object, scala_seq_of, some
from skipstone.compat.pyspark import with_partners
from skipstone.query.plans.analysis.catalyst import Node, descend, expression_id, output_ids
from skipstone.query.plans.analysis.uses import RELATION, Inner, Key, field_of, key_of
from skipstone.query.plans.joining.columns import ExpressionPlace, JoinedColumn, KeySource, Path
from skipstone.query.plans.replacements import Replacements, Replacing
from skipstone.query.plans.replacing.rebuild import Rebuilder, with_inner, with_plans

logger = logging.getLogger("skipstone.query")

_NOT_STREAMING = False
_MORE_THAN_ONE = 2
#: The types of a column and of the cast that widens it.
_WIDENED = ("integer", "long")
#: Leaves that are in the driver's memory already.
_HERE = frozenset({"LocalRelation", "OneRowRelation", "Range"})


@dataclass(frozen=True, eq=False)
class Side:
    """A part of a plan that ran: its rows, and how many they are."""

    rows: LocalRelation
    count: int


@dataclass(frozen=True)
class Partner:
    """A part that ran, whose keys a row must have for its own part to matter: by the ``equality`` of a join."""

    path: Path
    equality: ExpressionPlace


@dataclass(eq=False)
class PlanSides:
    """A normalized plan, ``java``, with the parts of it that ran. ``most_rows``: of each.

    ``matched``: joined columns of the relation at a path of which only rows with a key of a part that ran go on.
    """

    replacing: Replacing
    java: LogicalPlan
    tree: Node
    most_rows: int
    done: dict[Path, Side] = field(default_factory=dict)
    matched: dict[Path, list[tuple[JoinedColumn, KeySource]]] = field(default_factory=dict)

    def node(self, path: Path) -> Node:
        """The node at a path."""
        found = self.tree
        for position in path:
            found = found.children[position]
        return found

    def leaves(self, path: Path) -> Iterator[Node]:
        """The leaves below a path that are not in a part that ran."""
        for node in self.node(path).walk():
            if not node.children and not self.has_run(node.path):
                yield node

    def has_run(self, path: Path) -> bool:
        """Whether it leads into a part that ran."""
        return any(path[: len(done)] == done for done in self.done)

    def plan(self, path: Path = (), found: Replacements | None = None) -> LogicalPlan:
        """The plan at ``path`` with rows in place of the parts that ran, and what was ``found`` of relations."""
        below = {done: side.rows for done, side in self.done.items() if done[: len(path)] == path}
        replaced: dict[Path, LogicalPlan] = {place[len(path) :]: rows for place, rows in below.items()}
        for leaf in self.leaves(path) if found is not None else ():
            if is_relation(leaf) and key_of(leaf) in self.replacing.relations.sites:
                java = cast(Relation, descend(self.java, leaf.path))
                replaced[leaf.path[len(path) :]] = self.replacing.node(found or {}, key_of(leaf), java)
        for place, columns in self.matched.items():
            if place[: len(path)] == path and not self.has_run(place):
                relation = replaced.get(place[len(path) :]) or descend(self.java, place)
                replaced[place[len(path) :]] = reduce(lambda plan, one: self._matched(plan, *one), columns, relation)
        return with_plans(descend(self.java, path), replaced)

    def run(self, path: Path, partners: Sequence[Partner]) -> Side | None:
        """Run a part of the plan, without rows that have none of the ``partners``' keys; None when it is too large."""
        keys = frozenset(key_of(leaf) for leaf in self.leaves(path) if is_relation(leaf))
        side = self._ran(keys, lambda found: self._limited(path, partners, found), descend(self.java, path).output())
        if side.count > self.most_rows:
            logger.info("a side of a join has more than %d rows and is not run first", self.most_rows)
            return None
        self.done[path] = side
        return side

    def one_row(self) -> LogicalPlan:
        """A row without columns."""
        return java_class(self.replacing.session.jvm, ONE_ROW)()

    def run_value(self, subquery: Inner) -> bool:
        """Run a subquery of one value, and let its row take its place; False when it gives more rows."""
        replacing, scope = self.replacing, subquery.scope
        sites = replacing.relations.sites
        keys = frozenset(key_of(leaf) for one in scope.all() for leaf in one.relations) & sites.keys()

        def limited(found: Replacements) -> LogicalPlan:
            rebuilder = Rebuilder(replacing.session.jvm, keys, lambda key, java: replacing.node(found, key, java))
            return self._dataset(rebuilder.plan(scope)).limit(_MORE_THAN_ONE).queryExecution().analyzed()

        side = self._ran(keys, limited, scope.handle().output())
        if side.count >= _MORE_THAN_ONE:
            return False
        owner = with_inner(replacing.session.jvm, descend(self.java, subquery.owner.path), subquery, side.rows)
        self.java = with_plans(self.java, {subquery.owner.path: owner})
        return True

    def _ran(
        self, keys: frozenset[Key], plan_of: Callable[[Replacements], LogicalPlan], output: Seq[Attribute]
    ) -> Side:
        """The rows of a plan with these relations."""
        found = self.replacing.read(keys) | self.replacing.scan(keys)
        dataset = self.replacing.runnable(found, plan_of)
        if dataset is None:
            dataset = self.replacing.as_it_is(plan_of)
        # as Spark holds them: days of 1582 and bytes that are not text do not survive a way through Java's types
        rows, jvm = dataset.queryExecution().executedPlan().executeCollect(), self.replacing.session.jvm
        relations, none = scala_object(jvm, LOCAL_RELATION), scala_object(jvm, NONE)
        return Side(relations.apply(output, scala_seq_of(jvm, rows), _NOT_STREAMING, none), len(rows))

    def _limited(self, path: Path, partners: Sequence[Partner], found: Replacements) -> LogicalPlan:
        plan = self.plan(path, found)
        for partner in partners:
            plan = self._with_partner(plan, partner)
        limited = self._dataset(plan).limit(self.most_rows + 1)
        if not all(_is_here(leaf, found) for leaf in self.leaves(path)):
            # a limit at the end would let Spark try some tasks after the other
            limited = limited.coalesce(1)
        return limited.queryExecution().analyzed()

    def _matched(self, plan: LogicalPlan, column: JoinedColumn, source: KeySource) -> LogicalPlan:
        """The rows of a relation whose value in a joined column is a key of a part that ran."""
        session = self.replacing.session
        position = output_ids(column.relation).index(expression_id(column.column))
        expressions = scala_object(session.jvm, EXPRESSION_UTILS)
        own, theirs = plan.output().apply(position), self.expression(source.place)
        columns = expressions.column(own), expressions.column(theirs)
        frames = self._dataset(plan), self._dataset(self.done[source.path].rows)
        matched = with_partners(*frames, columns, session.spark, takes_null=column.takes_null)
        return matched.queryExecution().analyzed()

    def _with_partner(self, plan: LogicalPlan, partner: Partner) -> LogicalPlan:
        jvm = self.replacing.session.jvm
        rows, equality = self.done[partner.path].rows, self.expression(partner.equality)
        kind, hint = scala_object(jvm, LEFT_SEMI), scala_object(jvm, JOIN_HINTS).NONE()
        return scala_object(jvm, JOIN).apply(plan, rows, kind, some(jvm, equality), hint)

    def _dataset(self, plan: LogicalPlan) -> Dataset:
        session = self.replacing.session
        return java_class(session.jvm, DATASETS).ofRows(session.java, plan)

    def is_column(self, place: ExpressionPlace) -> bool:
        """Whether the expression at a place is a column, as it is or as a wider type."""
        found = self.node(place.node).expressions[place.slot]
        for position in place.within:
            found = found.children[position]
        if found.name == "Cast" and (found.children[0].fields.get("dataType"), found.fields["dataType"]) == _WIDENED:
            found = found.children[0]
        return found.name == "AttributeReference"

    def expression(self, place: ExpressionPlace) -> Expression:
        """The expression at a place of the plan."""
        return descend(field_of(descend(self.java, place.node), place.slot), place.within)


def _is_here(leaf: Node, found: Replacements) -> bool:
    """Whether the rows of a leaf are in the driver's memory."""
    return leaf.name in _HERE or (is_relation(leaf) and key_of(leaf) in found and found[key_of(leaf)].is_local)


def is_relation(leaf: Node) -> bool:
    """Whether a leaf is a table with columns."""
    return leaf.name == RELATION and bool(leaf.fields["output"])
