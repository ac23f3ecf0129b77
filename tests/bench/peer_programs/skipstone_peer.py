"""Skipstone, copying on write and merging on read, with two indexes: ``python skipstone_peer.py ROOT``.

Runs are in a process of their own, as in a pod, queries in the session of a user. The indexes are not Inline: upserts
leave them behind, and `catch_up` brings them up to date.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import skipstone
from serving import CHECKS, KEY, PART, SELECTED, condition, serve
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.session import spark_session
from skipstone_core.contract.requests import (
    IndexRef,
    JobRequest,
    MergeAction,
    MergeClause,
    MergeKey,
    MergeTask,
    ReindexTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableRef,
)
from skipstone_core.contract.spark import SparkRef
from skipstone_core.reasons import Reason

from tests.bench.lineitem import iceberg_session
from tests.bench.sqllake import SqlLake
from tests.spark.lake import append

NAMESPACE = "bench"
WAYS = {"skipstone_cow": "copy-on-write", "skipstone_mor": "merge-on-read"}
_RUNS = itertools.count(1)


@dataclass(frozen=True)
class Lake(SqlLake):
    """The lake of both tables."""

    namespace = NAMESPACE
    folder: Path

    @property
    def root(self) -> Path:
        """Where it lies."""
        return self.folder


class Skipstone:
    """A table for each mode, with an index of the key and one of the second column."""

    def __init__(self, root: str) -> None:
        self._lake = Lake(Path(root))
        self._lake.root.mkdir(parents=True, exist_ok=True)
        # Runs commit in another process: a session that keeps tables would not see it
        name = f"spark.sql.catalog.{self._lake.warehouse.catalog.name}.cache-enabled"
        self._spark = iceberg_session(self._lake, {name: "false"})
        self._spark.sparkContext.setLogLevel("ERROR")
        self._runs = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def load(self, mode: str, files: Sequence[str]) -> None:
        """A commit for each file."""
        sample = pq.read_schema(files[0])
        properties = {
            "write.merge.mode": WAYS[mode],
            "write.parquet.compression-codec": "zstd",
            "write.parquet.compression-level": "1",
            "write.parquet.page-row-limit": "4096",
        }
        self._lake.catalog.create_table((NAMESPACE, mode), sample, properties=properties)
        for path in files:
            append(self._lake.catalog.load_table((NAMESPACE, mode)), pq.read_table(path))

    def index(self, mode: str, column: str) -> None:
        """Enter what is missing."""
        request = replace(self._request(mode, RunKind.REINDEX), reindex=ReindexTask(index=_index(mode, column)))
        self._runs.submit(_run, request).result()

    def upsert(self, mode: str, changes: str) -> None:
        """A merge, whose file is below the root of the Warehouse as a feed is."""
        name = f"feed/{Path(changes).name}"
        (self._lake.root / "feed").mkdir(exist_ok=True)
        shutil.copy2(changes, self._lake.root / name)
        task = MergeTask(
            source=SourceSpec(format=SourceFormat.PARQUET, paths=(name,)),
            keys=(MergeKey(target=KEY, source=KEY),),
            when_matched=(MergeClause(action=MergeAction.UPDATE),),
            when_not_matched=(MergeClause(action=MergeAction.INSERT),),
        )
        request = self._request(mode, RunKind.MERGE)
        self._runs.submit(_run, replace(request, merge=task, txn=request.owner_uid)).result()

    def catch_up(self, mode: str) -> None:
        """Enter new segments into both indexes."""
        for column in (KEY, PART):
            self.index(mode, column)

    def lookup(self, mode: str, column: str, values: Sequence[Any], shape: str) -> Any:
        """A query of a session that uses indexes."""
        text = f"select {SELECTED[shape]} from {self._name(mode)} where {condition(column, values)}"
        return skipstone.sql(self._spark, text).collect()

    def checks(self, mode: str) -> Any:
        """A query of plain Spark."""
        return self._spark.sql(f"select {CHECKS} from {self._name(mode)}").collect()

    def _name(self, mode: str) -> str:
        return f"{self._lake.warehouse.catalog.name}.{NAMESPACE}.{mode}"

    def _request(self, mode: str, kind: RunKind) -> JobRequest:
        uid = f"{next(_RUNS):08d}-0000-0000-0000-{os.getpid():012d}"
        return JobRequest(
            kind=kind,
            run_id=f"{uid[:8]}-1",
            attempt=1,
            warehouse=self._lake.warehouse,
            owner_kind="MergeJob" if kind is RunKind.MERGE else "SecondaryIndex",
            owner_name="bench",
            owner_uid=uid,
            table=TableRef(namespace=NAMESPACE, name=mode, uid="11111111-aaaa-bbbb-cccc-000000000000"),
            indexes=tuple(_index(mode, column) for column in (KEY, PART)),
            spark=SparkRef(driver_cores=2),
        )


def _index(mode: str, column: str) -> IndexRef:
    number = 1 + list(WAYS).index(mode) * 2 + (column == PART)
    return IndexRef(name=f"by-{column.replace('_', '-')}", uid=f"{number:08d}-0000-0000", columns=(column,))


def _run(request: JobRequest) -> None:
    """One run in the process of runs, whose session is warm. Raises RuntimeError unless it commits."""
    spark_session(request).sparkContext.setLogLevel("ERROR")
    run = run_merge if request.kind is RunKind.MERGE else run_reindex
    report = run(request, Reporter(request))
    if report.reason not in (Reason.COMMITTED, Reason.ALREADY_COMMITTED):
        raise RuntimeError(f"the run ended as {report.reason}: {report.message}")


if __name__ == "__main__":
    serve(Skipstone)
