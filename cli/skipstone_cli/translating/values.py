"""What clauses write into columns: columns, literals and expressions with Spark's ANSI meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from skipstone_cli.translating.dialects import Dialect
from skipstone_cli.translating.literals import Zone, is_literal, literal_text
from skipstone_cli.translating.names import Scope, is_column
from skipstone_cli.translating.refusals import Untranslatable, only, quoted

_SUM, _PRODUCT, _UNARY, _ATOM = range(4)
_ARITHMETIC: Mapping[type[exp.Expr], tuple[str, int]] = {
    exp.Add: ("+", _SUM),
    exp.Sub: ("-", _SUM),
    exp.Mul: ("*", _PRODUCT),
    exp.Div: ("/", _PRODUCT),
    exp.Mod: ("%", _PRODUCT),
}
_TYPES: Mapping[exp.DType, str] = {
    exp.DType.BOOLEAN: "boolean",
    exp.DType.INT: "int",
    exp.DType.BIGINT: "long",
    exp.DType.FLOAT: "float",
    exp.DType.DOUBLE: "double",
    exp.DType.TEXT: "string",
    exp.DType.DATE: "date",
    exp.DType.TIMESTAMPTZ: "timestamptz",
    exp.DType.TIMESTAMPLTZ: "timestamptz",
    exp.DType.TIMESTAMPNTZ: "timestamp",
}
_ZONED = frozenset({"date", "timestamp", "timestamptz"})
_WRITE_OUT = "work it out when you write the source, as a column of its files"
_CLOCKS = (exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime)


@dataclass(frozen=True)
class Values:
    """Translates what one part of a statement assigns."""

    scope: Scope
    dialect: Dialect
    zone: Zone

    def text(self, node: exp.Expr) -> str:
        """A value within a condition or an expression. Raises Untranslatable."""
        return self._term(node)[0]

    def assigned(self, node: exp.Expr) -> str:
        """The value as an entry of ``set`` or ``values``. Raises Untranslatable."""
        bare = node.unnest()
        is_default = isinstance(bare, exp.Column | exp.Var) and bare.sql().upper() == "DEFAULT"
        return "default" if is_default else self.text(node)

    def _term(self, node: exp.Expr) -> tuple[str, int]:
        """The text of an expression, and how strongly it holds together."""
        bare = node.unnest()
        match bare:
            case exp.Null():
                return "null", _ATOM
            case exp.Column() | exp.Var() if bare.sql().upper() == "DEFAULT":
                raise Untranslatable("DEFAULT is a whole value: write it alone, as in SET a = DEFAULT")
            case _ if is_literal(bare):
                text = literal_text(bare, self.zone)
                return text, _UNARY if text.startswith("-") else _ATOM
            case _ if is_column(bare):
                return self.scope.find(bare).text, _ATOM
            case _ if type(bare) in _ARITHMETIC:
                return self._arithmetic(bare)
            case exp.DPipe():
                only(bare, "this", "expression", "safe")
                return self._binary("||", _SUM, bare)
            case exp.Neg():
                text, strength = self._term(bare.this)
                return f"-{text}" if strength == _ATOM else f"-({text})", _UNARY
            case _:
                return self._call(bare), _ATOM

    def _arithmetic(self, node: exp.Expr) -> tuple[str, int]:
        only(node, "this", "expression", "typed", "safe")
        sign, strength = _ARITHMETIC[type(node)]
        if sign not in self.dialect.operators:
            raise Untranslatable(
                f"{quoted(node)} gives other digits in {self.dialect.name} than in a MergeJob: {_WRITE_OUT}"
            )
        return self._binary(sign, strength, node)

    def _binary(self, sign: str, strength: int, node: exp.Expr) -> tuple[str, int]:
        (left, on_left), (right, on_right) = self._term(node.this), self._term(node.args["expression"])
        left = left if on_left >= strength else f"({left})"
        right = right if on_right > strength else f"({right})"
        return f"{left} {sign} {right}", strength

    def _call(self, node: exp.Expr) -> str:
        match node:
            case exp.Coalesce():
                only(node, "this", "expressions", "is_nvl", "is_null")
                return self._listed("coalesce", [node.this, *node.expressions])
            case exp.Concat() if not node.args.get("coalesce"):
                only(node, "expressions", "safe")
                return self._listed("concat", node.expressions)
            case exp.Round():
                if not self.dialect.rounds:
                    raise Untranslatable(f"{quoted(node)} follows rules of {self.dialect.name}: {_WRITE_OUT}")
                only(node, "this", "decimals")
                return self._listed("round", [node.this, node.args.get("decimals") or exp.Literal.number(0)])
            case exp.Cast():
                return self._cast(node)
            case _:
                raise _refused(node)

    def _listed(self, name: str, arguments: list[exp.Expr]) -> str:
        return f"{name}({', '.join(map(self.text, arguments))})"

    def _cast(self, node: exp.Cast) -> str:
        if node.args.get("safe"):
            raise Untranslatable(f"{quoted(node)} is null where the cast fails, and a MergeJob fails: {_WRITE_OUT}")
        only(node, "this", "to", "_type")
        if not self.dialect.casts:
            raise Untranslatable(f"{quoted(node)} follows rules of {self.dialect.name}: {_WRITE_OUT}")
        into = _type_name(node.to)
        if into in _ZONED:
            self.zone.require(node)
        return f"cast({self.text(node.this)} as {into})"


def _refused(node: exp.Expr) -> Untranslatable:
    """What is said of an expression that a MergeJob does not have."""
    match node:
        case exp.Case() | exp.If() | exp.Nullif() | exp.Nvl2():
            says = "chooses a part of a value or a condition: make it the whole value of a column, or write one WHEN "
            return Untranslatable(f"{quoted(node)} {says}clause with a condition for each case")
        case exp.Struct():
            fields = "makes a struct: name its fields, as in UPDATE SET t.address.city = s.city"
            return Untranslatable(f"{quoted(node)} {fields}, or {_WRITE_OUT}")
        case _ if isinstance(node, _CLOCKS):
            return Untranslatable(f"{quoted(node)} reads a clock, which a MergeJob does not have: {_WRITE_OUT}")
        case _:
            return Untranslatable(f"{quoted(node)} is not an expression that a MergeJob has: {_WRITE_OUT}")


def _type_name(kind: exp.DataType) -> str:
    """The name of a type in a MergeJob. Raises Untranslatable."""
    sizes = [str(expression.this) for expression in kind.expressions]
    if kind.this is exp.DType.DECIMAL and len(sizes) == 2:
        return f"decimal({','.join(sizes)})"
    if kind.this in _TYPES and not sizes:
        return _TYPES[kind.this]
    names = ", ".join(dict.fromkeys(_TYPES.values()))
    raise Untranslatable(f"a cast to {kind.sql()} is not one of a MergeJob: cast to {names} or decimal(p,s)")
