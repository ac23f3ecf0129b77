"""A driver killed by SIGKILL at any write of its inline entry: the next attempt enters the rest, or a reindex does.

The rows of the job never depend on it. `make test` takes a few of the steps, `make soak-merge` has more.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import JobRequest, RunKind

from tests.examples import turn
from tests.spark.inline_bed import KINDS, InlineBed, change, rows, synced
from tests.spark.kept import Kept
from tests.spark.killed_app import run_until

INDEXES = KINDS[:2]
SEGMENTS = 7
#: So many of the steps at which a run may die are tried in a soak, one of PART of them otherwise.
KILLS, PART = 24, 8


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """A table of seven segments in two indexes, so that one more entry merges their runs."""
    bed = InlineBed(tmp_path_factory.mktemp("lake"), indexes=INDEXES)
    bed.create()
    for number in range(SEGMENTS):
        bed.load(rows(number * 10, 10))
    close(bed)
    return Kept(bed.root, tmp_path_factory.mktemp("kept"))


def close(bed: InlineBed) -> None:
    bed.merges.catalog.close()
    bed.lake.catalog.close()


def request_of(bed: InlineBed, kind: RunKind) -> JobRequest:
    """A job that adds one file to the table."""
    changes = [change(number) for number in range(1000, 1020)]
    return bed.load_request(rows(1000, 20)) if kind is RunKind.LOAD else bed.merge_request(changes)


def kill_at(bed: InlineBed, request: JobRequest, step: int) -> tuple[int, list[str]]:
    """Exit code and steps of the application, which dies before ``step`` of those after its commit of the table."""
    folder = bed.root / "pod"
    folder.mkdir(exist_ok=True)
    (folder / "request.json").write_text(request.to_json())
    paths = {"SKIPSTONE_REQUEST": folder / "request.json", "SKIPSTONE_REPORT": folder / "report.json"}
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_SUBMIT_ARGS"}
    environment |= {name: str(path) for name, path in paths.items()}
    ended = run_until(request.kind.value.lower(), str(step), environment, folder)
    assert ended.code in (0, -signal.SIGKILL), ended.errors
    return ended.code, ended.steps


@pytest.fixture(scope="module")
def first_steps(kept: Kept) -> dict[RunKind, tuple[int, int]]:
    """Of a load and of a merge that nobody kills: the number of the step after the table's commit, and of the last."""
    found = {}
    for kind in (RunKind.LOAD, RunKind.MERGE):
        bed = InlineBed(kept.restored(), indexes=INDEXES)
        code, steps = kill_at(bed, request_of(bed, kind), 0)
        assert code == 0
        assert all(synced(bed.lake.state(index)) for index in INDEXES)
        assert steps.count("after SqlCatalog.commit_table") == 1 + 2 * len(INDEXES), (
            "an entry and a merge of each index"
        )
        found[kind] = (steps.index("after SqlCatalog.commit_table") + 1, len(steps))
        close(bed)
    return found


def cases() -> list[Any]:
    """Kinds of runs and kills; what only a soak takes is marked."""
    first = turn(PART)
    every = [(kind, kill) for kind in (RunKind.LOAD, RunKind.MERGE) for kill in range(KILLS)]
    return [
        pytest.param(*one, marks=[] if (first + at) % PART == 0 else [pytest.mark.soak]) for at, one in enumerate(every)
    ]


@pytest.mark.parametrize(("kind", "kill"), cases())
def test_a_driver_killed_after_its_commit_leaves_the_rest_to_whoever_comes_next(
    kind: RunKind, kill: int, first_steps: dict[RunKind, tuple[int, int]], kept: Kept
) -> None:
    bed = InlineBed(kept.restored(), indexes=INDEXES)
    request, (start, last) = request_of(bed, kind), first_steps[kind]
    code, _ = kill_at(bed, request, start + kill * (last - start) // (KILLS - 1))
    assert code == -signal.SIGKILL
    landed = bed.merges.rows()
    assert len(landed) == SEGMENTS * 10 + 20
    assert [bed.lake.state(index).segments_missing for index in INDEXES] in ([0, 0], [0, 1], [1, 1])
    bed.assert_exact()

    if kill % 2:
        for index in INDEXES:
            bed.lake.reindex(index)
    report = bed.run(replace(request, attempt=2, run_id=f"{request.run_id[:-1]}2"))
    assert (report.outcome, report.message) == (RunOutcome.ALREADY_COMMITTED, "")
    assert bed.merges.rows() == landed
    bed.assert_in_sync(report)
    close(bed)


def test_what_an_earlier_attempt_committed_is_entered_by_the_next_one(tmp_path: Path) -> None:
    bed = InlineBed(tmp_path / "lake", indexes=())
    bed.create()
    request = bed.load_request(rows(0, 10))
    bed.run(request)
    bed.indexes = KINDS
    again = replace(request, attempt=2, run_id=f"{request.run_id[:-1]}2", indexes=KINDS)
    report = bed.run(again)
    assert report.outcome is RunOutcome.ALREADY_COMMITTED
    bed.assert_in_sync(report)
