"""Conditions of a statement as predicates of a MergeJob, with SQL's three values: true, false and unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from skipstone_cli.translating.literals import is_literal, text_literal
from skipstone_cli.translating.names import is_column
from skipstone_cli.translating.refusals import Untranslatable, only, quoted
from skipstone_cli.translating.values import Values

#: Operators, and the same with the sides exchanged.
_COMPARED: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
    exp.NullSafeEQ: ("<=>", "<=>"),
    exp.NEQ: ("!=", "!="),
    exp.LT: ("<", ">"),
    exp.LTE: ("<=", ">="),
    exp.GT: (">", "<"),
    exp.GTE: (">=", "<="),
}
_WRITE_OUT = "work it out when you write the source, as a column of its files"


@dataclass(frozen=True)
class Conditions:
    """Translates conditions of one part of a statement."""

    values: Values

    def text(self, node: exp.Expr) -> str:
        """The condition as a ``when``. Raises Untranslatable."""
        match node:
            case exp.Paren():
                return self.text(node.this)
            case exp.And() | exp.Or():
                return self._joined(node)
            case exp.Not():
                return self._negated(node)
            case exp.Is():
                return self._is(node)
            case _:
                return self._test(node)

    def _joined(self, node: exp.And | exp.Or) -> str:
        kind = type(node)
        word = " AND " if kind is exp.And else " OR "
        return word.join(self.within(part) for part in flattened(node, kind))

    def within(self, node: exp.Expr) -> str:
        """In parentheses if it is made of several."""
        text = self.text(node)
        return f"({text})" if isinstance(node.unnest(), exp.And | exp.Or) else text

    def _negated(self, node: exp.Not) -> str:
        inner = node.this.unnest()
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null) and not inner.args.get("negate"):
            return f"{self._operand(inner.this)} IS NOT NULL"
        return f"NOT ({self.text(inner)})"

    def _test(self, node: exp.Expr) -> str:
        match node:
            case _ if type(node) in _COMPARED:
                return self._comparison(node)
            case exp.NullSafeNEQ():
                return f"NOT ({self._operand(node.this)} <=> {self._operand(node.expression)})"
            case exp.Between():
                only(node, "this", "low", "high")
                low, high = self._operand(node.args["low"]), self._operand(node.args["high"])
                return f"{self._operand(node.this)} BETWEEN {low} AND {high}"
            case exp.In():
                return self._in(node)
            case exp.Like() | exp.StartsWith() | exp.EndsWith() | exp.Contains():
                return self._like(node)
            case _:
                return self._operand(node)

    def _comparison(self, node: exp.Expr) -> str:
        only(node, "this", "expression")
        there, back = _COMPARED[type(node)]
        left, right = node.this.unnest(), node.expression.unnest()
        if is_literal(left) and is_column(right):
            left, right, there = right, left, back
        return f"{self._operand(left)} {there} {self._operand(right)}"

    def _operand(self, node: exp.Expr) -> str:
        return self.values.text(node)

    def _is(self, node: exp.Is) -> str:
        only(node, "this", "expression", "negate")
        operand, negated = self._operand(node.this), bool(node.args.get("negate"))
        if isinstance(node.expression, exp.Null):
            return f"{operand} IS {'NOT ' if negated else ''}NULL"
        if isinstance(node.expression, exp.Boolean):
            text = f"{operand} <=> {self._operand(node.expression)}"
            return f"NOT ({text})" if negated else text
        raise Untranslatable(f"{quoted(node)} is not a test that a MergeJob has: write IS NULL or a comparison")

    def _in(self, node: exp.In) -> str:
        if node.args.get("query") is not None:
            raise Untranslatable(f"{quoted(node)} asks another table: {_WRITE_OUT}")
        only(node, "this", "expressions")
        return f"{self._operand(node.this)} IN ({', '.join(map(self._operand, node.expressions))})"

    def _like(self, node: exp.Expr) -> str:
        only(node, "this", "expression", "negate")
        text = node.expression.unnest()
        if not (isinstance(text, exp.Literal) and text.is_string) or "\\" in str(text.this):
            raise Untranslatable(
                f"{quoted(node)} has no plain text as its pattern: write a text without \\ there, or {_WRITE_OUT}"
            )
        plain = re.sub(r"[%_]", r"\\\g<0>", str(text.this))
        match node:
            case exp.StartsWith():
                pattern = f"{plain}%"
            case exp.EndsWith():
                pattern = f"%{plain}"
            case exp.Contains():
                pattern = f"%{plain}%"
            case _:
                pattern = str(text.this)
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        return f"{self._operand(node.this)} {word} {text_literal(pattern)}"


@dataclass(frozen=True)
class Condition:
    """A condition of a statement, and what translates it."""

    node: exp.Expr
    conditions: Conditions

    @property
    def text(self) -> str:
        """The condition as a ``when``. Raises Untranslatable."""
        return self.conditions.text(self.node)


def all_of(listed: Sequence[Condition]) -> str:
    """All of one or more conditions as a ``when``. Raises Untranslatable."""
    if len(listed) == 1:
        return listed[0].text
    return " AND ".join(condition.conditions.within(condition.node) for condition in listed)


def flattened(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The parts that ``kind``, AND or OR, joins; parentheses around them are left out."""
    pending = [node]
    while pending:
        bare = pending.pop().unnest()
        if isinstance(bare, kind):
            pending += [bare.args["expression"], bare.this]
        else:
            yield bare
