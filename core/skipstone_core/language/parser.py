"""The grammar of predicates and expressions, and its parser.

Whoever takes either from a resource parses it here. The tree is built while parsing, so nesting costs no recursion.
Must not know types or values of columns: predicates.check_types and expressions.check_expression do.
"""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

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
from skipstone_core.language.faults import NULL_HINT, unexpected
from skipstone_core.language.paths import join_path
from skipstone_core.language.predicates import (
    SIDES,
    And,
    ColumnRef,
    Comparison,
    Constant,
    InList,
    IsNull,
    Node,
    Not,
    Operand,
    Or,
    Predicate,
    StartsWith,
    UnsupportedPredicate,
    children,
    refuse,
)

MAX_BYTES = 4096
MAX_DEPTH = 32
#: Characters of a number that a sentence shows.
_SHOWN = 20

GRAMMAR = r"""
start: disjunction
?disjunction: conjunction (_OR conjunction)*
?conjunction: negation (_AND negation)*
?negation: _NOT negation -> negated
    | test
?test: operand -> truth
    | operand OPERATOR operand -> comparison
    | operand _IN "(" literal ("," literal)* ")" -> in_list
    | operand _NOT _IN "(" literal ("," literal)* ")" -> not_in_list
    | operand _BETWEEN operand _AND operand -> between
    | operand _NOT _BETWEEN operand _AND operand -> not_between
    | operand _IS _NULL -> is_null
    | operand _IS _NOT _NULL -> is_not_null
    | operand _IS _NAN -> is_nan
    | operand _IS _NOT _NAN -> is_not_nan
    | operand _LIKE STRING -> like
    | operand _NOT _LIKE STRING -> not_like
    | "(" disjunction ")"
?operand: column | literal
assigned: sum
?sum: product
    | sum (PLUS | MINUS) product -> arithmetic
    | sum _CONCAT product -> joined
?product: unary
    | product (TIMES | DIVIDED | MODULO) unary -> arithmetic
?unary: MINUS unary -> negative
    | atom
?atom: operand -> leaf
    | _NULL -> nothing
    | NAME "(" sum ("," sum)* ")" -> call
    | NAME "(" sum _AS type ")" -> cast
    | "(" sum ")"
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
OPERATOR: "<=" | ">=" | "!=" | "<>" | "=" | "<" | ">"
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
    return Predicate(root, text)


def parse_assigned(text: str, *, field: str = "") -> ColumnRef | Constant | Term | None:
    """Parse what is assigned: a column, a literal, None for ``null``, else an expression. Raises BadSpec."""
    _check_nesting(text, field)
    term = cast(Term, _understood(text, "assigned", field))
    if isinstance(term, Atom):  # a literal may be long
        return term.operand
    if len(text.encode()) > MAX_BYTES:
        refuse(field, f"an expression has at most {MAX_BYTES} bytes")
    if sum(1 for _ in walk(term)) > MAX_PARTS:
        refuse(field, f"an expression has at most {MAX_PARTS} columns, literals, operators and calls")
    return term


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
    """Builds nodes bottom-up while parsing, so that nesting costs no recursion."""

    def start(self, items: list[Any]) -> Node:
        return items[0]  # type: ignore[no-any-return]

    def assigned(self, items: list[Any]) -> Term:
        return items[0]  # type: ignore[no-any-return]

    def leaf(self, items: list[Any]) -> Term:
        value = items[0].value if isinstance(items[0], Constant) else None
        if isinstance(value, float) and not math.isfinite(value):
            raise UnsupportedPredicate("a number is out of the range of double: write a smaller one")
        return Atom(items[0])

    def nothing(self, _: list[Any]) -> Term:
        return Atom(None)

    def arithmetic(self, items: list[Any]) -> Term:
        left, op, right = items
        return Arithmetic(str(op), left, right)  # type: ignore[arg-type]

    def joined(self, items: list[Any]) -> Term:
        return Call("concat", tuple(items))

    def negative(self, items: list[Any]) -> Term:
        inner = items[1]
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
        return Call(name, tuple(items[1:]))

    def cast(self, items: list[Any]) -> Term:
        if str(items[0]).lower() != "cast":
            raise UnsupportedPredicate(f"at position {_at(items[0])}: only cast takes as: write cast(x as long)")
        return Cast(items[1], items[2])

    def type(self, items: list[Any]) -> str:
        name, *numbers = map(str, items)
        return name.lower() + (f"({','.join(numbers)})" if numbers else "")

    def disjunction(self, items: list[Any]) -> Node:
        return Or(tuple(items))

    def conjunction(self, items: list[Any]) -> Node:
        return And(tuple(items))

    def negated(self, items: list[Any]) -> Node:
        return Not(items[0])

    def truth(self, items: list[Any]) -> Node:
        return Comparison("=", items[0], Constant(value=True))

    def comparison(self, items: list[Any]) -> Node:
        op = "!=" if items[1] == "<>" else str(items[1])
        return Comparison(op, items[0], items[2])  # type: ignore[arg-type]

    def in_list(self, items: list[Any]) -> Node:
        return InList(items[0], tuple(items[1:]))

    def not_in_list(self, items: list[Any]) -> Node:
        return Not(self.in_list(items))

    def between(self, items: list[Any]) -> Node:
        operand, low, high = items
        return And((Comparison(">=", operand, low), Comparison("<=", operand, high)))

    def not_between(self, items: list[Any]) -> Node:
        return Not(self.between(items))

    def is_null(self, items: list[Any]) -> Node:
        return IsNull(items[0])

    def is_not_null(self, items: list[Any]) -> Node:
        return Not(IsNull(items[0]))

    def is_nan(self, items: list[Any]) -> Node:
        return And((Not(IsNull(items[0])), Comparison("=", items[0], Constant(math.nan))))

    def is_not_nan(self, items: list[Any]) -> Node:
        return Not(self.is_nan(items))

    def like(self, items: list[Any]) -> Node:
        return StartsWith(items[0], _prefix(items[1]))

    def not_like(self, items: list[Any]) -> Node:
        return Not(self.like(items))

    def column(self, items: list[Any]) -> Operand:
        if len(items) == 1 and str(items[0]).lower() == "null":
            raise UnsupportedPredicate(f"at position {_at(items[0])}: {NULL_HINT}")
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


def _prefix(token: Token) -> str:
    pattern, prefix = _unquoted(token), ""
    position = _at(token)
    chars = iter(pattern[:-1])
    for char in chars:
        if char in "%_":
            raise UnsupportedPredicate(
                f"at position {position}: like takes a plain prefix followed by one %, as in 'abc%'"
            )
        prefix += next(chars, "\\") if char == "\\" else char
    if not pattern.endswith("%") or pattern.endswith("\\%"):
        raise UnsupportedPredicate(f"at position {position}: like takes a prefix followed by %, as in 'abc%'")
    return prefix


def _depth(root: Node) -> int:
    deepest, pending = 0, [(root, 1)]
    while pending:
        node, depth = pending.pop()
        deepest = max(deepest, depth)
        pending.extend((child, depth + 1) for child in children(node))
    return deepest
