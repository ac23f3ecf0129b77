"""Who merges in the merge benchmark: ours in a process of its own, Delta and Iceberg in a session of theirs.

All start from the same files and are put back to them after every merge.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from pyspark.sql import SparkSession
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.session import spark_session
from skipstone_core.contract.reports import JobReport
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

from tests.bench.merge_tables import COPY_ON_WRITE, MERGE_ON_READ, NAMESPACE, UUIDS, Bed, Target, remove_others

#: Columns of a feed that tables do not have.
OP = "op"
#: Of every engine.
CORES = 2
#: Of a Delta table: converted, then given its properties.
FIRST_VERSION = 1
_RUNS = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A merge. ``feed``: a folder of Parquet files with the table's columns and ``op``; ``columns``: the table's."""

    name: str
    target: Target
    feed: Path
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    when_matched: tuple[MergeClause, ...] = ()
    when_not_matched: tuple[MergeClause, ...] = ()
    when_not_matched_by_source: tuple[MergeClause, ...] = ()

    @property
    def changed(self) -> tuple[str, ...]:
        """Columns that tell a right result from a wrong one: the key and what feeds change most."""
        return (self.columns[0], "l_quantity", "l_shipmode")

    def sql(self, table: str) -> str:
        """The statement for peers, with the feed as the view ``changes``."""
        on = " and ".join(f"target.{key} = source.{key}" for key in self.keys)
        parts = [f"merge into {table} as target using changes as source on {on}"]
        parts += [self._clause("when matched", clause) for clause in self.when_matched]
        parts += [self._clause("when not matched", clause) for clause in self.when_not_matched]
        parts += [self._clause("when not matched by source", one) for one in self.when_not_matched_by_source]
        return " ".join(parts)

    def _clause(self, head: str, clause: MergeClause) -> str:
        condition = f" and {clause.when}" if clause.when else ""
        if clause.action is MergeAction.DELETE:
            return f"{head}{condition} then delete"
        if clause.action is MergeAction.INSERT:
            values = ", ".join(f"source.{name}" for name in self.columns)
            return f"{head}{condition} then insert ({', '.join(self.columns)}) values ({values})"
        values = ", ".join(f"{name} = source.{name}" for name in self.columns)
        return f"{head}{condition} then update set {values}"


class Engine(Protocol):
    """One way of merging."""

    name: str
    copies_on_write: bool

    def prepare(self, case: Case) -> None:
        """Make the table of the case, if it is not there, in its first state."""

    def merge(self, case: Case) -> float:
        """Merge; seconds of it."""

    def read(self, case: Case) -> str:
        """What to select from in the session of the peers."""

    def restore(self, case: Case) -> None:
        """Put the table back to its first state."""


def _restore(bed: Bed, name: str, keep: set[str]) -> None:
    """Point the catalog at the first state of an Iceberg table and remove the data files written since."""
    location = bed.table(name).location()
    bed.catalog.drop_table((NAMESPACE, name))
    bed.catalog.register_table((NAMESPACE, name), bed.first_state(name))
    remove_others(Path(location.removeprefix("file://")), keep)


@cache
def _warm_process() -> ProcessPoolExecutor:
    """Where all merges of ours run."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


class Ours:
    """Skipstone, as a job's driver runs it, in a warm session; on a table that is merged as ``mode`` says."""

    def __init__(self, bed: Bed, files: dict[str, list[Path]], mode: str = COPY_ON_WRITE) -> None:
        self.copies_on_write = mode == COPY_ON_WRITE
        self.name = "ours" if self.copies_on_write else "ours_mor"
        self._bed, self._files, self._mode = bed, files, mode
        self._process = _warm_process()
        self.report: JobReport | None = None

    def prepare(self, case: Case) -> None:
        """Make the table, or fix what a killed benchmark left, and index it where the case wants that."""
        self._bed.copy(case.target, self.table_name(case), self._mode)
        self.restore(case)
        if case.target is UUIDS:
            self._reindex(case)

    def merge(self, case: Case) -> float:
        """Run a merge in the process with the warm session."""
        seconds, self.report = self._process.submit(_merge, self._request(case)).result()
        return seconds

    def read(self, case: Case) -> str:
        """The Iceberg table."""
        return f"{self._bed.warehouse.catalog.name}.{NAMESPACE}.{self.table_name(case)}"

    def restore(self, case: Case) -> None:
        """Put the catalog's pointer back."""
        kept = self._files[case.target.name] if self.copies_on_write else ()
        _restore(self._bed, self.table_name(case), {path.name for path in kept})

    def _reindex(self, case: Case) -> None:
        """Index the key of the case."""
        number = 1 if self.copies_on_write else 2
        index = IndexRef(name="by-key", uid=f"{number:08d}-0000-0000", columns=case.keys)
        request = replace(self._request(case), kind=RunKind.REINDEX, merge=None, txn="", indexes=(index,))
        self._process.submit(_reindex, replace(request, reindex=ReindexTask(index=index))).result()

    def close(self) -> None:
        """End the process."""
        self._process.shutdown()

    def table_name(self, case: Case) -> str:
        """In the catalog."""
        return f"{case.target.name}_{self.name}"

    def _request(self, case: Case) -> JobRequest:
        uid = f"{next(_RUNS):08d}-0000-0000-0000-{os.getpid():012d}"
        source = SourceSpec(format=SourceFormat.PARQUET, paths=(str(case.feed.relative_to(self._bed.root)),))
        task = MergeTask(
            source=source,
            keys=tuple(MergeKey(target=key, source=key) for key in case.keys),
            when_matched=case.when_matched,
            when_not_matched=case.when_not_matched,
            when_not_matched_by_source=case.when_not_matched_by_source,
        )
        return JobRequest(
            kind=RunKind.MERGE,
            run_id=f"{uid[:8]}-1",
            attempt=1,
            warehouse=self._bed.warehouse,
            owner_kind="MergeJob",
            owner_name="bench",
            owner_uid=uid,
            txn=uid,
            table=TableRef(namespace=NAMESPACE, name=self.table_name(case), uid="11111111-aaaa-bbbb-cccc-000000000000"),
            merge=task,
            spark=SparkRef(driver_cores=CORES),
        )


def _merge(request: JobRequest) -> tuple[float, JobReport]:
    warm = spark_session(request)
    warm.sparkContext.setLogLevel("ERROR")
    start = time.perf_counter()
    report = run_merge(request, Reporter(request))
    seconds = time.perf_counter() - start
    if report.reason is not Reason.COMMITTED:
        raise RuntimeError(f"the merge ended as {report.reason}: {report.message}")
    return seconds, report


def _reindex(request: JobRequest) -> None:
    report = run_reindex(request, Reporter(request))
    if report.reason not in (Reason.COMMITTED, Reason.ALREADY_COMMITTED):
        raise RuntimeError(f"the index was not built: {report.reason} {report.message}")


class Iceberg:
    """Iceberg's MERGE INTO in Spark."""

    def __init__(self, bed: Bed, spark: SparkSession, mode: str) -> None:
        self.copies_on_write = mode == COPY_ON_WRITE
        self._short = "cow" if self.copies_on_write else "mor"
        self.name = f"iceberg_{self._short}"
        self._bed, self._spark, self._mode = bed, spark, mode

    def prepare(self, case: Case) -> None:
        """Make the table, or fix what a killed benchmark left."""
        self._bed.copy(case.target, self._name(case), self._mode)
        self.restore(case)

    def merge(self, case: Case) -> float:
        """Run the statement."""
        return _timed(self._spark, case.sql(self.read(case)))

    def read(self, case: Case) -> str:
        """The table."""
        return f"{self._bed.warehouse.catalog.name}.{NAMESPACE}.{self._name(case)}"

    def restore(self, case: Case) -> None:
        """Put the catalog's pointer back."""
        _restore(self._bed, self._name(case), set())

    def _name(self, case: Case) -> str:
        return f"{case.target.name}_{self._short}"


class Delta:
    """Delta's MERGE INTO in Spark."""

    def __init__(self, bed: Bed, spark: SparkSession, files: dict[str, list[Path]], *, vectors: bool) -> None:
        self.name, self.copies_on_write = ("delta_dv", False) if vectors else ("delta_cow", True)
        self._bed, self._spark, self._files, self._vectors = bed, spark, files, vectors

    def prepare(self, case: Case) -> None:
        """Link the files and convert them, once."""
        folder = self._folder(case)
        if not (folder / "_delta_log").exists():
            folder.mkdir(parents=True, exist_ok=True)
            for path in self._files[case.target.name]:
                if not (folder / path.name).exists():
                    os.link(path, folder / path.name)
            self._spark.sql(f"convert to delta parquet.`{folder}`")
            flag = str(self._vectors).lower()
            self._spark.sql(f"alter table delta.`{folder}` set tblproperties ('delta.enableDeletionVectors' = {flag})")
        self.restore(case)

    def merge(self, case: Case) -> float:
        """Run the statement."""
        return _timed(self._spark, case.sql(self.read(case)))

    def read(self, case: Case) -> str:
        """The table."""
        return f"delta.`{self._folder(case)}`"

    def restore(self, case: Case) -> None:
        """Restore the first version and remove what was written since."""
        folder = self._folder(case)
        self._spark.sql(f"restore table delta.`{folder}` to version as of {FIRST_VERSION}")
        remove_others(folder, {path.name for path in self._files[case.target.name]})

    def _folder(self, case: Case) -> Path:
        return self._bed.root / "delta" / f"{case.target.name}_{'dv' if self._vectors else 'cow'}"


def _timed(spark: SparkSession, statement: str) -> float:
    start = time.perf_counter()
    spark.sql(statement).collect()
    return time.perf_counter() - start


def engines_of(
    bed: Bed, spark: SparkSession, files: dict[str, list[Path]], names: Sequence[str]
) -> tuple[tuple[Ours, Ours], list[Engine]]:
    """Ours, copying on write and merging on read, and the peers of these names."""
    peers: list[Engine] = [
        Delta(bed, spark, files, vectors=False),
        Delta(bed, spark, files, vectors=True),
        Iceberg(bed, spark, COPY_ON_WRITE),
        Iceberg(bed, spark, MERGE_ON_READ),
    ]
    return (Ours(bed, files), Ours(bed, files, MERGE_ON_READ)), [peer for peer in peers if peer.name in names]
