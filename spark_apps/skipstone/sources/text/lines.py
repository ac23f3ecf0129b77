"""Refuses lines of Json of which Spark would leave out a part, or which it would read as other text.

Called by ``files`` before the records are read. Reads every line once more, as text.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from skipstone.sources.groups import URL, file_below
from skipstone.sources.text.documents import HALF, HALF_CHARACTER, NOT_UTF_8, WHOLE, WIDE
from skipstone.sources.text.headers import unreadable
from skipstone.sources.text.recordnames import IS_UNNAMED, OPTION, TEXT, UNNAMED

#: Most lines are objects that hold no other: they end with their only brace that closes.
_FLAT = r"value rlike r'^\s*\{[^{}]*\}\s*$'"
#: Elements of a list of strict Json, and of a list as the reader takes it, which allows more: NaN, for one.
_STRICT, _READ = "json_array_length({})", f"size(from_json({{}}, 'array<string>', map({OPTION})))"
#: Whether Spark can read the first document of a line. What it cannot read it tells as a bad row.
_BEGINS = rf"""
    value rlike r'^\uFEFF?\s*[\[{{]' and if(
        value rlike r'^\uFEFF?\s*\[',
        from_json({TEXT}, 'array<string>', map({OPTION})) is not null,
        from_json({TEXT}, 'n string, c string', map('columnNameOfCorruptRecord', 'c', {OPTION})).c is null)
"""
_MORE = "a line goes on behind its JSON object: write one object on each line and nothing else"
#: What ``documents`` looks for in files, in a line: the parser guesses the encoding of each by its first bytes.
_IS_WIDE = "hex(substring(cast(value as binary), 1, 4)) rlike '^(?:FFFE|FEFF|00|..00|....00|......00)'"
_IS_NOT_UTF_8 = "not is_valid_utf8(value) and hex(value) rlike '^(?:..)*?(?:C[01]|E0[89]|ED[AB]|F08|F4[9AB]|F[567])'"
_IS_HALF = f"value rlike r'{HALF}' and regexp_replace(value, r'{WHOLE}', ' ') rlike r'{HALF}'"


def _is_lone(count: str) -> str:
    """Return SQL: the line is one document, by ``count`` of the items in two lists.

    It is the first item of a list of two, and the only one of a list of its own. One list does not suffice, since the
    line can close it and go on.
    """
    first, only = f"concat('[', {TEXT}, ',0]')", f"concat('[', {TEXT}, ']')"
    return f"{count.format(first)} <=> 2 and {count.format(only)} <=> 1"


#: What is wrong with a line, and whether it is: from cheap tests to dear ones, since few lines need the last.
_TESTS = {
    WIDE: _IS_WIDE,
    NOT_UTF_8: _IS_NOT_UTF_8,
    HALF_CHARACTER: _IS_HALF,
    UNNAMED: IS_UNNAMED,
    _MORE: f"not ({_FLAT}) and not ({_is_lone(_STRICT)}) and {_BEGINS} and not ({_is_lone(_READ)})",
}
WRONG = "wrong"


def require_one_document_per_line(text: DataFrame, root: str) -> None:
    """Raise BadData (SOURCE_UNREADABLE), naming the file below the address ``root``, for a line with more than one.

    Also for a line that is not UTF-8 and would be read as other text.
    """
    bad_lines = wrong_lines(text).select(F.col("_metadata.file_path").alias(URL), WRONG)
    first = bad_lines.select(file_below(root), WRONG).head()
    if first is not None:
        raise unreadable(first[0], list(_TESTS)[first[1]])


def wrong_lines(text: DataFrame) -> DataFrame:
    """The lines (``value``) of which Spark would leave out a part or read other text; WRONG: which of the reasons."""
    cases = " ".join(f"when {test} then {number}" for number, test in enumerate(_TESTS.values()))
    return text.withColumn(WRONG, F.expr(f"case {cases} end")).where(f"{WRONG} is not null")
