"""Tasks that read an index in the place of data files, when it holds all columns that a query uses of them.

Used by ``substitution`` for answers that are too large for the driver. The entry files of an index are a staged scan
like any other, of which the entries of other files and of deleted rows are left out and whose columns get the names and
types of the relation. Must not judge whether an answer is worth it: the planner does.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.types import UUIDType
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField
from skipstone_core.errors import BadData

from skipstone.compat.catalyst import DATASETS, PROJECT, RELATIONS, Attribute, JavaSession, LogicalPlan, Relation
from skipstone.compat.java import EMPTY_SEQ, NONE, Jvm, items, java_class, scala_object, scala_seq
from skipstone.compat.partitioning import ALIAS
from skipstone.compat.pyspark import java_frame, plain_frame
from skipstone.files.projections import deleted_positions
from skipstone.files.reader import describe_files
from skipstone.indexes.asking.answers import HeldColumn, IndexAnswer
from skipstone.indexes.tables import IndexFile
from skipstone.query.planner import ReadPlan
from skipstone.query.plans import cost
from skipstone.query.plans.catalogs import java_table
from skipstone.query.plans.fallback import or_else
from skipstone.query.plans.replacing.driver import DriverColumns
from skipstone.query.plans.replacing.residuals import Json, renamed
from skipstone.query.plans.replacing.staging import StagedFiles, StagedScan, Staging, split_size, with_table

logger = logging.getLogger("skipstone.query")

#: Files of an index that are looked for at the same time.
_THREADS = 16
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IndexScan:
    """A scan of the index of ``answer`` by tasks, in place of the files ``ordinals``.

    ``condition``: of the entries of these files, as SQL. ``deleted``: rows of them that are not there any more
    (``file_id``, ``pos``). ``columns``: of the relation.
    """

    answer: IndexAnswer
    columns: DriverColumns
    ordinals: tuple[int, ...]
    condition: str
    deleted: pa.Table

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """The entry files."""
        return tuple(part.file for part in self.answer.probe.parts)

    def text(self) -> str:
        """For explain."""
        return f"read by tasks from the index alone: {len(self.ordinals)} files, by {self.answer.name}"


def plan_index_scan(
    table: Table, plan: ReadPlan, columns: DriverColumns, *, only_rows: bool = False
) -> IndexScan | None:
    """How tasks take the plan's answer; None when they cannot.

    ``only_rows``: they must not even look at entries of rows that are deleted, or that Spark would leave out by bounds.
    """
    answer = plan.answer
    if answer is None or not answer.probe.parts or not _are_there(answer):
        return None
    ordinals, deleted = _undeleted(plan, answer) if only_rows else _deleted(table, plan, answer)
    harmless = np.empty(0, np.int64) if only_rows else _harmless(plan, answer)
    condition = _of_files(answer, ordinals, harmless) if len(ordinals) else None
    return IndexScan(answer, columns, tuple(ordinals.tolist()), condition, deleted) if condition else None


def _are_there(answer: IndexAnswer) -> bool:
    """Return whether the entry files are as they were committed: tasks that do not find one would fail the query."""
    # an unreadable index must cost time, never an answer
    wrong = or_else(
        lambda: _of_another_size(answer),
        lambda _: None,
        f"index {answer.name} cannot be read, its files are read instead",
    )
    if wrong is None:
        return False
    if wrong:
        message = "index %s is damaged, its files are read instead: %s has another size"
        logger.warning(message, answer.name, wrong[0].path)
    return not wrong


def _of_another_size(answer: IndexAnswer) -> list[IndexFile]:
    """The entry files that do not have the size that they were committed with. Raises when one cannot be read."""
    io = answer.probe.index.index.table.io
    with ThreadPoolExecutor(_THREADS) as threads:
        sizes = threads.map(lambda part: len(io.new_input(part.file.path)), answer.probe.parts)
        return [part.file for part, size in zip(answer.probe.parts, sizes, strict=True) if size != part.file.size]


def _undeleted(plan: ReadPlan, answer: IndexAnswer) -> tuple[Int64s, pa.Table]:
    """The files of an answer without deletes, and no rows."""
    touched = [n for n in answer.ordinals.tolist() if plan.files.has_deletes(n)]
    return np.setdiff1d(answer.ordinals, touched), _rows(answer, {})


def _deleted(table: Table, plan: ReadPlan, answer: IndexAnswer) -> tuple[Int64s, pa.Table]:
    """The files of an answer that entries can stand for, and the rows of them that are deleted."""
    touched = [n for n in answer.ordinals.tolist() if plan.files.has_deletes(n)]
    deletes = {delete.file.file_path: delete.file for n in touched for delete in plan.files.applying_deletes(n)}
    if sum(file.record_count for file in deletes.values()) <= cost.INDEX_SCAN_DELETED:
        try:
            described = describe_files(table, plan.files, touched)
            return answer.ordinals, _rows(answer, {file.file_id: deleted_positions(file) for file in described})
        except BadData:  # deletes that only Spark reads
            pass
    return _undeleted(plan, answer)


def _rows(answer: IndexAnswer, deleted: Mapping[int, Int64s]) -> pa.Table:
    """Rows by the index's number of their file; ``deleted``: positions by ordinal."""
    ids = np.repeat(_file_ids(answer, [*deleted]), [len(rows) for rows in deleted.values()])
    positions = np.concatenate([np.empty(0, np.int64), *deleted.values()])
    return pa.table({"file_id": pa.array(ids, pa.int32()), "pos": pa.array(positions, pa.int64())})


def _file_ids(answer: IndexAnswer, ordinals: Sequence[int] | Int64s) -> npt.NDArray[np.int32]:
    return answer.probe.index.files.coverage.file_ids[np.asarray(ordinals, np.int64)]


def _harmless(plan: ReadPlan, answer: IndexAnswer) -> Int64s:
    """Other files that the index covers: they hold no row that matches, or the plan would name them."""
    return np.setdiff1d(np.flatnonzero(answer.probe.index.covered), plan.ordinals)


def _of_files(answer: IndexAnswer, ordinals: Int64s, harmless: Int64s) -> str | None:
    """Return the test that an entry is of these files, or of ``harmless`` ones, as SQL; None for too many numbers."""
    wanted = np.sort(_file_ids(answer, ordinals))
    known = np.union1d(wanted, _file_ids(answer, harmless))
    least, greatest = int(wanted[0]), int(wanted[-1])
    others = np.setdiff1d(np.arange(least, greatest + 1), known)
    if min(len(wanted), len(others)) > cost.INDEX_SCAN_NAMED_FILES:
        return None
    if len(wanted) < len(others):
        return f"file_id in ({', '.join(map(str, wanted.tolist()))})"
    between = f"file_id between {least} and {greatest}"
    return f"{between} and file_id not in ({', '.join(map(str, others.tolist()))})" if len(others) else between


# --- plans ---


@dataclass(frozen=True, eq=False)
class StagedEntries:
    """An IndexScan and how it is staged."""

    scan: IndexScan
    staged: StagedScan


def stage_entries(staging: Staging, scan: IndexScan, residual: Json | None, parallelism: int) -> StagedEntries | None:
    """Stage the entry files; None when the index is not the one that was planned with any more.

    ``residual``: of the relation: what its readers may skip row groups by.
    """
    index = scan.answer.probe.index.index
    frozen = java_table(staging.jvm, index.table)
    if frozen is None:
        return None
    own = renamed(residual, {name: held.column.name for name, held in scan.answer.columns.items() if _compares(held)})
    ordinals = tuple(file.ordinal for file in scan.files)
    table = staging.table(frozen, StagedFiles(index.table, index.files, ordinals, index.table.schema()), own)
    tasks, open_cost = cost.INDEX_SCAN_TASKS_PER_CORE * parallelism, cost.INDEX_SCAN_OPEN_BYTES
    size = split_size([file.size for file in scan.files], tasks, open_cost)
    return StagedEntries(scan, StagedScan(table, own, size, open_cost))


def _compares(held: HeldColumn) -> bool:
    """Return whether literals of conditions compare with stored values as they are."""
    return held.column.storage not in ("double", "binary")


@dataclass(frozen=True)
class PlanMaker:
    """Where plans are made: the session in Python and in the JVM."""

    jvm: Jvm
    spark: SparkSession
    java: JavaSession

    def with_entries(self, java: Relation, entries: StagedEntries) -> LogicalPlan:
        """A plan with the columns of the relation ``java``, ids included, that reads staged entries.

        Another one each time, as no two places of a query may have a column in common.
        """
        scan = entries.scan
        frame = plain_frame(java_class(self.jvm, DATASETS).ofRows(self.java, self._relation(entries)), self.spark)
        frame = frame.where(F.expr(scan.condition))
        if scan.deleted.num_rows:
            deleted = self.spark.createDataFrame(scan.deleted)
            frame = frame.join(F.broadcast(deleted), ["file_id", "pos"], "left_anti")
        columns = [_column(field, scan.answer) for field in scan.columns.schema]
        return self._named(java, java_frame(frame.select(*columns)).queryExecution().analyzed())

    def _relation(self, entries: StagedEntries) -> LogicalPlan:
        none = scala_object(self.jvm, NONE)
        relation = scala_object(self.jvm, RELATIONS).create(entries.staged.table, none, none)
        return with_table(self.jvm, relation, entries.staged)

    def _named(self, java: Relation, plan: LogicalPlan) -> LogicalPlan:
        """``plan`` with the names and ids of a relation's columns, in their order."""
        columns = zip(items(java.output()), items(plan.output()), strict=True)
        return scala_object(self.jvm, PROJECT).apply(
            scala_seq(self.jvm, [self._alias(*column) for column in columns]), plan
        )

    def _alias(self, known: Attribute, column: Attribute) -> Attribute:
        nothing = scala_object(self.jvm, EMPTY_SEQ)
        alias = java_class(self.jvm, ALIAS)
        return alias(column, known.name(), known.exprId(), known.qualifier(), scala_object(self.jvm, NONE), nothing)


def _column(field: StructField, answer: IndexAnswer) -> Column:
    """A column of the relation from entries; one that no query uses is null.

    Entries of other files may hold values that the type does not: these become null until they are left out.
    """
    held = answer.columns.get(field.name)
    if held is None:
        return F.lit(None).cast(field.dataType).alias(field.name)
    stored = F.col(held.column.name)
    if isinstance(held.kind, UUIDType):
        parts = "^(.{8})(.{4})(.{4})(.{4})(.{12})$"
        return F.regexp_replace(F.lower(F.hex(stored)), parts, "$1-$2-$3-$4-$5").alias(field.name)
    return stored.try_cast(field.dataType).alias(field.name)
