"""A plan with some of its relations replaced; everything else of it stays the same objects.

Used by ``substitution`` and the rules. Must not know why or by what relations are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import cast

from skipstone.compat.catalyst import (
    PROJECT,
    REPARTITION,
    SUBQUERY_ALIAS,
    Expression,
    LogicalPlan,
    PlanExpression,
    Relation,
)
from skipstone.compat.java import Jvm, Seq, is_some, items, java_array, java_class, scala_object, scala_seq, some
from skipstone.query.plans.analysis.catalyst import Node, Slot, descend
from skipstone.query.plans.analysis.uses import RELATION, Inner, Scope, field_of, key_of

#: Gives the relation that replaces the one it gets, with its key.
Replace = Callable[[int, Relation], LogicalPlan]
_NO_SHUFFLE = False


def with_plans(plan: LogicalPlan, replacements: Mapping[tuple[int, ...], LogicalPlan]) -> LogicalPlan:
    """``plan`` with the ``replacements`` of the nodes at their paths; no path leads through another one."""
    if () in replacements:
        return replacements[()]
    if not replacements:
        return plan
    children = plan.children()
    for position in {path[0] for path in replacements}:
        below = {path[1:]: replacement for path, replacement in replacements.items() if path[0] == position}
        children = children.updated(position, with_plans(children.apply(position), below))
    return plan.withNewChildren(children)


def closed(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan`` whose columns are all that queries made from it can name, each as before.

    Spark lets a filter or a sort name columns that the query below it has read and not selected. It does not look for
    them below an alias, which its optimizer takes away.
    """
    alias = scala_object(jvm, SUBQUERY_ALIAS).apply("skipstone", plan)
    return scala_object(jvm, PROJECT).apply(plan.output(), alias)


def in_one_task(jvm: Jvm, plan: LogicalPlan) -> LogicalPlan:
    """``plan``, whose rows one task gets."""
    return cast(LogicalPlan, java_class(jvm, REPARTITION)(1, _NO_SHUFFLE, plan))


class Rebuilder:
    """Rebuilds the plans of a query along the paths to the relations with ``keys``.

    ``at_once``: nodes whose rows one task gets.
    """

    def __init__(
        self, jvm: Jvm, keys: AbstractSet[int], replace: Replace, at_once: AbstractSet[Node] = frozenset()
    ) -> None:
        self._jvm = jvm
        self._keys = keys
        self._replace = replace
        self._at_once = at_once

    def plan(self, scope: Scope) -> LogicalPlan:
        """The plan of ``scope``, plans inside its expressions included."""
        return self._node(scope, scope.tree, scope.handle())

    def _touches(self, scope: Scope, node: Node) -> bool:
        below = set(node.walk())
        relations = any(self._is_replaced(descendant) for descendant in below)
        return relations or any(
            inner.owner in below and self._touches(inner.scope, inner.scope.tree) for inner in scope.inner
        )

    def _is_replaced(self, node: Node) -> bool:
        return node.name == RELATION and bool(node.fields["output"]) and key_of(node) in self._keys

    def _node(self, scope: Scope, node: Node, java: LogicalPlan) -> LogicalPlan:
        rebuilt = self._rebuilt(scope, node, java)
        return in_one_task(self._jvm, rebuilt) if node in self._at_once else rebuilt

    def _rebuilt(self, scope: Scope, node: Node, java: LogicalPlan) -> LogicalPlan:
        if self._is_replaced(node):
            return self._replace(key_of(node), cast(Relation, java))
        if not self._touches(scope, node):
            return java
        touched = [position for position, child in enumerate(node.children) if self._touches(scope, child)]
        for inner in scope.inner:
            if inner.owner is node and self._touches(inner.scope, inner.scope.tree):
                java = with_inner(self._jvm, java, inner, self.plan(inner.scope))
        if not touched:
            return java
        children = java.children()
        for position in touched:
            rebuilt = self._node(scope, node.children[position], children.apply(position))
            children = children.updated(position, rebuilt)
        return java.withNewChildren(children)


def with_inner(jvm: Jvm, java: LogicalPlan, inner: Inner, plan: LogicalPlan) -> LogicalPlan:
    """``java``, the owner of ``inner``, with ``plan`` inside that expression of it; other fields are taken over."""
    expression = field_of(java, inner.slot)
    holder = cast(PlanExpression, descend(expression, inner.expression.path))
    rebuilt = with_operand(jvm, expression, inner.expression.path, holder.withNewPlan(plan))
    return with_expression(jvm, java, inner.slot, rebuilt)


def with_operand(jvm: Jvm, expression: Expression, path: tuple[int, ...], replacement: Expression) -> Expression:
    """``expression`` with ``replacement`` where ``path`` leads."""
    if not path:
        return replacement
    children = list(items(expression.children()))
    children[path[0]] = with_operand(jvm, children[path[0]], path[1:], replacement)
    return expression.withNewChildren(scala_seq(jvm, children))


def with_expression(jvm: Jvm, java: LogicalPlan, slot: Slot, replacement: Expression) -> LogicalPlan:
    """A node with another expression in one of its fields; other fields are taken over."""
    fields = [java.productElement(position) for position in range(java.productArity())]
    value = fields[slot.field]
    if slot.place is not None:
        fields[slot.field] = cast(Seq[Expression], value).updated(slot.place, replacement)
    else:
        fields[slot.field] = some(jvm, replacement) if is_some(value) else replacement
    return java.makeCopy(java_array(jvm, fields))
