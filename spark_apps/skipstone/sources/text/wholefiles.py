"""Files that tasks read whole, one after the other: numbers of files in, batches of raw columns out.

Called by the readers of formats of which a part cannot be read by itself. Must not know a format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from skipstone.sources.groups import URL
from skipstone.sources.listing import SourceListing
from skipstone.storage.port import StoredFile
from skipstone.tasks.failures import carrying
from skipstone.tasks.mapping import BatchKernel, map_batches

#: Source bytes that one task takes on when there are more than cores.
_TASK_BYTES = 64 << 20
FileReader = Callable[[StoredFile], Iterator[pa.RecordBatch]]


def whole_files(
    spark: SparkSession, listing: SourceListing, files: Sequence[StoredFile], read: FileReader, columns: Sequence[str]
) -> DataFrame:
    """What ``read`` makes of ``files``, and URL. ``columns``: the DDL of what it makes; it is pickled.

    What it raises that a user can fix reaches the driver.
    """
    size = sum(file.entry.size for file in files)
    cores = max(1, spark.sparkContext.defaultParallelism)
    tasks = min(len(files), max(cores, -(-size // _TASK_BYTES)))
    reading = _Reading(tuple(files), tuple(_url(listing, file) for file in files), read)
    return map_batches(spark.range(0, len(files), 1, tasks), reading.kernel(), ", ".join([*columns, f"{URL} string"]))


def _url(listing: SourceListing, file: StoredFile) -> str:
    scheme, colon, place = listing.storage.address(file.entry.path).partition(":")
    return f"{scheme}{colon}{quote(place)}"


@dataclass(frozen=True)
class _Reading:
    """What tasks read: ``files`` by number, and the URL of each."""

    files: Sequence[StoredFile]
    urls: Sequence[str]
    read: FileReader

    def kernel(self) -> BatchKernel:
        """Takes numbers of files."""

        def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for number in batch.column("id").to_pylist():
                    with carrying():
                        yield from self._rows(number)

        return rows

    def _rows(self, number: int) -> Iterator[pa.RecordBatch]:
        for batch in self.read(self.files[number]):
            yield batch.append_column(URL, pa.array([self.urls[number]] * batch.num_rows, pa.string()))
