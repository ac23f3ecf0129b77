"""Runs small sides of joins first, where their keys may narrow a relation with an index.

A rule of ``optimizer``. What a side gave stays in the query as rows, so nothing is run twice. A relation that keys
narrowed may make another side small, so this goes on until nothing more is gained. Must not open tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from skipstone_core.indexing.use import ReadCost, are_worth_their_keys, is_small_side
from skipstone_core.language import predicates as core

from skipstone.query.plans.analysis.catalyst import Node, expression_id
from skipstone.query.plans.analysis.uses import Key, is_relation, key_of
from skipstone.query.plans.cost import LISTED_ROWS, MOST_WASTED_PARTS, QueryCost, column_name
from skipstone.query.plans.joining.columns import JoinedColumn, KeySource, Path
from skipstone.query.plans.joining.form import EarlyRows, Known
from skipstone.query.plans.joining.nodes import conjuncts, output, used_ids
from skipstone.query.plans.rules.early_results import Keys, Partner, keys_of, run_part, with_early_results
from skipstone.query.plans.rules.narrow_relations import narrowed
from skipstone.query.plans.state import QueryState

#: Nodes that leave out rows by what they hold, and leaves that a user wrote into the query.
_SELECTIVE = frozenset({"GlobalLimit", "LocalLimit", "LocalRelation", "OneRowRelation", "Range"})
#: Nodes that give a row for each that they get, and joins that do when each row has a partner.
_ROW_BY_ROW = frozenset({"Project", "SubqueryAlias", "View"})
_KEEPING = frozenset({"Inner", "LeftOuter", "RightOuter", "FullOuter", "Cross"})
#: Conditions that are looked up as they are.
_PLAIN = frozenset(
    {"EqualTo", "GreaterThan", "GreaterThanOrEqual", "In", "InSet", "IsNotNull", "LessThan", "LessThanOrEqual"}
)


class JoinKeys:
    """Runs small sides of joins first, and narrows tables by their keys."""

    @staticmethod
    def apply(state: QueryState, cost: QueryCost) -> QueryState:
        """The state in which the rows of sides stand in their place, and their keys are known of relations."""
        if state.joins is None:
            return state
        before, is_narrowed = state.joins.done, True
        while is_narrowed:
            state, is_narrowed = _narrowed_any(state, cost)
        return with_early_results(state) if state.form.done is not before else state


def known_by_keys(state: QueryState, column: JoinedColumn, source: KeySource, kind: str) -> Known | None:
    """Return the condition on a relation by the keys of a part that ran; None if Python has no form of a key."""
    early = state.form.done[source.path]
    keys = keys_of(state.session, early.rows, state.form.expression(source.place), kind)
    if keys is None:
        return None
    return _known(column, column_name(state, key_of(column.relation), expression_id(column.column)), keys, early)


def _known(joined: JoinedColumn, name: str, keys: Keys, early: EarlyRows) -> Known:
    column = core.ColumnRef("", name)
    condition: core.Node = core.InList(column, keys.values)
    if joined.takes_null and keys.has_null:
        condition = core.Or((condition, core.IsNull(column)))
    text = f"joined by {name}: {len(keys.values)} keys of the other side, which ran first and gave {early.count} rows"
    return Known(expression_id(joined.column), condition, text)


# --- relations, as long as more is learned of one ---


def _narrowed_any(state: QueryState, cost: QueryCost) -> tuple[QueryState, bool]:
    """Return the state after one round, and whether any relation has new conditions; cheap ones are read first."""
    form = state.form
    targets = {key: cost.savings(state, key) for key in form.columns if not form.is_gone(key)}
    for key, savings in sorted(targets.items(), key=lambda target: target[1].weight):
        if not state.form.is_gone(key):
            search, before = _Search(cost, savings), state.form.known.get(key)
            state = search.learn(state, key)
            if state.form.known.get(key) is not before:
                return narrowed(state, key, tuple(state.form.known[key].values())), True
    return state, False


@dataclass(frozen=True)
class _Search:
    """Looks for parts of the query that are worth running for what their keys save: ``savings`` at most.

    ``pending``: the parts for which others are looked at already.
    """

    cost: QueryCost
    savings: ReadCost
    pending: frozenset[Path] = frozenset()

    def learn(self, state: QueryState, key: Key) -> QueryState:
        """The state in which all is known that joins say of a relation's rows."""
        for column in state.form.columns[key]:
            if column not in state.form.known.get(key, {}):
                state, fact = self._known_of(state, key, column)
                if fact is not None:
                    known = {**state.form.known.get(key, {}), column: fact}
                    state = replace(state, joins=state.form.with_known(key, known))
        return state

    def _known_of(self, state: QueryState, key: Key, column: JoinedColumn) -> tuple[QueryState, Known | None]:
        """Return the condition of a join on a relation, when its other side, or a part of that, is small."""
        kind = self.cost.kind(state, key, column.column)
        for source in column.sources if kind else ():
            is_list = self._is_list(state, source.path)
            state, early = self._early(state, source.path, column.relation.path, is_list=is_list)
            if early is not None:
                is_worth_it = are_worth_their_keys(early.count, self.savings, state.session.limits.cost)
                return state, known_by_keys(state, column, source, kind) if is_worth_it else None
        return state, None

    def _early(
        self, state: QueryState, path: Path, target: Path, *, is_list: bool = False
    ) -> tuple[QueryState, EarlyRows | None]:
        """A part of the plan, if it ran, or is small and leaves out rows (or ``is_list`` of keys) and runs now."""
        form = state.form
        if path in form.done:
            return state, form.done[path]
        if form.has_run(path) or path in form.refused | self.pending or not self._is_small(state, path):
            return state, None
        state, partners = replace(self, pending=self.pending | {path})._partners(state, path, target)
        if not partners and not is_list and not _is_selective(state, path):
            return state, None
        state = run_part(state, path, partners)
        return state, state.form.done.get(path)

    def _partners(self, state: QueryState, path: Path, target: Path) -> tuple[QueryState, tuple[Partner, ...]]:
        """Parts beside one that will leave out rows of it anyway: they run before it does."""
        given, partners = set(output(state.form.node(path)) or ()), list[Partner]()
        for column in _columns_of(state, path):
            is_beside = len(column.join) < len(path) and path[: len(column.join)] == column.join
            if is_beside and used_ids(state.form.expression_node(column.own)) <= given:
                state, partner = self._partner(state, column, target)
                partners += [Partner(partner, column.equality)] if partner is not None else []
        return state, tuple(partners)

    def _partner(self, state: QueryState, column: JoinedColumn, target: Path) -> tuple[QueryState, Path | None]:
        """The part whose keys a column has, if it ran, or is small and leaves out rows."""
        for source in column.sources:
            if target[: len(source.path)] != source.path:
                state, early = self._early(state, source.path, target)
                if early is not None:
                    return state, source.path
        return state, None

    # --- what is small ---

    def _is_small(self, state: QueryState, path: Path) -> bool:
        form = state.form
        if len(form.refused) >= MOST_WASTED_PARTS and any(True for _ in form.leaves(path)):
            return False
        cost, limits = self.cost.of_leaves(state, form.plan, form.leaves(path)), state.session.limits.cost
        is_small = is_small_side(cost, self.savings, limits)
        if not is_small and is_small_side(cost, self.savings, limits, gives_few=True):
            is_small = self._gives_few(state, path)
        return is_small and not self._is_large(state, path)

    def _gives_few(self, state: QueryState, path: Path) -> bool:
        """Return whether a part of the plan that reads one relation gives few rows, as a look at some of these says."""
        nodes = [*state.form.node(path).walk()]
        leaves = [node for node in nodes if not node.children]
        are_plain = all(node.name in _ROW_BY_ROW or node.name == "Filter" for node in nodes if node.children)
        may_look = state.session.limits.driver.rows > 0
        return may_look and are_plain and len(leaves) == 1 and self.cost.gives_few(state, leaves[0])

    def _is_large(self, state: QueryState, path: Path) -> bool:
        """Return whether the subtree has an oversized or refused leaf, and otherwise only whole tables."""
        nodes = [*state.form.node(path).walk()]
        large = [(node, _filters_above(nodes, node)) for node in nodes if self._are_more(state, nodes, node)]
        large += [(node, frozenset[Path]()) for node in nodes if node.path in state.form.refused]
        return any(
            all(self._keeps(state, node) for node in nodes if not _is_below(node, top) and node.path not in filters)
            for top, filters in large
        )

    def _are_more(self, state: QueryState, nodes: Sequence[Node], leaf: Node) -> bool:
        """Return whether a leaf has too many rows, after the conditions right above it."""
        above = [node for node in nodes if node.path in _filters_above(nodes, leaf)]
        parts = [part for node in above for expression in node.expressions.values() for part in conjuncts(expression)]
        conditions = sum(part.name != "IsNotNull" for part in parts)
        is_plain = not leaf.children and all(_is_plain(part) for part in parts)
        return is_plain and self.cost.are_more(state, leaf, state.session.join_rows, conditions)

    def _keeps(self, state: QueryState, node: Node) -> bool:
        """Return whether a node gives all rows that it gets, as far as one can tell: a join of whole tables may not."""
        if state.form.has_run(node.path):
            return False
        if is_relation(node):
            return self.cost.rows(state, [node]) > LISTED_ROWS
        if node.name == "Join":
            return str(node.fields["joinType"]) in _KEEPING
        return node.name in _ROW_BY_ROW or (node.name == "Filter" and not _filters(node))

    def _is_list(self, state: QueryState, path: Path) -> bool:
        """Return whether a part of the plan has so few rows that each may be a key that somebody listed."""
        return self.cost.rows(state, state.form.leaves(path)) <= LISTED_ROWS


def _columns_of(state: QueryState, path: Path) -> list[JoinedColumn]:
    """The columns by which the relations below a path are joined, but for those in parts that ran."""
    leaves = [leaf for leaf in state.form.leaves(path) if is_relation(leaf)]
    return [column for leaf in leaves for column in state.form.columns.get(key_of(leaf), ())]


def _is_selective(state: QueryState, path: Path) -> bool:
    """Return whether a part of the plan leaves out rows."""
    nodes = state.form.node(path).walk()
    return any(node.name in _SELECTIVE or state.form.has_run(node.path) or _filters(node) for node in nodes)


def _is_below(node: Node, top: Node) -> bool:
    return node.path[: len(top.path)] == top.path


def _filters_above(nodes: Sequence[Node], leaf: Node) -> frozenset[Path]:
    """The filters above a leaf, up to the first node that neither is one nor gives its rows as they are."""
    at = {node.path: node for node in nodes}
    above = [at[leaf.path[:length]] for length in range(len(leaf.path) - 1, -1, -1) if leaf.path[:length] in at]
    row_by_row = takewhile(lambda node: node.name == "Filter" or node.name in _ROW_BY_ROW, above)
    return frozenset(node.path for node in row_by_row if node.name == "Filter")


def _is_plain(condition: Node) -> bool:
    """Return whether a condition compares a column with literals."""
    operands = condition.children
    return condition.name in _PLAIN and all(operand.name in {"AttributeReference", "Literal"} for operand in operands)


def _filters(node: Node) -> bool:
    """Return whether a node leaves out more rows than those with nulls."""
    if node.name != "Filter":
        return False
    return any(part.name != "IsNotNull" for condition in node.expressions.values() for part in conjuncts(condition))
