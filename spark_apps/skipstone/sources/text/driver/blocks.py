"""The text of a file in pieces of whole lines.

Called by the readers of this room. Ends of lines are those of Hadoop, by which Spark cuts files: LF, CR, and both.
"""

from __future__ import annotations

from collections.abc import Iterator

from skipstone.sources.text.driver.sparkonly import SparkNeeded, SparkOnly
from skipstone.sources.text.headers import open_text
from skipstone.sources.text.options import TextOptions
from skipstone.storage.port import StoredFile

_LONGEST_LINE = 16 << 20
#: The mark of UTF-8 in ISO-8859-1: Spark takes it away whatever the encoding.
_MARK = "\u00ef\u00bb\u00bf"


def line_blocks(stored: StoredFile, options: TextOptions, size: int) -> Iterator[str]:
    """The text of a file, each piece of about ``size`` characters, ending with a line feed.

    Bytes that cannot be decoded are lone surrogates. Raises SparkNeeded, OSError and EOFError.
    """
    rest, is_first = "", True
    with open_text(stored, options) as text:
        while piece := text.read(size):
            if is_first and piece.startswith(_MARK):
                raise SparkNeeded(SparkOnly.TEXT)
            is_first = False
            piece = rest + piece
            end = piece.rfind("\n") + 1
            if len(piece) - end > _LONGEST_LINE:
                raise SparkNeeded(SparkOnly.LINES)
            if end:
                yield piece[:end]
            rest = piece[end:]
    if rest:
        yield f"{rest}\n"
