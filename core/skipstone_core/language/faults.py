"""What is wrong with a text that the grammar does not take, and what to write instead.

Called by the parser. Whoever writes conditions brings habits of other languages: these are known by name.
"""

from __future__ import annotations

import re

from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

#: Quoted text, which may hold anything, or what other languages write.
_FOREIGN = re.compile(r"'(?:[^']|'')*'|`(?:[^`]|``)+`|(?P<sign>&&|;|!(?!=)|\"|\bcase\b|\bselect\b)", re.IGNORECASE)
_INSTEAD = {
    "&&": "write and instead",
    "!": "write not, or != between two values",
}
_ANYWHERE = {
    '"': "write texts in single quotes, names in backticks",
    "select": "queries cannot be written here, name columns of the source and the table",
    "case": "write one clause with a when for each case",
}
#: The field of the conditions of reads, whose columns have no side.
_FILTER = "filter"
_HINTS = {
    "start": "write a condition such as source.op = 'D' and target.n > 1",
    _FILTER: "write a condition such as op = 'D' and n > 1",
    "assigned": "write a source column (in backticks unless a plain word), a literal (texts in single quotes) or an "
    "expression such as coalesce(source.n, 0) + 1",
}


def unexpected(error: UnexpectedInput, text: str, start: str, field: str) -> str:
    """One sentence about ``text`` in ``field``, which the rule ``start`` does not take."""
    hint = _HINTS[_FILTER if field == _FILTER else start]
    for match in _FOREIGN.finditer(text):
        sign = match["sign"]
        if sign:
            instead = _ANYWHERE | (_INSTEAD if start == "start" else {})
            advice = instead.get(sign.lower(), hint)
            return f"at position {match.start('sign') + 1}: {sign!r} is not part of the language: {advice}"
    what = _met(error, text)
    clause = f"{what!r} is not expected here" if what else "the text ends too early"
    return f"at position {_position(error, text)}: {clause}: {_hint(what) or hint}"


def _hint(what: str) -> str:
    """Return advice for a word that does not fit; empty without any."""
    if what in ("'", "`"):
        return "close the quote"
    if what.lower() == "collate":
        return "texts are compared as UTF8_BINARY compares them, so leave it out"
    return ""


def _met(error: UnexpectedInput, text: str) -> str:
    """The first word or sign that does not fit; empty at the end."""
    match error:
        case UnexpectedToken() if error.token.type != "$END":
            return str(error.token)
        case UnexpectedCharacters():
            word = re.compile(r"\w+|.", re.DOTALL).match(text, int(error.pos_in_stream or 0))
            return word[0] if word else ""
        case _:
            return ""


def _position(error: UnexpectedInput, text: str) -> int:
    if isinstance(error, UnexpectedEOF) or (isinstance(error, UnexpectedToken) and error.token.type == "$END"):
        return len(text) + 1
    return int(error.pos_in_stream or 0) + 1
