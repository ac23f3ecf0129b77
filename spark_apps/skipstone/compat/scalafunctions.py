"""Functions of Scala for what Spark's collections in the JVM are mapped by, made of methods in the JVM: Python's own
would be called back for every node.

A new version of Spark breaks in the test of ``catalyst``. Must not decide anything.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from skipstone.compat.catalyst import (
    InternalRow,
    LiteralSeq,
    LiteralSet,
    LogicalPlan,
    Rule,
    StructType,
    TreeNode,
    optimizer_rule,
)
from skipstone.compat.java import DESCRIBED, JavaObject, Jvm, class_named, object_named, type_named
from skipstone.compat.methods import Function, methods_of

_FUNCTION, _QUERY_PLAN = "scala.Function1", "org.apache.spark.sql.catalyst.plans.QueryPlan"
_BYTES, _TEXT = "[B", "java.lang.String"
_TREE_NODE, _PLAN, _SEQ, _ROW, _STRUCT = (
    DESCRIBED[kind] for kind in (TreeNode, LogicalPlan, LiteralSeq, InternalRow, StructType)
)


def most_leaves(jvm: Jvm, plan: LogicalPlan) -> int:
    """Leaves of the largest expression of a plan and of the plans inside its expressions."""
    functions, plans = _functions(jvm), cast(Any, plan.subqueriesAll())
    expressions = plans.prepended(plan).flatMap(functions.expressions_below)
    return 0 if expressions.isEmpty() else int(expressions.map(functions.leaves).max(functions.order))


@lru_cache(maxsize=len(Rule))
def rule_everywhere(jvm: Jvm, rule: Rule) -> JavaObject:
    """A rule as the partial function of plans that ``transformDownWithSubqueries`` takes."""
    return methods_of(jvm).partial_function(_functions(jvm).rule(rule))


@lru_cache(maxsize=16)
def rules_in_turn(jvm: Jvm, rules: tuple[Rule, ...]) -> Function:
    """Rules as one function of plans, which applies each to what the one before gives."""
    methods, functions = methods_of(jvm), _functions(jvm)
    return methods.function(methods.in_turn(*(functions.rule(rule) for rule in rules)))


def hex_texts(jvm: Jvm, values: LiteralSet) -> LiteralSeq:
    """Hexadecimal digits of each of a set of bytes."""
    return cast(LiteralSeq, cast(Any, values).toSeq().map(_functions(jvm).hex))


def row_texts(jvm: Jvm, values: LiteralSet | LiteralSeq, schema: StructType, separator: str) -> LiteralSeq:
    """The fields of each of some rows of Catalyst's, as one text."""
    return cast(LiteralSeq, cast(Any, values).toSeq().map(_functions(jvm).fields(schema, separator)))


@lru_cache(maxsize=1)
def _functions(jvm: Jvm) -> _Functions:
    return _Functions(jvm)


class _Functions:
    """Made once for a JVM."""

    def __init__(self, jvm: Jvm) -> None:
        self._jvm = jvm
        self._methods = made = methods_of(jvm)
        node, sequence, function = (type_named(jvm, name) for name in (_TREE_NODE, _SEQ, _FUNCTION))
        below = made.method(node, "flatMap", sequence, function)
        own = made.function(made.method(type_named(jvm, _QUERY_PLAN), "expressions", sequence))
        self.expressions_below = made.function(made.bound(below, own))
        leaves = made.method(node, "collectLeaves", sequence)
        size = made.method(sequence, "size", class_named(jvm, "java.lang.Integer").TYPE)
        self.leaves = made.function(made.in_turn(leaves, size))
        self.order = object_named(jvm, "scala.math.Ordering$Int")
        text, octets = type_named(jvm, _TEXT), type_named(jvm, _BYTES)
        digits = class_named(jvm, "java.util.HexFormat").of()
        self.hex = made.function(made.method(digits.getClass(), "formatHex", text, octets).bindTo(digits))

    def fields(self, schema: StructType, separator: str) -> JavaObject:
        """A function of a row of Catalyst's that gives the texts of its fields as one."""
        made = self._methods
        text, sequence, kind, row = (type_named(self._jvm, name) for name in (_TEXT, _SEQ, _STRUCT, _ROW))
        values = made.bound(made.method(row, "toSeq", sequence, kind), schema)
        return made.function(made.in_turn(values, made.bound(made.method(sequence, "mkString", text, text), separator)))

    def rule(self, name: Rule) -> Any:
        """A rule of Catalyst as a method of plans."""
        rule: Any = optimizer_rule(self._jvm, name)
        plan = type_named(self._jvm, _PLAN)
        return self._methods.method(rule.getClass(), "apply", plan, plan).bindTo(rule)
