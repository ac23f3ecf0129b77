"""Rows of Csv files that a tool writes, with the lines they begin in: to be read, and to be told of.

Called by the tools that write Csv, and by who keeps records that are left out.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from skipstone.sources.feeds.shapes import FeedTarget, refused
from skipstone.sources.text.headers import open_binary, unreadable
from skipstone.storage.port import READ_AHEAD, StoredFile

#: Of one value; Python's own limit is that of short texts.
_FIELD_CHARACTERS = 1 << 30


def csv_texts(stored: StoredFile, target: FeedTarget, lines: Collection[int]) -> Iterator[tuple[int, str]]:
    """The rows of a Csv file that begin in ``lines``, as Csv. Raises BadData."""
    with csv_rows(stored, target) as (_, rows):
        for line, row in rows:
            if line in lines:
                text = io.StringIO()
                writer = csv.writer(text, delimiter=target.delimiter, quotechar=target.quote or None, lineterminator="",
                                    quoting=csv.QUOTE_MINIMAL if target.quote else csv.QUOTE_NONE)  # fmt: skip
                writer.writerow(row)
                yield line, text.getvalue()


@contextmanager
def csv_rows(stored: StoredFile, target: FeedTarget) -> Iterator[tuple[list[str] | None, Iterator[CsvRow]]]:
    """The header, None of an empty file, and the rows behind it. Raises BadData for what is not Csv."""
    csv.field_size_limit(_FIELD_CHARACTERS)
    try:
        with open_binary(stored, READ_AHEAD) as binary:
            encoding = "utf-8-sig" if target.encoding == "UTF-8" else target.encoding
            lines = _Lines(stored.name, io.TextIOWrapper(binary, encoding=encoding, newline="\n"))
            rows = csv.reader(lines, delimiter=target.delimiter, quotechar=target.quote or None, strict=True,
                              quoting=csv.QUOTE_MINIMAL if target.quote else csv.QUOTE_NONE)  # fmt: skip
            header = next(rows, None)
            yield header, lines.numbered(rows)
    except (OSError, EOFError, UnicodeError, csv.Error) as error:
        raise unreadable(stored.name, f"the file cannot be read as Csv: {error}") from error


class CsvRow(NamedTuple):
    """The fields of a row, and the number of the line that it begins in."""

    line: int
    fields: list[str]


@dataclass
class _Lines(Iterator[str]):
    """The lines of a file as it has them; a row may have several."""

    name: str
    text: Iterator[str]
    _last: str = ""
    _number: int = 0

    def __next__(self) -> str:
        self._last = next(self.text)
        self._number += 1
        return self._last

    def numbered(self, rows: Iterator[list[str]]) -> Iterator[CsvRow]:
        """``rows`` behind the header, which was the last line, each with the number of its first line.

        Raises BadData for one that ends in another way than the header, of which the reader would cut off more than
        the end of a line.
        """
        endings = ("", "\n", *(["\r\n"] if self._last.endswith("\r\n") else []))
        line = self._number + 1
        for row in rows:
            if self._last[len(self._last.rstrip("\r\n")) :] not in endings and self._last.strip("\r\n"):
                raise refused(
                    self.name,
                    "a carriage return ends the row: quote a value that ends with one, or end all lines, that of the "
                    "header too, with a carriage return and a line feed",
                    line,
                )
            yield CsvRow(line, row)
            line = self._number + 1
