"""What a swap leaves behind when its manifests cannot be written: nothing, whoever of its writers is the last."""

from __future__ import annotations

import errno
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table.update.snapshot import _SnapshotProducer
from skipstone.tables.committing import swaps
from skipstone.tables.committing.commits import TableCommit, commit_table
from skipstone.tables.filesets import pin_table, read_file_set

from tests.spark.index_bed import Lake
from tests.spark.lake import write_files


def test_a_manifest_that_is_written_after_another_failed_is_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.create(pa.schema([("id", pa.int64())]))
    lake.table().append(pa.table({"id": [1]}))
    table, failed, cleaned, written = lake.table(), Event(), Event(), Event()
    added = write_files(table, pa.table({"id": [2]}))
    before = set(tmp_path.rglob("*.avro"))
    create, clean = PyArrowFile.create, _SnapshotProducer._clean_all_uncommitted

    def first_fails(file: PyArrowFile, overwrite: bool = False) -> Any:
        if file.location.endswith("-m0.avro"):
            failed.set()
            raise OSError(errno.ENOSPC, "full")
        failed.wait()
        cleaned.wait(0.3)  # who does not wait for this writer cleans up now, before it writes
        try:
            return create(file, overwrite)
        finally:
            written.set()

    def cleans(producer: _SnapshotProducer[Any]) -> None:
        clean(producer)
        cleaned.set()

    monkeypatch.setattr(swaps, "_WRITERS_SECONDS", 300.0)
    monkeypatch.setattr(PyArrowFile, "create", first_fails)
    monkeypatch.setattr(_SnapshotProducer, "_clean_all_uncommitted", cleans)
    change = TableCommit(pinned=pin_table(table), added=added, removed=(read_file_set(table).data_file(0),))
    with pytest.raises(OSError, match="full"):
        commit_table(lake.catalog, lake.ref(), change)
    assert written.wait(300)
    assert set(tmp_path.rglob("*.avro")) == before
    lake.catalog.close()
