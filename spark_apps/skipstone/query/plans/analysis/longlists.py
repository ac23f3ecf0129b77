"""Long lists in plans: kept out of a plan's JSON, and fetched as one text.

Used by ``uses``. Catalyst writes the JSON of a node in a time that grows with the square of its children, and a list of
literals is a node of as many children. Spark's own rules turn such lists into sets, of which the JSON shows nothing.
Must not touch the plan that is run.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import lru_cache

from skipstone.query.plans.analysis.catalyst import Java, java_class, java_type, scala_object, text_in_pieces
from skipstone.query.plans.analysis.relations import RelationRefused
from skipstone.query.plans.refusals import Refusal

#: Leaves of an expression above which its lists are made sets.
LONG = 100
#: Leaves of an expression that no rule makes smaller; its JSON takes about a second.
MAX_LEAVES = 4_000
#: Values of a list that are looked up.
MAX_VALUES = 50_000
_CATALYST = "org.apache.spark.sql.catalyst."
_RULES = ("optimizer.ConstantFolding", "optimizer.OptimizeIn")


def with_sets(jvm: Java, plan: Java) -> Java:
    """``plan`` with sets of literals in place of long lists, in the plans of its subqueries too.

    Nodes and expressions keep their places. Raises RelationRefused when an expression stays too large.
    """
    if _leaves(jvm, plan) <= LONG:
        return plan
    for rule in _RULES:
        plan = plan.transformDownWithSubqueries(_everywhere(jvm, rule))
    if _leaves(jvm, plan) > MAX_LEAVES:
        raise RelationRefused(Refusal.LIST_TOO_LONG, f"an expression has more than {MAX_LEAVES:,} terms")
    return plan


def members(jvm: Java, in_set: Java) -> Sequence[str] | None:
    """The values of a set of literals but null, as texts of what Catalyst holds; None when they are too many."""
    found = in_set.hset()
    if found.size() > MAX_VALUES:
        return None
    if found.contains(None):
        found = found.excl(None)
    if found.isEmpty():
        return ()
    # nobody can have written it into a value
    separator = secrets.token_hex(16)
    builder = java_class(jvm, "scala.collection.mutable.StringBuilder")()
    return text_in_pieces(found.addString(builder, separator).underlying()).split(separator)


def _leaves(jvm: Java, plan: Java) -> int:
    """Leaves of the largest expression of a plan and of the plans inside its expressions."""
    functions = _functions(jvm)
    expressions = plan.subqueriesAll().prepended(plan).flatMap(functions.expressions_below)
    return 0 if expressions.isEmpty() else int(expressions.map(functions.leaves).max(functions.order))


class _Functions:
    """Functions of Scala, made of methods in the JVM: Python's own would be called back for every node."""

    def __init__(self, jvm: Java) -> None:
        self._jvm = jvm
        self._lookup = java_class(jvm, "java.lang.invoke.MethodHandles")
        node, sequence = java_type(jvm, f"{_CATALYST}trees.TreeNode"), java_type(jvm, "scala.collection.immutable.Seq")
        function = java_type(jvm, "scala.Function1")
        below = self._method(node, "flatMap", sequence, function)
        own = self._function(self._method(java_type(jvm, f"{_CATALYST}plans.QueryPlan"), "expressions", sequence))
        arguments = self._jvm.java.util.ArrayList()
        arguments.add(own)
        self.expressions_below = self._function(self._lookup.insertArguments(below, 1, arguments.toArray()))
        leaves = self._method(node, "collectLeaves", sequence)
        size = self._method(sequence, "size", self._jvm.java.lang.Integer.TYPE)
        self.leaves = self._function(self._lookup.filterReturnValue(leaves, size))
        self.order = scala_object(jvm, "scala.math.Ordering$Int")

    def rule(self, name: str) -> Java:
        """A rule of Catalyst as a partial function of plans."""
        rule = scala_object(self._jvm, _CATALYST + name)
        plan = java_type(self._jvm, f"{_CATALYST}plans.logical.LogicalPlan")
        applied = self._method(rule.getClass(), "apply", plan, plan).bindTo(rule)
        return scala_object(self._jvm, "scala.PartialFunction").fromFunction(self._function(applied))

    def _method(self, owner: Java, name: str, result: Java, *arguments: Java) -> Java:
        kinds = self._jvm.java.util.ArrayList()
        for argument in arguments:
            kinds.add(argument)
        kind = java_class(self._jvm, "java.lang.invoke.MethodType").methodType(result, kinds)
        return self._lookup.publicLookup().findVirtual(owner, name, kind)

    def _function(self, handle: Java) -> Java:
        function = java_type(self._jvm, "scala.Function1")
        return java_class(self._jvm, "java.lang.invoke.MethodHandleProxies").asInterfaceInstance(function, handle)


@lru_cache(maxsize=1)
def _functions(jvm: Java) -> _Functions:
    return _Functions(jvm)


@lru_cache(maxsize=len(_RULES))
def _everywhere(jvm: Java, rule: str) -> Java:
    return _functions(jvm).rule(rule)
