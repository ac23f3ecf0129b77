"""Values as Go prints them, since clients read the API server's sentences. Pure."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Any

_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_ESCAPES |= {'"': '\\"', "\\": "\\\\"}
_JSON_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
#: Whole floats below this are written without an exponent in JSON.
_PLAIN_BELOW = 1e21
#: Powers of ten from which on %v writes a float with an exponent.
_EXPONENT_FROM = 6
INT64 = range(-(2**63), 2**63)


def quote(text: str) -> str:
    """Return ``text`` as Go's %q does."""
    return '"' + "".join(_quoted(char) for char in text) + '"'


def _quoted(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def to_json(value: object) -> str:
    """Return ``value`` as Go's json.Marshal does: keys in order, no blanks, HTML escaped."""
    text = json.dumps(_plain(value), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return "".join(_JSON_ESCAPES.get(char, char) for char in text)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return whole(value) if isinstance(value, float) else value


def whole(number: float) -> int | float:
    """Return ``number`` as the int that JSON in Go makes of it: its shortest digits, then zeros; fractions stay."""
    is_plain = math.isfinite(number) and number.is_integer() and abs(number) < _PLAIN_BELOW
    return int(Decimal(repr(number))) if is_plain else number


def print_value(value: object) -> str:
    """Return a number or a Boolean as Go's %v does."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return print_float(value) if isinstance(value, float) else str(value)


def print_float(number: float) -> str:
    """Return ``number`` as Go's %v does: with an exponent from 1e+06 on and below 1e-04."""
    if not math.isfinite(number):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(number, "NaN")
    if not number:
        return "-0" if math.copysign(1, number) < 0 else "0"
    exact = Decimal(repr(number)).normalize()
    figures, power = "".join(map(str, exact.as_tuple().digits)), exact.adjusted()
    if -5 < power < _EXPONENT_FROM:
        return format(exact, "f")
    mantissa = f"{figures[0]}.{figures[1:]}".removesuffix(".")
    return f"{'-' if number < 0 else ''}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02d}"


def normalize(value: Any) -> Any:
    """Return JSON as the API server stores it: a whole float becomes an int, an int of over 64 bits a float."""
    if isinstance(value, dict):
        return {key: normalize(item) for key, item in value.items()}
    if isinstance(value, list):
        return [normalize(item) for item in value]
    if isinstance(value, float):
        return whole(value)
    return value
