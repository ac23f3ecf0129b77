"""TPC-H lineitem as the same Parquet files in two table formats: what the lookup benchmark reads.

The files are written once by the data plane's own writer, committed to an Iceberg table segment by segment, and linked
into a Delta table by CONVERT. Kept under ``.cache/bench``; complete when the last step says so.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from propcache.api import cached_property
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from skipstone.files.writer import DataFileWriter, to_data_files, write_spec
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.session import spark_session
from skipstone_core.contract.indextypes import IndexParameters
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    IndexRef,
    JobRequest,
    ReindexTask,
    RunKind,
    TableRef,
    WarehouseRef,
)
from skipstone_core.reasons import Reason

from tests.spark.jars import CACHE, DELTA, ICEBERG_RUNTIME, jar_paths, resolved_jars

ROOT = Path(__file__).parents[2]
NAMESPACE, NAME = "tpch", "lineitem"
#: Tables that it is joined with.
OTHERS = ("part", "orders")
#: Small pages, of which those with a hit are read alone; all peers read the same files.
PROPERTIES = {"write.parquet.page-row-limit": "4096"}
#: Rises with every change of what is generated.
LAYOUT = 2


@dataclass(frozen=True)
class Lineitem:
    """The tables of one scale. ``segments`` commits of ``files // segments`` files each."""

    scale: float
    segments: int
    files: int

    @property
    def root(self) -> Path:
        """Where it lies."""
        return ROOT / ".cache" / "bench" / f"lineitem-{self.scale:g}-{self.segments}-{self.files}-{LAYOUT}"

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        return WarehouseRef(name="bench", root=str(self.root), catalog=CatalogRef(type=CatalogType.SQL))

    @property
    def delta_path(self) -> Path:
        """The Delta table's folder."""
        return self.root / "delta"

    @cached_property
    def catalog(self) -> SqlCatalog:
        """The catalog, in SQLite."""
        uri = f"sqlite:///{self.root}/catalog.db"
        return SqlCatalog(self.warehouse.catalog.name, uri=uri, warehouse=f"file://{self.root}")

    def table(self) -> Table:
        """The Iceberg table as it is now."""
        return self.catalog.load_table((NAMESPACE, NAME))

    def make(self) -> None:
        """Generate, write and commit, unless it is there."""
        if (self.root / "complete").exists():
            return
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir(parents=True)
        self.catalog.create_namespace(NAMESPACE)
        for segment in range(self.segments):
            say(f"segment {segment + 1} of {self.segments}")
            rows = generated(self.root, self.scale, NAME, segment, self.segments)
            if segment == 0:
                self.catalog.create_table((NAMESPACE, NAME), schema=rows.schema, properties=PROPERTIES)
            append(self.table(), rows, segment, self.files // self.segments)
        (self.root / "complete").touch()

    def make_delta(self, spark: SparkSession) -> None:
        """The same files, linked, as a Delta table with statistics."""
        if (self.delta_path / "_delta_log").exists():
            return
        say("Delta: the same files")
        self.delta_path.mkdir(exist_ok=True)
        for task in self.table().scan().plan_files():
            path = Path(task.file.file_path.removeprefix("file://"))
            os.link(path, self.delta_path / path.name)
        spark.sql(f"convert to delta parquet.`{self.delta_path}`")

    def reindex(self, column: str, max_segments: int | None = None, include: tuple[str, ...] = ()) -> float:
        """Enter at most so many more segments of the index on ``column``; seconds of it."""
        return reindex(self.warehouse, NAME, index_on((column,), include), max_segments)

    def drop_indexes(self, keep: Sequence[str] = ()) -> None:
        """Forget all indexes; ``keep``: other tables."""
        for identifier in self.catalog.list_tables(NAMESPACE):
            if identifier[-1] not in (NAME, *keep):
                self.catalog.purge_table(identifier)


def generated(root: Path, scale: float, name: str, part: int, parts: int) -> pa.Table:
    """One of so many parts of a table of TPC-H."""
    folder = root / "generated"
    program = Path(sys.executable).parent / "tpchgen-cli"
    command = [program, "parquet", "--scale-factor", f"{scale:g}", "--tables", name]
    command += ["--parts", str(parts), "--part", str(part + 1), "--output-dir", folder]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    rows = pa.concat_tables(pq.read_table(path) for path in sorted(folder.rglob("*.parquet")))
    shutil.rmtree(folder)
    return pa.table({field.name: rows[field.name].cast(plain(field.type)) for field in rows.schema})


def append(table: Table, rows: pa.Table, segment: int, files: int) -> None:
    """Commit the rows of a segment in so many files."""
    written, run = [], uuid.uuid4().hex[:8]
    for number in range(files):
        begin, end = (rows.num_rows * at // files for at in (number, number + 1))
        writer = DataFileWriter(write_spec(table, f"bench{segment:03}-{run}"), f"{number:05}-0")
        writer.write(rows.slice(begin, end - begin))
        written.extend(file.to_row() for file in writer.close())
    with table.transaction() as change, change.update_snapshot().fast_append() as snapshot:
        for file in to_data_files(written, table):
            snapshot.append_data_file(file)


def index_on(columns: tuple[str, ...], include: tuple[str, ...] = (), buckets: int | None = None) -> IndexRef:
    """An index as requests carry it."""
    joined = "-".join([*columns, *(["with", *include] if include else []), *(["buckets"] if buckets else [])])
    uid = f"{sum(joined.encode()):08d}-0000-0000"
    return IndexRef(
        name=f"by-{joined}", uid=uid, columns=columns, include=include, parameters=IndexParameters(buckets=buckets)
    )


def reindex(warehouse: WarehouseRef, name: str, index: IndexRef, max_segments: int | None = None) -> float:
    """Enter at most so many more segments of an index of a table; seconds of it.

    In a process of its own, as in a pod: the run's session has settings that a user's session has not.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(_reindex, warehouse, name, index, max_segments).result()


def _reindex(
    warehouse: WarehouseRef,
    name: str,
    index: IndexRef,
    max_segments: int | None,
) -> float:
    request = JobRequest(
        kind=RunKind.REINDEX,
        run_id=f"bench-{index.name}-1",
        attempt=1,
        warehouse=warehouse,
        owner_kind="SecondaryIndex",
        owner_name=index.name,
        owner_uid=index.uid,
        table=TableRef(namespace=NAMESPACE, name=name, uid="11111111-aaaa-bbbb-cccc-000000000000"),
        indexes=(index,),
        reindex=ReindexTask(index=index, max_segments=max_segments),
    )
    warm = spark_session(request)
    warm.range(10).mapInArrow(_with_kernels, "id long").collect()
    start = time.perf_counter()
    report = run_reindex(request, Reporter(request))
    if report.reason not in (Reason.COMMITTED, Reason.ALREADY_COMMITTED):
        raise RuntimeError(f"the index {index.name} was not built: {report.message}")
    return time.perf_counter() - start


def _with_kernels(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make the Python workers import what builds need, as the peer's classes are loaded in a warm session."""
    importlib.import_module("skipstone.indexes.building.build")
    yield from batches


def plain(kind: pa.DataType) -> pa.DataType:
    """Types that Iceberg has: no views, no large strings."""
    if pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
        return pa.string()
    return pa.int64() if pa.types.is_integer(kind) and kind.bit_width > 32 else kind


def say(text: str) -> None:
    """Progress, for people."""
    print(f"  {text}", flush=True)


class Place(Protocol):
    """Where a benchmark's tables are."""

    @property
    def root(self) -> Path:
        """The folder of all."""

    @property
    def warehouse(self) -> WarehouseRef:
        """The catalog, in SQLite in that folder."""


def session(place: Place, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Spark with both formats, in two cores; ``extra`` settings on top."""
    delta = {
        "spark.jars": ",".join(str(path) for path in [*_iceberg(), *resolved_jars("delta", DELTA)]),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "skipstone.rememberedSeconds": "0",  # indexes are made and dropped between queries
    }
    return iceberg_session(place, {**delta, **(extra or {})})


def _iceberg() -> list[Path]:
    CACHE.mkdir(parents=True, exist_ok=True)
    return jar_paths("iceberg-runtime", ICEBERG_RUNTIME)


def iceberg_session(place: Place, extra: Mapping[str, str] | None = None) -> SparkSession:
    """Spark with Iceberg alone, in two cores; ``extra`` settings on top."""
    name = place.warehouse.catalog.name
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": ",".join(str(path) for path in _iceberg()),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.warehouse.dir": str(place.root / "spark-warehouse"),
        f"spark.sql.catalog.{name}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{name}.type": "jdbc",
        f"spark.sql.catalog.{name}.uri": f"jdbc:sqlite:{place.root}/catalog.db",
        f"spark.sql.catalog.{name}.warehouse": f"file://{place.root}",
        f"spark.sql.catalog.{name}.jdbc.schema-version": "V1",
    }
    builder = SparkSession.builder.appName("bench-lookup")
    for key, value in {**settings, **(extra or {})}.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
