"""A plan with some of its relations replaced; everything else of it stays the same objects.

Used by ``session``. Must not know why or by what relations are replaced.
"""

from __future__ import annotations

from collections.abc import Callable

from skipstone.query.plans.analysis.catalyst import Java, Node, descend, java_class
from skipstone.query.plans.analysis.uses import RELATION, Inner, Scope, field_of, key_of

#: Gives the relation that replaces the one it gets, with its key.
Replace = Callable[[int, Java], Java]


class Rebuilder:
    """Rebuilds the plans of a query along the paths to the relations with ``keys``."""

    def __init__(self, jvm: Java, keys: frozenset[int], replace: Replace) -> None:
        self._jvm = jvm
        self._keys = keys
        self._replace = replace

    def plan(self, scope: Scope) -> Java:
        """The plan of ``scope``, plans inside its expressions included."""
        return self._node(scope, scope.tree, scope.handle())

    def _touches(self, scope: Scope, node: Node) -> bool:
        below = set(node.walk())
        relations = any(self._is_replaced(one) for one in below)
        return relations or any(one.owner in below and self._touches(one.scope, one.scope.tree) for one in scope.inner)

    def _is_replaced(self, node: Node) -> bool:
        return node.name == RELATION and bool(node.fields["output"]) and key_of(node) in self._keys

    def _node(self, scope: Scope, node: Node, java: Java) -> Java:
        if self._is_replaced(node):
            return self._replace(key_of(node), java)
        if not self._touches(scope, node):
            return java
        children = [
            self._node(scope, child, java.children().apply(position)) for position, child in enumerate(node.children)
        ]
        for inner in scope.inner:
            if inner.owner is node and self._touches(inner.scope, inner.scope.tree):
                java = self._with_inner(java, inner)
        return java.withNewChildren(self._sequence(children)) if children else java

    def _with_inner(self, java: Java, inner: Inner) -> Java:
        """``java`` with a new plan inside one of its expressions; other fields are taken over."""
        expression = field_of(java, inner.slot)
        found = descend(expression, inner.expression.path).withNewPlan(self.plan(inner.scope))
        rebuilt = self._at(expression, inner.expression.path, found)
        fields = [java.productElement(position) for position in range(java.productArity())]
        position, at = inner.slot
        fields[position] = self._field(fields[position], at, rebuilt)
        return java.makeCopy(self._array(fields))

    def _at(self, expression: Java, path: tuple[int, ...], found: Java) -> Java:
        """``expression`` with ``found`` where ``path`` leads."""
        if not path:
            return found
        children = [expression.children().apply(number) for number in range(expression.children().size())]
        children[path[0]] = self._at(children[path[0]], path[1:], found)
        return expression.withNewChildren(self._sequence(children))

    def _field(self, value: Java, at: int | None, rebuilt: Java) -> Java:
        if at is not None:
            return value.updated(at, rebuilt)
        is_option = value.getClass().getName() == "scala.Some"
        return java_class(self._jvm, "scala.Some")(rebuilt) if is_option else rebuilt

    def _sequence(self, values: list[Java]) -> Java:
        return self._jvm.PythonUtils.toSeq(values).toIndexedSeq()

    def _array(self, values: list[Java]) -> Java:
        array = java_class(self._jvm, "java.util.ArrayList")()
        for value in values:
            array.add(value)
        return array.toArray()
