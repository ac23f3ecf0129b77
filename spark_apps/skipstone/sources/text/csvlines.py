"""Refuses Csv files of which Spark's parser would change or leave out values, without a word.

Called by ``files`` before rows are read: for files that are read line by line every line is read once more, as text.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from skipstone.sources.groups import URL, file_below
from skipstone.sources.text.headers import open_text, unreadable
from skipstone.sources.text.options import TextOptions
from skipstone.storage.port import StoredFile

_QUOTES = (
    "a quote is not closed in its line, or text follows a closing quote: set multiLine to true when values hold line "
    "ends or go on behind quotes, or fix the quotes"
)
_DELIMITERS = (
    "a line holds nothing but delimiters, blanks and control characters, and Spark would leave out its row: set "
    "multiLine to true, which reads it"
)
#: What Spark's parser is told where the dialect has no character: else it would take NUL for it, which values may have.
SPARE = "\uf8ff"
_SPARE_FOUND = (
    "a line has the character U+F8FF, which Spark's parser would take for a quote: leave it out, or use Parquet"
)
_ALIKE = "when escape is not the quote, or a character of the dialect is not ASCII: double the quotes in values"
_RETURN = f"it has a carriage return (CR), which Spark makes a line feed of {_ALIKE}, or write line feeds only"
_WRONG = "wrong"


def require_plain_lines(lines: DataFrame, options: TextOptions, root: str) -> None:
    """Raise BadData (SOURCE_UNREADABLE), naming the file below the address ``root``, for a line that is read wrong."""
    value = F.col("value")
    if options.encoding != "UTF-8":
        value = F.decode(value.cast("binary"), options.encoding)
    wrong = F.coalesce(*(F.when(test, F.lit(message)) for message, test in _tests(value, options).items()))
    bad_lines = lines.select(F.col("_metadata.file_path").alias(URL), wrong.alias(_WRONG)).where(
        f"{_WRONG} is not null"
    )
    first = bad_lines.select(file_below(root), _WRONG).head()
    if first is not None:
        raise unreadable(first[0], first[1])


def _tests(value: Column, options: TextOptions) -> dict[str, Column]:
    """What is wrong with a line, and whether it is."""
    tests = {_DELIMITERS: value.rlike(_lost(options.delimiter))}
    if options.quote:
        tests[_QUOTES] = value.contains(options.quote) & ~value.rlike(_well_quoted(options))
    if options.escape == options.quote or not options.quote:
        tests[_SPARE_FOUND] = value.contains(SPARE)
    return tests


def _lost(delimiter: str) -> str:
    """Spark leaves out a line of which nothing is left when Java trims it. One of blanks and tabs is not a row."""
    kept = "".join(map(_character, {*map(chr, range(0x20)), delimiter if delimiter <= " " else "\0"} - {"\t", " "}))
    kept += _character(delimiter) if delimiter in "\t " else ""
    return rf"^[\x00-\x20]*[{kept}][\x00-\x20]*$"


def _well_quoted(options: TextOptions) -> str:
    """A line in which a field that begins with a quote ends with one. Nothing in it goes back over what it took."""
    quote, escape, delimiter = map(_character, (options.quote, options.escape, options.delimiter))
    inside = f"[^{quote}]++|{quote}{quote}" if quote == escape else f"[^{quote}{escape}]++|{escape}.?"
    fields = f"(?s:{quote}(?:{inside})*+{quote}|[^{quote}{delimiter}][^{delimiter}]*+)?+"
    return f"^{fields}(?:{delimiter}{fields})*+$"


def _character(text: str) -> str:
    return rf"\x{{{ord(text):x}}}"


def require_plain_document(stored: StoredFile, options: TextOptions) -> None:
    """Raise BadData (SOURCE_UNREADABLE) for a file with quotes over line ends that Spark would read otherwise.

    Reads it whole.
    """
    try:
        with open_text(stored, options) as text:
            rows = csv.reader(
                _kept_lines(text, stored.name),
                delimiter=options.delimiter,
                quotechar=options.quote,
                doublequote=options.quote == options.escape,
                escapechar=None if options.quote == options.escape else options.escape,
                strict=True,
            )
            for _ in rows:
                pass
    except csv.Error as error:
        raise unreadable(stored.name, f"a quote is not closed, or text follows a closing quote ({error})") from error
    except (OSError, EOFError) as error:
        raise unreadable(stored.name, f"the file cannot be read: {error}") from error


def _kept_lines(text: Iterator[str], name: str) -> Iterator[str]:
    for line in text:
        for character, message in (("\r", _RETURN), (SPARE, _SPARE_FOUND)):
            if character in line:
                raise unreadable(name, message)
        yield line
