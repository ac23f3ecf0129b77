"""Where in its file each row group lies, so that a task reads those that an index hit and no other.

Used by ``staging``. Spans come from the file's own footer: what a manifest says of split offsets is a hint that
writers fill as they like. Files whose footer cannot be read are read whole. Must not read data.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
from cachetools import LRUCache
from pyiceberg.io import FileIO

from skipstone.query.planner import ReadPlan
from skipstone.tables.filesets import FileSet

logger = logging.getLogger(__name__)

#: Start and length in bytes.
Span = tuple[int, int]
#: Spans to read, by ordinal of the file.
Spans = Mapping[int, tuple[Span, ...]]
#: Footers are read for so many files at most: beyond that, planning would cost more than it saves.
MAX_FOOTERS = 64
_THREADS = 8
_REMEMBERED = 100_000

_spans: LRUCache[str, tuple[Span, ...]] = LRUCache(_REMEMBERED)
_lock = threading.Lock()


def row_group_spans(io: FileIO, plan: ReadPlan) -> dict[int, tuple[Span, ...]]:
    """Spans to read by ordinal, neighbours joined, of the files of which some row groups are to be read."""
    paths = {ordinal: path for ordinal in plan.row_groups if (path := _splittable(plan.files, ordinal))}
    if len(paths) > MAX_FOOTERS:
        return {}
    with ThreadPoolExecutor(_THREADS) as pool:
        spans = dict(zip(paths, pool.map(lambda path: _file_spans(io, path), paths.values()), strict=True))
    wanted = {ordinal: plan.row_groups[ordinal] for ordinal in paths}
    return {
        ordinal: _joined(found, wanted[ordinal])
        for ordinal, found in spans.items()
        if len(set(wanted[ordinal])) < len(found) and max(wanted[ordinal]) < len(found)
    }


def _splittable(files: FileSet, ordinal: int) -> str:
    """The path of a file whose row groups can be read one by one; else empty."""
    file = files.data_file(ordinal)
    same_spec = all(delete.spec_id == file.spec_id for delete in files.deletes(ordinal))
    return str(file.file_path) if same_spec and file.file_format.value == "PARQUET" else ""


def _file_spans(io: FileIO, path: str) -> tuple[Span, ...]:
    with _lock:
        found = _spans.get(path)
    if found is not None:
        return found
    try:
        with io.new_input(path).open() as stream:
            metadata = pq.ParquetFile(stream).metadata
    except (OSError, pa.ArrowInvalid) as error:
        logger.warning("the footer of %s cannot be read, reading the file whole: %s", path, error)
        return ()
    spans = tuple(_span(metadata.row_group(number)) for number in range(metadata.num_row_groups))
    with _lock:
        _spans[path] = spans
    return spans


def _span(group: pq.RowGroupMetaData) -> Span:
    columns = [group.column(number) for number in range(group.num_columns)]
    start = min(_start(column) for column in columns)
    return start, sum(int(column.total_compressed_size) for column in columns)


def _start(column: pq.ColumnChunkMetaData) -> int:
    offsets = (column.dictionary_page_offset, column.data_page_offset)
    return min(int(offset) for offset in offsets if offset)


def _joined(spans: tuple[Span, ...], wanted: Iterable[int]) -> tuple[Span, ...]:
    """Spans of the wanted row groups; Parquet readers take a row group whose middle lies in the span."""
    found: list[Span] = []
    last = None
    for number in sorted(set(wanted)):
        start, length = spans[number]
        if found and last == number - 1:
            found[-1] = (found[-1][0], start + length - found[-1][0])
        else:
            found.append((start, length))
        last = number
    return tuple(found)
