"""A look into files that planned scans left out: right ones are found right, and a lie of an index is found."""

from __future__ import annotations

import logging
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table
from skipstone.query.readplan import ReadOptions
from skipstone.query.scans import PlannedScan, ScanRequest, plan_scan
from skipstone.query.verifying import verify_scan
from skipstone.serving.measures import PlanningMeasures
from skipstone.serving.verifying import PlanVerifier

from tests.spark.index_bed import Lake, index_on

SCHEMA = pa.schema([("k", pa.int64()), ("g", pa.int64())])
FILES, ROWS = 6, 40
ASKED = {"type": "eq", "term": "k", "value": 77}


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    table = lake.create(SCHEMA)
    numbers = np.random.default_rng(3).permutation(FILES * ROWS)
    for part in np.split(numbers, FILES):
        table.append(pa.table({"k": part, "g": part % 5}, schema=SCHEMA))
    lake.reindex(index_on("k"))
    return lake


def _planned(table: Table) -> PlannedScan:
    return plan_scan(table, ScanRequest(filter=ASKED))


def _exchange(lake: Lake) -> str:
    """Write other rows into a file that the index says does not hold the key, as nobody may."""
    table = lake.table()
    scan = _planned(table)
    left_out = next(iter(set(range(FILES)) - set(scan.ordinals.tolist())))
    path: str = scan.files.facts(left_out).path
    place = path.removeprefix("file://")
    rows = pq.read_table(place)
    pq.write_table(rows.set_column(0, rows.schema.field(0), pa.array([77] * len(rows), pa.int64())), place)
    return path


def test_nothing_is_wrong_with_files_that_hold_no_row(lake: Lake) -> None:
    table = lake.table()
    found = verify_scan(table, _planned(table), FILES, Random(1))
    assert (found.read, found.wrong, found.is_whole) == (FILES - 1, (), True)


def test_an_exchanged_file_is_found(lake: Lake) -> None:
    path, table = _exchange(lake), lake.table()
    assert verify_scan(table, _planned(table), FILES, Random(1)).wrong == (path,)


def test_deleted_rows_are_no_fault(lake: Lake) -> None:
    table = lake.table()
    table.delete("k == 77")
    table = lake.table()
    assert verify_scan(table, _planned(table), FILES, Random(1)).wrong == ()


def test_a_replica_that_found_a_fault_counts_logs_and_distrusts(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    table, measures = lake.table(), PlanningMeasures()
    verifier = PlanVerifier(measures, share=1.0, files=FILES)
    verifier.offer(table, _planned(table))
    verifier.close()
    assert verifier.trusts(table)
    path, verifier = _exchange(lake), PlanVerifier(measures, share=1.0, files=FILES)
    with caplog.at_level(logging.ERROR):
        verifier.offer(table, _planned(table))
        verifier.close()
    assert not verifier.trusts(table)
    assert path in caplog.text
    assert "77" not in caplog.text.replace(path, "").replace(str(table.metadata.current_snapshot_id), "")
    text = measures.text().decode()
    assert 'skipstone_planning_verified_total{found="right"} 1.0' in text
    assert 'skipstone_planning_verified_total{found="wrong"} 1.0' in text


def test_without_indexes_all_files_are_left(lake: Lake) -> None:
    scan = plan_scan(lake.table(), ScanRequest(filter=ASKED), ReadOptions(use_indexes=False))
    assert len(scan.ordinals) == FILES
