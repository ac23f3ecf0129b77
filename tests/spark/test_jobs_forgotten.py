"""What is kept for further attempts of a job goes once none can follow: nothing is left for each job that ever ran."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.confirm import run_confirm
from skipstone.runs.load import run_load
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import (
    ConfirmTask,
    JobRequest,
    LoadTask,
    RunKind,
    SourceFormat,
    SourceSpec,
)

from tests.spark.merge_bed import AtSwap, MergeBed, task_of

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "v", StringType()))


class Killed(BaseException):
    """The process is gone."""


def die() -> None:
    raise Killed


@pytest.fixture
def bed(tmp_path: Path) -> MergeBed:
    """A table with two rows, and a feed."""
    bed = MergeBed(tmp_path)
    bed.create(SCHEMA)
    bed.append([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    bed.source(pa.table({"id": [2, 3], "v": ["B", "c"]}), "feed")
    return bed


def kept(bed: MergeBed) -> list[str]:
    """What lies among the records of jobs, empty folders too."""
    folder = bed.root / ".skipstone" / "runs"
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def load_request(bed: MergeBed, path: str) -> JobRequest:
    request = bed.request(task_of(path))
    task = LoadTask(source=SourceSpec(format=SourceFormat.PARQUET, paths=(path,)))
    return replace(request, kind=RunKind.LOAD, merge=None, load=task)


def next_attempt(request: JobRequest) -> JobRequest:
    attempt = request.attempt + 1
    return replace(request, attempt=attempt, run_id=f"{request.run_id.rpartition('-')[0]}-{attempt}")


def confirm(request: JobRequest) -> RunOutcome:
    """A confirm run of the job."""
    asked = replace(request, kind=RunKind.CONFIRM, merge=None, load=None, confirm=ConfirmTask(txn=request.txn))
    return run_confirm(asked, Reporter(asked)).outcome


def test_loads_and_merges_leave_nothing(bed: MergeBed) -> None:
    request = load_request(bed, "feeds/feed")
    assert run_load(request, Reporter(request)).outcome is RunOutcome.COMMITTED
    bed.source(pa.table({"id": [1], "v": ["A"]}), "more")
    assert bed.merge(task_of("feeds/more")).outcome is RunOutcome.COMMITTED
    assert kept(bed) == []


@pytest.mark.parametrize("follower", ["the next attempt", "a confirm run"])
def test_what_a_killed_attempt_left_goes_with_the_proof_that_it_committed(bed: MergeBed, follower: str) -> None:
    request = bed.request(task_of("feeds/feed"))
    with pytest.raises(Killed):
        run_merge(request, Reporter(request), CommitPorts(hooks=AtSwap(after=die)))
    left = bed.root / ".skipstone" / "runs" / request.owner_uid / f"{request.run_id}-0123abcd"
    left.mkdir(parents=True)
    (left / "slice-0.parquet").write_bytes(b"of a process that cleaned nothing up")
    if follower == "a confirm run":
        assert confirm(request) is RunOutcome.ALREADY_COMMITTED
    else:
        again = next_attempt(request)
        assert run_merge(again, Reporter(again)).outcome is RunOutcome.ALREADY_COMMITTED
    assert kept(bed) == []


def test_the_files_of_a_job_that_may_be_tried_again_stay_pinned_until_it_is_fenced_off(bed: MergeBed) -> None:
    request = load_request(bed, "feeds/feed")
    with pytest.raises(Killed):
        run_load(request, Reporter(request), CommitPorts(hooks=AtSwap(before=die)))
    assert kept(bed) == [request.owner_uid, f"{request.owner_uid}/source.json"]
    bed.source(pa.table({"id": [9], "v": ["z"]}), "feed/later")
    assert confirm(request) is RunOutcome.ABSENT
    assert kept(bed) == []
