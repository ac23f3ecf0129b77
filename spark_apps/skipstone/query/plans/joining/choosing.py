"""Chooses the parts of a query that run first: small sides of joins whose keys may narrow a relation with an index.

Called by ``rewriting``. What a side gave stays in the query as rows, so nothing is run twice. A relation that keys
narrowed may make another side small, so this goes on until nothing more is gained. Must not open tables.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from skipstone_core.indexing.use import ReadCost, are_worth_their_keys, is_small_side
from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.catalyst import Node, expression_id
from skipstone.query.plans.analysis.uses import Inner, Key, ancestors, key_of
from skipstone.query.plans.joining.columns import JoinedColumn, KeySource, Path, joined_columns
from skipstone.query.plans.joining.comparisons import ComparedColumn, compared_columns
from skipstone.query.plans.joining.keys import Keys, keys_of
from skipstone.query.plans.joining.nodes import conjuncts, output, used_ids
from skipstone.query.plans.joining.sides import Partner, PlanSides, Side, is_relation
from skipstone.query.plans.joining.weights import Weights
from skipstone.query.plans.planning import Known, Session

logger = logging.getLogger("skipstone.query")

#: Nodes that leave out rows by what they hold, and leaves that a user wrote into the query.
_SELECTIVE = frozenset({"GlobalLimit", "LocalLimit", "LocalRelation", "OneRowRelation", "Range"})
#: Nodes that give a row for each that they get, and joins that do when each row has a partner.
_ROW_BY_ROW = frozenset({"Project", "SubqueryAlias", "View"})
_KEEPING = frozenset({"Inner", "LeftOuter", "RightOuter", "FullOuter", "Cross"})
#: Nodes that take much more time for a row than a join with few rows does.
_GROUPING = frozenset({"Aggregate", "Window"})
#: Conditions that are looked up as they are.
_PLAIN = frozenset(
    {"EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "InSet", "IsNotNull", "LessThan", "LessThanOrEqual"}
)
#: Rows of a table that is joined as a whole, as a list of keys.
_LISTED = 10_000
#: A side that turned out to be too large may have cost as much as the query itself.
_MOST_WASTED = 1


@dataclass(eq=False)
class SmallSides:
    """Runs the small sides of a query."""

    sides: PlanSides
    weights: Weights
    subqueries: tuple[Inner, ...]
    columns: dict[Key, list[JoinedColumn]] = field(init=False)
    _known: dict[Key, dict[object, Known]] = field(default_factory=dict)
    _refused: set[Path] = field(default_factory=set)
    _pending: set[Path] = field(default_factory=set)
    _wasted: int = 0
    _uses: Counter[Key] = field(init=False)

    def __post_init__(self) -> None:
        """Find the columns by which relations are joined: what holds for one use of several need not hold for all."""
        self._uses = Counter(key_of(node) for node in self.sides.tree.walk() if is_relation(node))
        self.columns = {}
        for one in joined_columns(self.sides.tree):
            if self._uses[key_of(one.relation)] == 1:
                self.columns.setdefault(key_of(one.relation), []).append(one)

    @property
    def _session(self) -> Session:
        return self.sides.replacing.session

    def run(self) -> bool:
        """Run what is small, as long as its keys narrow something; whether anything ran."""
        values = [column.subquery for column in compared_columns(self.subqueries) if self._is_compared(column)]
        while self._narrowed_any():
            pass
        for key in self.columns if self.sides.done else ():
            if not self._is_gone(key) and self.weights.is_partitioned(key):
                self._narrow_partitions(key)
        self._match_before_grouping()
        return bool(values or self.sides.done)

    def _match_before_grouping(self) -> None:
        """Let no rows be grouped that find no partner afterwards: Spark pushes no join below what groups rows.

        By keys that are columns: an expression may fail on rows of a part that are left out before they are joined.
        """
        for column in (column for columns in self.columns.values() for column in columns):
            ran = [one for one in column.sources if one.path in self.sides.done and self.sides.is_column(one.place)]
            above = [node for node in ancestors(self.sides.tree, column.relation) if len(node.path) > len(column.join)]
            key = key_of(column.relation)
            if ran and any(node.name in _GROUPING for node in above) and not self._is_gone(key):
                self.sides.matched.setdefault(column.relation.path, []).append((column, ran[0]))
                count, name = self.sides.done[ran[0].path].count, column.column.fields["name"]
                text = f"matched by {name} before its rows are grouped: with {count} rows of the other side"
                self.sides.replacing.relations.note(key, [text])

    def _is_compared(self, column: ComparedColumn) -> bool:
        """Whether the value of a subquery narrows a relation, after it ran."""
        key, number = key_of(column.relation), expression_id(column.column)
        if self._uses[key] > 1 or not (kind := self.weights.kind(key, column.column)):
            return False
        if not is_small_side(self.weights.cost_of_value(column.subquery.scope), self.weights.savings(key)):
            return False
        if not self.sides.run_value(column.subquery):
            return False
        keys = keys_of(self._session, self.sides.one_row(), self.sides.expression(column.place), kind)
        if keys is not None:
            name = self.weights.name(key, number)
            self._known.setdefault(key, {})[column] = _compared(column, name, keys)
            self.sides.replacing.relations.narrow(key, tuple(self._known[key].values()))
        return True

    def _narrowed_any(self) -> bool:
        """Whether more is known of any relation than before; those that are cheap to read come first."""
        targets = {key: self.weights.savings(key) for key in self.columns if not self._is_gone(key)}
        for key, savings in sorted(targets.items(), key=lambda one: one[1].weight):
            if not self._is_gone(key) and self._is_narrowed(key, savings):
                return True
        return False

    def _is_gone(self, key: Key) -> bool:
        return self.sides.has_run(self.columns[key][0].relation.path)

    def _is_narrowed(self, key: Key, savings: ReadCost) -> bool:
        known = self._known.setdefault(key, {})
        before = len(known)
        for column in self.columns[key]:
            if column not in known and (found := self._known_of(key, column, savings)) is not None:
                known[column] = found
        if len(known) > before:
            self.sides.replacing.relations.narrow(key, tuple(known.values()))
        return len(known) > before

    def _narrow_partitions(self, key: Key) -> None:
        """Let the keys of sides that ran narrow a relation without an index on them too: while these sides were in the
        plan, Spark could filter its partitions by them when the query ran.
        """
        known = self._known.setdefault(key, {})
        before = len(known)
        for column in self.columns[key]:
            ran = [source for source in column.sources if source.path in self.sides.done]
            kind = self.weights.kind_of_values(key, column.column) if ran and column not in known else ""
            if kind and (found := self._keys(key, column, ran[0], kind)) is not None:
                known[column] = found
        if len(known) > before:
            self.sides.replacing.relations.narrow(key, tuple(known.values()))

    def _keys(self, key: Key, column: JoinedColumn, source: KeySource, kind: str) -> Known | None:
        """What the keys of a part that ran say of a relation's rows."""
        side = self.sides.done[source.path]
        keys = keys_of(self._session, side.rows, self.sides.expression(source.place), kind)
        return (
            None if keys is None else _known(column, self.weights.name(key, expression_id(column.column)), keys, side)
        )

    def _known_of(self, key: Key, column: JoinedColumn, savings: ReadCost) -> Known | None:
        """What a join says of a relation's rows, when its other side, or a part of that, is small."""
        kind = self.weights.kind(key, column.column)
        for source in column.sources if kind else ():
            side = self._side(source.path, column.relation.path, savings, is_list=self._is_list(source.path))
            if side is not None:
                return self._keys(key, column, source, kind) if are_worth_their_keys(side.count, savings) else None
        return None

    def _side(self, path: Path, target: Path, savings: ReadCost, *, is_list: bool = False) -> Side | None:
        """A part of the plan, if it ran, or is small and leaves out rows (or ``is_list`` of keys) and runs now."""
        if path in self.sides.done:
            return self.sides.done[path]
        if self.sides.has_run(path) or path in self._refused | self._pending or not self._is_small(path, savings):
            return None
        self._pending.add(path)
        partners = tuple(self._partners(path, target, savings))
        self._pending.remove(path)
        if not partners and not is_list and not self._is_selective(path):
            return None
        return self._ran(path, partners)

    def _ran(self, path: Path, partners: tuple[Partner, ...]) -> Side | None:
        side = self.sides.run(path, partners)
        if side is None:
            self._refused.add(path)
            self._wasted += 1
        return side

    def _is_small(self, path: Path, savings: ReadCost) -> bool:
        if self._wasted >= _MOST_WASTED and any(True for _ in self.sides.leaves(path)):
            return False
        cost = self._cost(path)
        is_small = is_small_side(cost, savings)
        if not is_small and is_small_side(cost, savings, gives_few=True):
            is_small = self._gives_few(path)
        return is_small and not self._is_large(path)

    def _gives_few(self, path: Path) -> bool:
        """Whether a part of the plan that reads one relation gives few rows, as a look at some of these says."""
        nodes = [*self.sides.node(path).walk()]
        leaves = [node for node in nodes if not node.children]
        are_plain = all(node.name in _ROW_BY_ROW or node.name == "Filter" for node in nodes if node.children)
        may_look = self._session.limits.driver.rows > 0
        return may_look and are_plain and len(leaves) == 1 and self.weights.gives_few(leaves[0])

    def _is_large(self, path: Path) -> bool:
        """Whether a part of the plan has a leaf of too many rows, or a part that was too large, and no more than whole
        tables besides that are no lists of keys.
        """
        nodes = [*self.sides.node(path).walk()]
        large = [(one, _filters_above(nodes, one)) for one in nodes if self._are_more(nodes, one)]
        large += [(one, frozenset[Path]()) for one in nodes if one.path in self._refused]
        return any(
            all(self._keeps(node) for node in nodes if not _is_below(node, one) and node.path not in filters)
            for one, filters in large
        )

    def _are_more(self, nodes: Sequence[Node], leaf: Node) -> bool:
        """Whether a leaf has too many rows, after the conditions right above it."""
        above = [node for node in nodes if node.path in _filters_above(nodes, leaf)]
        parts = [part for node in above for one in node.expressions.values() for part in conjuncts(one)]
        conditions = sum(part.name != "IsNotNull" for part in parts)
        is_plain = not leaf.children and all(_is_plain(part) for part in parts)
        return is_plain and self.weights.are_more(leaf, self.sides.most_rows, conditions)

    def _keeps(self, node: Node) -> bool:
        """Whether a node gives all rows that it gets, as far as one can tell: a join of whole tables may not."""
        if self.sides.has_run(node.path):
            return False
        if is_relation(node):
            return self.weights.rows([node]) > _LISTED
        if node.name == "Join":
            return str(node.fields["joinType"]) in _KEEPING
        return node.name in _ROW_BY_ROW or (node.name == "Filter" and not _filters(node))

    def _cost(self, path: Path) -> ReadCost:
        """What reading the leaves of a part of the plan costs."""
        return self.weights.cost(self.sides.java, self.sides.leaves(path))

    def _partners(self, path: Path, target: Path, savings: ReadCost) -> Iterator[Partner]:
        """Parts beside one that will leave out rows of it anyway: they run before it does."""
        given = set(output(self.sides.node(path)) or ())
        for leaf in [*self.sides.leaves(path)]:
            for column in self.columns.get(key_of(leaf), ()) if is_relation(leaf) else ():
                is_beside = len(column.join) < len(path) and path[: len(column.join)] == column.join
                if not is_beside or not used_ids(self._node(column)) <= given:
                    continue
                partner = self._partner(column, target, savings)
                if partner is not None:
                    yield Partner(partner, column.equality)

    def _partner(self, column: JoinedColumn, target: Path, savings: ReadCost) -> Path | None:
        """The part whose keys a column has, if it ran, or is small and leaves out rows."""
        for source in column.sources:
            if target[: len(source.path)] != source.path and self._side(source.path, target, savings) is not None:
                return source.path
        return None

    def _node(self, column: JoinedColumn) -> Node:
        node = self.sides.node(column.own.node).expressions[column.own.slot]
        for position in column.own.within:
            node = node.children[position]
        return node

    def _is_selective(self, path: Path) -> bool:
        """Whether a part of the plan leaves out rows."""
        nodes = self.sides.node(path).walk()
        return any(node.name in _SELECTIVE or self.sides.has_run(node.path) or _filters(node) for node in nodes)

    def _is_list(self, path: Path) -> bool:
        """Whether a part of the plan has so few rows that each may be a key that somebody listed."""
        return self.weights.rows(self.sides.leaves(path)) <= _LISTED


def _is_below(node: Node, one: Node) -> bool:
    return node.path[: len(one.path)] == one.path


def _filters_above(nodes: Sequence[Node], leaf: Node) -> frozenset[Path]:
    """The filters above a leaf, up to the first node that neither is one nor gives its rows as they are."""
    at = {node.path: node for node in nodes}
    above = [at[leaf.path[:length]] for length in range(len(leaf.path) - 1, -1, -1) if leaf.path[:length] in at]
    row_by_row = takewhile(lambda node: node.name == "Filter" or node.name in _ROW_BY_ROW, above)
    return frozenset(node.path for node in row_by_row if node.name == "Filter")


def _is_plain(condition: Node) -> bool:
    """Whether a condition compares a column with literals."""
    return condition.name in _PLAIN and all(one.name in {"AttributeReference", "Literal"} for one in condition.children)


def _filters(node: Node) -> bool:
    """Whether a node leaves out more rows than those with nulls."""
    if node.name != "Filter":
        return False
    return any(part.name != "IsNotNull" for one in node.expressions.values() for part in conjuncts(one))


def _known(joined: JoinedColumn, name: str, keys: Keys, side: Side) -> Known:
    column = core.ColumnRef("", name)
    condition: core.Node = core.InList(column, keys.values)
    if joined.takes_null and keys.has_null:
        condition = core.Or((condition, core.IsNull(column)))
    text = f"joined by {name}: {len(keys.values)} keys of the other side, which ran first and gave {side.count} rows"
    return Known(expression_id(joined.column), condition, text)


def _compared(compared: ComparedColumn, name: str, keys: Keys) -> Known:
    column = core.ColumnRef("", name)
    found = [core.Comparison(compared.operator, column, value) for value in keys.values]
    condition = found[0] if found else core.InList(column, ())
    return Known(expression_id(compared.column), condition, f"compared by {name}: with a subquery, which ran first")
