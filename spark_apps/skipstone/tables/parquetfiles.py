"""Reads Parquet files with all their rows or not at all: Arrow passes by what a damaged header makes of a page.

Whatever reads rows of Parquet files in the data plane reads them here. Must not know what the rows mean.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from skipstone_core.errors import BadData
from skipstone_core.reasons import Reason

#: Rows of a batch where the caller does not say.
BATCH_ROWS = 64 * 1024
#: What Arrow says of a page that is not the one that was written.
_WRONG_CHECKSUM = "CRC checksum"


class DamagedFileError(pa.ArrowInvalid):  # type: ignore[misc]  # Arrow has no types
    """A file gives other rows than its footer tells, or pages that are not those that were written."""


@contextmanager
def naming_damage(what: str) -> Iterator[None]:
    """Raise BadData (SOURCE_UNREADABLE) that names ``what``, a file of a table with its path, when it is damaged."""
    try:
        yield
    except DamagedFileError as error:
        message = f"{what} is damaged: {error}. Restore it from a copy, or roll the table back."
        raise BadData(Reason.SOURCE_UNREADABLE, message) from error


class WholeFile:
    """An open Parquet file. Page checksums are verified where the file has them."""

    def __init__(
        self, source: Any, metadata: pq.FileMetaData | None = None, *, use_threads: bool = False, **options: Any
    ) -> None:
        """``metadata``: the file's footer where it is known. ``options``: of ``pyarrow.parquet.ParquetFile``.

        Raises DamagedFileError for a footer whose row groups are not all of its rows, and what Arrow raises.
        """
        self._file = pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True, **options)
        self._use_threads = use_threads
        self.metadata: pq.FileMetaData = self._file.metadata
        #: Rows of each row group.
        self.group_rows = tuple(self.metadata.row_group(n).num_rows for n in range(self.metadata.num_row_groups))
        _require("the file", sum(self.group_rows), self.metadata.num_rows)

    @property
    def schema(self) -> pq.ParquetSchema:
        """The columns as Parquet has them."""
        return self._file.schema

    @property
    def schema_arrow(self) -> pa.Schema:
        """The columns as Arrow has them."""
        return self._file.schema_arrow

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows. Raises DamagedFileError, and what Arrow raises when the storage fails."""
        with _damage():
            found = self._file.read(columns=list(columns), use_threads=self._use_threads).select(columns)
        _require("the file", found.num_rows, self.metadata.num_rows)
        return found

    def read_group(self, group: int, columns: Sequence[str]) -> pa.Table:
        """The rows of a row group. Raises as ``read`` does."""
        with _damage():
            found = self._file.read_row_group(group, columns=list(columns), use_threads=self._use_threads)
        _require(f"row group {group}", found.num_rows, self.group_rows[group])
        return found.select(columns)

    def batches(
        self, columns: Sequence[str], groups: Collection[int] | None = None, rows: int = BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The rows of row groups (None: of all), at most so many ``rows`` at once.

        Raises as ``read`` does, maybe after the last batch of a row group: until then a row may hold values of
        several rows, so whoever stops before must not use what it has.
        """
        for group in range(len(self.group_rows)) if groups is None else groups:
            found = 0
            for batch in self._batches(columns, group, rows):
                found += batch.num_rows
                yield batch.select(columns)
            _require(f"row group {group}", found, self.group_rows[group])

    def _batches(self, columns: Sequence[str], group: int, rows: int) -> Iterator[pa.RecordBatch]:
        with _damage():
            yield from self._file.iter_batches(
                rows, row_groups=[group], columns=list(columns), use_threads=self._use_threads
            )


@contextmanager
def _damage() -> Iterator[None]:
    """Raise DamagedFileError for what Arrow finds wrong with the bytes, not for a storage that does not answer."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise DamagedFileError(str(error)) from error
    except OSError as error:
        if _WRONG_CHECKSUM in str(error):
            raise DamagedFileError(str(error)) from error
        raise


def _require(what: str, found: int, told: int) -> None:
    if found != told:
        raise DamagedFileError(f"{found} of {told} rows of {what} can be read")
