"""Names in Json that Spark's parser leaves out or refuses, and names that stand for each other in different records.

Called by ``files`` before the records are read. Each look reads the files once more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import permutations

from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from skipstone_core.errors import BadData
from skipstone_core.merging.unused import plain_name

from skipstone.sources.groups import URL, file_below, quoted
from skipstone.sources.text.documents import DEPTH_OPTION
from skipstone.sources.text.headers import unreadable

UNNAMED = "a record has a value without a name, which Spark would leave out: name it"
_TWICE = "two values of one name, of which Spark would read one: give each a name of its own"
#: A text without the mark of its bytes' order, which may be its first character.
TEXT = r"ltrim('\uFEFF', value)"
OPTION = "'{}', '{}'".format(*DEPTH_OPTION)
#: An empty name in an object; strings of Json hold no quote without a backslash before it.
_EMPTY_NAME = r"""value rlike r'[{,]\s*""\s*:'"""
#: Numbers that the reader takes, and the function that lists names does not.
_ODD_NUMBER = r"([:\\[,]\\s*)[+-]?(NaN|Infinity|INF)\\b"


def _names(record: str) -> str:
    """The names of ``record``, a text of Json: as often as they stand in it; null if it is not an object."""
    return f"coalesce(json_object_keys({record}), json_object_keys(regexp_replace({record}, '{_ODD_NUMBER}', '$1 0')))"


def _has_unnamed(record: str) -> str:
    return f"array_contains({_names(record)}, '')"


def _has_twice(record: str) -> str:
    return f"size(array_distinct({_names(record)})) < size({_names(record)})"


def _of_any(test: Callable[[str], str]) -> str:
    """Return SQL: ``test`` holds for the record in the text, or for one in the list there."""
    records = f"from_json({TEXT}, 'array<string>', map({OPTION}))"
    return rf"if({TEXT} rlike r'^\s*\[', exists({records}, record -> {test('record')}), {test(TEXT)})"


IS_UNNAMED = f"{_EMPTY_NAME} and {_of_any(_has_unnamed)}"


def require_named(documents: DataFrame, root: str) -> None:
    """Raise BadData (SOURCE_UNREADABLE), naming the file below ``root``, for a value of a record without a name.

    ``documents``: the text of one file in each row (``value``).
    """
    file = _find_file(documents.where(IS_UNNAMED).select(F.col("_metadata.file_path").alias(URL)), root)
    if file is not None:
        raise unreadable(file, UNNAMED)


def may_be_unnamed(text: DataFrame) -> bool:
    """Return whether some object may have a value without a name, at any depth."""
    return not text.where(_EMPTY_NAME).isEmpty()


def require_named_within(records: DataFrame, types: Mapping[str, IcebergType], root: str) -> None:
    """Raise BadData (SOURCE_UNREADABLE) for a struct with a value without a name.

    ``records``: URL, and a column of text for each of ``types``, the lists, maps and structs that the text becomes.
    """
    for name, kind in types.items():
        if test := _unnamed_within(kind, quoted(name)):
            file = _find_file(records.where(test).select(URL), root)
            if file is not None:
                raise unreadable(
                    file, f"column '{name}' has a value without a name, which Spark would leave out: name it"
                )


def _unnamed_within(kind: IcebergType, text: str, depth: int = 0) -> str:
    """Return SQL: Json of a value of ``kind`` has a struct with an unnamed value; empty if there is no struct."""
    value = f"v{depth}"
    parts: list[tuple[str, str]] = []
    match kind:
        case StructType():
            fields = [(f"'{_escaped(quoted(field.name))} string'", field) for field in kind.fields]
            parts = [
                (f"array(from_json({text}, {ddl}, map({OPTION})).{quoted(field.name)})", test)
                for ddl, field in fields
                if (test := _unnamed_within(field.field_type, value, depth + 1))
            ]
        case MapType():
            values = f"map_values(from_json({text}, 'map<string, string>', map({OPTION})))"
            parts = [(values, _unnamed_within(kind.value_type, value, depth + 1))]
        case ListType():
            items = f"from_json({text}, 'array<string>', map({OPTION}))"
            parts = [(items, _unnamed_within(kind.element_type, value, depth + 1))]
    tests = [f"exists({values}, {value} -> {test})" for values, test in parts if test]
    tests += [_has_unnamed(text)] if isinstance(kind, StructType) else []
    return f"({' or '.join(f'coalesce({test}, false)' for test in tests)})" if tests else ""


def _escaped(text: str) -> str:
    """As it stands in a literal of SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


def named_twice(text: DataFrame, root: str, example: str) -> BadData:
    """The error for files of which Spark says that a record, or an object in one, has two values of one name.

    ``text``: their lines or documents (``value``); ``example``: one of the files.
    """
    file = _find_file(text.where(_of_any(_has_twice)).select(F.col("_metadata.file_path").alias(URL)), root)
    who = "a record" if file else "an object in a record of this or another file"
    return unreadable(file or example, f"{who} has {_TWICE}")


def _find_file(frame: DataFrame, root: str) -> str | None:
    first = frame.select(file_below(root)).head()
    return None if first is None else str(first[0])


def alike(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Those of ``names`` that differ by case or blanks only, together."""
    by_plain_name: defaultdict[str, list[str]] = defaultdict(list)
    for name in names:
        by_plain_name[plain_name(name)].append(name)
    return [tuple(group) for group in by_plain_name.values() if len(group) > 1]


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
