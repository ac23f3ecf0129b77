"""A small warehouse for merge tests: real catalog, real files, whole merge runs, and DuckDB's MERGE to compare with.

Used by the merge tests only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone.files.writer import DataFileWriter, to_data_files, write_spec
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.committing.commits import CommitPorts, TableCommit, commit_table
from skipstone.tables.filesets import pin_table
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    JobRequest,
    MergeAction,
    MergeClause,
    MergeKey,
    MergeTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableRef,
    WarehouseRef,
)
from skipstone_core.contract.spark import SparkRef

from tests.spark.duck import connection

_UIDS = itertools.count(1)
#: The driver does no part of a merge by itself.
ALL_IN_SPARK = NO_SHARE
Row = Mapping[str, Any]
UPDATE = MergeClause(action=MergeAction.UPDATE)
DELETE = MergeClause(action=MergeAction.DELETE)
INSERT = MergeClause(action=MergeAction.INSERT)
DELETE_D = MergeClause(action=MergeAction.DELETE, when="source.op = 'D'")


@dataclass
class MergeBed:
    """One warehouse in a directory with one namespace; ``limits``: of what merges do without Spark.

    ``cores``: of drivers.
    """

    root: Path
    limits: DriverShare = USUAL_SHARE
    namespace: str = "ns"
    kind: CatalogRef = field(default_factory=lambda: CatalogRef(type=CatalogType.SQL))
    cores: int = 1
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        """Open its catalog."""
        self.catalog = open_catalog(self.warehouse)
        self.catalog.create_namespace_if_not_exists(self.namespace)

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        return WarehouseRef(name="wh", root=str(self.root), catalog=self.kind)

    @property
    def ref(self) -> TableRef:
        """The table ``t`` as requests carry it."""
        return TableRef(namespace=self.namespace, name="t", uid="11111111-aaaa-bbbb-cccc-000000000000")

    def create(self, schema: Schema, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, **properties: str) -> Table:
        """Make the table."""
        return self.catalog.create_table(
            self.ref.identifier, schema, partition_spec=spec, properties={"format-version": "2", **properties}
        )

    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(self.ref.identifier)

    def append(self, *files: Sequence[Row]) -> None:
        """Append one data file (or one per partition) for each list of rows, in one commit."""
        table = self.table()
        written: list[bytes] = []
        for rows in files:
            writer = DataFileWriter(write_spec(table, f"append{next(_UIDS)}"), "t")
            writer.write(pa.Table.from_pylist([dict(row) for row in rows], schema=writer.arrow_schema))
            written += [file.to_row() for file in writer.close()]
        change = TableCommit(pinned=pin_table(table), added=tuple(to_data_files(written, table)))
        commit_table(self.catalog, self.ref, change)

    def source(self, rows: pa.Table | Sequence[Row], name: str = "changes") -> str:
        """Write the change feed as Parquet; its path relative to the root."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(row) for row in rows])
        folder = self.root / "feeds" / name
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, folder / "part-0.parquet")
        return f"feeds/{name}"

    def text(self, name: str, content: str) -> str:
        """Write a text file; its path relative to the root."""
        path = self.root / "feeds" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        return f"feeds/{name}"

    def request(self, task: MergeTask, uid: str = "") -> JobRequest:
        """The request of a merge run; each call is another job unless ``uid`` says which."""
        number = next(_UIDS)
        uid = uid or f"{number:08d}-0000-0000-0000-000000000000"
        return JobRequest(
            kind=RunKind.MERGE,
            run_id=f"{uid[:8]}-{number:08d}-1",
            attempt=1,
            warehouse=self.warehouse,
            owner_kind="MergeJob",
            owner_name="m",
            owner_uid=uid,
            txn=uid,
            table=self.ref,
            merge=task,
            spark=SparkRef(driver_cores=self.cores),
        )

    def merge(self, task: MergeTask, uid: str = "", ports: CommitPorts | None = None) -> JobReport:
        """A whole merge run."""
        request = self.request(task, uid)
        return run_merge(request, Reporter(request), ports, self.limits)

    def rows(self) -> list[str]:
        """The rows of the table in no order, as PyIceberg reads them."""
        return rows_of(self.table().scan().to_arrow())

    def paths(self) -> set[str]:
        """The live data files."""
        return {task.file.file_path.removeprefix("file://") for task in self.table().scan().plan_files()}

    def on_disk(self) -> set[str]:
        """All data files on disk."""
        return {str(path) for path in self.root.rglob("*.parquet") if "feeds" not in path.parts}


def task_of(path: str, keys: Iterable[tuple[str, str]] | Iterable[str] = ("id",), **fields: Any) -> MergeTask:
    """A merge of the Parquet feed at ``path``: update or insert by default."""
    pairs = [(key, key) if isinstance(key, str) else key for key in keys]
    source = fields.pop("source", SourceSpec(format=SourceFormat.PARQUET, paths=(path,)))
    fields = {"when_matched": (UPDATE,), "when_not_matched": (INSERT,), **fields}
    return MergeTask(source=source, keys=tuple(MergeKey(target=t, source=s) for t, s in pairs), **fields)


def rows_of(table: pa.Table) -> list[str]:
    """Rows in no order, comparable whatever they hold (NaN included)."""
    return sorted(repr(tuple(row.values())) for row in table.to_pylist())


def duckdb_merge(target: pa.Table, source: pa.Table, statement: str) -> list[str]:
    """What DuckDB makes of ``target`` (as ``t``) after ``statement`` with ``source`` (as ``s``)."""
    with connection() as duckdb:
        duckdb.register("given", target)
        duckdb.register("s", source)
        duckdb.execute("create temp table t as select * from given")
        duckdb.execute(statement)
        return rows_of(duckdb.sql("select * from t").to_arrow_table().cast(target.schema))


@dataclass
class AtSwap:
    """Commit hooks that do something once, just before or just after the catalog swaps."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def before_swap(self, table: Table) -> None:
        """Run ``before`` once."""
        action, self.before = self.before, None
        if action:
            action()

    def after_swap(self, table: Table) -> None:
        """Run ``after`` once."""
        action, self.after = self.after, None
        if action:
            action()
