"""A plan with some of its relations replaced; everything else of it stays the same objects.

Used by ``session``. Must not know why or by what relations are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import cast

from skipstone.compat.catalyst import Expression, LogicalPlan, PlanExpression, Relation
from skipstone.compat.java import JavaObject, Jvm, Seq, is_some, items, java_array, scala_seq, some
from skipstone.query.plans.analysis.catalyst import Node, descend
from skipstone.query.plans.analysis.uses import RELATION, Inner, Scope, field_of, key_of

#: Gives the relation that replaces the one it gets, with its key.
Replace = Callable[[int, Relation], LogicalPlan]


def with_plans(jvm: Jvm, plan: LogicalPlan, found: Mapping[tuple[int, ...], LogicalPlan]) -> LogicalPlan:
    """``plan`` with what was ``found`` in place of the nodes at its paths; no path leads through another one."""
    if () in found:
        return found[()]
    if not found:
        return plan
    children = []
    for position, child in enumerate(items(plan.children())):
        below = {path[1:]: one for path, one in found.items() if path[0] == position}
        children.append(with_plans(jvm, child, below))
    return plan.withNewChildren(scala_seq(jvm, children))


class Rebuilder:
    """Rebuilds the plans of a query along the paths to the relations with ``keys``."""

    def __init__(self, jvm: Jvm, keys: AbstractSet[int], replace: Replace) -> None:
        self._jvm = jvm
        self._keys = keys
        self._replace = replace

    def plan(self, scope: Scope) -> LogicalPlan:
        """The plan of ``scope``, plans inside its expressions included."""
        return self._node(scope, scope.tree, scope.handle())

    def _touches(self, scope: Scope, node: Node) -> bool:
        below = set(node.walk())
        relations = any(self._is_replaced(one) for one in below)
        return relations or any(one.owner in below and self._touches(one.scope, one.scope.tree) for one in scope.inner)

    def _is_replaced(self, node: Node) -> bool:
        return node.name == RELATION and bool(node.fields["output"]) and key_of(node) in self._keys

    def _node(self, scope: Scope, node: Node, java: LogicalPlan) -> LogicalPlan:
        if self._is_replaced(node):
            return self._replace(key_of(node), cast(Relation, java))
        if not self._touches(scope, node):
            return java
        children = [
            self._node(scope, child, java.children().apply(position)) for position, child in enumerate(node.children)
        ]
        for inner in scope.inner:
            if inner.owner is node and self._touches(inner.scope, inner.scope.tree):
                java = self._with_inner(java, inner)
        return java.withNewChildren(scala_seq(self._jvm, children)) if children else java

    def _with_inner(self, java: LogicalPlan, inner: Inner) -> LogicalPlan:
        """``java`` with a new plan inside one of its expressions; other fields are taken over."""
        expression = field_of(java, inner.slot)
        holder = cast(PlanExpression, descend(expression, inner.expression.path))
        rebuilt = self._at(expression, inner.expression.path, holder.withNewPlan(self.plan(inner.scope)))
        fields = [java.productElement(position) for position in range(java.productArity())]
        position, at = inner.slot
        fields[position] = self._field(fields[position], at, rebuilt)
        return java.makeCopy(java_array(self._jvm, fields))

    def _at(self, expression: Expression, path: tuple[int, ...], found: Expression) -> Expression:
        """``expression`` with ``found`` where ``path`` leads."""
        if not path:
            return found
        children = list(items(expression.children()))
        children[path[0]] = self._at(children[path[0]], path[1:], found)
        return expression.withNewChildren(scala_seq(self._jvm, children))

    def _field(self, value: JavaObject, at: int | None, rebuilt: Expression) -> JavaObject:
        if at is not None:
            return cast(Seq[Expression], value).updated(at, rebuilt)
        return some(self._jvm, rebuilt) if is_some(value) else rebuilt
