"""Which relations a query reads, how, and what must hold for every row that it takes from each.

Used by ``opening`` and the rules. A relation may be used several times, also by plans inside expressions; what holds
for all of its rows is the OR of its uses. Must not open tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

from skipstone.compat.catalyst import (
    BinaryLiteral,
    Expression,
    InSet,
    Literal,
    LogicalPlan,
    PlanExpression,
    RowLiteral,
)
from skipstone.compat.java import Jvm, Option, Seq, is_some
from skipstone.query.plans.analysis.catalyst import (
    Node,
    Slot,
    column_ids,
    descend,
    expression_id,
    is_tree,
    output_ids,
    plan_tree,
    read_tree,
)
from skipstone.query.plans.analysis.literals import NOTHING_HIDDEN, Hidden
from skipstone.query.plans.analysis.longlists import fields, members, rows, with_sets
from skipstone.query.plans.analysis.normalize import has_lateral, normalized, with_known_sides
from skipstone.query.plans.refusals import Refusal

RELATION = "DataSourceV2Relation"
#: Key of a relation: the id of its first column, which all copies of one relation share and no other has.
Key = int
#: Gives a plan in the JVM.
Handle = Callable[[], LogicalPlan]

_LIMITS = frozenset({"GlobalLimit", "LocalLimit", "Offset", "Tail"})
#: Numbers all rows below it, as the index that pandas on Spark gives a frame.
_NUMBERED = "AttachDistributedSequence"


@dataclass(frozen=True, eq=False)
class Inner:
    """A plan inside an expression: of which node, in which field of it, and where in the expression."""

    owner: Node
    slot: Slot
    expression: Node
    scope: Scope


@dataclass(frozen=True, eq=False)
class Scope:
    """A plan with the plans inside its expressions. ``handle`` gives the plan in the JVM."""

    handle: Handle
    tree: Node
    inner: tuple[Inner, ...]

    @property
    def relations(self) -> tuple[Node, ...]:
        """Its own relations that have columns."""
        return tuple(node for node in self.tree.walk() if node.name == RELATION and node.fields["output"])

    def all(self) -> Iterator[Scope]:
        """This scope and those inside it."""
        yield self
        for inner in self.inner:
            yield from inner.scope.all()


@dataclass(frozen=True, eq=False)
class Use:
    """One use of a relation. ``condition``: holds for every row used; None when none is known.

    ``refusal``: why there is no other condition. ``hidden``: values in it that its JSON does not show.
    ``columns``: ids of the columns used; None: maybe all.
    """

    condition: Node | None
    refusal: Refusal
    hidden: Hidden
    columns: frozenset[int] | None = None


def is_relation(leaf: Node) -> bool:
    """Return whether a leaf is a table with columns."""
    return leaf.name == RELATION and bool(leaf.fields["output"])


def key_of(relation: Node) -> Key:
    """The key of a relation that has columns."""
    return output_ids(relation)[0]


def open_scope(jvm: Jvm, plan: LogicalPlan, *, may_change: Callable[[], bool] = lambda: False) -> Scope:
    """The scope of a whole query.

    ``may_change``: whether its plan in the JVM may have sets in place of long lists, as Spark's optimizer makes them;
    each rule that looks at a list takes a time that grows with it.
    """
    smaller = with_sets(jvm, plan)
    handle = smaller if smaller is not plan and may_change() else plan
    return _scope(lambda: handle, plan_tree(jvm, smaller))


def _scope(handle: Handle, tree: Node) -> Scope:
    return Scope(handle, tree, tuple(_inner(handle, tree)))


def _inner(handle: Handle, tree: Node) -> Iterator[Inner]:
    for owner in tree.walk():
        for slot, root in owner.expressions.items():
            for expression in root.walk():
                if is_tree(plan := expression.fields.get("plan", ())):
                    inside = _plan_handle(handle, owner, slot, expression)
                    yield Inner(owner, slot, expression, _scope(inside, read_tree(plan)))


def _plan_handle(handle: Handle, owner: Node, slot: Slot, expression: Node) -> Handle:
    @cache
    def inside() -> LogicalPlan:
        subquery = descend(field_of(descend(handle(), owner.path), slot), expression.path)
        return cast(PlanExpression, subquery).plan()

    return inside


def field_of(node: LogicalPlan, slot: Slot) -> Expression:
    """The expression in a field of a node in the JVM; an Option is opened."""
    value = node.productElement(slot.field)
    if slot.place is not None:
        return cast(Seq[Expression], value).apply(slot.place)
    return cast(Option[Expression], value).get() if is_some(value) else cast(Expression, value)


def uses_of(jvm: Jvm, query: Scope) -> dict[Key, list[Use]]:
    """Every use of every relation, by its key; a relation whose uses cannot be told apart has one without condition."""
    uses_by_key: dict[Key, list[Use]] = {}
    for scope in query.all():
        if scope.relations:
            for key, uses in _scope_uses(jvm, scope).items():
                uses_by_key.setdefault(key, []).extend(uses)
    return uses_by_key


def uses_of_normalized(jvm: Jvm, query: Scope, normal: Scope) -> dict[Key, list[Use]]:
    """As ``uses_of``, of a ``query`` that is normalized already. Where that copied a relation, by the query itself."""
    uses_by_key = _uses(jvm, normal.handle(), normal.tree)
    for inner in normal.inner:
        for key, uses in uses_of(jvm, inner.scope).items():
            uses_by_key.setdefault(key, []).extend(uses)
    counts = Counter(key_of(relation) for scope in query.all() for relation in scope.relations)
    if all(len(uses_by_key.get(key, ())) == count for key, count in counts.items()):
        return uses_by_key
    plain = uses_of(jvm, query)
    return {
        key: uses_by_key[key] if len(uses_by_key.get(key, ())) == counts[key] else uses for key, uses in plain.items()
    }


def _scope_uses(jvm: Jvm, scope: Scope) -> dict[Key, list[Use]]:
    plan = with_sets(jvm, normalized(jvm, with_known_sides(jvm, scope.handle(), scope.tree)))
    uses_by_key = _uses(jvm, plan, plan_tree(jvm, plan))
    if has_lateral(scope.tree):  # what its right side takes of the left one is not in the normalized plan
        uses_by_key = {key: [replace(use, columns=None) for use in uses] for key, uses in uses_by_key.items()}
    counts = Counter(key_of(relation) for relation in scope.relations)
    unknown = {key for key, count in counts.items() if len(uses_by_key.get(key, ())) != count}
    return uses_by_key | {key: [Use(None, Refusal.CONDITION, NOTHING_HIDDEN)] for key in unknown}


def _uses(jvm: Jvm, plan: LogicalPlan, tree: Node) -> dict[Key, list[Use]]:
    uses_by_key: dict[Key, list[Use]] = {}
    for relation in tree.walk():
        if relation.name == RELATION and relation.fields["output"]:
            uses_by_key.setdefault(key_of(relation), []).append(use_of(jvm, plan, tree, relation))
    return uses_by_key


def use_of(jvm: Jvm, plan: LogicalPlan, tree: Node, relation: Node) -> Use:
    """The use of ``relation``, which is in the normalized ``plan`` with that ``tree``."""
    above = ancestors(tree, relation)
    if not above or above[-1].name != "Filter":
        return Use(None, _why_no_condition(above, relation), NOTHING_HIDDEN, _columns(above, 1))
    (slot,) = above[-1].expressions
    condition = above[-1].expressions[slot]

    def java(node: Node) -> Expression:
        return descend(field_of(descend(plan, above[-1].path), slot), node.path)

    def in_set(node: Node) -> InSet:
        return cast(InSet, java(node))

    hidden = Hidden(
        micros=lambda literal: int(cast(Literal, java(literal)).value()),
        octets=lambda literal: bytes(cast(BinaryLiteral, java(literal)).value()),
        members=lambda node: members(jvm, in_set(node)),
        fields=lambda literal: fields(cast(RowLiteral, java(literal))),
        rows=lambda node: rows(jvm, in_set(node)),
    )
    return Use(condition, _why_no_condition(above[:-1], relation), hidden, _columns(above, 2))


def _columns(above: Sequence[Node], count: int) -> frozenset[int] | None:
    """Ids that a projection refers to, and a condition between it and a relation; None without projection."""
    if len(above) < count or above[-count].name != "Project":
        return None
    trees = [tree for node in above[-count:] for tree in node.expressions.values()]
    return frozenset(expression_id(node) for tree in trees for node in tree.walk() if node.name == "AttributeReference")


def names_any(scope: Scope, columns: frozenset[int]) -> bool:
    """Return whether an expression of a scope, or of those inside it, names one of the columns with these ids."""
    nodes = (node for nested in scope.all() for node in nested.tree.walk() if node.name != RELATION)
    return any(number in columns for node in nodes for number in column_ids(list(node.fields.values())))


def ancestors(tree: Node, node: Node) -> list[Node]:
    """The nodes above ``node``, the root first."""
    above = []
    at = tree
    for position in node.path:
        above.append(at)
        at = at.children[position]
    return above


def _why_no_condition(above: Sequence[Node], relation: Node) -> Refusal:
    """The first thing between the relation and the nearest condition above it that stops the condition."""
    filtered = [at for at, node in enumerate(above) if node.name == "Filter"]
    between = above[filtered[-1] + 1 :] if filtered else []
    for node in reversed(between):
        if node.name in _LIMITS:
            return Refusal.LIMITED
        if node.name == _NUMBERED:
            return Refusal.DEFAULT_INDEX
        if node.name == "Join" and _supplies_nulls(node, relation.path[len(node.path)]):
            return Refusal.OUTER_JOIN
    return Refusal.NO_CONDITION


def _supplies_nulls(join: Node, side: int) -> bool:
    kind = str(join.fields["joinType"])
    return "FullOuter" in kind or ("LeftOuter" in kind and side == 1) or ("RightOuter" in kind and side == 0)
