"""A compaction held at each of its points while another writer does something: the guide's table, case by case.

The rows afterwards are those that the other writer left; no file is missing and none is left over. `make test` holds
each case at one point, which changes with the commit; `make soak-maintain` has them all.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import StepReport
from skipstone_core.table_properties import MergeMode

from tests.examples import ALL_CASES, turn
from tests.spark.interleavings import CASES, FEED, Held, Scene, T, in_order, make_lake, rows, sql
from tests.spark.kept import Kept
from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import DELETE_D, UPDATE, AtSwap, task_of

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "maintenance.md"
#: Versions of the format; the commit decides which one `make test` takes.
VERSIONS = (2, 3) if ALL_CASES else (2 + turn(2),)
#: Where a compaction is held, and the stage that it is about to enter then; at "swap" it has validated.
POINTS = {"rewrite": "rewrite", "commit": "commit", "swap": ""}


class Fate(StrEnum):
    """What becomes of the compaction, as the guide words it."""

    COMMITS = "commits as planned"
    AGAIN = "leaves out the files concerned and plans again"


@dataclass(frozen=True)
class Other:
    """What another writer does, and the fate of a compaction of all files."""

    act: Callable[[Scene], object]
    fate: Fate


def merge(scene: Scene) -> None:
    """A whole merge run of ours."""
    scene.bed.merge(task_of(scene.bed.source(FEED), when_matched=(DELETE_D, UPDATE)))


def known(name: str, fate: Fate) -> dict[str, Other]:
    """What a writer does beside a merge as well."""
    return {name: Other(CASES[name].act, fate)}


OTHERS: dict[str, Other] = {
    "appends rows (any engine, or a load)": Other(lambda scene: scene.bed.append(rows(200, 5)), Fate.COMMITS),
    "merges into a file of the compaction (a merge run)": Other(merge, Fate.AGAIN),
    "merges into it by Spark's `MERGE`": Other(
        sql(
            f"merge into {T} as t using (select 5L as id) as s on t.id = s.id when matched then update set v = 'theirs'"
        ),
        Fate.AGAIN,
    ),
    "deletes rows of it by position": Other(CASES["deletes rows by position in another file"].act, Fate.AGAIN),
    **known("deletes rows by an equality delete", Fate.COMMITS),
    "drops a file of the compaction": Other(CASES["drops another file"].act, Fate.AGAIN),
    **known("compacts the table (`rewrite_data_files`)", Fate.AGAIN),
    **known("compacts the table (a maintain run)", Fate.AGAIN),
    **known("compacts it and expires snapshots, so that files are gone", Fate.AGAIN),
    **known("rolls the table back", Fate.AGAIN),
    "renames a column": Other(CASES["renames a column that the merge does not need"].act, Fate.AGAIN),
    **known("adds a column", Fate.AGAIN),
    **known("changes the partitioning", Fate.AGAIN),
    **known("expires snapshots older than the planned one", Fate.COMMITS),
    **known("expires the planned snapshot", Fate.AGAIN),
    **known("builds an index (a reindex run)", Fate.COMMITS),
}


@pytest.fixture(scope="module", params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The lake."""
    root = tmp_path_factory.mktemp("lake")
    make_lake(root, MergeMode.MERGE_ON_READ, request.param)
    return Kept(root, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def scene(kept: Kept, spark: SparkSession) -> Iterator[Scene]:
    """The lake as it was made."""
    made = Scene(kept.restored(), spark, MergeMode.MERGE_ON_READ)
    yield made
    made.bed.catalog.close()


def held() -> list[Any]:
    """Every case at every point; what only a soak takes is marked."""
    first, places = turn(len(POINTS)), list(POINTS)
    taken = {(name, places[(first + number) % len(places)]) for number, name in enumerate(OTHERS)}
    every = itertools.product(OTHERS, POINTS)
    return [pytest.param(*pair, marks=[] if pair in taken else [pytest.mark.soak], id="-".join(pair)) for pair in every]


@pytest.mark.parametrize(("name", "point"), held())
def test_each_interleaving_has_the_outcome_that_the_guide_states(scene: Scene, name: str, point: str) -> None:
    other, theirs = OTHERS[name], []

    def act() -> None:
        other.act(scene)
        theirs.extend(scene.read())

    step = compacted(scene, point, act)
    assert step.is_done, step
    assert (step.counts["conflicts"] > 0) == (other.fate is Fate.AGAIN), step
    assert in_order(scene.read()) == in_order(theirs)
    assert scene.missing_files() == set()
    assert scene.stray_files() == set()


def compacted(scene: Scene, point: str, action: Callable[[], object]) -> StepReport:
    """Compact and do ``action`` when the run is at ``point``."""
    bed = MaintainBed(scene.root)
    request = replace(bed.compaction(), owner_uid=bed.ref.uid)
    hooks = AtSwap(before=None if POINTS[point] else lambda: action() and None)
    (step,) = run_maintain(request, Held(request, POINTS[point], action), CommitPorts(hooks=hooks)).steps
    bed.catalog.close()
    return step


def test_the_guide_has_this_table() -> None:
    lines = GUIDE.read_text().splitlines()
    start = lines.index("| Another writer | The compaction |") + 2
    assert lines[start : lines.index("", start)] == [f"| {act} | {other.fate} |" for act, other in OTHERS.items()]
