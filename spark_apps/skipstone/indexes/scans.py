"""Reads entries from files of an index table, filtered, with row groups pruned by their statistics.

Called by lookup and compaction. Must not know what the entries are used for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.io import FileIO
from skipstone_core.errors import SkipstoneError

from skipstone.tables.parquetfiles import WholeFile

_FORMAT = ds.ParquetFileFormat()


class UnreadableIndexFile(SkipstoneError):
    """An entry file is gone, damaged, out of reach, or not the one that was committed."""

    def __init__(self, path: str, problem: object) -> None:
        super().__init__(f"index file {path}: {problem}")
        self.path = path
        self.problem = str(problem)


def scan_entries(
    io: FileIO, path: str, schema: pa.Schema, condition: pc.Expression | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches of ``columns`` of the entries that pass ``condition``, in file order; ``schema``: of all entries.

    Raises UnreadableIndexFile, also for a file of another schema: its columns would read as null.
    """
    try:
        with io.new_input(path).open() as stream:
            opened = WholeFile(stream, pre_buffer=False)
            if problem := schema_problem(opened.schema_arrow, schema):
                raise UnreadableIndexFile(path, problem)
            groups = _groups(_FORMAT.make_fragment(stream), schema, condition)
            for batch in opened.batches(schema.names, groups):
                rows = pa.Table.from_batches([batch])
                passing = (rows if condition is None else rows.filter(condition)).select(columns)
                yield from (part for part in passing.to_batches() if part.num_rows)
    except (OSError, pa.ArrowInvalid) as error:
        raise UnreadableIndexFile(path, error) from error


def _groups(fragment: ds.ParquetFileFragment, schema: pa.Schema, condition: pc.Expression | None) -> list[int]:
    """The row groups that may hold entries that pass, by their statistics."""
    chosen = fragment if condition is None else fragment.subset(condition, schema=schema)
    return [group.id for group in chosen.row_groups]


def schema_problem(schema: pa.Schema, wanted: pa.Schema) -> str | None:
    """Why a file of ``schema`` holds no entries of schema ``wanted`` (a clause), or None."""
    for field in wanted:
        position = schema.get_field_index(field.name)
        if position < 0 or schema.field(position).type != field.type:
            return f"has no column {field.name} of type {field.type}"
    return None
