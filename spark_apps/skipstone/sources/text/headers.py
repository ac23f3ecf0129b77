"""How text files begin: the headers of Csv files, in the dialect that Spark will use, and what files are packed as.

Called by the readers on the driver. Must not read more of a file than that.
"""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from pathlib import PurePosixPath
from typing import BinaryIO, TextIO

from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.sources.text.options import TextOptions
from skipstone.sources.text.unpacking import unpacked
from skipstone.storage.port import StoredFile

_UNPACKED = frozenset({".gz", ".bz2"})
#: Endings of packed files that Spark would read as if they were text.
_NOT_UNPACKED = frozenset({".zip", ".zst", ".xz", ".7z", ".lz4", ".snappy", ".lzo", ".deflate", ".tar", ".tgz"})

_BLANKS = " \t\r\n"
_READ_AHEAD = 64 * 1024


def require_unpackable(name: str) -> None:
    """Raise BadData (SOURCE_UNREADABLE) when the file's ending says it is packed in a way that is not read."""
    ending = PurePosixPath(name).suffix.lower()
    if ending in _NOT_UNPACKED:
        raise unreadable(name, f"files packed as {ending} are not read: unpack it, or pack it as .gz or .bz2")


def require_not_packed(name: str) -> None:
    """Raise BadData (SOURCE_UNREADABLE) for a packed file, of which Spark would read other numbers than are written."""
    if PurePosixPath(name).suffix.lower() in _UNPACKED:
        message = (
            "Spark would change numbers of a packed document: unpack it, or set multiLine to false for one object a"
        )
        raise unreadable(name, f"{message} line")


def read_header(file: StoredFile, options: TextOptions) -> tuple[str, ...] | None:
    """The column names of ``file``; None when it has no line.

    Without header there are no names, only that there is a line: () is returned.
    Raises BadData (SOURCE_UNREADABLE) when it cannot be read, names no column or one twice.
    """
    name = file.name
    try:
        with open_text(file, options) as text:
            if not options.header:
                return () if any(_holds_row(line, options) for line in text) else None
            names = _first_record(text, options)
        "".join(names or ()).encode()  # bytes that could not be decoded show here; those after the header do not matter
    except (OSError, EOFError, UnicodeError, csv.Error) as error:
        raise unreadable(name, f"the header cannot be read as {options.encoding}: {error}") from error
    if names is not None and not "".join(names).strip():
        raise unreadable(
            name, "the header names no column: write the names into the first line, or set header to false"
        )
    twice = [column for column, n in Counter(names or ()).items() if n > 1 and column]
    if twice:
        raise unreadable(name, f"the column '{twice[0]}' stands twice in the header: give each column its own name")
    return names


def _holds_row(line: str, options: TextOptions) -> bool:
    """Return whether a line is more than blanks and tabs, of which some may be delimiters."""
    return bool(line.strip(_BLANKS)) or (options.delimiter in _BLANKS and options.delimiter in line)


def unreadable(name: str, message: str) -> BadData:
    """The error for a file that cannot be used as it is."""
    return BadData(Reason.SOURCE_UNREADABLE, f"'{name}': {message}", field="source.paths")


def open_text(file: StoredFile, options: TextOptions) -> TextIO:
    """The unpacked text of a file; bytes that cannot be decoded are lone surrogates. Raises OSError."""
    codec = codec_of(file, options)
    binary = open_binary(file, _READ_AHEAD)
    newline = "" if options.multi_line else None
    return io.TextIOWrapper(binary, encoding=codec, errors="surrogateescape", newline=newline)


def codec_of(file: StoredFile, options: TextOptions) -> str:
    """Python's codec of the file, which takes away a byte order mark. Raises OSError.

    Raises BadData (SOURCE_UNREADABLE) for UTF-16 without such a mark: readers differ in the order of bytes that they
    take it for.
    """
    if not options.encoding.startswith("UTF-16"):
        return "utf-8-sig" if options.encoding == "UTF-8" else options.encoding
    with open_binary(file, len(codecs.BOM_UTF16)) as binary:
        start = binary.read(len(codecs.BOM_UTF16))
    if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        return "utf-16"
    if start and options.encoding == "UTF-16":
        message = "it does not begin with a byte order mark: set the option encoding to UTF-16LE or UTF-16BE"
        raise unreadable(file.name, message)
    return options.encoding


def open_binary(file: StoredFile, buffering: int) -> BinaryIO:
    """The unpacked content of a file, of which so many packed bytes are read ahead. Raises as ``unpacked`` does."""
    return unpacked(file.name, file.open(buffering=buffering))


def _first_record(text: TextIO, options: TextOptions) -> tuple[str, ...] | None:
    doubled = options.escape == options.quote
    records = csv.reader(
        text if options.multi_line else _first_line(text),
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
        doublequote=doubled,
        escapechar=None if doubled else options.escape,
        strict=True,
    )
    return next((tuple(record) for record in records if not _is_blank(record)), None)


def _is_blank(record: list[str]) -> bool:
    """Return whether a record is a line without anything; one empty field in quotes is something."""
    return not record or (len(record) == 1 and bool(record[0]) and not record[0].strip(_BLANKS))


def _first_line(text: TextIO) -> list[str]:
    """The first line that is not blank, alone: without multiLine no record goes over a line's end.

    Blanks are those of Spark, which takes a line of other ones for the header.
    """
    return next(([line] for line in text if line.strip(_BLANKS)), [])
