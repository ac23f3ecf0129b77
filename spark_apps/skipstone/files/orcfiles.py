"""Reads ORC files of other writers, whole, in pieces.

Used by the reader. Must not ignore a delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import dataset, orc
from pyiceberg.io import InputStream
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.files.projections import WAY_OUT, DataFileDescription, PhysicalFile, Positions, Projection, live_rows
from skipstone.tables.parquetfiles import BATCH_BYTES, BATCH_ROWS

#: Rows that are decoded at once.
_ROWS_AT_ONCE = 256


def read_orc_file(
    file: DataFileDescription, columns: Sequence[str], positions: Positions | None = None
) -> Iterator[pa.RecordBatch]:
    """The live rows of ``file`` in file order, as ``read_data_file`` gives them; the file stands for a row group.

    Raises BadData for values that Arrow cannot hold: its ORC reader has timestamps in nanoseconds.
    """
    with file.access.open(file.path).new_input(file.path).open() as source:
        try:
            yield from _rows(source, file, tuple(columns), positions)
        except pa.ArrowInvalid as error:
            reason = str(error).splitlines()[0]
            message = f"{file.path} cannot be read without Spark: {reason}. {WAY_OUT}."
            raise BadData(Reason.SOURCE_UNREADABLE, message) from error


def _rows(
    source: InputStream, file: DataFileDescription, columns: tuple[str, ...], positions: Positions | None
) -> Iterator[pa.RecordBatch]:
    opened = orc.ORCFile(source)
    projection = Projection(PhysicalFile.of(file, opened.schema), columns)
    names, start = projection.physical_names, 0
    if not names:
        yield from live_rows(projection, None, np.arange(opened.nrows) if positions is None else positions, 0)
        return
    for batch in _batches(source, names):
        end = start + batch.num_rows
        if positions is None:
            yield from live_rows(projection, batch, np.arange(start, end), 0)
        elif len(mine := positions[slice(*np.searchsorted(positions, [start, end]))]):
            yield from live_rows(projection, batch.take(pa.array(mine - start)), mine, 0)
        start = end
    if start != opened.nrows:
        message = f"{file.path} is damaged: {start} of {opened.nrows} rows can be read"
        raise BadData(Reason.SOURCE_UNREADABLE, f"{message}. Restore the file from a copy, or roll the table back.")


def _batches(source: InputStream, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """All rows, at most about ``BATCH_BYTES`` at once unless a few rows are more.

    A stripe of some hundred bytes may repeat a long text for all its rows, and nothing tells so before.
    """
    fragment = dataset.OrcFileFormat().make_fragment(pa.PythonFile(source, mode="r"))
    scanner = fragment.scanner(columns=list(names), batch_size=_ROWS_AT_ONCE, batch_readahead=0, use_threads=False)
    held: list[pa.RecordBatch] = []
    count = size = 0
    for batch in scanner.to_batches():
        if held and (count + batch.num_rows > BATCH_ROWS or size + batch.nbytes > BATCH_BYTES // 2):
            yield pa.concat_batches(held)
            held, count, size = [], 0, 0
        held.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
    if held:
        yield pa.concat_batches(held)
