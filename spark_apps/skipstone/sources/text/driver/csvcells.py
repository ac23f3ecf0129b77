"""Cells of a Csv file as text, cut by Arrow's parser as Spark's would cut them.

Called by ``reading``. A line that the two could cut otherwise, and one that Spark's reader refuses, is left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.csv as arrow_csv
from skipstone_core.errors import BadData

from skipstone.sources.groups import CORRUPT
from skipstone.sources.text.csvlines import SPARE
from skipstone.sources.text.csvrecords import CsvShape, csv_batches, is_parsed_by_arrow
from skipstone.sources.text.driver.blocks import line_blocks
from skipstone.sources.text.driver.sparkonly import SparkNeeded, SparkOnly
from skipstone.sources.text.options import TextOptions
from skipstone.storage.port import StoredFile

#: Characters that are read at once.
_BLOCK = 4 << 20
#: Columns that Spark's parser takes.
_MOST_COLUMNS = 20_480
#: A line that begins with a blank or a control character, and one that has nothing else.
_ODD_START = re.compile("\n[\x00-\x09\x0b-\x20]")
_NOTHING_ELSE = re.compile("(?<=\n)[\x00-\x09\x0b-\x20]+\n")
_EMPTY_LINES = re.compile("\n{2,}")


def require_dialect(options: TextOptions) -> None:
    """Raise SparkNeeded for a dialect that is not read here."""
    is_ascii = options.delimiter.isascii() and options.quote.isascii() and options.escape.isascii()
    if not is_ascii or (options.multi_line and not is_parsed_by_arrow(options)):
        raise SparkNeeded(SparkOnly.DIALECT)


def require_file(stored: StoredFile, fields: int) -> None:
    """Raise SparkNeeded for a file that is not read here. ``fields``: of its rows."""
    ending = PurePosixPath(stored.name).suffix
    if fields > _MOST_COLUMNS or (ending != ending.lower() and ending.lower() in (".gz", ".bz2")):
        raise SparkNeeded(SparkOnly.COLUMNS)


def csv_cells(stored: StoredFile, shape: CsvShape, wanted: Sequence[str]) -> Iterator[pa.Table]:
    """The columns ``wanted`` of ``shape`` as text, some rows at a time; empty fields without quotes are null.

    Raises SparkNeeded, maybe after the first rows.
    """
    require_file(stored, len(shape.columns))
    try:
        yield from _documents(stored, shape, wanted) if shape.options.multi_line else _lines(stored, shape, wanted)
    except MemoryError:
        raise  # which is one of Arrow's exceptions too
    except UnicodeError as error:
        raise SparkNeeded(SparkOnly.TEXT) from error
    except (OSError, EOFError, BadData) as error:
        raise SparkNeeded(SparkOnly.DAMAGED) from error


def _documents(stored: StoredFile, shape: CsvShape, wanted: Sequence[str]) -> Iterator[pa.Table]:
    """Rows of which a value may hold line ends: parsed as Spark's tasks parse them."""
    for batch in csv_batches(stored, shape):
        corrupt = batch.column(CORRUPT)
        if corrupt.null_count < len(corrupt):
            raise SparkNeeded(SparkOnly.ROWS)
        if batch.num_rows:
            yield pa.Table.from_batches([batch]).select(wanted)


def _lines(stored: StoredFile, shape: CsvShape, wanted: Sequence[str]) -> Iterator[pa.Table]:
    is_begun = shape.header is None
    for block in line_blocks(stored, shape.options, _BLOCK):
        lines = _without_blank_lines(_checked(block, shape.options), shape.options)
        if lines and not is_begun:
            lines, is_begun = lines.partition("\n")[2], True
        if lines:
            yield _parsed(_doubled(lines, shape.options), shape, wanted)


def _checked(block: str, options: TextOptions) -> str:
    """``block``, of which quotes are in their places."""
    if SPARE in block:
        raise SparkNeeded(SparkOnly.TEXT)
    if options.quote and options.quote in block and not _well_quoted(options).fullmatch(block):
        raise SparkNeeded(SparkOnly.LINES)
    return block


@cache
def _well_quoted(options: TextOptions) -> re.Pattern[str]:
    """Lines in which a field that begins with a quote ends with one. Nothing goes back over what it took."""
    quote, delimiter = map(re.escape, (options.quote, options.delimiter))
    inside = _inside(options)
    fields = rf"(?:{quote}{inside}{quote}|[^{quote}{delimiter}\n][^{delimiter}\n]*+)?+"
    return re.compile(rf"(?:{fields}(?:{delimiter}{fields})*+\n)*+")


def _inside(options: TextOptions) -> str:
    """What stands between quotes."""
    quote, escape = map(re.escape, (options.quote, options.escape))
    other = rf"{quote}{quote}" if quote == escape else rf"{escape}[^\n]?"
    taken = rf"[^{quote}\n]++" if quote == escape else rf"[^{quote}{escape}\n]++"
    return rf"(?:{taken}|{other})*+"


def _without_blank_lines(block: str, options: TextOptions) -> str:
    """``block`` without the lines that are no rows."""
    if block[0] <= " " or _ODD_START.search(block):
        for match in _NOTHING_ELSE.finditer(f"\n{block}"):
            if options.delimiter in match[0] or match[0].strip(" \t\n"):
                raise SparkNeeded(SparkOnly.LINES)
        block = _NOTHING_ELSE.sub("", f"\n{block}")
    return _EMPTY_LINES.sub("\n", block).removeprefix("\n")


def _doubled(lines: str, options: TextOptions) -> str:
    """``lines`` with quotes in quotes doubled, in place of an escape before them."""
    quote, escape = options.quote, options.escape
    if not quote or escape == quote or escape not in lines:
        return lines
    return _quoted_fields(options).sub(lambda match: f"{quote}{_unescaped(match[1], options)}{quote}", f"\n{lines}")[1:]


@cache
def _quoted_fields(options: TextOptions) -> re.Pattern[str]:
    quote, delimiter = map(re.escape, (options.quote, options.delimiter))
    return re.compile(rf"(?<=[{delimiter}\n]){quote}({_inside(options)}){quote}")


def _unescaped(content: str, options: TextOptions) -> str:
    if options.escape not in content:
        return content
    quote, escape = map(re.escape, (options.quote, options.escape))
    return re.sub(rf"{escape}([{quote}{escape}])", r"\1", content).replace(options.quote, options.quote * 2)


def _parsed(lines: str, shape: CsvShape, wanted: Sequence[str]) -> pa.Table:
    content = lines.encode()
    options = shape.options
    try:
        table = arrow_csv.read_csv(
            pa.BufferReader(content),
            read_options=arrow_csv.ReadOptions(column_names=list(shape.columns), block_size=len(content)),
            parse_options=arrow_csv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote or False),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(wanted),
                column_types=dict.fromkeys(wanted, pa.string()),
                check_utf8=False,  # it is
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except MemoryError:
        raise  # which is one of Arrow's exceptions too
    except pa.ArrowInvalid as error:  # its text may show values
        raise SparkNeeded(SparkOnly.ROWS) from error
    if table.num_rows != lines.count("\n"):
        raise SparkNeeded(SparkOnly.LINES)
    return table
