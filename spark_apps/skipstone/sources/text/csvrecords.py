"""Reads Csv files whose quotes may hold line ends, with Arrow's parser: in it every character of a value stays.

Called in tasks, for the dialects that Arrow knows. Spark's parser makes one kind of line end of all of them, and takes
the first that it sees for the end of rows. Values are those of Python's ``csv``: text behind a closing quote belongs to
the value.
"""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as arrow_csv

from skipstone.sources.groups import CORRUPT
from skipstone.sources.text.headers import codec_of, open_binary, unreadable
from skipstone.sources.text.options import TextOptions
from skipstone.storage.port import READ_AHEAD, StoredFile

#: Bytes of a file, in UTF-8, that are parsed at once. No row can be longer.
_BLOCK = 16 << 20
_BLANKS = " \t"
#: One of these stands in every column of a last row that is put behind the file: a quote that is open takes it in.
_ENDS = ("\ue000", "\ue001", "\ue002")
_TOO_LONG = (
    f"a row takes more than {_BLOCK >> 20} MiB, or a quote is never closed: fix the quotes, or use another format for "
    "such long values"
)
_OPEN = "a quote is not closed before the file ends: close it, or set the options quote and escape as the file needs"


@dataclass(frozen=True)
class CsvShape:
    """How a file is read: ``columns`` are what its rows have; ``header``: its first row, if it names the columns."""

    options: TextOptions
    columns: Sequence[str]
    header: Sequence[str] | None


def is_parsed_by_arrow(options: TextOptions) -> bool:
    """Return whether quotes may hold line ends in a dialect of Arrow: quotes doubled or absent, and all is ASCII."""
    is_doubled = options.escape == options.quote or not options.quote
    return options.multi_line and is_doubled and options.delimiter.isascii() and options.quote.isascii()


def csv_batches(stored: StoredFile, shape: CsvShape) -> Iterator[pa.RecordBatch]:
    """The columns of a file as text, then CORRUPT: the text of rows that have more or fewer fields, else null.

    Empty fields without quotes are null. Raises BadData (SOURCE_UNREADABLE), maybe after the first batches.
    """
    with _readable(stored), open_binary(stored, READ_AHEAD) as opened:
        yield from _Parsing(shape, stored.name, codec_of(stored, shape.options)).batches(opened)


@contextmanager
def _readable(stored: StoredFile) -> Iterator[None]:
    try:
        yield
    except MemoryError:
        raise  # which is one of Arrow's exceptions too
    except pa.ArrowInvalid as error:  # its text may show values
        raise unreadable(stored.name, _TOO_LONG if "straddling" in str(error) else "it is not Csv") from error
    except (OSError, EOFError) as error:
        raise unreadable(stored.name, f"the file cannot be read: {error}") from error


@dataclass
class _Parsing:
    """One file on its way; ``bad``: texts of rows that are not in the batches."""

    shape: CsvShape
    name: str
    codec: str
    bad: list[str] = field(default_factory=list)

    def batches(self, opened: BinaryIO) -> Iterator[pa.RecordBatch]:
        """As ``csv_batches``."""
        is_begun, held = self.shape.header is None, None
        for batch in self._reader(opened):
            if held is not None:
                yield from self._made(held)
            if not is_begun:
                batch, is_begun = self._after_header(batch)
            if batch.num_rows:
                held = batch
        if held is None or not self._ends(held):
            raise unreadable(self.name, _OPEN)
        yield from self._made(held.slice(0, held.num_rows - 1))

    def _reader(self, opened: BinaryIO) -> arrow_csv.CSVStreamingReader:
        options, names = self.shape.options, list(self.shape.columns)
        end = f"\n{options.delimiter.join([self._end] * len(names))}\n".encode()
        return arrow_csv.open_csv(
            io.BufferedReader(_Utf8(opened, self.codec, end), READ_AHEAD),
            read_options=arrow_csv.ReadOptions(column_names=names, block_size=_BLOCK, use_threads=False),
            parse_options=arrow_csv.ParseOptions(
                delimiter=options.delimiter,
                quote_char=options.quote or False,
                newlines_in_values=bool(options.quote),
                invalid_row_handler=self._take,
            ),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                check_utf8=False,  # it is
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    @property
    def _end(self) -> str:
        return next(end for end in _ENDS if end not in (self.shape.options.delimiter, self.shape.options.quote))

    def _take(self, row: arrow_csv.InvalidRow) -> str:
        if row.text.strip(_BLANKS):  # else it is a line of blanks
            self.bad.append(row.text)
        return "skip"

    def _after_header(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, bool]:
        """The rows behind the header, and whether it was there: lines of blanks may stand above it."""
        for at in range(batch.num_rows):
            names = [column[at].as_py() or "" for column in batch.columns]
            if names == list(self.shape.header or ()):
                return batch.slice(at + 1), True
        return batch.slice(batch.num_rows), False

    def _ends(self, batch: pa.RecordBatch) -> bool:
        last = [column[-1].as_py() for column in batch.columns]
        return last == [self._end] * len(last)

    def _made(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        names = [*self.shape.columns, CORRUPT]
        arrays = batch.columns
        yield pa.RecordBatch.from_arrays([*arrays, pa.nulls(batch.num_rows, pa.string())], names)
        bad, self.bad = self.bad, []
        nothing = [pa.nulls(len(bad), pa.string())] * len(arrays)
        yield pa.RecordBatch.from_arrays([*nothing, pa.array(bad, pa.string())], names)


class _Utf8(io.RawIOBase):
    """The content of a file in UTF-8, then ``end``; what cannot be decoded becomes the character that stands for it."""

    def __init__(self, opened: BinaryIO, codec: str, end: bytes) -> None:
        super().__init__()
        self._opened, self._end = opened, end
        self._decoder = codecs.getincrementaldecoder(codec)(errors="replace")
        self._held, self._is_ended = b"", False

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """As files do."""
        while not self._held and not self._is_ended:
            self._held = self._next(len(buffer))
        size = min(len(buffer), len(self._held))
        buffer[:size] = self._held[:size]
        self._held = self._held[size:]
        return size

    def _next(self, size: int) -> bytes:
        piece = self._opened.read(size)
        self._is_ended = not piece
        text = self._decoder.decode(piece, self._is_ended).encode()
        return text + self._end if self._is_ended else text
