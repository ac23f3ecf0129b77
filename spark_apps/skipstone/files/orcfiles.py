"""Reads ORC files of other writers, stripe by stripe.

Used by the reader. Must not ignore a delete.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyarrow import orc
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

from skipstone.files.projections import WAY_OUT, DataFileDescription, PhysicalFile, Positions, Projection, live_rows


def read_orc_file(
    file: DataFileDescription, columns: Sequence[str], positions: Positions | None = None
) -> Iterator[pa.RecordBatch]:
    """The live rows of ``file`` in file order, as ``read_data_file`` gives them; a stripe stands for a row group.

    Raises BadData for values that Arrow cannot hold: its ORC reader has timestamps in nanoseconds.
    """
    with file.access.open(file.path).new_input(file.path).open() as source:
        try:
            yield from _rows(orc.ORCFile(source), file, tuple(columns), positions)
        except pa.ArrowInvalid as error:
            said = str(error).splitlines()[0]
            message = f"{file.path} cannot be read without Spark: {said}. {WAY_OUT}."
            raise BadData(Reason.SOURCE_UNREADABLE, message) from error


def _rows(
    opened: orc.ORCFile, file: DataFileDescription, columns: tuple[str, ...], positions: Positions | None
) -> Iterator[pa.RecordBatch]:
    projection = Projection(PhysicalFile.of(file, opened.schema), columns)
    names, start = projection.physical_names, 0
    if not names:
        yield from live_rows(projection, None, np.arange(opened.nrows) if positions is None else positions, 0)
        return
    for stripe in range(opened.nstripes):
        batch = opened.read_stripe(stripe, names)
        end = start + batch.num_rows
        if positions is None:
            yield from live_rows(projection, batch, np.arange(start, end), stripe)
        elif len(mine := positions[slice(*np.searchsorted(positions, [start, end]))]):
            yield from live_rows(projection, batch.take(pa.array(mine - start)), mine, stripe)
        start = end
    if start != opened.nrows:
        message = f"{file.path} is damaged: {start} of {opened.nrows} rows can be read"
        raise BadData(Reason.SOURCE_UNREADABLE, f"{message}. Restore the file from a copy, or roll the table back.")
