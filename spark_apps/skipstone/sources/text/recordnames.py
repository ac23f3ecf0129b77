"""Names in records of Json that Spark's parser leaves out, and names that stand for each other in different records.

Called by ``files`` before the records are read. Each look reads the files once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import permutations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from skipstone_core.merging.unused import plain_name

from skipstone.sources.groups import URL, file_below, quoted
from skipstone.sources.text.documents import DEPTH_OPTION
from skipstone.sources.text.headers import unreadable

UNNAMED = "a record has a value without a name, which Spark would leave out: name it"
TWICE = "a record has two values of one name, of which Spark would read one: give each a name of its own"
#: A text without the mark of its bytes' order, which may be its first character.
TEXT = r"ltrim('\uFEFF', value)"
OPTION = "'{}', '{}'".format(*DEPTH_OPTION)
#: Numbers that the reader takes, and the function that lists names does not.
_ODD_NUMBER = r"([:\\[,]\\s*)[+-]?(NaN|Infinity|INF)\\b"
_WRONG = "wrong"


def _names(record: str) -> str:
    """The names of ``record``, a text of Json: as often as they stand in it; null if it is not an object."""
    return f"coalesce(json_object_keys({record}), json_object_keys(regexp_replace({record}, '{_ODD_NUMBER}', '$1 0')))"


def _of_any(test: Callable[[str], str]) -> str:
    """Whether ``test`` holds for the names of the record that the text is, or of one in the list that it is."""
    records = f"from_json({TEXT}, 'array<string>', map({OPTION}))"
    return rf"""if({TEXT} rlike r'^\s*\[', exists({records}, r -> {test(_names("r"))}), {test(_names(TEXT))})"""


#: An empty name in an object; strings of Json hold no quote without a backslash before it.
IS_UNNAMED = rf"""value rlike r'[{{,]\s*""\s*:' and {_of_any(lambda names: f"array_contains({names}, '')")}"""
IS_TWICE = _of_any(lambda names: f"size(array_distinct({names})) < size({names})")


def require_whole_records(documents: DataFrame, root: str) -> None:
    """Raise BadData (SOURCE_UNREADABLE), naming the file below ``root``, for a record that would not be read whole.

    ``documents``: the text of one file in each row (``value``).
    """
    wrong = F.expr(f"case when {IS_UNNAMED} then '{UNNAMED}' when {IS_TWICE} then '{TWICE}' end").alias(_WRONG)
    found = documents.select(F.col("_metadata.file_path").alias(URL), wrong).where(f"{_WRONG} is not null")
    first = found.select(file_below(root), _WRONG).head()
    if first is not None:
        raise unreadable(first[0], first[1])


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Those of ``names`` that differ by case or blanks only, together."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        found[plain_name(name)].append(name)
    return [tuple(group) for group in found.values() if len(group) > 1]


def find_instead(groups: Sequence[Sequence[str]], records: DataFrame, absent: str) -> frozenset[tuple[str, str]]:
    """Pairs of names of one of ``groups`` of which some record has a value under the first and lacks the other.

    ``records``: a column of text for each name; ``absent``: what stands there for a name that a record lacks, as SQL.
    """
    pairs = [pair for group in groups for pair in permutations(group, 2)]
    if not pairs:
        return frozenset()
    tests = (f"{quoted(name)} <> {absent} and {quoted(other)} <=> {absent}" for name, other in pairs)
    (row,) = records.agg(*(F.max(F.expr(test)) for test in tests)).collect()
    return frozenset(pair for pair, is_there in zip(pairs, row, strict=True) if is_there)
