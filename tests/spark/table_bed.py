"""A source table ``ns.src`` beside the target ``ns.t`` of merges, and jobs that read the one into the other.

Used by the tests of tables as sources.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.update import RemoveSnapshotRefUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, PrimitiveType, StringType
from skipstone.runs.load import run_load
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.committing.commits import CommitPorts, TableCommit, commit_table
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import (
    ConsumePolicy,
    DuplicatesPolicy,
    JobRequest,
    LoadTask,
    MaintainTask,
    MergeTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    SourceTableRef,
    TableRef,
    WarehouseRef,
)
from skipstone_core.ids import SOURCE_VARIABLES
from skipstone_core.maintenance.policies import EqualityDeletesPolicy, MaintenancePolicy, MaintenanceStep

from tests.spark.lake import ref_of, write_files
from tests.spark.merge_bed import MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "v", StringType()), NestedField(3, "day", StringType())
)
BY_DAY = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day"))
CONSUMER = "MergeSchedule ns/orders"
SOURCE = "ns.src"
Rows = dict[int, str]


def rows_of(days: Rows, value: str = "new") -> pa.Table:
    """Rows by their ids, with their days."""
    return pa.table({"id": pa.array(list(days), pa.int64()), "v": [value] * len(days), "day": list(days.values())})


class TableBed(MergeBed):
    """Both tables; each has the columns id, v and day."""

    def __init__(
        self, root: Path, limits: DriverShare = USUAL_SHARE, version: int = 2, *, elsewhere: bool = False
    ) -> None:
        """Both are empty. ``elsewhere``: the source is in a Warehouse of its own."""
        super().__init__(root, limits)
        if elsewhere:
            (root / "erp").mkdir()
        self.elsewhere = WarehouseRef(
            name="erp", root=str(root / "erp"), catalog=self.kind, credentials_prefix=SOURCE_VARIABLES
        ) if elsewhere else None  # fmt: skip
        self.theirs = self.catalog if self.elsewhere is None else open_catalog(self.elsewhere)
        self.theirs.create_namespace_if_not_exists(self.namespace)
        self.create(SCHEMA)
        self.make_source(version)

    def close(self) -> None:
        """Close the catalogs."""
        self.theirs.close()
        self.catalog.close()

    def make_source(self, version: int = 2) -> None:
        """Make the source table, partitioned by day."""
        properties = {"format-version": str(version)}
        self.theirs.create_table(SOURCE, SCHEMA, partition_spec=BY_DAY, properties=properties)

    def src(self) -> Table:
        """The source table as it is now."""
        return self.theirs.load_table(SOURCE)

    def head(self) -> int:
        """The newest snapshot of the source."""
        found = self.src().current_snapshot()
        assert found is not None
        return found.snapshot_id

    def add(self, days: Rows, value: str = "new") -> int:
        """Append rows to the source; the snapshot."""
        self._commit(added=write_files(self.src(), rows_of(days, value)))
        return self.head()

    def compact(self) -> None:
        """Write all rows of the source again in files of their own, as a compaction does."""
        table = self.src()
        files = read_file_set(table)
        removed = tuple(files.data_file(ordinal) for ordinal in range(len(files)))
        self._commit(added=write_files(table, table.scan().to_arrow()), removed=removed, is_rewrite=True)

    def resolve(self) -> None:
        """Resolve the equality deletes of the source by a maintain run."""
        policy = MaintenancePolicy(equality_deletes=EqualityDeletesPolicy(min_files=1))
        task = MaintainTask(policy=policy, steps=(MaintenanceStep.RESOLVE_EQUALITY_DELETES,))
        source = TableRef(namespace="ns", name="src", uid="src")
        request = replace(self.request(task_of("")), kind=RunKind.MAINTAIN, table=source, merge=None, maintain=task)
        (step,) = run_maintain(request, Reporter(request)).steps
        assert (step.is_done, step.counts["commits"]) == (True, 1), step

    def delete(self, condition: str) -> int:
        """Delete rows of the source by a second engine (PyIceberg); the snapshot."""
        self.src().delete(condition)
        return self.head()

    def lose_snapshots(self) -> None:
        """Leave the source without a current snapshot, as Spark's CREATE OR REPLACE TABLE does."""
        self.catalog.commit_table(self.src(), (), (RemoveSnapshotRefUpdate(ref_name="main"),))

    def replace_column(self, name: str, kind: PrimitiveType, *, is_new: bool) -> None:
        """Give a column of the source another type, as Spark's CREATE OR REPLACE TABLE does, or drop and add it."""
        change = self.src().transaction()
        with UpdateSchema(change, allow_incompatible_changes=True) as update:
            if not is_new:
                update.update_column(name, kind)
            else:
                update.delete_column(name)
        if is_new:
            with change.update_schema() as update:
                update.add_column(name, kind)
        change.commit_transaction()

    def spec(self, consume: ConsumePolicy = ConsumePolicy.ALL, **fields: Any) -> SourceSpec:
        """The source of a job. ``duplicates``: of the spec, all else of the table."""
        duplicates = fields.pop("duplicates", DuplicatesPolicy.REFUSE)
        table = SourceTableRef(table=TableRef(namespace="ns", name="src", uid="src"), **fields)
        consumer = CONSUMER if consume is ConsumePolicy.NEW else ""
        return SourceSpec(
            format=SourceFormat.PARQUET, paths=(), table=table, consume=consume, consumer=consumer,
            duplicates=duplicates,
        )  # fmt: skip

    def request(self, task: MergeTask, uid: str = "") -> JobRequest:
        """As that of a merge bed, with the Warehouse of the source."""
        return replace(super().request(task, uid), source_warehouse=self.elsewhere)

    def load_request(self, spec: SourceSpec, uid: str = "", attempt: int = 1) -> JobRequest:
        """The request of a load."""
        request = self.request(task_of("", source=spec), uid)
        run_id = f"{request.run_id[:-2]}-{attempt}"
        load = LoadTask(source=spec)
        return replace(request, kind=RunKind.LOAD, merge=None, load=load, attempt=attempt, run_id=run_id)

    def load(self, spec: SourceSpec, uid: str = "", ports: CommitPorts | None = None, attempt: int = 1) -> JobReport:
        """A whole load run."""
        request = self.load_request(spec, uid, attempt)
        return run_load(request, Reporter(request), ports, self.limits)

    def ids(self) -> list[int]:
        """The ids in the target, as often as they are there."""
        return sorted(self.table().scan(selected_fields=("id",)).to_arrow()["id"].to_pylist())

    def left(self) -> list[str]:
        """Files that runs left among their records."""
        return sorted(path.name for path in (self.root / ".skipstone" / "runs").rglob("*") if path.is_file())

    def _commit(self, **change: Any) -> None:
        table = self.src()
        commit_table(self.theirs, ref_of(table), TableCommit(pinned=pin_table(table), **change))
