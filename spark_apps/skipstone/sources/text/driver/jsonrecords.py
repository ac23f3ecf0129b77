"""Records of Json as text by name, cut as Spark's parser would cut them.

Called by ``reading``. Reads strict Json: Spark's parser takes more, and what its reader refuses is left to it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import PurePosixPath
from typing import NoReturn

import pyarrow as pa
from skipstone_core.errors import BadData

from skipstone.sources.groups import CORRUPT
from skipstone.sources.text.documents import HALF, WHOLE
from skipstone.sources.text.driver.blocks import line_blocks
from skipstone.sources.text.driver.sparkonly import SparkNeeded, SparkOnly
from skipstone.sources.text.headers import open_text
from skipstone.sources.text.options import TextOptions
from skipstone.storage.port import StoredFile

#: Characters of lines, and records of a document, that become one table.
_BLOCK = 1 << 20
_ROWS = 8 * 1024
#: Brackets within a value: more could be deeper than Spark's parser goes.
_MOST_BRACKETS = 190
#: Digits of a number, and characters of a name, that every parser takes.
_LONG_NUMBER = re.compile("[0-9]{300}")
_LONGEST_NAME = 10_000
_BLANKS = " \t\r\n"
_BLANK = re.compile(r"[ \t\r\n]*+")
_WHOLE, _HALF = re.compile(WHOLE), re.compile(HALF)
_Record = dict[str, str | bool | None]
_Pairs = Sequence[tuple[str, object]]


def json_cells(stored: StoredFile, options: TextOptions) -> Iterator[pa.Table]:
    """The records of a file, some at a time, as text by name: null for null and for a name that a record lacks.

    Each table has the names of its records. Raises SparkNeeded.
    """
    read = _read_document if options.multi_line else _read_lines
    try:
        for records in read(stored, options):
            if records:
                yield _table(records)
    except UnicodeError as error:
        raise SparkNeeded(SparkOnly.TEXT) from error
    except (ValueError, IndexError, RecursionError) as error:
        raise SparkNeeded(SparkOnly.JSON) from error
    except (OSError, EOFError, BadData) as error:
        raise SparkNeeded(SparkOnly.DAMAGED) from error


def _read_lines(stored: StoredFile, options: TextOptions) -> Iterator[Sequence[_Record]]:
    for block in line_blocks(stored, options, _BLOCK):
        _require_readable(block)
        yield [record for line in block.split("\n") if line.strip(_BLANKS) for record in _in_line(line)]


def _in_line(line: str) -> Iterable[_Record]:
    return _documents(line) if line.count("{") + line.count("[") > 1 else (_flat(line),)


def _read_document(stored: StoredFile, options: TextOptions) -> Iterator[Sequence[_Record]]:
    if PurePosixPath(stored.name).suffix.lower() in (".gz", ".bz2"):
        raise SparkNeeded(SparkOnly.DAMAGED)
    with open_text(stored, options) as text:
        content = text.read()
    _require_readable(content)
    records = _documents(content)
    while some := list(islice(records, _ROWS)):
        yield some


def _require_readable(text: str) -> None:
    """Raise SparkNeeded for escapes of half a character and for long numbers, UnicodeError for what is not UTF-8."""
    text.encode()
    if "\\u" in text and _HALF.search(_WHOLE.sub(" ", text)):
        raise SparkNeeded(SparkOnly.TEXT)
    if _LONG_NUMBER.search(text):
        raise SparkNeeded(SparkOnly.JSON)


def _refused(_: object) -> NoReturn:
    raise SparkNeeded(SparkOnly.JSON)


def _named(pairs: _Pairs) -> dict[str, object]:
    """The object of ``pairs``, which has names, none of them twice."""
    record = dict(pairs)
    if len(record) != len(pairs) or not record or any(not 0 < len(name) <= _LONGEST_NAME for name in record):
        raise SparkNeeded(SparkOnly.JSON)
    return record


_FLAT = json.JSONDecoder(object_pairs_hook=_named, parse_int=str, parse_float=str, parse_constant=_refused)
_WITHIN = json.JSONDecoder(object_pairs_hook=_named, parse_constant=_refused)


def _flat(line: str) -> _Record:
    """The record of a line without lists and objects in it."""
    record = _FLAT.decode(line)
    if not isinstance(record, dict):
        raise SparkNeeded(SparkOnly.JSON)
    return record


def _documents(text: str) -> Iterator[_Record]:
    """The record that ``text`` is, or those of the list that it is."""
    at = _after_blanks(text, 0)
    if text[at] == "{":
        record, at = _sliced(text, at)
        yield record
    elif text[at] == "[":
        while text[at] != "]":
            record, at = _sliced(text, _after_blanks(text, at + 1))
            yield record
            at = _after_blanks(text, at)
            if text[at] not in ",]":
                raise SparkNeeded(SparkOnly.JSON)
        at += 1
    else:
        raise SparkNeeded(SparkOnly.JSON)
    if _after_blanks(text, at) < len(text):
        raise SparkNeeded(SparkOnly.JSON)


def _sliced(text: str, start: int) -> tuple[_Record, int]:
    """The object that begins at ``start``, with all that is not text or null as it is written, and where it ends."""
    if text[start] != "{":
        raise SparkNeeded(SparkOnly.JSON)
    pairs: list[tuple[str, str | None]] = []
    at = start
    while text[at] != "}":
        name, at = _WITHIN.raw_decode(text, _after_blanks(text, at + 1))
        at = _after_blanks(text, at)
        if not isinstance(name, str) or text[at] != ":":
            raise SparkNeeded(SparkOnly.JSON)
        value, at = _value(text, _after_blanks(text, at + 1))
        pairs.append((name, value))
        at = _after_blanks(text, at)
        if text[at] not in ",}":
            raise SparkNeeded(SparkOnly.JSON)
    return _named(pairs), at + 1  # type: ignore[return-value]


def _value(text: str, start: int) -> tuple[str | None, int]:
    value, end = _WITHIN.raw_decode(text, start)
    if value is None or isinstance(value, str):
        return value, end
    if isinstance(value, dict | list) and text.count("[", start, end) + text.count("{", start, end) > _MOST_BRACKETS:
        raise SparkNeeded(SparkOnly.JSON)
    return text[start:end], end


def _after_blanks(text: str, at: int) -> int:
    blanks = _BLANK.match(text, at)
    return at if blanks is None else blanks.end()


def _table(records: Sequence[_Record]) -> pa.Table:
    names = dict.fromkeys(name for record in records for name in record)
    if CORRUPT in names:
        raise SparkNeeded(SparkOnly.JSON)
    columns = [_texts(record.get(name) for record in records) for name in names]
    return pa.Table.from_arrays(columns, names=list(names))


def _texts(values: Iterable[str | bool | None]) -> pa.Array:
    return pa.array((str(value).lower() if isinstance(value, bool) else value for value in values), pa.string())
