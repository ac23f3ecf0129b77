"""ResolveEqualityDeletes held at each of its points while another writer does something: the guide's table.

The rows afterwards are those that the other writer left, as Spark reads them; no file is missing and none is left over.
`make test` holds some of the cases at one point, which change with the commit; `make soak-maintain` has them all.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import StepReport
from skipstone_core.indexing.snapshots import DeleteKind
from skipstone_core.table_properties import MergeMode

from tests.examples import ALL_CASES, turn
from tests.spark.interleavings import CASES, Held, Scene, T, in_order, make_lake, sql
from tests.spark.kept import Kept
from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import ALL_IN_SPARK, AtSwap
from tests.spark.rawdeletes import add_equality_delete
from tests.spark.resolve_bed import POLICY, STEP

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "maintenance.md"
VERSIONS = (2, 3) if ALL_CASES else (2 + turn(2),)
#: Where the step is held, and the stage that it is about to enter then; at "swap" it has validated.
POINTS = {"search": "search", "write": "write", "commit": "commit", "swap": ""}
#: Cases of `make test`.
FEW = 4


class Fate(StrEnum):
    """What becomes of the step, as the guide words it."""

    COMMITS = "commits as planned"
    AGAIN = "plans again"
    BY_VERSION = "commits as planned; plans again in format version 3"
    BY_UPGRADE = "plans again if the version was 2"

    def is_void(self, version: int) -> bool:
        """Whether the first plan is void."""
        return self is Fate.AGAIN or self is (Fate.BY_VERSION if version > 2 else Fate.BY_UPGRADE)


@dataclass(frozen=True)
class Other:
    """What another writer does, and the fate of the step."""

    act: Callable[[Scene], object]
    fate: Fate


def known(name: str) -> Callable[[Scene], object]:
    """What a writer does beside a merge as well."""
    return CASES[name].act


OTHERS: dict[str, Other] = {
    "appends rows": Other(known("appends rows without a key of the feed"), Fate.COMMITS),
    "adds equality deletes, with newer rows of the same keys": Other(
        lambda scene: (
            add_equality_delete(scene.bed.table(), {"id": [7, 15]}),
            scene.sql(f"insert into {T} values (15L, 'theirs', 'note')"),
        ),
        Fate.COMMITS,
    ),
    "deletes rows by position in a file with resolved deletes": Other(
        sql(f"delete from {T} where id = 27"), Fate.BY_VERSION
    ),
    "drops a file with resolved deletes": Other(known("drops another file"), Fate.AGAIN),
    "compacts the table (`rewrite_data_files`)": Other(known("compacts the table (`rewrite_data_files`)"), Fate.AGAIN),
    "compacts the table (a maintain run)": Other(known("compacts the table (a maintain run)"), Fate.AGAIN),
    "compacts it and expires snapshots, so that files are gone": Other(
        known("compacts it and expires snapshots, so that files are gone"), Fate.AGAIN
    ),
    "rolls the table back": Other(known("rolls the table back"), Fate.AGAIN),
    "renames a column": Other(known("renames a column that the merge needs"), Fate.AGAIN),
    "adds a column": Other(known("adds a column"), Fate.AGAIN),
    "changes the partitioning": Other(known("changes the partitioning"), Fate.AGAIN),
    "upgrades the table to format version 3": Other(
        sql(f"alter table {T} set tblproperties ('format-version' = '3')"), Fate.BY_UPGRADE
    ),
    "expires snapshots older than the planned one": Other(
        known("expires snapshots older than the planned one"), Fate.COMMITS
    ),
    "expires the planned snapshot": Other(known("expires the planned snapshot"), Fate.AGAIN),
    "builds an index (a reindex run)": Other(known("builds an index (a reindex run)"), Fate.COMMITS),
}


@pytest.fixture(scope="module", params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """The lake, with an equality delete of a row of each of its files."""
    root = tmp_path_factory.mktemp("lake")
    make_lake(root, MergeMode.MERGE_ON_READ, request.param)
    bed = MaintainBed(root)
    add_equality_delete(bed.table(), {"id": [3, 15, 25]})
    bed.catalog.close()
    return Kept(root, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def scene(kept: Kept, spark: SparkSession) -> Iterator[Scene]:
    """The lake as it was made."""
    made = Scene(kept.restored(), spark, MergeMode.MERGE_ON_READ)
    yield made
    made.bed.catalog.close()


def held() -> list[Any]:
    """Every case at every point; what only a soak takes is marked."""
    names, places = list(OTHERS), list(POINTS)
    first = turn(len(OTHERS) * len(POINTS))
    taken = {(names[(first + 5 * at) % len(names)], places[(first + at) % len(places)]) for at in range(FEW)}
    every = itertools.product(OTHERS, POINTS)
    return [pytest.param(*pair, marks=[] if pair in taken else [pytest.mark.soak], id="-".join(pair)) for pair in every]


@pytest.mark.parametrize(("name", "point"), held())
def test_each_interleaving_has_the_outcome_that_the_guide_states(scene: Scene, name: str, point: str) -> None:
    other, theirs = OTHERS[name], []
    version = scene.bed.table().metadata.format_version

    def act() -> None:
        other.act(scene)
        theirs.extend(scene.read())

    step = resolved(scene, point, act)
    assert step.is_done, step
    assert (step.counts["conflicts"] > 0) == other.fate.is_void(version), step
    assert in_order(scene.read()) == in_order(theirs)
    left = [one for one in MaintainBed(scene.root).files().delete_files if one.kind is DeleteKind.EQUALITY]
    assert len(left) == name.startswith("adds equality deletes")
    assert scene.missing_files() == set()
    assert scene.stray_files() == set()


def resolved(scene: Scene, point: str = "", action: Callable[[], object] = lambda: None) -> StepReport:
    """Run the step and do ``action`` when the run is at ``point``."""
    bed = MaintainBed(scene.root)
    request = replace(bed.maintenance(STEP, POLICY), owner_uid=bed.ref.uid)
    hooks = AtSwap(before=(lambda: action() and None) if point == "swap" else None)
    (step,) = run_maintain(request, Held(request, POINTS.get(point, ""), action), CommitPorts(hooks=hooks)).steps
    bed.catalog.close()
    return step


def test_the_guide_has_this_table() -> None:
    lines = GUIDE.read_text().splitlines()
    start = lines.index("| Another writer | The step |") + 2
    assert lines[start : lines.index("", start)] == [f"| {act} | {other.fate} |" for act, other in OTHERS.items()]


@pytest.mark.parametrize("resolves", [True, False])
def test_a_compaction_in_java_that_read_before_the_delete_brings_no_row_back(scene: Scene, resolves: bool) -> None:
    """A rewrite keeps the age of its rows: a later equality delete applies to them, and its resolution does not."""
    before = in_order(scene.read())
    rewrite = _planned_rewrite(scene)
    add_equality_delete(scene.bed.table(), {"id": [7]})
    if resolves:
        assert resolved(scene).counts["commits"] == 1
        with pytest.raises(Py4JJavaError, match="found new"):
            rewrite.commit()
    else:
        rewrite.commit()
    assert in_order(scene.read()) == [row for row in before if '"id": 7,' not in row]


def _planned_rewrite(scene: Scene) -> Any:
    """A rewrite of the file with row 7 that Iceberg's Java library has planned and written, and not committed."""
    session: Any = scene.session
    java = session._jvm
    table = java.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, T)
    tasks = table.newScan().planFiles().iterator()
    files = []
    while tasks.hasNext():
        files.append(tasks.next().file())
    bed = MaintainBed(scene.root)
    ordinal = next(n for n in range(len(bed.files())) if 7 in _ids(bed, n))
    old = next(file for file in files if str(file.location()) == bed.files().data_file(ordinal).file_path)
    bed.catalog.close()
    path = str(old.location()).replace(".parquet", "-rewritten.parquet")
    shutil.copy(str(old.location()).removeprefix("file://"), path.removeprefix("file://"))
    builder = java.org.apache.iceberg.DataFiles.builder(table.spec()).withPath(path).withFormat("parquet")
    new = builder.withFileSizeInBytes(old.fileSizeInBytes()).withRecordCount(old.recordCount()).build()
    snapshot = table.currentSnapshot()
    removed, added = java.java.util.HashSet(), java.java.util.HashSet()
    removed.add(old)
    added.add(new)
    rewrite = table.newRewrite().validateFromSnapshot(snapshot.snapshotId())
    return rewrite.rewriteFiles(removed, added, old.dataSequenceNumber())


def _ids(bed: MaintainBed, ordinal: int) -> list[int]:
    import pyarrow.parquet as pq

    path = bed.files().data_file(ordinal).file_path.removeprefix("file://")
    ids: list[int] = pq.read_table(path, columns=["id"])["id"].to_pylist()
    return ids


def test_tasks_of_spark_find_the_same_rows(scene: Scene) -> None:
    before = in_order(scene.read())
    bed = MaintainBed(scene.root, ALL_IN_SPARK)
    (step,) = bed.run(bed.maintenance(STEP, POLICY)).steps
    assert (step.is_done, step.counts["filesScanned"], step.counts["rowsDeleted"]) == (True, 3, 3), step
    assert in_order(scene.read()) == before
    bed.catalog.close()
