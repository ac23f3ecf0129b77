"""Scan tasks as JSON: Iceberg's parser and PyIceberg's models read the files, deletes and values that Iceberg plans."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pyiceberg.catalog.rest.scan_planning import ScanTasks
from pyiceberg.table import FileScanTask, Table
from pyspark.sql import SparkSession
from skipstone.compat.icebergjava import JSON_MAPPER, TASK_PARSER
from skipstone.compat.java import class_named, java_class
from skipstone.tables.describing.tasks import describe_tasks
from skipstone.tables.filesets import read_file_set
from skipstone_core.errors import BadData

from tests.spark.plans_bed import Bed, open_bed
from tests.spark.rawdeletes import add_equality_delete, add_position_delete, add_vectors

COLUMNS = "id bigint, s string, d date, ts timestamp, x double, n decimal(9,2), b binary, f boolean"
ROWS = r"""
 (1, 'a"b\\c', date'2020-02-29', timestamp'1969-12-31 23:59:59.999999Z', -0.0D, 1.50BD, X'00FF', true),
 (2, 'é☃', date'9999-12-31', timestamp'0001-01-01 00:00:00Z', double('infinity'), -0.05BD, X'', false),
 (3, null, date'0001-01-01', null, 1.5e300D, 0BD, null, null),
 (4, '', date'1969-12-31', timestamp'2020-01-01 12:34:56.000001Z', 1.1D, -1BD, X'41', true)"""
#: The residual that says nothing.
ALL = True
FIELDS = "x, s, d, ts, n, b, f, bucket(4, id), truncate(2, s), hours(ts)"
#: Tasks by the path of their file: the file as Iceberg writes it, and the deletes that apply to it.
Tasks = dict[str, tuple[Any, list[Any]]]


@dataclass
class Planned:
    """A table that Spark made, as Skipstone and Iceberg see it."""

    bed: Bed
    name: str

    @property
    def table(self) -> Table:
        return self.bed.lake.catalog.load_table(f"ns.{self.name}")

    @property
    def jvm(self) -> Any:
        return self.bed.spark._jvm

    @property
    def java(self) -> Any:
        utility = class_named(self.jvm, "org.apache.iceberg.spark.Spark3Util")
        return utility.loadIcebergTable(self.bed.spark._jsparkSession, f"skipstone.ns.{self.name}")

    def described(self, *, with_bounds: Sequence[int] = (), snapshot_id: int | None = None) -> str:
        """Our JSON."""
        table = self.table
        files = read_file_set(table, snapshot_id)
        parts = describe_tasks(table, files, range(len(files)), ALL, with_bounds=with_bounds)
        return f"{{{b''.join(parts).decode()}}}"

    def parsed(self, *, with_bounds: Sequence[int] = ()) -> Tasks:
        """What Iceberg reads out of our JSON."""
        tree = java_class(self.jvm, JSON_MAPPER)().readTree(self.described(with_bounds=with_bounds))
        parser, specs = java_class(self.jvm, TASK_PARSER), self.java.specs()
        return self._tasks(parser.parseFileScanTasks(tree, parser.parseDeleteFiles(tree, specs), specs, True))

    def planned(self, *, with_bounds: bool = False) -> Tasks:
        """What Iceberg plans."""
        scan = self.java.newScan()
        return self._tasks((scan.includeColumnStats() if with_bounds else scan).planFiles())

    def _tasks(self, tasks: Any) -> Tasks:
        return {task.file().location(): (self._file(task.file()), self._deletes(task)) for task in listed(tasks)}

    def _deletes(self, task: Any) -> list[Any]:
        deletes = (self._file(file, beside=("-counts", "-bounds", "-sizes")) for file in task.deletes())
        return sorted(deletes, key=lambda file: json.dumps(file, sort_keys=True))

    def _file(self, file: Any, beside: tuple[str, ...] = ("column-sizes",)) -> Any:
        writer = class_named(self.jvm, "org.apache.iceberg.ContentFileParser")
        found = json.loads(writer.toJson(file, self.java.specs()[file.specId()]))
        kept = {name: value for name, value in found.items() if not name.endswith(beside)}
        return {name: pairs(value) if isinstance(value, dict) else value for name, value in kept.items()}


def listed(found: Any) -> Iterator[Any]:
    """The items of a Java iterable."""
    iterator = found.iterator()
    while iterator.hasNext():
        yield iterator.next()


def pairs(found: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    """The pairs of a map as Iceberg writes it."""
    return sorted(zip(found["keys"], found["values"], strict=True))


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    yield made
    made.lake.catalog.close()


def created(bed: Bed, name: str, partitions: str = "", version: int = 2, rows: str = ROWS) -> Planned:
    """A table of ``rows``, one file of each partition."""
    clause = f"partitioned by ({partitions})" if partitions else ""
    options = f"'format-version'='{version}', 'write.delete.mode'='merge-on-read'"
    bed.spark.sql(f"create table skipstone.ns.{name} ({COLUMNS}) using iceberg {clause} tblproperties ({options})")
    bed.spark.sql(f"insert into skipstone.ns.{name} values {rows}")
    return Planned(bed, name)


def respecified(planned: Planned, change: Callable[[Any], None]) -> None:
    with planned.table.update_spec() as update:
        change(update)


def test_iceberg_reads_partitions_counts_and_bounds(bed: Bed) -> None:
    found = created(bed, "everything", FIELDS)
    respecified(found, lambda update: update.remove_field("x").remove_field("s_trunc").add_field("id", "identity", "i"))
    bed.spark.sql(f"insert into skipstone.ns.everything values {ROWS}")
    assert len(found.planned()) == 8
    assert found.parsed() == found.planned()
    numbers = range(1, len(COLUMNS.split(", ")) + 1)
    assert found.parsed(with_bounds=numbers) == found.planned(with_bounds=True)


def test_deletes_of_all_kinds_apply_to_the_files_that_iceberg_says(bed: Bed) -> None:
    found = created(bed, "deletes")
    for _ in range(3):
        bed.spark.sql(f"insert into skipstone.ns.deletes values {ROWS}")
    bed.spark.sql("delete from skipstone.ns.deletes where id = 2")
    add_equality_delete(found.table, {"id": [3]})
    bed.spark.sql(f"insert into skipstone.ns.deletes values {ROWS}")
    files = read_file_set(found.table)
    most = max(range(len(files)), key=lambda ordinal: len(files.deletes(ordinal)))
    add_position_delete(found.table, files.data_file(most), [0])
    assert max(len(deletes) for _, deletes in found.planned().values()) == 3
    assert found.parsed() == found.planned()


def test_vectors_of_one_puffin_file_go_to_their_own_data_files(bed: Bed) -> None:
    found = created(bed, "vectors", version=3)
    for _ in range(2):
        bed.spark.sql(f"insert into skipstone.ns.vectors values {ROWS}")
    add_vectors(found.table, {0: [0], 1: [1, 2], 2: [3]})
    planned = found.planned()
    deletes = [file for _, files in planned.values() for file in files]
    assert len({file["file-path"] for file in deletes}) == 1
    assert len({file["content-offset"] for file in deletes}) == 3
    assert all("first-row-id" in file for file, _ in planned.values())
    assert found.parsed() == planned


def test_pyiceberg_reads_the_tasks(bed: Bed) -> None:
    found = created(bed, "models", "s, d, bucket(4, id)", rows=ROWS.replace("null, date", "'n', date"))
    bed.spark.sql("delete from skipstone.ns.models where id = 1")
    add_position_delete(found.table, read_file_set(found.table).data_file(0), [0])
    answer = ScanTasks.model_validate_json(found.described(with_bounds=[1, 2]))
    tasks = [FileScanTask.from_rest_response(task, answer.delete_files) for task in answer.file_scan_tasks]
    files = read_file_set(found.table)
    told = {
        task.file.file_path: (task.file.record_count, {each.file_path for each in task.delete_files}) for task in tasks
    }
    assert told == {
        files.facts(ordinal).path: (1, {each.file_path for each in files.deletes(ordinal)})
        for ordinal in range(len(files))
    }


def test_the_values_of_a_dropped_column_are_left_out_where_nobody_reads_them(bed: Bed) -> None:
    found = created(bed, "dropped", "x, d")
    snapshot_id = found.table.current_snapshot().snapshot_id
    respecified(found, lambda update: update.remove_field("x"))
    bed.spark.sql("alter table skipstone.ns.dropped drop column x")
    assert found.parsed().keys() == paths_of(found)
    with pytest.raises(BadData, match="x: its column is dropped"):
        found.described(snapshot_id=snapshot_id)


def paths_of(planned: Planned) -> set[str]:
    return set(read_file_set(planned.table).files["path"].to_pylist())


def test_a_partition_of_nan_is_refused(bed: Bed) -> None:
    found = created(bed, "nan", "x", rows="(1, 'a', null, null, double('nan'), 0BD, null, null)")
    with pytest.raises(BadData, match="x: a partition is NaN"):
        found.described()
