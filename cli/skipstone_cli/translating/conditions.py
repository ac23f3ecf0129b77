"""Conditions of a statement as predicates of a MergeJob, with SQL's three values: true, false and unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from skipstone_cli.translating.literals import Zone, is_literal, literal_text, text_literal
from skipstone_cli.translating.names import Scope, is_column
from skipstone_cli.translating.refusals import Untranslatable, only, quoted

#: Operators, and the same with the sides exchanged.
_COMPARED: Mapping[type[exp.Expr], tuple[str, str]] = {
    exp.EQ: ("=", "="),
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

    scope: Scope
    zone: Zone

    def text(self, node: exp.Expr) -> str:
        """The condition as a ``when``. Raises Untranslatable."""
        match node:
            case exp.Paren():
                return self.text(node.this)
            case exp.And() | exp.Or():
                return self._joined(node)
            case exp.Not():
                return self._negated(node)
            case exp.NullSafeEQ():
                return self._same(node)
            case exp.NullSafeNEQ():
                return f"NOT ({self._same(node)})"
            case exp.Is():
                return self._is(node)
            case _:
                return self._test(node)

    def conjunction(self, nodes: Sequence[exp.Expr]) -> str:
        """All of one or more conditions. Raises Untranslatable."""
        return self.text(nodes[0]) if len(nodes) == 1 else " AND ".join(map(self._within, nodes))

    def _joined(self, node: exp.And | exp.Or) -> str:
        kind = type(node)
        word = " AND " if kind is exp.And else " OR "
        return word.join(self._within(part) for part in flattened(node, kind))

    def _within(self, node: exp.Expr) -> str:
        """In parentheses if it is made of several."""
        text, bare = self.text(node), node.unnest()
        several = isinstance(bare, exp.And | exp.Or | exp.NullSafeEQ) or (" AND " in text and not _is_plain(bare))
        return f"({text})" if several else text

    def _negated(self, node: exp.Not) -> str:
        inner = node.this.unnest()
        if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null) and not inner.args.get("negate"):
            return f"{self._operand(inner.this)} IS NOT NULL"
        return f"NOT ({self.text(inner)})"

    def _test(self, node: exp.Expr) -> str:
        match node:
            case _ if type(node) in _COMPARED:
                return self._comparison(node)
            case exp.Between():
                only(node, "this", "low", "high")
                low, high = self._operand(node.args["low"]), self._operand(node.args["high"])
                return f"{self._column(node.this)} BETWEEN {low} AND {high}"
            case exp.In():
                return self._in(node)
            case exp.Like() | exp.StartsWith():
                return self._begins(node)
            case _ if is_column(node):
                return self.scope.find(node).text
            case exp.Func():
                raise Untranslatable(f"{quoted(node)} is a function, and conditions have none: {_WRITE_OUT}")
            case _:
                raise Untranslatable(f"{quoted(node)} is not a condition that a MergeJob has: {_WRITE_OUT}")

    def _comparison(self, node: exp.Expr) -> str:
        only(node, "this", "expression")
        there, back = _COMPARED[type(node)]
        left, right = node.this.unnest(), node.expression.unnest()
        if is_literal(left) and is_column(right):
            left, right, there = right, left, back
        return f"{self._column(left)} {there} {self._operand(right)}"

    def _column(self, node: exp.Expr) -> str:
        bare = node.unnest()
        if is_literal(bare):
            raise Untranslatable(f"{quoted(node)} is compared as a literal: name a column")
        return self._operand(bare)

    def _operand(self, node: exp.Expr) -> str:
        bare = node.unnest()
        if isinstance(bare, exp.Null):
            raise Untranslatable("a comparison with NULL is never true: write IS NULL or IS NOT NULL")
        if is_literal(bare):
            return literal_text(bare, self.zone)
        if is_column(bare):
            return self.scope.find(bare).text
        raise Untranslatable(f"{quoted(node)} is computed, and conditions compare columns and literals: {_WRITE_OUT}")

    def _same(self, node: exp.NullSafeEQ | exp.NullSafeNEQ) -> str:
        """Equal or both null; true or false, never unknown."""
        only(node, "this", "expression")
        left, right = node.this.unnest(), node.expression.unnest()
        if is_column(right) and not is_column(left):
            left, right = right, left
        first = self._column(left)
        if isinstance(right, exp.Null):
            return f"{first} IS NULL"
        second = self._operand(right)
        if is_literal(right):
            return f"{first} = {second} AND {first} IS NOT NULL"
        both = f"{first} IS NULL AND {second} IS NULL"
        return f"{first} = {second} AND {first} IS NOT NULL AND {second} IS NOT NULL OR {both}"

    def _is(self, node: exp.Is) -> str:
        only(node, "this", "expression", "negate")
        column, negated = self._column(node.this), bool(node.args.get("negate"))
        if isinstance(node.expression, exp.Null):
            return f"{column} IS {'NOT ' if negated else ''}NULL"
        if isinstance(node.expression, exp.Boolean):
            text = f"{column} = {literal_text(node.expression, self.zone)} AND {column} IS NOT NULL"
            return f"NOT ({text})" if negated else text
        raise Untranslatable(f"{quoted(node)} is not a test that a MergeJob has: write IS NULL or a comparison")

    def _in(self, node: exp.In) -> str:
        if node.args.get("query") is not None:
            raise Untranslatable(f"{quoted(node)} asks another table: {_WRITE_OUT}")
        only(node, "this", "expressions")
        values = [expression.unnest() for expression in node.expressions]
        if not all(map(is_literal, values)):
            raise Untranslatable(f"{quoted(node)} lists more than literals: write OR, and IS NULL for NULL")
        listed = ", ".join(literal_text(value, self.zone) for value in values)
        return f"{self._column(node.this)} IN ({listed})"

    def _begins(self, node: exp.Like | exp.StartsWith) -> str:
        only(node, "this", "expression", "negate")
        text = node.expression.unnest()
        pattern = str(text.this) if isinstance(text, exp.Literal) and text.is_string else ""
        begin = pattern if isinstance(node, exp.StartsWith) else pattern.removesuffix("%")
        whole = isinstance(node, exp.Like) and begin == pattern
        if not pattern or whole or set(begin) & set("%_\\"):
            raise Untranslatable(
                f"{quoted(node)} is not a plain beginning: use LIKE 'begin%', without other % or _, or {_WRITE_OUT}"
            )
        word = "NOT LIKE" if node.args.get("negate") else "LIKE"
        return f"{self._column(node.this)} {word} {text_literal(begin + '%')}"


def flattened(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The parts that ``kind``, AND or OR, joins; parentheses around them are left out."""
    pending = [node]
    while pending:
        bare = pending.pop().unnest()
        if isinstance(bare, kind):
            pending += [bare.args["expression"], bare.this]
        else:
            yield bare


def _is_plain(node: exp.Expr) -> bool:
    return isinstance(node, exp.Between | exp.Not) or type(node) in _COMPARED or isinstance(node, exp.In | exp.Like)
