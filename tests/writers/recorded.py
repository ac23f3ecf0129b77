"""Tables of other writers as they were written, kept as archives and laid out again in the place that they name.

Tables name their files by absolute paths, in manifests and delete files alike, so each is recorded and laid out in the
same folder, which one process at a time has for itself. Small files: a few kilobytes each.
"""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.writers.harness import PLACES, Place, reference_rows

ARCHIVES = Path(__file__).parent / "recorded"
_ROWS = "expected-rows.parquet"
_METADATA = "metadata-file.txt"
#: Which tables are recorded: writer and case.
SAMPLES = (
    ("duckdb", "copy"),
    ("duckdb", "rest-deletes"),
    ("spark", "orc"),
    ("dlt", "merge"),
    ("chdb", "bucket"),
    ("sail", "equality-deletes"),
    ("sail", "v3-vectors"),
    ("icebergo", "deletes"),
    ("flink", "stream-v2"),
    ("flink", "stream-v3"),
)


@contextmanager
def held(*writers: str) -> Iterator[None]:
    """Have the folders of ``writers``, empty, for this process alone; others wait."""
    with ExitStack() as stack:
        for name in sorted(writers):
            lock = stack.enter_context(Path(f"{PLACES}-{name}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = PLACES / name
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
        yield


def record(writer: str, place: Place, spark: SparkSession) -> None:
    """Keep the table at ``place`` and its rows, as the reference engine reads them."""
    folder = _folder_of(place)
    pq.write_table(reference_rows(place, spark), folder / _ROWS)
    (folder / _METADATA).write_text(place.metadata)
    ARCHIVES.mkdir(exist_ok=True)
    with tarfile.open(ARCHIVES / f"{writer}--{place.name}.tar.xz", "w:xz") as archive:
        archive.add(folder, folder.relative_to(PLACES))
    (folder / _ROWS).unlink()
    (folder / _METADATA).unlink()


def _folder_of(place: Place) -> Path:
    """The folder that holds the data and metadata of a table: two above its metadata file."""
    return Path(place.metadata).parents[1]


def recorded() -> list[tuple[str, str]]:
    """Writer and case of each archive."""
    names = sorted(path.name.removesuffix(".tar.xz") for path in ARCHIVES.glob("*.tar.xz"))
    return [(writer, case) for writer, _, case in (name.partition("--") for name in names)]


def laid_out(writer: str, case: str) -> tuple[Place, pa.Table]:
    """The table of an archive in its place, and its rows."""
    with tarfile.open(ARCHIVES / f"{writer}--{case}.tar.xz") as archive:
        archive.extractall(PLACES, filter="data")
        (listed,) = [name for name in archive.getnames() if name.endswith(_METADATA)]
    folder = (PLACES / listed).parent
    return Place(PLACES / writer, case, (folder / _METADATA).read_text()), pq.read_table(folder / _ROWS)
