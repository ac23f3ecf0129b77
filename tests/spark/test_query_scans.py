"""Scans as engines ask for them: the files that may match, by bounds, partitions and indexes, and none less."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType
from skipstone.indexes.found import IndexHeads
from skipstone.indexes.tables import index_identifier
from skipstone.query.readplan import ReadOptions
from skipstone.query.scans import PlannedScan, ScanRequest, plan_scan
from skipstone_core.errors import BadSpec

from tests.spark.index_bed import Lake, index_on

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.int64()), ("x", pa.float64())])
FILES, ROWS = 12, 50


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    table = lake.create(SCHEMA)
    numbers = np.random.default_rng(5).permutation(FILES * ROWS)
    for part in np.split(numbers, FILES):
        table.append(pa.table({"k": part, "g": part % 7, "x": part / 2}, schema=SCHEMA))
    return lake


def _scan(table: Table, condition: object = None, **options: object) -> PlannedScan:
    return plan_scan(table, ScanRequest(filter=condition, **options))  # type: ignore[arg-type]


def _paths(scan: PlannedScan) -> set[str]:
    return {scan.files.files["path"][int(ordinal)].as_py() for ordinal in scan.ordinals}


def _holding(table: Table, condition: str) -> set[str]:
    """The files that hold a matching row, as rows are read without any pruning."""
    found = set()
    for task in table.scan().plan_files():
        rows = pq.read_table(task.file.file_path.removeprefix("file://"))
        if rows.to_pandas().query(condition).shape[0]:
            found.add(task.file.file_path)
    return found


def test_an_index_leaves_the_files_that_hold_the_key(lake: Lake) -> None:
    condition = {"type": "eq", "term": "k", "value": 77}
    before = _scan(lake.table(), condition)
    lake.reindex(index_on("k"))
    scan = _scan(lake.table(), condition)
    assert len(before.ordinals) == FILES
    assert _paths(scan) == _holding(lake.table(), "k == 77")
    assert scan.left_out == {"partitions": 0, "bounds": 0, "indexes": FILES - 1, "bloom filters": 0}
    assert scan.residual == condition
    assert [use.used for use in scan.indexes] == [True]


def test_files_that_an_index_lacks_are_kept(lake: Lake) -> None:
    lake.reindex(index_on("k"), max_segments=6)
    scan = _scan(lake.table(), {"type": "in", "term": "K", "values": [3, 500]}, case_sensitive=False)
    assert _holding(lake.table(), "k in [3, 500]") <= _paths(scan)
    assert 6 <= len(scan.ordinals) <= 8


def test_files_of_other_partitions_are_left_out_with_no_bounds_at_all(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.create(SCHEMA, properties={"write.metadata.metrics.default": "none"})
    with table.update_spec() as update:
        update.add_identity("g")
    for group in (1, 2, None):
        table.append(pa.table({"k": [1, 2], "g": [group] * 2, "x": [0.0, 1.0]}, schema=SCHEMA))
    conditions = ({"type": "eq", "term": "g", "value": 2}, {"type": "not-eq", "term": "g", "value": 2})
    asked = [_scan(lake.table(), condition) for condition in (*conditions, {"type": "is-null", "term": "g"})]
    assert [(len(scan.ordinals), scan.left_out["partitions"]) for scan in asked] == [(1, 2), (2, 1), (1, 2)]


def test_heads_of_indexes_are_as_old_as_asked_for(lake: Lake) -> None:
    condition, now = {"type": "eq", "term": "k", "value": 77}, [0.0]
    options = ReadOptions(heads=IndexHeads(1.0, timer=lambda: now[0]))

    def left() -> int:
        return len(plan_scan(lake.table(), ScanRequest(filter=condition), options).ordinals)

    before = left()
    lake.reindex(index_on("k"))
    assert left() == before
    now[0] = 1.5
    assert left() == 1
    lake.catalog.drop_table(index_identifier(lake.warehouse, lake.ref(), index_on("k")))
    assert left() == 1
    now[0] = 3.0
    assert left() == before


def test_without_a_filter_all_files_come_with_their_bounds(lake: Lake) -> None:
    scan = _scan(lake.table(), use_snapshot_schema=True)
    assert len(scan.ordinals) == FILES
    assert scan.residual is True
    assert scan.bounds_of == (1, 2), "PyIceberg counts no NaN, so bounds of floats may leave it out"
    assert _scan(lake.table(), use_snapshot_schema=True, select=("k", "g", "x")).bounds_of == (1, 2)
    assert _scan(lake.table(), use_snapshot_schema=True, select=("k",)).bounds_of == ()
    assert _scan(lake.table(), client="PyIceberg 0.12.0").bounds_of == ()
    assert _scan(lake.table(), {"type": "gt", "term": "k", "value": 5}, stats_fields=("g",)).bounds_of == (2,)


def test_a_snapshot_is_planned_by_its_names_and_by_the_newest(lake: Lake) -> None:
    table = lake.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    with table.update_schema() as update:
        update.rename_column("k", "key")
    table.append(pa.table({"key": [1000], "g": [1], "x": [0.0]}, schema=SCHEMA.set(0, pa.field("key", pa.int64()))))
    for name in ("k", "key"):
        condition = {"type": "eq", "term": name, "value": 1000}
        scan = _scan(lake.table(), condition, snapshot_id=snapshot.snapshot_id, use_snapshot_schema=True)
        assert len(scan.files) == FILES
        assert not len(scan.ordinals)
        assert len(_scan(lake.table(), {**condition, "term": "key"}).ordinals) == 1


def test_a_name_that_means_two_columns_says_nothing(lake: Lake) -> None:
    table = lake.table()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    with table.update_schema() as update:
        update.delete_column("g")
    with table.update_schema() as update:
        update.rename_column("k", "g")
    condition = {"type": "eq", "term": "g", "value": 10_000}
    assert len(_scan(lake.table(), condition, snapshot_id=snapshot.snapshot_id).ordinals) == FILES


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_client_whose_copy_of_the_table_is_old_loses_no_rows(lake: Lake, is_partitioned: bool) -> None:
    table = lake.table()
    if is_partitioned:
        with table.update_spec() as update:
            update.add_field("k", IdentityTransform(), "part_k")
            update.add_field("g", IdentityTransform(), "part_g")
    table.append(pa.table({"k": [1000], "g": [2000], "x": [0.0]}, schema=SCHEMA))
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    for old, new in (("k", "old"), ("g", "k"), ("k", "gone")):
        with table.update_schema() as update:
            update.rename_column(old, new)
    client = {"client": "PyIceberg 0.12.0"} if is_partitioned else {}
    for wanted in (1000, 2000):  # the name meant one column, then another one, and no longer means any
        condition = {"type": "eq", "term": "k", "value": wanted}
        assert len(_scan(lake.table(), condition, **client).ordinals) == FILES + 1
        asked = {"snapshot_id": snapshot.snapshot_id, "use_snapshot_schema": True, "case_sensitive": False}
        if not is_partitioned:
            assert len(_scan(lake.table(), condition, **asked).ordinals) == FILES + 1
            continue
        with pytest.raises(BadSpec, match="cannot be judged, and the table is partitioned by it"):
            _scan(lake.table(), condition, **asked)


def test_what_is_unknown_is_refused(lake: Lake) -> None:
    with pytest.raises(BadSpec, match=r"^filter: the table has no column 'nope'"):
        _scan(lake.table(), {"type": "eq", "term": "nope", "value": 1})
    with pytest.raises(KeyError):
        _scan(lake.table(), snapshot_id=5)


def test_indexes_can_be_left_aside(lake: Lake) -> None:
    lake.reindex(index_on("k"))
    request = ScanRequest(filter={"type": "eq", "term": "k", "value": 77})
    assert len(plan_scan(lake.table(), request, ReadOptions(use_indexes=False)).ordinals) == FILES


def test_columns_of_which_the_list_has_no_values_are_refused(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.create(pa.schema([("k", pa.int64()), ("g", pa.int32()), ("h", pa.int32())]))
    with table.update_spec() as update:
        update.add_identity("g")
        update.add_identity("h")
    rows = pa.table({"k": [1, 2], "g": [1, 2], "h": [1, 2]}, schema=table.schema().as_arrow())
    table.append(rows)
    table.append(rows)
    first, head = (snapshot.snapshot_id for snapshot in lake.table().snapshots())
    with table.update_spec() as update:
        update.remove_field("g")
    with table.update_schema() as update:
        update.delete_column("g")
        update.update_column("h", LongType())
    test = {"type": "eq", "term": "g", "value": 1}
    spark = {"client": "Apache Iceberg 1.12.0", "case_sensitive": False, "use_snapshot_schema": True}
    for snapshot_id in (first, head):
        asked = {"snapshot_id": snapshot_id, **spark}
        assert len(_scan(lake.table(), None, select=("k",), **asked).ordinals) > 0
        for condition, select in ((None, ("k", "G")), (test, ("k",))):
            with pytest.raises(BadSpec, match=r"^select: the column g cannot be read by this plan"):
                _scan(lake.table(), condition, select=select, **asked)
    assert len(_scan(lake.table(), test, snapshot_id=first, client="PyIceberg 0.12.0").ordinals) == 1
    assert len(_scan(lake.table(), select=("h",), snapshot_id=head, **spark).ordinals) == 4
    with pytest.raises(BadSpec, match=r"a partition of it was a int then and is told as a long now"):
        _scan(lake.table(), select=("h",), snapshot_id=first, **spark)


def test_the_numbers_of_last_changes_are_refused(tmp_path: Path) -> None:
    table = Lake(tmp_path).create(SCHEMA, properties={"format-version": "3"})
    with pytest.raises(BadSpec, match="lists of files do not carry when rows were last changed"):
        _scan(table, select=("k", "_last_updated_sequence_number"))


def test_spark_takes_the_two_zeros_of_partitions_for_equal(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    table = lake.create(SCHEMA)
    with table.update_spec() as update:
        update.add_identity("x")
    for value in (0.0, -0.0, 1.0):
        table.append(pa.table({"k": [1], "g": [1], "x": [value]}, schema=SCHEMA))
    spark = {"case_sensitive": False, "use_snapshot_schema": True, "client": "Apache Iceberg 1.12.0"}
    for condition, expected in (
        ({"type": "not-in", "term": "x", "values": [0.0, 1.0]}, 0),
        ({"type": "not-eq", "term": "x", "value": -0.0}, 1),
        ({"type": "lt", "term": "x", "value": 0.0}, 0),
        ({"type": "eq", "term": "x", "value": 0.0}, 2),
    ):
        assert len(_scan(lake.table(), condition, **spark).ordinals) == expected
        others = _scan(lake.table(), condition).ordinals
        assert len(others) >= expected
