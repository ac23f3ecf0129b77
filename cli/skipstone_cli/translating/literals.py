"""Literals of a statement as the grammar of a MergeJob writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

from skipstone_cli.translating.refusals import Untranslatable, quoted

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(?:\.(\d{1,6}))?)?(Z|[+-]\d\d:\d\d)?")
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)(e[-+]?\d+)?", re.IGNORECASE)
_MOMENTS = frozenset({exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ})
_TEMPORAL = _MOMENTS | {exp.DType.DATE}
#: Whole numbers of fewer digits are of 64 bits.
_LONG_DIGITS = 19


@dataclass(frozen=True)
class Zone:
    """The time zone of the session that the statement was written for; empty if nobody said."""

    name: str = ""

    def require(self, node: exp.Expr) -> None:
        """Raise Untranslatable if a part that depends on the zone cannot be placed."""
        if not self.name:
            raise Untranslatable(
                f"{quoted(node)} depends on the time zone of the session: name that zone with --time-zone"
            )


def is_literal(node: exp.Expr) -> bool:
    """Return whether an expression is a literal, but for NULL."""
    inner = node.this if isinstance(node, exp.Neg) else node
    if isinstance(inner, exp.Cast):
        return (_is_text(inner.this) and inner.to.this in _TEMPORAL) or _is_suffixed(inner)
    return isinstance(inner, exp.Literal | exp.Boolean)


def literal_text(node: exp.Expr, zone: Zone) -> str:
    """A literal in the grammar of conditions and expressions. Raises Untranslatable."""
    match node:
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Neg(this=exp.Literal(is_string=False) | exp.Cast() as inner):
            return f"-{_number(inner)}"
        case exp.Literal() if node.is_string:
            return text_literal(str(node.this))
        case exp.Cast() if node.to.this in _TEMPORAL:
            return _moment(node, zone)
        case _:
            return _number(node)


def text_literal(text: str) -> str:
    """A text in single quotes."""
    return "'" + text.replace("'", "''") + "'"


def _is_text(node: object) -> bool:
    return isinstance(node, exp.Literal) and bool(node.is_string)


def _number(node: exp.Expr) -> str:
    """A number as it is written, with the suffix that dialects turn into a cast left out."""
    literal = node.this if isinstance(node, exp.Cast) and _is_suffixed(node) else node
    if not isinstance(literal, exp.Literal) or not _NUMBER.fullmatch(str(literal.this)):
        raise Untranslatable(f"{quoted(node)} is not a number that a MergeJob has: write its digits")
    return str(literal.this)


def _is_suffixed(node: exp.Cast) -> bool:
    """Return whether a cast leaves its number as it is, as those do that suffixes stand for (``10L``, ``1.5BD``)."""
    match = _NUMBER.fullmatch(str(node.this.this)) if isinstance(node.this, exp.Literal) else None
    if match is None or match[3]:
        return False
    whole, _, fraction = match[0].partition(".")
    if node.to.this is exp.DType.BIGINT:
        return "." not in match[0] and len(whole) < _LONG_DIGITS
    sizes = [int(str(size.this)) for size in node.to.expressions]
    is_decimal = node.to.this is exp.DType.DECIMAL and len(sizes) == 2
    return is_decimal and len(fraction) <= sizes[1] and len(whole.lstrip("0")) <= sizes[0] - sizes[1]


def _moment(node: exp.Cast, zone: Zone) -> str:
    """``date '…'`` and ``timestamp '…'``; dialects write both as casts of a text."""
    text, kind = str(node.this.this), node.to.this
    zone.require(node)
    if kind is exp.DType.DATE and _DAY.fullmatch(text):
        return f"date '{text}'"
    match = _MOMENT.fullmatch(text)
    # A cast without digits is one to milliseconds in Trino.
    is_cut = kind is exp.DType.TIMESTAMP and not node.to.expressions and match and len(match[2] or "") > 3
    if kind is exp.DType.TIMESTAMPNTZ and match and match[3]:
        # Spark leaves the offset out, and a MergeJob goes by it.
        raise Untranslatable(f"{quoted(node)} is a time of no zone: write it without an offset")
    if kind in _MOMENTS and match and not is_cut:
        return f"timestamp '{text}'"
    raise Untranslatable(
        f"{quoted(node)} is not a literal that a MergeJob has: write DATE '2024-12-31' or "
        "TIMESTAMP '2024-12-31 23:59:59'"
    )
