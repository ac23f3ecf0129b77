"""Refuses lines of Json that hold more than one document, of which Spark would read the first and leave out the rest.

Called by ``files`` before the records are read. Reads every line once more, as text.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from skipstone.sources.groups import NO_GLOB, URL, file_below
from skipstone.sources.text.headers import unreadable

#: The line without the mark of its bytes' order, which may be its first character.
_TEXT = r"ltrim('\uFEFF', value)"
#: Most lines are objects that hold no other: they end with their only brace that closes.
_FLAT = r"value rlike r'^\s*\{[^{}]*\}\s*$'"
#: Elements of a list of strict Json, and of a list as the reader takes it, which allows more: NaN, for one.
_STRICT, _READ = "json_array_length({})", "size(from_json({}, 'array<string>'))"
#: Whether Spark can read the first document of a line. What it cannot read it tells as a bad row.
_BEGINS = rf"""
    value rlike r'^\uFEFF?\s*[\[{{]' and if(
        value rlike r'^\uFEFF?\s*\[',
        from_json({_TEXT}, 'array<string>') is not null,
        from_json({_TEXT}, 'n string, c string', map('columnNameOfCorruptRecord', 'c')).c is null)
"""


def require_one_document_per_line(spark: SparkSession, paths: Sequence[str], root: str) -> None:
    """Raise BadData (SOURCE_UNREADABLE), naming the file below ``root``, for a line with more than one."""
    # from cheap tests to dear ones: few lines need the last
    goes_on = f"not ({_FLAT}) and not ({_is_lone(_STRICT)}) and {_BEGINS} and not ({_is_lone(_READ)})"
    lines = spark.read.options(**NO_GLOB).text(list(paths)).where(goes_on)
    found = lines.select(F.col("_metadata.file_path").alias(URL)).select(file_below(root)).head()
    if found is not None:
        raise unreadable(
            found[0], "a line goes on behind its JSON object: write one object on each line and nothing else"
        )


def _is_lone(count: str) -> str:
    """Whether the line is one document, by ``count`` of a list: in a list of two it is the first, and the only one in a
    list of its own. One list would not do, since the line can close it and go on.
    """
    first, only = f"concat('[', {_TEXT}, ',0]')", f"concat('[', {_TEXT}, ']')"
    return f"{count.format(first)} <=> 2 and {count.format(only)} <=> 1"
