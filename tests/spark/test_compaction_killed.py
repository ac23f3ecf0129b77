"""A maintain run that compacts, killed by SIGKILL before and after each of its writes, or told to end by SIGTERM.

Whatever is left is the table as it was: all rows, all files of all snapshots. The next run does the rest. `make
soak-maintain` kills at every step, of runs that copy row groups and of runs that sort rows.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from skipstone_core.contract.reports import EXIT_COMMITTED, JobReport, RunOutcome
from skipstone_core.contract.requests import IndexRef, JobRequest
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep, SnapshotPolicy
from skipstone_core.reasons import Reason

from tests.examples import ALL_CASES, cases, turn
from tests.spark.kept import Kept
from tests.spark.killed_app import Ended, run_until
from tests.spark.maintain_bed import EAGER, MaintainBed, numbers
from tests.spark.merge_bed import rows_of
from tests.spark.rawdeletes import add_equality_delete, add_position_delete, add_vectors, upgrade

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()), NestedField(3, "p", StringType()))
BY_P = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "p"))
INDEX = IndexRef(name="by-id", uid="33333333-0000-0000-0000-000000000000", columns=("id",), is_inline=True)
#: Kills of one run in `make test`.
KILLS = 2


def make_table(root: Path, version: int = 2) -> None:
    """Two partitions of three files each, from which rows are deleted by position and by equality.

    In format version 3 also by deletion vectors of two files in one Puffin file.
    """
    bed = MaintainBed(root)
    bed.create(SCHEMA, BY_P)
    for start in range(0, 30, 10):
        bed.append(numbers(start, 10, p="a"), numbers(start, 10, p="b"))
    add_position_delete(bed.table(), bed.files().data_file(0), [1, 2])
    add_equality_delete(bed.table(), {"id": [13]}, "b")
    if version > 2:
        upgrade(bed.table())
        add_vectors(bed.table(), {0: [1, 2], 3: [4]})
    bed.catalog.close()


def drive(bed: MaintainBed, request: JobRequest, fatal: str, sent: signal.Signals = signal.SIGKILL) -> Ended:
    """The application in a process of its own."""
    folder = bed.root / "pod"
    folder.mkdir(exist_ok=True)
    (folder / "request.json").write_text(request.to_json())
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    places = {"SKIPSTONE_REQUEST": "request.json", "SKIPSTONE_REPORT": "report.json"}
    environment |= {name: str(folder / file) for name, file in places.items()}
    return run_until("maintain", fatal, environment | {"SPARK_LOCAL_DIRS": str(folder)}, folder, sent=sent)


def snapshots(bed: MaintainBed) -> dict[int, list[str]]:
    """The rows that each retained snapshot has by PyIceberg, which applies no equality deletes: none is there yet."""
    table = bed.table()
    found: dict[int, list[str]] = {}
    for one in table.metadata.snapshots[:3]:
        found[one.snapshot_id] = rows_of(table.scan(snapshot_id=one.snapshot_id).to_arrow())
    return found


@pytest.mark.parametrize("version", (2, 3) if ALL_CASES else (2 + turn(2),))
@pytest.mark.parametrize("sort_by", [(), ("v",)], ids=["copied", "sorted"])
def test_a_run_killed_at_any_write_leaves_the_table_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, sort_by: tuple[str, ...], version: int
) -> None:
    root = tmp_path_factory.mktemp("lake")
    make_table(root, version)
    kept = Kept(root, tmp_path_factory.mktemp("kept"))
    bed = bed_at(kept, sort_by)
    before, past = bed.held(), snapshots(bed)
    whole = drive(bed, request_of(bed), "0")
    assert whole.code == EXIT_COMMITTED, whole.errors
    assert_compacted(bed, before)
    bed.catalog.close()
    places = range(1, len(whole.steps) + 1)
    first = turn(len(places) // KILLS)
    for fatal in places if ALL_CASES else places[first :: len(places) // KILLS]:
        bed = bed_at(kept, sort_by)
        request = request_of(bed)
        ended = drive(bed, request, str(fatal))
        assert ended.code == -signal.SIGKILL, ended.errors
        said = f"killed at step {fatal}, {ended.steps[-1]}"
        assert bed.held() == before, said
        assert snapshots(bed) == past, said
        assert all(request.run_id in path for path in bed.strays()), said
        left = bed.strays()
        again = replace(request, attempt=2, run_id=f"{request.run_id[:-1]}2")
        (step,) = bed.run(again).steps
        assert step.is_done, (step, said)
        assert_compacted(bed, before)
        assert snapshots(bed) == past, said
        assert bed.strays() == left, said
        bed.catalog.close()


def bed_at(kept: Kept, sort_by: tuple[str, ...]) -> MaintainBed:
    """The table as it was made."""
    bed = MaintainBed(kept.restored())
    bed.policy = replace(EAGER, sort_by=sort_by)
    return bed


def request_of(bed: MaintainBed) -> JobRequest:
    """Each partition in a commit of its own."""
    return bed.compaction(INDEX, max_commit_bytes=1)


def assert_compacted(bed: MaintainBed, rows: list[Any]) -> None:
    """A file for each partition, without deletes, in which nothing is due."""
    assert bed.held() == rows
    files = bed.files()
    assert (len(files), files.delete_files) == (2, [])
    assert bed.compact().reason is Reason.IDLE


@pytest.mark.parametrize(
    ("place", "commits", "left"),
    [
        ("before SplicedFile.close", 1, True),
        ("before FileSink.finish", 2, False),
        ("before SqlCatalog.commit_table", 1, True),
    ][: cases(2, 3)],
)
def test_a_run_that_is_told_to_end_commits_what_it_has_in_hand(
    tmp_path: Path, place: str, commits: int, left: bool
) -> None:
    make_table(tmp_path)
    bed = MaintainBed(tmp_path)
    before, past = bed.held(), snapshots(bed)
    asked = MaintenancePolicy(compaction=EAGER, snapshots=SnapshotPolicy(max_age_seconds=86_400))
    steps = (MaintenanceStep.COMPACTION, MaintenanceStep.SNAPSHOTS)
    ended = drive(bed, bed.maintenance(steps, asked, max_commit_bytes=1), place, signal.SIGTERM)
    assert ended.code == EXIT_COMMITTED, ended.errors
    report = JobReport.from_json((tmp_path / "pod" / "report.json").read_text())
    assert report.outcome is RunOutcome.COMMITTED
    compaction, expiry = report.steps
    assert compaction.counts["commits"] == commits
    assert (compaction.is_done, expiry.is_done) == (not left, not left)
    if left:
        assert {compaction.reason, expiry.reason} == {Reason.GIVING_WAY}
        assert bed.compact().counts["commits"] == 1
    assert_compacted(bed, before)
    assert snapshots(bed) == past
    assert bed.strays() == set()
