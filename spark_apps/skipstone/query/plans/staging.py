"""Puts the files of a read plan in the place of a relation: Iceberg's own scan of a list of tasks.

Used by ``session``. All files are handed over as one JSON text, so the calls to the JVM do not grow with their number;
tasks of single row groups are handed over one by one. Must not decide what is read.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyiceberg.conversions import to_json
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from skipstone.query.planner import ReadPlan
from skipstone.query.plans.catalyst import Java
from skipstone.query.plans.normalise import scala_object
from skipstone.query.plans.relations import IcebergRelation
from skipstone.query.plans.residuals import Json
from skipstone.query.plans.rowgroups import Spans
from skipstone.tables.filesets import FileSet

_CONTENT = ("data", "position-deletes", "equality-deletes")
_REFERENCED, _OFFSET, _LENGTH = 17, 18, 19
#: What a file costs to open, in bytes, as Iceberg counts it.
_OPEN_COST = 4 * 1024 * 1024
_SMALLEST_SPLIT = 8 * 1024 * 1024
_LARGEST_SPLIT = 128 * 1024 * 1024


@dataclass(frozen=True)
class Reading:
    """How files are read: of some only the ``spans``; of those that no index covers what ``residual`` may hold for."""

    spans: Spans
    residual: Json | bool


def staged_table(jvm: Java, relation: IcebergRelation, plan: ReadPlan, reading: Reading) -> Java | None:
    """A Spark table that reads what ``plan`` says; None when that is nothing."""
    if not plan.ordinals:
        return None
    tasks = _tasks(jvm, relation, plan, reading)
    set_id = f"skipstone-{uuid.uuid4()}"
    jvm.org.apache.iceberg.spark.ScanTaskSetManager.get().stageTasks(relation.frozen, set_id, tasks)
    table = jvm.org.apache.iceberg.spark.source.SparkRewriteTable(relation.frozen, set_id)
    staged_sets(jvm).add(table, set_id)
    return table


def with_table(jvm: Java, java: Java, table: Java | None, split_size: int) -> Java:
    """A copy of a relation, column ids included, that reads ``table``; None reads nothing."""
    if table is None:
        local = scala_object(jvm, "org.apache.spark.sql.catalyst.plans.logical.LocalRelation")
        return local.apply(java.output(), scala_object(jvm, "scala.collection.immutable.Nil"), False, _none(jvm))  # noqa: FBT003
    options = jvm.java.util.HashMap(java.options())
    options.putIfAbsent("split-size", str(split_size))
    options = jvm.org.apache.spark.sql.util.CaseInsensitiveStringMap(options)
    # without catalog and identifier, so that nothing looks the table up again and reads all of it
    return java.copy(table, java.output(), _none(jvm), _none(jvm), options, _none(jvm))


def _none(jvm: Java) -> Java:
    return scala_object(jvm, "scala.None")


def split_size(plan: ReadPlan, parallelism: int) -> int:
    """Bytes per Spark task that keep all cores busy; Iceberg does not adapt the size of staged scans."""
    sizes = plan.files.files["size"]
    weight = sum(max(int(sizes[ordinal].as_py()), _OPEN_COST) for ordinal in plan.ordinals)
    return max(_SMALLEST_SPLIT, min(_LARGEST_SPLIT, -(-weight // max(parallelism, 1))))


# --- tasks ---


def _tasks(jvm: Java, relation: IcebergRelation, plan: ReadPlan, reading: Reading) -> Java:
    described = _Described(relation.table, plan, reading)
    whole = [described.task(ordinal) for ordinal in plan.ordinals if ordinal not in reading.spans]
    specs = relation.frozen.specs()
    tasks = jvm.java.util.ArrayList()
    if whole:
        mapper = jvm.org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        parser = jvm.org.apache.iceberg.rest.TableScanResponseParser
        text = json.dumps({"delete-files": described.deletes, "file-scan-tasks": whole})
        tree = mapper.readTree(text)
        tasks.addAll(parser.parseFileScanTasks(tree, parser.parseDeleteFiles(tree, specs), specs, True))  # noqa: FBT003
    for text in _split_tasks(jvm, relation.frozen, described, reading.spans):
        tasks.add(jvm.org.apache.iceberg.ScanTaskParser.fromJson(text, True))  # noqa: FBT003
    return tasks


def _split_tasks(jvm: Java, frozen: Java, described: _Described, spans: Spans) -> Iterator[str]:
    if not spans:
        return
    schema = json.loads(jvm.org.apache.iceberg.SchemaParser.toJson(frozen.schema()))
    specs: dict[int, Any] = {}
    for ordinal, wanted in spans.items():
        spec_id = described.file(ordinal).spec_id
        if spec_id not in specs:
            specs[spec_id] = json.loads(jvm.org.apache.iceberg.PartitionSpecParser.toJson(frozen.specs().get(spec_id)))
        for start, length in wanted:
            yield json.dumps(
                {
                    "schema": schema,
                    "spec": specs[spec_id],
                    "data-file": described.data_file(ordinal),
                    "start": start,
                    "length": length,
                    "delete-files": described.deletes_of(ordinal),
                    "residual-filter": True,
                }
            )


class _Described:
    """The files of a plan as Iceberg's JSON describes them; each delete file once."""

    def __init__(self, table: Table, plan: ReadPlan, reading: Reading) -> None:
        self._table = table
        self._plan = plan
        self._files: dict[int, DataFile] = {}
        self._types: dict[int, list[PrimitiveType]] = {}
        self._references: dict[str, int] = {}
        self._residual = reading.residual
        self.deletes: list[dict[str, Any]] = []

    @property
    def _fileset(self) -> FileSet:
        return self._plan.files

    def file(self, ordinal: int) -> DataFile:
        """A data file of the plan."""
        if ordinal not in self._files:
            self._files[ordinal] = self._fileset.data_file(ordinal)
        return self._files[ordinal]

    def task(self, ordinal: int) -> dict[str, Any]:
        """A task that reads a whole file. Spark filters what an index hit; else readers may skip row groups."""
        return {
            "data-file": self.data_file(ordinal),
            "delete-file-references": [self._reference(delete) for delete in self._fileset.deletes(ordinal)],
            "residual-filter": True if ordinal in self._plan.row_groups else self._residual,
        }

    def deletes_of(self, ordinal: int) -> list[dict[str, Any]]:
        """The delete files that apply to a file."""
        return [self._content_file(delete) for delete in self._fileset.deletes(ordinal)]

    def data_file(self, ordinal: int) -> dict[str, Any]:
        """A data file of the plan."""
        return self._content_file(self.file(ordinal))

    def _reference(self, delete: DataFile) -> int:
        key = f"{delete.file_path}#{_optional(delete, _OFFSET)}"
        if key not in self._references:
            self._references[key] = len(self.deletes)
            self.deletes.append(self._content_file(delete))
        return self._references[key]

    def _content_file(self, file: DataFile) -> dict[str, Any]:
        described = {
            "spec-id": file.spec_id,
            "content": _CONTENT[int(file.content)],
            "file-path": file.file_path,
            "file-format": file.file_format.value.lower(),
            "partition": self._partition(file),
            "file-size-in-bytes": file.file_size_in_bytes,
            "record-count": file.record_count,
            "split-offsets": file.split_offsets,
            "equality-ids": file.equality_ids,
            "sort-order-id": file.sort_order_id,
            "referenced-data-file": _optional(file, _REFERENCED),
            "content-offset": _optional(file, _OFFSET),
            "content-size-in-bytes": _optional(file, _LENGTH),
        }
        return {name: value for name, value in described.items() if value is not None}

    def _partition(self, file: DataFile) -> list[Any]:
        if file.spec_id not in self._types:
            self._types[file.spec_id] = _partition_types(self._table, self._table.specs()[file.spec_id])
        values = [file.partition[position] for position in range(len(file.partition))]
        kinds = self._types[file.spec_id]
        return [None if value is None else to_json(kind, value) for kind, value in zip(kinds, values, strict=True)]


def _optional(file: DataFile, position: int) -> Any:
    return file._data[position] if len(file._data) > position else None


def _partition_types(table: Table, spec: PartitionSpec) -> list[PrimitiveType]:
    """The types of a spec's fields; the source column may be in an older schema only."""
    schemas: list[Schema] = [table.schema(), *table.schemas().values()]
    found: list[PrimitiveType] = []
    for field in spec.fields:
        sources = [schema for schema in schemas if field.source_id in schema._lazy_id_to_field]
        kind = field.transform.result_type(sources[0].find_type(field.source_id))
        if not isinstance(kind, PrimitiveType):
            raise TypeError(f"partition field {field.name} is a {kind}")
        found.append(kind)
    return found


# --- release ---


class StagedSets:
    """Task sets that stay until nothing in the JVM can read them.

    A DataFrame may be gone in Python while one made from it lives on, so the life of the Spark table decides: every
    plan that reads a task set holds it.
    """

    def __init__(self, jvm: Java) -> None:
        self._manager = jvm.org.apache.iceberg.spark.ScanTaskSetManager.get()
        self._references = jvm.java.lang.ref
        self._lock = threading.Lock()
        self._held: list[tuple[Any, Java, str]] = []

    def add(self, table: Java, set_id: str) -> None:
        """Watch a Spark table, and free what nothing reads any more."""
        reference = self._references.WeakReference(table)
        with self._lock:
            self._held.append((reference, table.table(), set_id))
        self.free()

    def free(self) -> int:
        """Free task sets that nothing reads; how many are left."""
        with self._lock:
            dead = [one for one in self._held if one[0].get() is None]
            self._held = [one for one in self._held if one not in dead]
            left = len(self._held)
        for _, table, set_id in dead:
            self._manager.removeTasks(table, set_id)
        return left


@lru_cache(maxsize=1)
def staged_sets(jvm: Java) -> StagedSets:
    """The task sets of a JVM."""
    return StagedSets(jvm)
