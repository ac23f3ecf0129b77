"""What a commit names is on disk, with its name, before the catalog's pointer moves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import IndexRef, ReindexTask, RunKind
from sqlalchemy import event
from sqlalchemy.engine import Engine

from tests.spark.merge_bed import MergeBed, task_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", LongType()))
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
INDEX = IndexRef(name="idx", uid="33333333-0000-0000-0000-000000000000", columns=("v",))


@dataclass
class Disk:
    """What was synced so far, and what was not yet when a pointer moved."""

    synced: set[Path] = field(default_factory=set)
    moved: list[str] = field(default_factory=list)
    late: list[Path] = field(default_factory=list)

    def sync(self, descriptor: int) -> None:
        """Note a sync by its path."""
        self.synced.add(Path(f"/proc/self/fd/{descriptor}").readlink())

    def move(self, location: str, root: Path) -> None:
        """Note all that the metadata at ``location`` names and that is not on disk."""
        self.moved.append(location)
        named = [Path(path.removeprefix("file://")) for path in (location, *reached(location))]
        folders = {folder for path in named for folder in path.parents if folder == root or root in folder.parents}
        self.late += sorted((folders | set(named)) - self.synced)


def reached(location: str) -> Iterator[str]:
    """The manifest lists, manifests and live files that the metadata at ``location`` names."""
    table = StaticTable.from_metadata(location)
    for snapshot in table.metadata.snapshots:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(table.io):
            yield manifest.manifest_path
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """Sees every sync of this process, and every pointer of an SQL catalog before it moves."""
    seen, sync = Disk(), os.fsync

    def record(descriptor: int) -> None:
        sync(descriptor)
        seen.sync(descriptor)

    def look(_: object, __: object, statement: str, values: Any, *___: object) -> None:
        if statement.startswith(("UPDATE iceberg_tables", "INSERT INTO iceberg_tables")):
            seen.move(next(one for one in values if str(one).endswith(".metadata.json")), tmp_path)

    monkeypatch.setattr(os, "fsync", record)
    event.listen(Engine, "before_cursor_execute", look)
    yield seen
    event.remove(Engine, "before_cursor_execute", look)


@pytest.fixture
def bed(tmp_path: Path, disk: Disk) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def rows(*keys: int) -> pa.Table:
    return pa.table({"id": list(keys), "v": [key + 1 for key in keys]})


def merged(bed: MergeBed, *keys: int) -> None:
    report = bed.merge(task_of(bed.source(rows(*keys))))
    assert report.outcome is RunOutcome.COMMITTED, report.message


@pytest.mark.parametrize(
    ("mode", "spec"),
    [("copy-on-write", PartitionSpec()), ("copy-on-write", BY_ID), ("merge-on-read", PartitionSpec())],
    ids=["copied", "copied, partitioned", "deleted by position"],
)
def test_all_that_a_merge_commits_is_on_disk(bed: MergeBed, disk: Disk, mode: str, spec: PartitionSpec) -> None:
    bed.create(SCHEMA, spec, **{"write.merge.mode": mode})
    bed.append([{"id": key, "v": 0} for key in range(5)])
    merged(bed, 1, 7)
    assert bool(position_deletes(bed.table())) is (mode == "merge-on-read")
    assert (len(disk.moved), disk.late) == (3, [])


def position_deletes(table: Table) -> list[Any]:
    return [one for task in table.scan().plan_files() for one in task.delete_files]


def test_all_that_an_index_commits_is_on_disk(bed: MergeBed, disk: Disk) -> None:
    bed.create(SCHEMA)
    bed.append([{"id": key, "v": 0} for key in range(5)])
    request = bed.request(task_of("unused"))
    values = {**vars(request), "kind": RunKind.REINDEX, "indexes": (INDEX,), "reindex": ReindexTask(index=INDEX)}
    made = type(request)(**values)
    assert run_reindex(made, Reporter(made)).outcome is RunOutcome.COMMITTED
    assert len(disk.moved) > 3
    assert disk.late == []


def test_what_another_process_left_unsynced_is_synced_too(bed: MergeBed, disk: Disk, tmp_path: Path) -> None:
    """Folders may be there already, made by a process that had not come to sync them."""
    (tmp_path / "ns" / "t" / "data").mkdir(parents=True)
    bed.create(SCHEMA)
    bed.append([{"id": 1, "v": 0}])
    assert (len(disk.moved), disk.late) == (2, [])
