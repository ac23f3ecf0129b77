"""The check that runs after every test of this folder finds what it is there for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.spark.lake import append
from tests.spark.soundness import Soundness, Unsound

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """A table of two commits."""
    made = catalog.create_table(("ns", "t"), ROWS.schema, properties={"format-version": "2"})
    return append(append(made, ROWS), ROWS)


def first_data_file(table: Table) -> Path:
    return local(next(iter(table.scan().plan_files())).file.file_path)


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def turn_back_the_log(table: Table) -> None:
    path = local(table.metadata_location)
    metadata = json.loads(path.read_text())
    metadata["snapshot-log"][0]["timestamp-ms"] += 120_000
    path.write_text(json.dumps(metadata))


FAULTS: dict[str, Callable[[Table], object]] = {
    "a data file is deleted": lambda table: first_data_file(table).unlink(),
    "a data file is cut off": lambda table: truncate(first_data_file(table)),
    "an older snapshot's manifest list is deleted": lambda table: local(
        table.metadata.snapshots[0].manifest_list
    ).unlink(),
    "a manifest is deleted": lambda table: local(
        table.current_snapshot().manifests(table.io)[0].manifest_path  # type: ignore[union-attr]
    ).unlink(),
    "the metadata is deleted": lambda table: local(table.metadata_location).unlink(),
    "the snapshot log is out of order": turn_back_the_log,
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_damaged_table_is_unsound(table: Table, tmp_path: Path, fault: Callable[[Table], object]) -> None:
    fault(table)
    with pytest.raises(Unsound):
        Soundness().check_folder(tmp_path)


def test_a_table_that_was_sound_and_is_damaged_then_is_unsound(table: Table, tmp_path: Path) -> None:
    check = Soundness()
    check.check_folder(tmp_path)
    first_data_file(table).unlink()
    with pytest.raises(Unsound, match=r"\.parquet, named by .*, is gone"):
        check.check_folder(tmp_path)


def test_a_whole_table_is_sound(table: Table, tmp_path: Path) -> None:
    check = Soundness()
    check.check_folder(tmp_path)
    append(table, ROWS)
    check.check_folder(tmp_path)
