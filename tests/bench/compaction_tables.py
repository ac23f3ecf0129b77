"""The tables of the compaction benchmark, and the runs of ours that it times.

Every table names the same small files of TPC-H lineitem, which no compaction removes, and is put back to its first
state by registering its first metadata again. Runs of ours are in a process of their own, with a warm session, as in a
pod.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from pyiceberg.table import Table
from skipstone.indexes.tables import index_identifier
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.session import spark_session
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    IndexRef,
    JobRequest,
    MaintainTask,
    MergeKey,
    MergeTask,
    ReindexTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableRef,
)
from skipstone_core.contract.spark import SparkRef
from skipstone_core.maintenance.policies import CompactionPolicy, MaintenancePolicy, MaintenanceStep

from tests.bench.lineitem import ROOT, Lineitem, index_on
from tests.bench.sqllake import SqlLake
from tests.spark.merge_bed import INSERT, UPDATE

NAMESPACE = "compact"
#: Of every engine.
CORES = 2
PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.compression-level": "1",
    "write.merge.mode": "merge-on-read",
}
INDEXES = tuple(replace(index_on((name,)), is_inline=True) for name in ("l_partkey", "l_suppkey"))
KEYS = ("l_orderkey", "l_linenumber")
_RUNS = itertools.count(1)


@dataclass(frozen=True)
class Bed(SqlLake):
    """Tables of the first ``files`` files of ``lineitem``."""

    namespace = NAMESPACE
    lineitem: Lineitem
    files: int
    first: dict[str, str] = field(default_factory=dict)

    @property
    def root(self) -> Path:
        """Where they lie."""
        return ROOT / ".cache" / "bench" / "compaction"

    def sql(self, name: str) -> str:
        """A table as Spark names it."""
        return f"{self.warehouse.catalog.name}.{NAMESPACE}.{name}"

    def table(self, name: str) -> Table:
        """A table as it is now."""
        return self.catalog.load_table((NAMESPACE, name))

    def make(self, name: str) -> None:
        """A table of the files, in one commit."""
        self.lineitem.make()
        given = self.lineitem.table()
        files = sorted((task.file for task in given.scan().plan_files()), key=lambda file: file.file_path)
        table = self.catalog.create_table((NAMESPACE, name), given.schema(), properties=PROPERTIES)
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in files[:: max(1, len(files) // self.files)][: self.files]:
                append.append_data_file(file)
        self.keep(name)

    def keep(self, name: str) -> None:
        """Take the state of a table, or of an index table, for its first."""
        self.first[name] = self.table(name).metadata_location

    def restore(self, name: str) -> None:
        """Put tables back to their first state."""
        self.catalog.drop_table((NAMESPACE, name))
        self.catalog.register_table((NAMESPACE, name), self.first[name])

    def index_names(self, name: str) -> list[str]:
        """The names of the index tables of a table."""
        return [index_identifier(self.warehouse, self.ref(name), index)[-1] for index in INDEXES]

    def sizes(self, name: str) -> list[int]:
        """Bytes of the live data files."""
        return sorted(read_file_set(self.table(name)).files["size"].to_pylist())

    def ref(self, name: str) -> TableRef:
        """A table as requests carry it."""
        return TableRef(namespace=NAMESPACE, name=name, uid="11111111-aaaa-bbbb-cccc-000000000000")

    def request(self, name: str, kind: RunKind, indexes: tuple[IndexRef, ...] = (), **task: Any) -> JobRequest:
        """A run on a table."""
        uid = f"{next(_RUNS):08d}-0000-0000-0000-{time.time_ns() % 10**12:012d}"
        return JobRequest(
            kind=kind,
            run_id=f"{uid[:8]}-cafe-1",
            attempt=1,
            warehouse=self.warehouse,
            owner_kind="Table",
            owner_name="bench",
            owner_uid=uid,
            txn=uid,
            table=self.ref(name),
            indexes=indexes,
            spark=SparkRef(driver_cores=CORES),
            **task,
        )

    def compact(self, name: str, target: int, sort_by: Sequence[str] = (), *, indexed: bool = False) -> float:
        """Seconds of a maintain run that compacts, and enters what it writes into the indexes."""
        compaction = CompactionPolicy(target_file_size=target, min_input_files=2, sort_by=tuple(sort_by))
        policy = MaintenancePolicy(compaction=compaction)
        task = MaintainTask(policy=policy, steps=(MaintenanceStep.COMPACTION,))
        return ran(self.request(name, RunKind.MAINTAIN, INDEXES if indexed else (), maintain=task))

    def reindex(self, name: str) -> float:
        """Seconds of the runs that bring the indexes up to date."""
        tasks = [(index, ReindexTask(index=index)) for index in INDEXES]
        return sum(ran(self.request(name, RunKind.REINDEX, (one,), reindex=task)) for one, task in tasks)

    def merge(self, name: str, feed: str) -> float:
        """Seconds of a merge of the feed by the key."""
        task = MergeTask(
            source=SourceSpec(format=SourceFormat.PARQUET, paths=(feed,)),
            keys=tuple(MergeKey(target=key, source=key) for key in KEYS),
            when_matched=(UPDATE,),
            when_not_matched=(INSERT,),
        )
        return ran(self.request(name, RunKind.MERGE, INDEXES[:1], merge=task))


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def close() -> None:
    """End the process of our runs."""
    _process().shutdown()


def ran(request: JobRequest) -> float:
    """Seconds of a run, in the warm process."""
    return _process().submit(_run, request).result()


def _run(request: JobRequest) -> float:
    spark_session(request).sparkContext.setLogLevel("ERROR")
    run = {RunKind.MAINTAIN: run_maintain, RunKind.REINDEX: run_reindex, RunKind.MERGE: run_merge}[request.kind]
    start = time.perf_counter()
    report: JobReport = run(request, Reporter(request))
    seconds = time.perf_counter() - start
    left = [one.message for one in report.steps if not one.is_done]
    if report.outcome not in (RunOutcome.COMMITTED, RunOutcome.ALREADY_COMMITTED) or left or report.message:
        raise RuntimeError(f"{request.kind}: {report.outcome} {report.reason} {report.message} {left}")
    return seconds
