"""Puts the files of a read plan in the place of a relation: Iceberg's own scan of a list of tasks.

Used by ``substitution``. All files are handed over as one JSON text, so the calls to the JVM do not grow with their
number. Tasks are whole files: Iceberg splits staged tasks itself, and refuses those that are parts of files already;
readers skip row groups by the residual. Must not decide what is read.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import cast

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from skipstone.compat.catalyst import LOCAL_RELATION, OPTIONS, SAMPLE, LogicalPlan, Relation
from skipstone.compat.icebergjava import (
    JSON_MAPPER,
    STAGED_TABLES,
    TASK_PARSER,
    TASK_SETS,
    BaseTable,
    SparkTable,
)
from skipstone.compat.java import (
    EMPTY_SEQ,
    HASH_MAP,
    NONE,
    REFERENCE_QUEUE,
    WEAK_REFERENCE,
    JavaObject,
    Jvm,
    java_class,
    scala_object,
)
from skipstone.query.planner import ReadPlan
from skipstone.query.plans import cost
from skipstone.query.plans.analysis.relations import IcebergRelation
from skipstone.query.plans.replacing.residuals import Json, columns_of
from skipstone.tables.describing.tasks import describe_tasks
from skipstone.tables.filesets import FileSet

#: Option of a staged relation: the columns that its residual names, as a JSON list. Iceberg does not look at it.
RESIDUAL = "skipstone-residual"
#: The expression that says nothing; it is the JSON literal, not an object.
_TRUE = True
_CASE_SENSITIVE = True
_NOT_STREAMING = False
#: A sample of all rows: each place from 0 to 1, without replacement, by any seed.
_ALL_ROWS = (0.0, 1.0, False, 0)


@dataclass(frozen=True)
class StagedFiles:
    """Files of a snapshot of ``table``, with their deletes, that are read in ``schema``."""

    table: Table
    files: FileSet
    ordinals: Sequence[int]
    schema: Schema


@dataclass(frozen=True, eq=False)
class StagedScan:
    """A Spark table of tasks; None for no file.

    ``residual``: by which readers skip row groups; its columns must be read. ``split_size``: bytes per Spark task.
    ``open_cost``: of a file, and of each row group, in bytes.
    """

    table: SparkTable | None
    residual: Json | None
    split_size: int
    open_cost: int = cost.FILE_OPEN_BYTES


@dataclass(frozen=True, eq=False)
class Staging:
    """Stages files for one query; the same files that are read alike are staged once.

    By their task sets Spark knows equal plans: it runs a subquery once that a query has twice, and refuses one in the
    select list that it does not find among the grouping keys.
    """

    jvm: Jvm
    #: By a digest of what is read: the text has some hundred bytes for each file.
    _known: dict[bytes, SparkTable] = field(default_factory=dict)

    def table(self, frozen: BaseTable, files: StagedFiles, residual: Json | None) -> SparkTable:
        """A Spark table that reads ``files`` of ``frozen``, one at least.

        ``residual``: what readers may skip row groups by; None: nothing.
        """
        text = _described_tasks(files, residual)
        key = sha256(json.dumps([files.table.metadata_location, str(files.schema), text]).encode()).digest()
        if key not in self._known:
            self._known[key] = _staged(self.jvm, frozen, text)
        return self._known[key]

    def scan(self, relation: IcebergRelation, plan: ReadPlan, residual: Json | None, cores: int) -> StagedScan:
        """The files of ``plan``, in tasks that keep so many ``cores`` busy; no files are no table."""
        ordinals, table = list(plan.ordinals), None
        if ordinals:  # Iceberg stages no empty lists
            files = StagedFiles(relation.table, plan.files, ordinals, relation.schema)
            table = self.table(relation.frozen, files, residual)
        return StagedScan(table, residual, split_size(plan.files.files["size"].to_numpy()[ordinals].tolist(), cores))


def _staged(jvm: Jvm, frozen: BaseTable, text: str) -> SparkTable:
    set_id = f"skipstone-{uuid.uuid4()}"
    java_class(jvm, TASK_SETS).get().stageTasks(frozen, set_id, _tasks(jvm, frozen, text))
    table = java_class(jvm, STAGED_TABLES)(frozen, set_id)
    staged_sets(jvm).add(table, set_id)
    return table


def with_table(jvm: Jvm, java: Relation, staged: StagedScan) -> LogicalPlan:
    """A copy of a relation, column ids included, that reads what is ``staged``."""
    none = scala_object(jvm, NONE)
    if staged.table is None:
        empty = scala_object(jvm, EMPTY_SEQ)
        return scala_object(jvm, LOCAL_RELATION).apply(java.output(), empty, _NOT_STREAMING, none)
    options = java_class(jvm, HASH_MAP)(java.options())
    options.putIfAbsent("split-size", str(staged.split_size))
    options.putIfAbsent("file-open-cost", str(staged.open_cost))
    options.put(RESIDUAL, json.dumps(columns_of(staged.residual)))
    # without catalog and identifier, so that nothing looks the table up again and reads all of it
    return java.copy(staged.table, java.output(), none, none, java_class(jvm, OPTIONS)(options), none)


def pinned(jvm: Jvm, java: Relation) -> LogicalPlan:
    """A copy of a relation that reads the snapshot it has, however late: Spark looks for newer ones by the name."""
    none = scala_object(jvm, NONE)
    return java.copy(java.table(), java.output(), none, none, java.options(), java.timeTravelSpec())


def held_back(jvm: Jvm, java: Relation) -> LogicalPlan:
    """A relation, pinned, to which Spark moves no condition: none passes a sample, not even one of all rows."""
    return cast(LogicalPlan, java_class(jvm, SAMPLE)(*_ALL_ROWS, pinned(jvm, java)))


def split_size(sizes: Sequence[int], parallelism: int, open_cost: int = cost.FILE_OPEN_BYTES) -> int:
    """Bytes per Spark task that keep all cores busy with files of ``sizes``, as Iceberg does not do it for itself."""
    weight = sum(max(size, open_cost) for size in sizes)
    return max(cost.SMALLEST_SPLIT_BYTES, min(cost.LARGEST_SPLIT_BYTES, -(-weight // max(parallelism, 1))))


# --- tasks ---


def _described_tasks(files: StagedFiles, residual: Json | None) -> str:
    described = describe_tasks(files.table, files.files, files.ordinals, _TRUE if residual is None else residual)
    return f"{{{b''.join(described).decode()}}}"


def _tasks(jvm: Jvm, frozen: BaseTable, text: str) -> JavaObject:
    tree = java_class(jvm, JSON_MAPPER)().readTree(text)
    parser = java_class(jvm, TASK_PARSER)
    specs = frozen.specs()
    return parser.parseFileScanTasks(tree, parser.parseDeleteFiles(tree, specs), specs, _CASE_SENSITIVE)


# --- release ---


class StagedSets:
    """Task sets that stay until nothing in the JVM can read them.

    A DataFrame may be gone in Python while one made from it lives on, so the life of the Spark table decides: every
    plan that reads a task set holds it.
    """

    def __init__(self, jvm: Jvm) -> None:
        self._manager = java_class(jvm, TASK_SETS).get()
        self._reference = java_class(jvm, WEAK_REFERENCE)
        self._dead = java_class(jvm, REFERENCE_QUEUE)()
        self._ids = java_class(jvm, HASH_MAP)()
        self._lock = threading.Lock()
        self._tables: dict[str, BaseTable] = {}

    def __len__(self) -> int:
        """How many task sets are held."""
        return len(self._tables)

    def add(self, table: SparkTable, set_id: str) -> None:
        """Watch a Spark table that reads a task set, and free what nothing reads any more."""
        with self._lock:
            self._ids.put(self._reference(table, self._dead), set_id)
            self._tables[set_id] = table.table()
        self.free()

    def free(self) -> None:
        """Free task sets that nothing reads."""
        while (reference := self._dead.poll()) is not None:
            with self._lock:
                set_id = str(self._ids.remove(reference))
                table = self._tables.pop(set_id)
            self._manager.removeTasks(table, set_id)


@lru_cache(maxsize=1)
def staged_sets(jvm: Jvm) -> StagedSets:
    """The task sets of a JVM."""
    return StagedSets(jvm)
