"""Reads entries from files of an index table, filtered, with row groups pruned by their statistics.

Called by lookup and compaction. Must not know what the entries are used for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.io import FileIO


def scan_entries(
    file: tuple[FileIO, str], schema: pa.Schema, condition: pc.Expression | None, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Batches of ``columns`` of the entries that pass ``condition``, in file order; ``schema``: of all entries.

    Raises OSError or pa.ArrowException for a file that is gone or damaged.
    """
    io, path = file
    with io.new_input(path).open() as stream:
        fragment = ds.ParquetFileFormat().make_fragment(stream)
        scanner = fragment.scanner(schema=schema, columns=list(columns), filter=condition, use_threads=False)
        yield from (batch for batch in scanner.to_batches() if batch.num_rows)
