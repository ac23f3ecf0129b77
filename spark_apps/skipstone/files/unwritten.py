"""A writer that writes nothing: what a dry run of a merge gives its rows to.

Called by the merge kernel in the place of the writer, so that rows take the same way and meet the same refusals. Must
not create a file.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from skipstone.files.partitions import PartitionTuple
from skipstone.files.splicing import ChunkSource, SplicedFile
from skipstone.files.writer import DataFileWriter


class UnwrittenFiles(DataFileWriter):
    """Takes rows as a ``DataFileWriter`` does, refuses those that it refuses, and forgets the others."""

    def splice(self, partition: PartitionTuple) -> SplicedFile:
        """A file of ``partition`` that is never made."""
        return _UnwrittenSplice(self._io, "", self.layout)

    def fill(self, file: SplicedFile, rows: Iterable[pa.RecordBatch]) -> None:
        """Judge whole rows of the file's partition."""
        for batch in rows:
            self._conform(pa.Table.from_batches([batch]))

    def _take(self, partition: PartitionTuple, rows: pa.Table) -> None:
        """Rows that have got here have a partition, and nothing is left to judge."""


class _UnwrittenSplice(SplicedFile):
    def append(self, rows: pa.Table) -> None:
        pass

    def copy(self, source: ChunkSource, group: int, fresh: pa.Table | None = None) -> None:
        pass
