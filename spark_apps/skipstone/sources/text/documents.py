"""What files of Json may not hold, since Spark's parser would read it as other text or not survive it.

Used by ``lines`` for the lines of files, and by ``files`` for files that are one document.
"""

from __future__ import annotations

import re
from typing import TextIO

from skipstone.sources.text.headers import open_binary, open_text, unreadable
from skipstone.sources.text.options import TextOptions
from skipstone.storage.port import READ_AHEAD, StoredFile

#: Levels of lists and objects. The parser calls itself once a level: a thousand of them end the JVM.
DEPTH = 200
DEPTH_OPTION = ("maxNestingDepth", str(DEPTH))

WIDE = "the text is UTF-16 or UTF-32: write the file in UTF-8"
NOT_UTF_8 = "some bytes are not UTF-8 and would be read as other characters: write the file in UTF-8"
HALF_CHARACTER = r"an escape such as \ud800 stands for half a character: write both halves, or leave it out"

_WIDE = re.compile(rb"\xff\xfe|\xfe\xff|.{0,3}\0", re.DOTALL)
#: What the parser decodes though it is not UTF-8: characters in more bytes than they take, halves, and none at all.
_NOT_UTF_8 = re.compile(rb"[\xc0\xc1]|\xe0[\x80-\x9f]|\xed[\xa0-\xbf]|\xf0[\x80-\x8f]|\xf4[\x90-\xbf]|[\xf5-\xf7]")
#: Escapes that are taken out from the left before a half is looked for: what follows an escaped backslash is text.
WHOLE = r"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
#: Half a character in what is left.
HALF = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_WHOLE, _HALF = re.compile(WHOLE.encode()), re.compile(HALF.encode())
_PIECE = 1 << 20
#: Everything up to the next bracket outside of texts, which Spark takes in single quotes too; and what it closes.
_BRACKET = re.compile(r"""(?:[^\[\]{}"']++|"(?:[^"\\]++|\\.)*+"|'(?:[^'\\]++|\\.)*+')*+([\[\]{}])""", re.DOTALL)
_CLOSED_BY = {"]": "[", "}": "{"}
#: Most first documents of files with many fit; more is read when not.
_FIRST_CHARACTERS = 64 * 1024


def require_readable_text(stored: StoredFile) -> None:
    """Raise BadData (SOURCE_UNREADABLE) for a file that would be read as other text."""
    try:
        with open_binary(stored, READ_AHEAD) as file:
            piece = file.read(_PIECE)
            wrong = WIDE if _WIDE.match(piece[:4]) else None
            while piece and wrong is None:
                more = file.read(_PIECE)
                # a quote is not a part of a character or of an escape but its last one
                cut = piece.rfind(b'"') + 1 if more else len(piece)
                wrong, piece = _wrong_in(piece[:cut]), piece[cut:] + more
    except (OSError, EOFError) as error:
        raise unreadable(stored.name, f"the file cannot be read: {error}") from error
    if wrong is not None:
        raise unreadable(stored.name, wrong)


def _wrong_in(piece: bytes) -> str | None:
    if not piece.isascii() and _NOT_UTF_8.search(piece):
        return NOT_UTF_8
    return HALF_CHARACTER if _HALF.search(piece) and _HALF.search(_WHOLE.sub(b" ", piece)) else None


def require_one_document(file: StoredFile) -> None:
    """Raise BadData (SOURCE_UNREADABLE) when a document of Json is followed by another one, which Spark would not read.

    Reads as much as the first one takes. What is not a whole object or list is left to Spark, which tells it.
    """
    name = file.name
    try:
        with open_text(file, TextOptions()) as text:
            rest = _after_document(text)
            is_alone = rest is None or not (rest.strip() or any(line.strip() for line in text))
    except (OSError, EOFError) as error:
        raise unreadable(name, f"the file cannot be read: {error}") from error
    if not is_alone:
        message = (
            "the file holds more than one document: set multiLine to false for one object or list a line, or write"
        )
        raise unreadable(name, f"{message} a file for each document")


def _after_document(text: TextIO) -> str | None:
    """What was read behind the object or list that ``text`` begins with; None if it begins with no whole one."""
    content, size, open_brackets = "", _FIRST_CHARACTERS, list[str]()
    while more := text.read(size):
        content = content + more if open_brackets else (content + more).lstrip()
        if content and not open_brackets and content[0] not in "[{":
            return None
        end = 0
        while match := _BRACKET.match(content, end):
            end = match.end()
            opened = _CLOSED_BY.get(match[1])
            if opened is None:
                open_brackets.append(match[1])
            elif open_brackets.pop() != opened:
                return None
            if not open_brackets:
                return content[end:]
        content = content[end:]
        size = max(size, len(content))
    return None
