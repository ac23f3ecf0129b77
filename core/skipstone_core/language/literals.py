"""Literals of resources on their way into columns: which value a column would hold, or why it cannot.

Called where clauses assign literals. Pure values; must not know predicates or files.
"""

from __future__ import annotations

import re
import struct
from datetime import date, datetime, time, tzinfo
from decimal import Context, Decimal, InvalidOperation

from skipstone_core.keys import KeyFamily, key_type

Literal = bool | int | float | Decimal | str | date | datetime | bytes
_INTEGERS = {"int": 31, "long": 63}
_EXACT = Context(prec=80)
_DECIMAL = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)")


class Unfit(Exception):
    """Why a literal does not fit, in a few words."""


#: Families whose literals have no quotes.
_WITHOUT_QUOTES = frozenset({KeyFamily.BOOLEAN, KeyFamily.INTEGER, KeyFamily.DECIMAL, KeyFamily.FLOAT})


def fit_literal(value: Literal, type_name: str, zone: tzinfo) -> Literal:
    """``value`` as a column of the Iceberg type ``type_name`` holds it; ``zone`` places times without offset.

    Raises Unfit. Nothing is rounded (but to the nearest float) or cut.
    """
    kind = key_type(type_name)
    match kind.family if kind else None:
        case KeyFamily.BOOLEAN if isinstance(value, bool):
            return value
        case KeyFamily.STRING if isinstance(value, str):
            return value
        case KeyFamily.INTEGER | KeyFamily.DECIMAL | KeyFamily.FLOAT if _is_number(value):
            return _number(value, type_name)
        case KeyFamily.DATE if isinstance(value, date) and not isinstance(value, datetime):
            return value
        case KeyFamily.TIMESTAMP | KeyFamily.TIMESTAMPTZ if isinstance(value, date):
            return _moment(value, zone if kind and kind.family is KeyFamily.TIMESTAMPTZ else None)
        case None | KeyFamily.BINARY | KeyFamily.TIME:
            raise Unfit("only null can be written there as a literal")
        case _:
            raise Unfit(f"it is of another type; {_other_type(value, kind.family if kind else None)}")


def _other_type(value: Literal, into: KeyFamily | None) -> str:
    """The way out for a literal of another type: most are numbers in quotes, or texts without."""
    if isinstance(value, str):
        return "write it without quotes" if into in _WITHOUT_QUOTES else "write it as a literal of that type"
    return "write it in single quotes" if into is KeyFamily.STRING else "write it as a literal of that type"


def _is_number(value: Literal) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _number(value: Literal, type_name: str) -> Literal:
    name = type_name.strip().lower()
    if name in _INTEGERS:
        return _integer(value, _INTEGERS[name])
    if match := _DECIMAL.fullmatch(name):
        return _decimal(value, int(match[1]), int(match[2]))
    return _float(value, name)


def _integer(value: Literal, bits: int) -> int:
    if not isinstance(value, int):
        raise Unfit("it is not a whole number")
    if not -(1 << bits) <= value < 1 << bits:
        raise Unfit("it is out of range")
    return value


def _decimal(value: Literal, precision: int, scale: int) -> Decimal:
    if isinstance(value, float):
        raise Unfit("it is written with an exponent: write all its digits")
    exact = Decimal(str(value))
    step = Decimal(1).scaleb(-scale)
    try:
        placed = exact.quantize(step, context=_EXACT)
    except InvalidOperation:
        raise Unfit("it has too many digits") from None
    if placed != exact:
        raise Unfit(f"it has more than {scale} digits after the point")
    if len(placed.as_tuple().digits) > precision:
        raise Unfit("it has too many digits")
    return placed


def _float(value: Literal, name: str) -> float:
    """The nearest float, as SQL has it: decimal digits are rarely binary ones."""
    form = "<d" if name == "double" else "<f"
    try:
        (placed,) = struct.unpack(form, struct.pack(form, value))
    except (OverflowError, struct.error):
        raise Unfit("it is out of range") from None
    if abs(placed) == float("inf"):
        raise Unfit("it is out of range")
    return float(placed)


def _moment(value: date, zone: tzinfo | None) -> datetime:
    """A day is its first moment."""
    moment = value if isinstance(value, datetime) else datetime.combine(value, time())
    if zone is None:
        if moment.tzinfo is not None:
            raise Unfit("it has an offset and the column has none")
        return moment
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)
