"""A small lake for index tests: real catalog, real Iceberg tables, real runs, DuckDB as the independent reader.

Used by the index and reindex tests only.
"""

from __future__ import annotations

import itertools
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.indexes.coverage import see_index
from skipstone.indexes.tables import IndexTable, find_index, index_identifier
from skipstone.query import ReadOptions, plan_read, read
from skipstone.query.planner import ReadPlan
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.filesets import read_file_set
from skipstone.tables.namespaces import make_namespace
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.indextypes import IndexParameters
from skipstone_core.contract.reports import IndexState, JobReport
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    IndexRef,
    JobRequest,
    ReindexTask,
    RunKind,
    TableRef,
    WarehouseRef,
    levels_of,
)

from tests.spark.duck import connection

_RUNS = itertools.count(1)


@dataclass
class Lake:
    """One warehouse in a directory, and a namespace in it."""

    root: Path
    index_namespace: str | None = None
    kind: CatalogRef = CatalogRef(type=CatalogType.SQL)  # noqa: RUF009 - it is frozen
    namespace: str = "ns"
    share: DriverShare = USUAL_SHARE
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        """Open its catalog."""
        self.catalog = open_catalog(self.warehouse)
        make_namespace(self.catalog, levels_of(self.namespace))

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        return WarehouseRef(name="wh", root=str(self.root), catalog=self.kind, index_namespace=self.index_namespace)

    def create(self, schema: pa.Schema, name: str = "t", **options: Any) -> Table:
        """A new table."""
        return self.catalog.create_table(self.ref(name).identifier, schema=schema, **options)

    def table(self, name: str = "t") -> Table:
        """The table as it is now."""
        return self.catalog.load_table(self.ref(name).identifier)

    def ref(self, name: str = "t") -> TableRef:
        """The table as requests carry it."""
        return TableRef(namespace=self.namespace, name=name, uid="11111111-aaaa-bbbb-cccc-000000000000")

    def reindex(
        self, index: IndexRef, *, max_segments: int | None = None, name: str = "t", rebuild: str = ""
    ) -> JobReport:
        """A whole reindex run."""
        request = self.request(index, max_segments=max_segments, name=name, rebuild=rebuild)
        return run_reindex(request, Reporter(request), share=self.share)

    def follow(self, index: IndexRef) -> None:
        """Reindex runs of one segment each until none is missing, as an index does that follows its table."""
        for _ in range(self.state(index).segments_missing):
            self.reindex(index, max_segments=1)

    def request(
        self, index: IndexRef, *, max_segments: int | None = None, name: str = "t", rebuild: str = ""
    ) -> JobRequest:
        """The request of a reindex run."""
        return JobRequest(
            kind=RunKind.REINDEX,
            run_id=f"22222222-{next(_RUNS):08d}-1",
            attempt=1,
            warehouse=self.warehouse,
            owner_kind="SecondaryIndex",
            owner_name=index.name,
            owner_uid=index.uid,
            table=self.ref(name),
            indexes=(index,),
            reindex=ReindexTask(index=index, max_segments=max_segments, rebuild=rebuild),
        )

    def state(self, index: IndexRef, name: str = "t") -> IndexState:
        """The state of an index at the table's head."""
        files = read_file_set(self.table(name))
        return see_index(self.catalog, self.warehouse, self.ref(name), files, index).state

    def index_table(self, index: IndexRef, name: str = "t") -> IndexTable:
        """The table of an index, which must be there."""
        identifier = index_identifier(self.warehouse, self.ref(name), index)
        found = find_index(self.catalog, identifier, table_uuid=str(self.table(name).metadata.table_uuid))
        assert found is not None
        return found

    def entries(self, index: IndexRef, name: str = "t") -> pa.Table:
        """All entries of an index with the path of their data file."""
        sql = (
            "select e.*, c.path as data_path from rows e join rows c using (file_id) "
            "where e.kind = 'entry' and c.kind = 'cover'"
        )
        return query(sql, self.index_table(index, name).table.scan().to_arrow())

    def plan(self, condition: str, name: str = "t") -> ReadPlan:
        """The plan of a read."""
        return plan_read(self.table(name), condition, self.options)

    @property
    def options(self) -> ReadOptions:
        """Read options of this lake."""
        return ReadOptions(index_namespace=self.index_namespace)

    def assert_exact(self, condition: str, name: str = "t") -> pa.Table:
        """Read through the indexes and compare with DuckDB's filter over all rows; the rows read."""
        found = read(self.table(name), None, condition, self.options)
        expected = query(f"select * from rows where {condition}", self.table(name).scan().to_arrow())
        assert rows_of(found) == rows_of(expected), condition
        return found

    def assert_every_row_once(self, index: IndexRef, name: str = "t") -> None:
        """Entries of live files = rows of live files, each (file, position) once, as DuckDB joins them."""
        files = self.table(name).inspect.data_files().select(["file_path", "record_count"]).to_pylist()
        live = {file["file_path"]: file["record_count"] for file in files}
        entries = self.entries(index, name).select(["data_path", "pos"]).to_pylist()
        counted = Counter((entry["data_path"], entry["pos"]) for entry in entries if entry["data_path"] in live)
        assert counted == {(path, position): 1 for path, count in live.items() for position in range(count)}


def local(path: str) -> Path:
    """The file on this machine that a location names."""
    return Path(path.removeprefix("file://"))


def query(sql: str, rows: pa.Table) -> pa.Table:
    """What DuckDB answers to ``sql`` on ``rows``."""
    with connection() as duckdb:
        duckdb.register("rows", rows)
        return duckdb.sql(sql).to_arrow_table()


def rows_of(table: pa.Table) -> list[str]:
    """Rows in no order, comparable whatever they hold (NaN included)."""
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def index_on(*columns: str, name: str = "idx", include: Sequence[str] = (), buckets: int | None = None) -> IndexRef:
    """An index as requests carry it; the same in every process."""
    number = zlib.crc32(" ".join((name, *columns, *include, *([str(buckets)] if buckets else []))).encode())
    uid = f"{number:08x}-0000-0000-0000-000000000000"
    return IndexRef(
        name=name, uid=uid, columns=columns, include=tuple(include), parameters=IndexParameters(buckets=buckets)
    )
