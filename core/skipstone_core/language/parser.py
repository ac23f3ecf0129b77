"""The grammar of predicates and expressions, and its parser.

Whoever takes either from a resource parses it here. The tree is built while parsing, so nesting costs no recursion.
Must not know types or values of columns: predicates.check_types and expressions.check_expression do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeAlias, cast

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput, VisitError

from skipstone_core.language.expressions import (
    FUNCTIONS,
    MAX_DIGITS,
    MAX_PARTS,
    Arithmetic,
    Atom,
    Call,
    Cast,
    Negative,
    Term,
    walk,
)
from skipstone_core.language.faults import unexpected
from skipstone_core.language.operands import DefaultValue
from skipstone_core.language.paths import join_path, split_path
from skipstone_core.language.predicates import (
    SIDES,
    And,
    ColumnRef,
    Comparison,
    Computed,
    Constant,
    InList,
    IsNull,
    Like,
    Node,
    Not,
    Operand,
    Or,
    Predicate,
    StartsWith,
    UnsupportedPredicate,
    Wildcard,
    children,
    operands_of,
    refuse,
)

MAX_BYTES = 4096
MAX_DEPTH = 32
#: Characters of a number that a sentence shows.
_SHOWN = 20

GRAMMAR = r"""
start: disjunction
assigned: sum
?disjunction: conjunction (_OR conjunction)*
?conjunction: negation (_AND negation)*
?negation: _NOT negation -> negated
    | test
?test: sum
    | sum OPERATOR sum -> comparison
    | sum _IN "(" sum ("," sum)* ")" -> in_list
    | sum _NOT _IN "(" sum ("," sum)* ")" -> not_in_list
    | sum _BETWEEN sum _AND sum -> between
    | sum _NOT _BETWEEN sum _AND sum -> not_between
    | sum _IS _NULL -> is_null
    | sum _IS _NOT _NULL -> is_not_null
    | sum _IS _NAN -> is_nan
    | sum _IS _NOT _NAN -> is_not_nan
    | sum _LIKE STRING -> like
    | sum _NOT _LIKE STRING -> not_like
?sum: product
    | sum (PLUS | MINUS) product -> arithmetic
    | sum _CONCAT product -> joined
?product: unary
    | product (TIMES | DIVIDED | MODULO) unary -> arithmetic
?unary: MINUS unary -> negative
    | atom
?atom: column -> leaf
    | literal -> leaf
    | _NULL -> nothing
    | NAME "(" sum ("," sum)* ")" -> call
    | NAME "(" sum _AS type ")" -> cast
    | "(" disjunction ")"
type: NAME ("(" NUMBER ("," NUMBER)* ")")?
column: _name ("." _name)*
_name: NAME | QUOTED
?literal: NUMBER -> number
    | STRING -> string
    | _DATE STRING -> date
    | _TIMESTAMP STRING -> timestamp
    | TRUE -> true
    | FALSE -> false

_OR: "or"i
_AND: "and"i
_NOT: "not"i
_IN: "in"i
_BETWEEN: "between"i
_IS: "is"i
_NULL: "null"i
_NAN: "nan"i
_LIKE: "like"i
_DATE: "date"i
_TIMESTAMP: "timestamp"i
TRUE: "true"i
FALSE: "false"i
_AS: "as"i
_CONCAT: "||"
PLUS: "+"
MINUS: "-"
TIMES: "*"
DIVIDED: "/"
MODULO: "%"
OPERATOR: "<=>" | "==" | "<=" | ">=" | "!=" | "<>" | "=" | "<" | ">"
NAME: /[a-z_][a-z0-9_]*/i
QUOTED: /`(?:[^`]|``)+`/
STRING: /'(?:[^']|'')*'/
NUMBER: /[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?/i
%ignore /[ \t\r\n]+/
"""


def parse_predicate(text: str, *, field: str = "") -> Predicate:
    """Parse ``text``. Raises BadSpec with the position and the reason."""
    if len(text.encode()) > MAX_BYTES:
        refuse(field, f"a predicate has at most {MAX_BYTES} bytes")
    _check_nesting(text, field)
    root = cast(Node, _understood(text, "start", field))
    if _depth(root) > MAX_DEPTH:
        refuse(field, f"conditions are nested more than {MAX_DEPTH} deep")
    for operand in operands_of(root):
        if isinstance(operand, Computed):
            _check_parts(operand.term, field)
    return Predicate(root, text)


Assigned: TypeAlias = ColumnRef | Constant | DefaultValue | Term | None


def parse_assigned(text: str, *, field: str = "") -> Assigned:
    """Parse what is assigned: a column, a literal, ``default``, None for ``null``, or an expression.

    Raises BadSpec.
    """
    if text.strip().lower() == "default":
        return DefaultValue()
    _check_nesting(text, field)
    term = cast(Term, _understood(text, "assigned", field))
    for part in walk(term):
        if _is_endless(part):
            refuse(field, "a number is out of the range of double: write a smaller one")
    if isinstance(term, Atom):  # a literal may be long
        return term.operand
    if len(text.encode()) > MAX_BYTES:
        refuse(field, f"an expression has at most {MAX_BYTES} bytes")
    _check_parts(term, field)
    return term


def _check_parts(term: Term, field: str) -> None:
    if sum(1 for _ in walk(term)) > MAX_PARTS:
        refuse(field, f"an expression has at most {MAX_PARTS} columns, literals, operators and calls")


def _is_endless(term: Term) -> bool:
    literal = term.operand.value if isinstance(term, Atom) and isinstance(term.operand, Constant) else None
    return isinstance(literal, float) and not math.isfinite(literal)


def rename_columns(text: str, rename: Callable[[ColumnRef], ColumnRef], *, is_assigned: bool = False) -> str:
    """``text``, a predicate or (``is_assigned``) what is assigned, with other columns in the places of its own.

    What does not parse stays as it is.
    """
    try:
        tree = _reader("assigned" if is_assigned else "start").parse(text)
    except UnexpectedInput:
        return text
    for column in sorted(tree.find_data("column"), key=lambda named: named.meta.start_pos, reverse=True):
        tokens = list(column.scan_values(lambda value: isinstance(value, Token)))
        first, *rest = map(_identifier, tokens)
        side = first.lower() if first.lower() in SIDES and rest else ""
        named = ColumnRef(side, join_path(rest if side else [first, *rest]))
        other = rename(named)
        if other != named or (side and first != side):
            parts = [f"`{part.replace('`', '``')}`" for part in split_path(other.name)]
            written = ".".join([*([other.side] if other.side else []), *parts])
            text = text[: column.meta.start_pos] + written + text[column.meta.end_pos :]
    return text


def _understood(text: str, start: str, field: str) -> object:
    """Return the tree of ``text`` by the rule ``start`` of the grammar. Raises BadSpec."""
    try:
        return _parser(start).parse(text)
    except UnexpectedInput as error:
        refuse(field, unexpected(error, text, start, field))
    except VisitError as error:
        if not isinstance(error.orig_exc, UnsupportedPredicate):
            raise
        refuse(field, str(error.orig_exc))
    except UnsupportedPredicate as error:
        refuse(field, str(error))


class _Builder(Transformer[Token, Node]):
    """Builds nodes bottom-up while parsing, so that nesting costs no recursion.

    Items are terms, or nodes where they stand in parentheses: both are checked where they meet.
    """

    def start(self, items: list[Any]) -> Node:
        return _node(items[0])

    def assigned(self, items: list[Any]) -> Term:
        return _term(items[0])

    def leaf(self, items: list[Any]) -> Term:
        return Atom(items[0])

    def nothing(self, _: list[Any]) -> Term:
        return Atom(None)

    def arithmetic(self, items: list[Any]) -> Term:
        left, op, right = items
        return Arithmetic(str(op), _term(left), _term(right))  # type: ignore[arg-type]

    def joined(self, items: list[Any]) -> Term:
        return Call("concat", tuple(map(_term, items)))

    def negative(self, items: list[Any]) -> Term:
        inner = _term(items[1])
        literal = inner.operand if isinstance(inner, Atom) else None
        value = literal.value if isinstance(literal, Constant) else None
        if isinstance(value, Decimal):
            return Atom(Constant(value.copy_negate()))  # a minus would round it to the digits of the context
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return Atom(Constant(-value)) if is_number else Negative(inner)  # type: ignore[operator]

    def call(self, items: list[Any]) -> Term:
        name = str(items[0]).lower()
        if name not in FUNCTIONS:
            known = ", ".join(FUNCTIONS)
            hint = "write cast(x as long)" if name == "cast" else f"use {known} or cast"
            raise UnsupportedPredicate(f"at position {_at(items[0])}: {items[0]}(…) is not known: {hint}")
        return Call(name, tuple(map(_term, items[1:])))

    def cast(self, items: list[Any]) -> Term:
        if str(items[0]).lower() != "cast":
            raise UnsupportedPredicate(f"at position {_at(items[0])}: only cast takes as: write cast(x as long)")
        return Cast(_term(items[1]), items[2])

    def type(self, items: list[Any]) -> str:
        name, *numbers = map(str, items)
        return name.lower() + (f"({','.join(numbers)})" if numbers else "")

    def disjunction(self, items: list[Any]) -> Node:
        return Or(tuple(map(_node, items)))

    def conjunction(self, items: list[Any]) -> Node:
        return And(tuple(map(_node, items)))

    def negated(self, items: list[Any]) -> Node:
        return Not(_node(items[0]))

    def comparison(self, items: list[Any]) -> Node:
        left, right = _operand(items[0]), _operand(items[2])
        op = {"<>": "!=", "==": "="}.get(str(items[1]), str(items[1]))
        return _same(left, right) if op == "<=>" else Comparison(op, left, right)  # type: ignore[arg-type]

    def in_list(self, items: list[Any]) -> Node:
        operand, *listed = map(_operand, items)
        values = tuple(item for item in listed if isinstance(item, Constant))
        others = (Comparison("=", operand, item) for item in listed if not isinstance(item, Constant))
        parts: tuple[Node, ...] = (*([InList(operand, values)] if values else ()), *others)
        return Or(parts) if len(parts) > 1 else parts[0]

    def not_in_list(self, items: list[Any]) -> Node:
        return Not(self.in_list(items))

    def between(self, items: list[Any]) -> Node:
        operand, low, high = map(_operand, items)
        return And((Comparison(">=", operand, low), Comparison("<=", operand, high)))

    def not_between(self, items: list[Any]) -> Node:
        return Not(self.between(items))

    def is_null(self, items: list[Any]) -> Node:
        return IsNull(_operand(items[0]))

    def is_not_null(self, items: list[Any]) -> Node:
        return Not(self.is_null(items))

    def is_nan(self, items: list[Any]) -> Node:
        operand = _operand(items[0])
        return And((Not(IsNull(operand)), Comparison("=", operand, Constant(math.nan))))

    def is_not_nan(self, items: list[Any]) -> Node:
        return Not(self.is_nan(items))

    def like(self, items: list[Any]) -> Node:
        return _like(_operand(items[0]), items[1])

    def not_like(self, items: list[Any]) -> Node:
        return Not(self.like(items))

    def column(self, items: list[Any]) -> Operand:
        first, *rest = map(_identifier, items)
        is_sided = first in SIDES and rest
        return ColumnRef(first, join_path(rest)) if is_sided else ColumnRef("", join_path([first, *rest]))

    def number(self, items: list[Any]) -> Operand:
        text = str(items[0])
        if "e" in text.lower():
            return Constant(float(text))
        whole, _, fraction = text.partition(".")
        if max(len(whole.lstrip("-+0")), len(fraction.rstrip("0"))) > MAX_DIGITS:
            too_many = f"{text[:_SHOWN]}… has more than {MAX_DIGITS} digits before or after the point: write fewer"
            raise UnsupportedPredicate(f"at position {_at(items[0])}: {too_many}")
        return Constant(Decimal(text) if "." in text else int(text))

    def string(self, items: list[Any]) -> Operand:
        return Constant(_unquoted(items[0]))

    def date(self, items: list[Any]) -> Operand:
        return Constant(_parsed(date.fromisoformat, items[0], "date '2024-12-31'"))

    def timestamp(self, items: list[Any]) -> Operand:
        return Constant(_parsed(datetime.fromisoformat, items[0], "timestamp '2024-12-31 23:59:59'"))

    def true(self, _: list[Any]) -> Operand:
        return Constant(value=True)

    def false(self, _: list[Any]) -> Operand:
        return Constant(value=False)


@lru_cache(maxsize=2)
def _parser(start: str) -> Lark:
    return Lark(GRAMMAR, start=start, parser="lalr", transformer=_Builder(), maybe_placeholders=False)


@lru_cache(maxsize=2)
def _reader(start: str) -> Lark:
    return Lark(GRAMMAR, start=start, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _check_nesting(text: str, field: str) -> None:
    depth, quote = 0, ""
    for position, char in enumerate(text, start=1):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'`":
            quote = char
        elif char in "()":
            depth += 1 if char == "(" else -1
            if depth > MAX_DEPTH:
                refuse(field, f"at position {position}: parentheses are nested more than {MAX_DEPTH} deep")


def _at(token: Token) -> int:
    return (token.start_pos or 0) + 1


def _identifier(token: Token) -> str:
    text = str(token)
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def _unquoted(token: Token) -> str:
    return str(token)[1:-1].replace("''", "'")


def _parsed(read: Any, token: Token, example: str) -> Any:
    try:
        return read(_unquoted(token))
    except ValueError:
        raise UnsupportedPredicate(f"at position {_at(token)}: {token} is not like {example}") from None


def _node(item: Node | Term) -> Node:
    """A condition; a value stands for "it is true"."""
    if isinstance(item, Term):
        return Comparison("=", _operand(item), Constant(value=True))
    return item


def _term(item: Node | Term) -> Term:
    if isinstance(item, Term):
        return item
    raise UnsupportedPredicate("a condition is not a value: join conditions by and, or and not")


def _operand(item: Node | Term) -> Operand:
    term = _term(item)
    return term.operand if isinstance(term, Atom) and term.operand is not None else Computed(term)


def _same(left: Operand, right: Operand) -> Node:
    """Equal or both null; never null itself."""
    for null, other in ((left, right), (right, left)):
        if isinstance(null, Computed) and null.is_null:
            return IsNull(other)
    nulls = IsNull(left), IsNull(right)
    return Or((And((Comparison("=", left, right), *map(Not, nulls))), And(nulls)))


def _like(operand: Operand, token: Token) -> Node:
    """A pattern without wildcards is equality, and one with a single ``%`` at its end a prefix, which prunes."""
    pattern = _unquoted(token)
    parts: list[Wildcard | str] = []
    chars = iter(pattern)
    for char in chars:
        part = Wildcard(char) if char in "%_" else next(chars, "\\") if char == "\\" else char
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += part
        else:
            parts.append(part)
    begin = parts[0] if parts and isinstance(parts[0], str) else ""
    match parts[1:] if begin else parts:
        case []:
            return Comparison("=", operand, Constant(begin))
        case [Wildcard.ANY]:
            return StartsWith(operand, begin)
        case _ if begin:
            return And((StartsWith(operand, begin), Like(operand, tuple(parts))))
        case _:
            return Like(operand, tuple(parts))


def _depth(root: Node) -> int:
    deepest, pending = 0, [(root, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((child, depth + 1) for child in children(node))
    return deepest
