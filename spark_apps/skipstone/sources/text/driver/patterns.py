"""Java's patterns of dates and times as regular expressions, as far as every reader means the same by them.

Called by ``casts``. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

#: Digits by the letters of a pattern, and the part of a moment that they are.
_PARTS = {
    "yyyy": ("y", r"\d{4}"),
    "MM": ("mo", r"\d\d"),
    "M": ("mo", r"\d{1,2}"),
    "dd": ("d", r"\d\d"),
    "d": ("d", r"\d{1,2}"),
    "HH": ("h", r"\d\d"),
    "H": ("h", r"\d{1,2}"),
    "mm": ("mi", r"\d\d"),
    "m": ("mi", r"\d{1,2}"),
    "ss": ("s", r"\d\d"),
    "s": ("s", r"\d{1,2}"),
} | {"S" * digits: ("f", rf"\d{{1,{digits}}}") for digits in range(1, 7)}
#: Parts of so many digits that the next part may follow at once.
_FIXED = frozenset(letters for letters, (_, digits) in _PARTS.items() if "," not in digits)
_DATE = frozenset({"y", "mo", "d"})
_CLOCK = frozenset({"h", "mi", "s", "f"})
_TOKEN = re.compile(r"([A-Za-z])\1*|'(?:[^']|'')*'|.", re.DOTALL)
#: Characters that mean something else than themselves, or could be a part of a number.
_RESERVED = frozenset("[]{}#'+0123456789")


@cache
def pattern_regex(pattern: str, *, is_date: bool) -> str | None:
    """``pattern`` as a regular expression with a group for each part; None for one that is left to Spark.

    ``is_date``: it must have no time of day. Groups: y, mo, d, h, mi, s, f.
    """
    tokens = [match[0] for match in _TOKEN.finditer(pattern)]
    parts = [_PARTS[token][0] for token in tokens if token in _PARTS]
    if not _DATE.issubset(parts) or len(set(parts)) < len(parts) or (is_date and _CLOCK.intersection(parts)):
        return None
    pieces = list(_pieces(tokens))
    return None if None in pieces else "^" + "".join(piece for piece in pieces if piece is not None) + r"\z"


def _pieces(tokens: list[str]) -> Iterator[str | None]:
    for token, following in zip(tokens, [*tokens[1:], ""], strict=True):
        if token in _PARTS:
            name, digits = _PARTS[token]
            is_apart = following not in _PARTS or (token in _FIXED and following in _FIXED)
            yield f"(?P<{name}>{digits})" if is_apart else None
        else:
            yield _literal(token)


def _literal(token: str) -> str | None:
    is_quoted = len(token) > 1 and token[0] == "'"
    text = token[1:-1] if is_quoted else token
    is_letter = not is_quoted and text[0].isascii() and text[0].isalpha()
    return None if not text or is_letter or _RESERVED.intersection(text) else re.escape(text)
