"""The observe run: every due table of a Warehouse, whatever state it is in."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from skipstone.runs.observe import run_observe
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    IndexRef,
    JobRequest,
    ObservedTable,
    ObserveTask,
    RunKind,
    TableRef,
    WarehouseRef,
)
from skipstone_core.reasons import Reason

from tests.spark.lake import append
from tests.spark.rawdeletes import add_position_delete

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


def observe(warehouse: WarehouseRef, *tables: ObservedTable) -> JobReport:
    """A whole observe run."""
    request = JobRequest(
        kind=RunKind.OBSERVE,
        run_id="r-1",
        attempt=1,
        warehouse=warehouse,
        owner_kind="Warehouse",
        owner_name="wh",
        owner_uid="u",
        observe=ObserveTask(tables=tables),
    )
    return run_observe(request, Reporter(request))


def observed(name: str, *indexes: IndexRef, uuid: str | None = None) -> ObservedTable:
    """A table to look at."""
    return ObservedTable(table=TableRef(namespace="ns", name=name, uid=f"uid-{name}", table_uuid=uuid), indexes=indexes)


def test_the_head_of_a_table_is_reported(catalog: Catalog, warehouse: WarehouseRef) -> None:
    table = append(append(catalog.create_table(("ns", "a"), ROWS.schema), ROWS), ROWS)
    report = observe(warehouse, observed("a"))
    (state,) = report.table_states
    assert report.outcome is RunOutcome.COMMITTED
    assert (state.uid, state.rows, state.files, state.sequence_number) == ("uid-a", 6, 2, 2)
    assert (state.segments.total, state.segments.valid, state.segments.latest) == (2, 2, 2)
    assert state.snapshot_id == str(table.metadata.current_snapshot_id)
    assert state.bytes == sum(task.file.file_size_in_bytes for task in table.scan().plan_files())
    assert state.problem is None


def test_an_index_that_was_never_built_covers_nothing(catalog: Catalog, warehouse: WarehouseRef) -> None:
    append(catalog.create_table(("ns", "a"), ROWS.schema), ROWS)
    index = IndexRef(name="by-id", uid="99999999-0000-4000-8000-000000000001", columns=("id",))
    (state,) = observe(warehouse, observed("a", index)).table_states
    (found,) = state.indexes
    assert (found.exists, found.segments_total, found.segments_missing, found.missing_segments) == (False, 1, 1, (1,))


def test_one_broken_table_does_not_hide_the_others(catalog: Catalog, warehouse: WarehouseRef) -> None:
    good = append(catalog.create_table(("ns", "good"), ROWS.schema), ROWS)
    broken = append(catalog.create_table(("ns", "broken"), ROWS.schema), ROWS)
    for path in Path(broken.location().removeprefix("file://")).glob("metadata/*.avro"):
        path.unlink()
    other = "00000000-0000-0000-0000-000000000000"
    report = observe(warehouse, observed("missing"), observed("broken"), observed("good", uuid=other), observed("good"))
    assert [state.problem for state in report.table_states] == [
        Reason.TABLE_MISSING,
        Reason.STORAGE_UNAVAILABLE,
        Reason.TABLE_REPLACED,
        None,
    ]
    assert all(state.message for state in report.table_states[:3])
    assert report.table_states[3].snapshot_id == str(good.metadata.current_snapshot_id)


@pytest.mark.parametrize("cut", ["snap-*.avro", "*-m0.avro"])
def test_a_table_whose_manifests_are_cut_off_says_which_file_to_restore(
    catalog: Catalog, warehouse: WarehouseRef, cut: str
) -> None:
    append(catalog.create_table(("ns", "good"), ROWS.schema), ROWS)
    broken = append(catalog.create_table(("ns", "broken"), ROWS.schema), ROWS)
    (path,) = Path(broken.location().removeprefix("file://")).glob(f"metadata/{cut}")
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    bad, good = observe(warehouse, observed("broken"), observed("good")).table_states
    path.write_bytes(whole)
    assert (bad.problem, good.problem, good.rows) == (Reason.STORAGE_UNAVAILABLE, None, 3)
    assert f"{path.name} is not a whole Avro file" in (bad.message or "")
    assert (bad.message or "").endswith("; restore the file.")


def test_rows_that_two_deletes_name_are_counted_once(catalog: Catalog, warehouse: WarehouseRef) -> None:
    table = append(catalog.create_table(("ns", "t"), ROWS.schema, properties={"format-version": "2"}), ROWS)
    for positions in ([0], [0]):
        file = read_file_set(table).data_file(0)
        add_position_delete(table, file, positions)
        table = catalog.load_table(("ns", "t"))
    assert observe(warehouse, observed("t")).table_states[0].rows == len(ROWS) - 1


def test_observing_changes_nothing(catalog: Catalog, warehouse: WarehouseRef) -> None:
    append(catalog.create_table(("ns", "a"), ROWS.schema), ROWS)
    before = catalog.load_table(("ns", "a")).metadata_location
    observe(warehouse, observed("a"))
    assert catalog.load_table(("ns", "a")).metadata_location == before


FOREIGN = {
    "write.parquet.bloom-filter-fpp.column.id": "1.1",
    "write.parquet.compression-codec": "snappy",
    "write.parquet.compression-level": "3",
    "write.distribution-mode": "hash",
    "write.update.mode": "merge-on-read",
    **{f"write.{'long-' * 40}{number}": "1" for number in range(20)},
}


def test_properties_of_another_engine_that_writers_do_not_follow_are_told(
    catalog: Catalog, warehouse: WarehouseRef
) -> None:
    catalog.create_table(("ns", "a"), ROWS.schema, properties=FOREIGN)
    catalog.create_table(("ns", "b"), ROWS.schema, properties={"write.merge.mode": "merge_on_read"})
    catalog.create_table(("ns", "c"), ROWS.schema, properties={"write.parquet.row-group-limit": "banana"})
    ignored, mode, rows = (state.properties for state in observe(warehouse, *map(observed, "abc")).table_states)
    assert (ignored.refused, ignored.ignored_total, len(ignored.ignored)) == ("", 23, 10)
    assert ignored.ignored[0] == "write.distribution-mode" and max(map(len, ignored.ignored)) <= 121
    assert (mode.ignored, rows.ignored) == ((), ())
    assert "'write.merge.mode' of ns.b cannot be used: 'merge_on_read' is not known" in mode.refused
    assert "'write.parquet.row-group-limit' of ns.c cannot be used: 'banana' is not a whole number" in rows.refused
