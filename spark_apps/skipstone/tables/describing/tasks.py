"""Files of a snapshot as the JSON of Iceberg's scan tasks, with their deletes.

Called by whoever hands files to an Iceberg client: the staging of Spark's scans, and the server that plans. Built from
columns, never by an object per file. Must not decide what is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from skipstone.tables.describing.deletes import NumberedDeletes, bodies_of
from skipstone.tables.describing.texts import (
    TEXT,
    concatenated,
    joined,
    maps,
    member,
    number_lists,
    numbers,
    quoted,
    quoted_hex,
)
from skipstone.tables.describing.values import PartitionTexts, all_texts
from skipstone.tables.filesets import FileSet

Ordinals = npt.NDArray[np.int64]
#: Files that are described together: bounds memory.
_FILES_PER_PART = 10_000
_PLAIN = ("path", "size", "records", "first_row_id", "format", "sort_order_id", "split_offsets", "key_metadata")
#: Columns of entries that hold statistics, and their names in JSON.
_STATISTICS: Final = {
    "value_counts": "value-counts",
    "null_counts": "null-value-counts",
    "nan_counts": "nan-value-counts",
    "lower": "lower-bounds",
    "upper": "upper-bounds",
}


def describe_tasks(
    table: Table, files: FileSet, ordinals: Sequence[int] | Ordinals, residual: Any, *, with_bounds: Sequence[int] = ()
) -> list[bytes]:
    """The members ``file-scan-tasks`` and ``delete-files`` of an answer as UTF-8, in parts: JSON without the braces.

    A task is a whole file, in the order of ``ordinals``; deletes are numbered within the answer. ``residual``: the
    expression as JSON that every task carries, ``True`` for none. ``with_bounds``: field ids of the columns whose
    counts and bounds are told. Raises BadData for partition values that JSON cannot have.
    """
    return _members(files, all_texts(table, files.spec_ids, files.schema), ordinals, residual, with_bounds)


def describe_tasks_without_dropped(
    table: Table, files: FileSet, ordinals: Sequence[int] | Ordinals, residual: Any, *, with_bounds: Sequence[int] = ()
) -> list[bytes]:
    """As describe_tasks, but for whoever reads no column that the newest schema lacks: its partitions are null."""
    return _members(files, all_texts(table, files.spec_ids, table.schema()), ordinals, residual, with_bounds)


def describe_tasks_without_null(
    table: Table, files: FileSet, ordinals: Sequence[int] | Ordinals, residual: Any, *, with_bounds: Sequence[int] = ()
) -> list[bytes]:
    """As describe_tasks, but a partition with a null has no values: PyIceberg refuses null there, and needs none."""
    texts = all_texts(table, files.spec_ids, files.schema, tells_null=False)
    return _members(files, texts, ordinals, residual, with_bounds)


def _members(
    files: FileSet,
    texts: Mapping[int, PartitionTexts],
    ordinals: Sequence[int] | Ordinals,
    residual: Any,
    with_bounds: Sequence[int],
) -> list[bytes]:
    described = _Described(files, texts, json.dumps(residual, separators=(",", ":")), with_bounds)
    tasks = list(described.tasks(np.asarray(ordinals, np.int64)))
    deletes = described.deletes.texts
    tail = [b'],"delete-files":[', ",".join(deletes).encode(), b"]"] if deletes else [b"]"]
    return [b'"file-scan-tasks":[', *tasks, *tail]


class _Described:
    """The common parts of all tasks of an answer."""

    def __init__(
        self, files: FileSet, texts: Mapping[int, PartitionTexts], residual: str, with_bounds: Sequence[int]
    ) -> None:
        self._files = files
        self._residual = residual
        self._bounds = np.array(sorted(with_bounds), np.int32)
        self._partitions = _Heads(files, texts)
        self.deletes = NumberedDeletes(self._partitions.texts, bodies_of(files))

    def tasks(self, ordinals: Ordinals) -> Iterator[bytes]:
        """Tasks in parts, with the commas between them."""
        for first in range(0, len(ordinals), _FILES_PER_PART):
            some = ordinals[first : first + _FILES_PER_PART]
            text = concatenated(joined(*self._columns(some), ","))
            yield text if first + len(some) < len(ordinals) else text[:-1]

    def _columns(self, ordinals: Ordinals) -> list[pa.Array | str]:
        statistics = tuple(_STATISTICS) if len(self._bounds) else ()
        entries = self._files.entries((*_PLAIN, *statistics), ordinals)
        return [
            self._partitions.of(ordinals),
            quoted(entries.column("path")),
            ',"file-format":"',
            pc.utf8_lower(entries.column("format").cast(TEXT)),
            '","file-size-in-bytes":',
            numbers(entries.column("size")),
            ',"record-count":',
            numbers(entries.column("records")),
            *(member(_STATISTICS[name], maps(entries.column(name), self._bounds)) for name in statistics),
            member("key-metadata", quoted_hex(entries.column("key_metadata"))),
            member("split-offsets", number_lists(entries.column("split_offsets"))),
            member("sort-order-id", numbers(entries.column("sort_order_id"))),
            member("first-row-id", numbers(entries.column("first_row_id"))),
            '},"delete-file-references":[',
            self._references(ordinals),
            f'],"residual-filter":{self._residual}}}',
        ]

    def _references(self, ordinals: Ordinals) -> pa.Array | str:
        if not self._files.delete_files:
            return ""
        number = self.deletes.number
        applying = self._files.deletes_of_each(ordinals)
        return pa.array([",".join([str(number(delete.file)) for delete in each]) for each in applying], TEXT)


class _Heads:
    """The beginning of a task up to the path: what files of one partition have in common."""

    def __init__(self, files: FileSet, texts: Mapping[int, PartitionTexts]) -> None:
        self.texts = texts
        self._partitions, self._numbers = files.partitions()

    def of(self, ordinals: Ordinals) -> pa.Array:
        """The text of each file."""
        used, which = np.unique(self._numbers[ordinals], return_inverse=True)
        heads = [self._head(*self._partitions[number]) for number in used]
        return pa.array(heads, TEXT).take(pa.array(which))

    def _head(self, spec_id: int, partition: tuple[object, ...]) -> str:
        values = self.texts[spec_id].of(partition)
        return f'{{"data-file":{{"spec-id":{spec_id},"content":"data","partition":{values},"file-path":'
