"""A merge held at each of its points while another writer does something: the guide's table, case by case.

After each the table is what the two would have made one after the other; no file is missing and none is left over.
`make test` holds each merge at its commit. It also holds half of them at one other point and merges the other half on
read; which ones changes with the commit. `make soak-merge` has the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.errors import UserError
from skipstone_core.reasons import Reason
from skipstone_core.table_properties import MergeMode

from tests.examples import turn
from tests.spark.interleavings import CASES, POINTS, Fate, Scene, T, guide_row, in_order, make_lake, merged_after
from tests.spark.kept import Kept

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "merging.md"


#: What Spark read after another writer, by the writer and how the table is merged: the same at every point of a merge.
Theirs = dict[tuple[str, str], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Kept]:
    """A lake for each way to merge."""
    found = {}
    for mode in (MergeMode.COPY_ON_WRITE, MergeMode.MERGE_ON_READ):
        root = tmp_path_factory.mktemp("lake")
        make_lake(root, mode)
        found[mode.value] = Kept(root, tmp_path_factory.mktemp("kept"))
    return found


@pytest.fixture(scope="module")
def theirs() -> Theirs:
    """Filled by whoever needs it first."""
    return {}


@pytest.fixture
def scene(request: pytest.FixtureRequest, kept: dict[str, Kept], spark: SparkSession) -> Iterator[Scene]:
    """The lake as it was made, merged by copies unless the test names another mode."""
    mode = getattr(request, "param", MergeMode.COPY_ON_WRITE).value
    made = Scene(kept[mode].restored(), spark, mode)
    yield made
    made.bed.catalog.close()


def held() -> list[Any]:
    """Every case at every point; what only a soak takes is marked."""
    early = [point for point in POINTS if point != "commit"]
    first = turn(2 * len(early))
    taken = {
        (name, early[(first + number) // 2 % len(early)]) for number, name in enumerate(CASES) if (first + number) % 2
    }
    taken |= {(name, "commit") for name in CASES}
    every = [(pair, [] if pair in taken else [pytest.mark.soak]) for pair in itertools.product(CASES, POINTS)]
    return [pytest.param(*pair, marks=marks, id="-".join(pair)) for pair, marks in every]


@pytest.mark.parametrize(("name", "point"), held())
def test_each_interleaving_has_the_outcome_that_the_guide_states(
    scene: Scene, name: str, point: str, theirs: Theirs
) -> None:
    assert_outcome(scene, name, point, theirs)


def on_read() -> list[Any]:
    """Every case; those that ``held`` takes at an early point are for a soak."""
    first = turn(2)
    marks: list[list[Any]] = [[], [pytest.mark.soak]]
    return [pytest.param(name, marks=marks[(first + number) % 2], id=name) for number, name in enumerate(CASES)]


@pytest.mark.parametrize("scene", [MergeMode.MERGE_ON_READ], indirect=True)
@pytest.mark.parametrize("name", on_read())
def test_merges_on_read_have_the_same_outcomes(scene: Scene, name: str, theirs: Theirs) -> None:
    assert_outcome(scene, name, "commit", theirs)


def assert_outcome(scene: Scene, name: str, point: str, read: Theirs) -> None:
    case, left = CASES[name], (name, scene.mode)

    def act() -> None:
        case.act(scene)
        if left not in read:
            read[left] = scene.read()

    if case.fate is Fate.REFUSED:
        with pytest.raises(UserError) as caught:
            scene.merge(point, act)
        assert case.explains(str(caught.value))
        assert in_order(scene.read()) == in_order(read[left])
    else:
        report, said = scene.merge(point, act)
        assert report.outcome is RunOutcome.COMMITTED, report
        assert (report.counts["filesMarked"] > 0) == (scene.mode == MergeMode.MERGE_ON_READ)
        again = [text for text in said if text.startswith("planning again")]
        assert len(again) == (1 if case.fate is Fate.AGAIN else 0), again
        assert all(map(case.explains, again)), again
        assert in_order(scene.read()) == in_order(merged_after(read[left]))
    assert scene.missing_files() == set()
    assert scene.stray_files() == set()


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("how", ["", " purge"])
def test_a_table_dropped_under_the_merge_is_told_and_nothing_of_the_merge_is_left(
    scene: Scene, point: str, how: str
) -> None:
    before = scene.bed.on_disk()

    def drop() -> None:
        scene.sql(f"drop table {T}{how}")

    try:
        report, _ = scene.merge(point, drop)
    except UserError as error:
        told = (error.reason, str(error))
    else:
        assert report.outcome is RunOutcome.FAILED
        told = (report.reason, report.message)
    assert told == (Reason.TABLE_MISSING, "The catalog 'skipstone' holds no table ns.t.")
    assert scene.bed.on_disk() == (set() if how else before)


def test_the_guide_has_this_table() -> None:
    lines = GUIDE.read_text().splitlines()
    start = lines.index("| Another writer | The merge |") + 2
    table = lines[start : lines.index("", start)]
    assert table == [guide_row(act, case) for act, case in CASES.items()]
