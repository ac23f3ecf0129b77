"""A merge driver killed by SIGKILL in each of its phases: the next attempt of the job leaves the right table, once."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import EXIT_COMMITTED, EXIT_UNAVAILABLE, JobReport, RunOutcome
from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from tests.spark.killed_app import Bounds, run_until
from tests.spark.merge_bed import DELETE_D, UPDATE, MergeBed, task_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))
FEED = pa.table({"id": [5, 15, 100], "v": ["five", "fifteen", "hundred"], "op": ["U", "D", "U"]})
BEFORE = [(number, "old") for number in range(20)]
AFTER = [(5, "five") if number == 5 else (number, "old") for number in range(20) if number != 15] + [(100, "hundred")]
#: The phase in which a driver dies, and the step of it; afterwards nothing of the phase is left to do but to go on.
PHASES = {
    "read": "after source.require_unchanged",
    "prune": "after prune.run_funnel",
    "rewrite": "after ParquetFile.close",
    "commit, its manifests under way": "after PyArrowFile.create",
    "before commit": "before SqlCatalog.commit_table",
    "after commit": "after SqlCatalog.commit_table",
    "before the report": "before FileSink.finish",
}
COMMITTED = ("after commit", "before the report")
#: Largest file that a process may write when its disk is said to be full.
ROOM = 1024 * 1024


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    made.create(SCHEMA)
    made.append([{"id": i, "v": "old"} for i in range(10)], [{"id": i, "v": "old"} for i in range(10, 20)])
    yield made
    made.catalog.close()


def request_of(bed: MergeBed) -> JobRequest:
    """The first attempt of a merge of FEED."""
    return bed.request(task_of(bed.source(FEED), when_matched=(DELETE_D, UPDATE)))


def next_attempt(request: JobRequest) -> JobRequest:
    """As the operator makes it."""
    return replace(request, attempt=2, run_id=f"{request.run_id[:-1]}2")


def pod_of(bed: MergeBed, request: JobRequest) -> tuple[Path, dict[str, str]]:
    """Folder and environment of a driver that has not begun."""
    folder = bed.root / "pod"
    folder.mkdir(exist_ok=True)
    (folder / "request.json").write_text(request.to_json())
    (folder / "report.json").unlink(missing_ok=True)
    paths = {"SKIPSTONE_REQUEST": folder / "request.json", "SKIPSTONE_REPORT": folder / "report.json"}
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    return folder, environment | {"SPARK_LOCAL_DIRS": str(folder), **{name: str(at) for name, at in paths.items()}}


def report_in(folder: Path) -> JobReport | None:
    """What a driver told, if it told anything."""
    told = folder / "report.json"
    return JobReport.from_json(told.read_text()) if told.exists() else None


def drive(bed: MergeBed, request: JobRequest, bounds: Bounds) -> tuple[int, JobReport | None]:
    """Exit code and report of the application in a process of its own."""
    folder, environment = pod_of(bed, request)
    ended = run_until("merge", "0", environment, folder, bounds)
    assert ended.code in (EXIT_COMMITTED, EXIT_UNAVAILABLE), ended.errors
    return ended.code, report_in(folder)


def values(bed: MergeBed) -> list[tuple[Any, Any]]:
    return sorted((row["id"], row["v"]) for row in bed.table().scan().to_arrow().to_pylist())


@pytest.mark.parametrize("phase", PHASES)
def test_a_driver_killed_in_any_phase_is_followed_by_one_that_ends_right(bed: MergeBed, phase: str) -> None:
    first = request_of(bed)
    folder, environment = pod_of(bed, first)
    ended = run_until("merge", PHASES[phase], environment, folder)
    assert ended.code == -signal.SIGKILL, ended.errors
    assert ended.steps[-1] == PHASES[phase]
    told = report_in(folder)
    assert told is None or told.outcome is RunOutcome.RUNNING
    landed = phase in COMMITTED
    assert values(bed) == (AFTER if landed else BEFORE)
    before = bed.on_disk()

    second = next_attempt(first)
    report = run_merge(second, Reporter(second))
    assert report.outcome is (RunOutcome.ALREADY_COMMITTED if landed else RunOutcome.COMMITTED)
    assert (report.counts["rowsUpdated"], report.counts["rowsDeleted"], report.counts["rowsInserted"]) == (1, 1, 1)
    assert values(bed) == AFTER
    author, other = (first, second) if landed else (second, first)
    assert any(author.run_id in path for path in bed.paths())
    assert not any(other.run_id in path for path in bed.paths()), "an orphan is referenced"
    assert bed.paths() <= bed.on_disk()
    if not landed:
        assert bed.on_disk() - before == {path for path in bed.paths() if second.run_id in path}


def test_a_disk_that_is_full_during_the_rewrite_is_told_and_leaves_nothing(bed: MergeBed) -> None:
    """A limit of the size of files stands for the disk: the large file of the table does not fit when written again."""
    bed.append([{"id": 1000 + i, "v": os.urandom(1024).hex()} for i in range(ROOM // 1024)])
    feed = pa.table({"id": [5, 1000, 2_000_000], "v": ["five", "large", "new"]})
    request = bed.request(task_of(bed.source(feed)))
    rows, files, head = values(bed), bed.on_disk(), bed.table().metadata_location

    code, told = drive(bed, request, Bounds(file=ROOM))
    assert code == EXIT_UNAVAILABLE
    assert told is not None
    assert told.reason is Reason.DISK_FULL
    assert f"there is no room left in file://{bed.root}/ns/t/data" in told.message
    assert "\n" not in told.message
    assert (values(bed), bed.on_disk(), bed.table().metadata_location) == (rows, files, head)

    code, told = drive(bed, next_attempt(request), Bounds())
    assert (code, told.outcome if told else None) == (EXIT_COMMITTED, RunOutcome.COMMITTED)
    changed = dict(rows) | {5: "five", 1000: "large", 2_000_000: "new"}
    assert values(bed) == sorted(changed.items())


class FullAtCommit(Reporter):
    """During the commit this process can write small files only: no manifest."""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Limit the stage named commit."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512 if name == "commit" else soft, hard))
        try:
            with super().stage(name):
                yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_when_manifests_are_written_is_told_and_leaves_nothing(bed: MergeBed) -> None:
    request = request_of(bed)
    files = {path for path in (bed.root / "ns").rglob("*") if path.is_file()}
    with pytest.raises(DependencyUnavailable, match=f"there is no room left in file://{bed.root}/ns/t") as caught:
        run_merge(request, FullAtCommit(request))
    assert caught.value.reason is Reason.DISK_FULL
    assert {path for path in (bed.root / "ns").rglob("*") if path.is_file()} == files
    assert values(bed) == BEFORE
    second = next_attempt(request)
    assert run_merge(second, Reporter(second)).outcome is RunOutcome.COMMITTED
    assert values(bed) == AFTER
