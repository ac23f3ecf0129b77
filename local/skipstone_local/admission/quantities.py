"""Amounts as Kubernetes writes them: 250m, 1.5, 512Mi, 1e3. Pure."""

from __future__ import annotations

import re
from decimal import Decimal

_PARTS = re.compile(r"([+-]?)([0-9]*)(\.[0-9]*)?([eEinumkKMGTP]*[-+]?[0-9]*)")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")
FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMERIC = "unable to parse numeric part of quantity"
SUFFIX = "unable to parse quantity's suffix"


def parse_quantity(text: str) -> Decimal:
    """Return the amount; raises ValueError with Kubernetes' sentence."""
    match = _PARTS.fullmatch(text)
    if not text or match is None:
        raise ValueError(FORMAT)
    sign, whole, fraction, suffix = match.groups(default="")
    number = Decimal(f"{sign}{whole or '0'}{fraction if len(fraction) > 1 else ''}")
    if suffix in _DECIMAL:
        return number.scaleb(_DECIMAL[suffix])
    if suffix in _BINARY:
        return number * Decimal(1 << _BINARY[suffix])
    exponent = _EXPONENT.fullmatch(suffix)
    if exponent is None or len(exponent[1]) > 4:
        raise ValueError(SUFFIX)
    return number.scaleb(int(exponent[1]))


def compare(left: str, right: str) -> int:
    """Return -1, 0 or 1; raises ValueError for a text that is not a quantity."""
    first, second = parse_quantity(left), parse_quantity(right)
    return (first > second) - (first < second)
