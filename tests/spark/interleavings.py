"""What other writers may do while a merge runs, and what becomes of the merge: the data behind the table in the guide.

Used by the tests of interleavings. Foreign writers are plain Spark with the Iceberg runtime and plain PyIceberg.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import IndexRef, JobRequest, ReindexTask, RunKind
from skipstone_core.table_properties import MERGE_MODE

from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import DELETE_D, UPDATE, AtSwap, MergeBed, task_of
from tests.spark.rawdeletes import add_equality_delete
from tests.spark.secondengine import second_spark

T = "skipstone.ns.t"
SCHEMA = Schema(
    NestedField(1, "id", LongType()), NestedField(2, "v", StringType()), NestedField(3, "note", StringType())
)
FEED = pa.table({"id": [5, 15, 100], "v": ["five", "fifteen", "hundred"], "op": ["U", "D", "U"]})
INDEX = IndexRef(name="by-id", uid="33333333-0000-0000-0000-000000000000", columns=("id",))
#: Where a run is held, and the stage that it is about to enter then; at "commit" it has validated and staged its swap.
POINTS = {"pin": "read", "prune": "prune", "rewrite": "rewrite", "validate": "commit", "commit": ""}


class Fate(StrEnum):
    """What becomes of the merge, as the guide words it."""

    COMMITS = "commits as planned"
    AGAIN = "plans again and commits"
    REFUSED = "is refused"


def make_lake(root: Path, mode: str, version: int = 2) -> None:
    """A table of three files of ten rows, made in two commits, that is merged in ``mode``; ``version``: its format."""
    bed = MergeBed(root)
    modes = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "file", MERGE_MODE: mode}
    bed.create(SCHEMA, **modes, **{"format-version": str(version)})
    bed.append(rows(0, 10), rows(10, 10))
    bed.append(rows(20, 10))
    bed.catalog.close()


@dataclass
class Scene:
    """The table of ``make_lake``, and a feed that updates row 5, deletes row 15 and inserts row 100."""

    root: Path
    spark: SparkSession
    mode: str = "copy-on-write"
    bed: MergeBed = field(init=False)
    session: SparkSession = field(init=False)

    def __post_init__(self) -> None:
        """Open it."""
        self.bed = MergeBed(self.root)
        self.session = second_spark(self.spark, self.bed.warehouse)

    def sql(self, text: str) -> None:
        """Something that plain Spark does."""
        self.session.sql(text).collect()

    def read(self) -> list[dict[str, Any]]:
        """All rows as plain Spark reads them: it applies every kind of delete."""
        return [row.asDict() for row in self.session.table(T).collect()]

    def merge(self, point: str, action: Callable[[], object]) -> tuple[JobReport, list[str]]:
        """Merge the feed and do ``action`` when the run is at ``point``; the report and what the run said."""
        request = self.bed.request(task_of(self.bed.source(FEED), when_matched=(DELETE_D, UPDATE)))
        reporter = Held(request, POINTS[point], action)
        hooks = AtSwap(before=None if POINTS[point] else lambda: action() and None)
        report = run_merge(request, reporter, CommitPorts(hooks=hooks))
        return report, reporter.said

    def missing_files(self) -> set[str]:
        """Files that the head names and that are not there."""
        named = local_paths(self.bed.table().inspect.files()["file_path"].to_pylist())
        return {path for path in named if not Path(path).exists()}

    def stray_files(self) -> set[str]:
        """Data, delete and manifest files on disk that no retained snapshot names."""
        table = self.bed.table()
        named = set(table.inspect.all_files()["file_path"].to_pylist())
        for snapshot in table.metadata.snapshots:
            named.add(snapshot.manifest_list)
            named.update(manifest.manifest_path for manifest in snapshot.manifests(table.io))
        found = {str(path) for path in (self.root / "ns" / "t").rglob("*") if path.suffix in (".parquet", ".avro")}
        return found - local_paths(named)


def local_paths(locations: Iterable[str]) -> set[str]:
    """The files on this machine that locations name, as any engine writes them."""
    return {re.sub("^file:/+", "/", location) for location in locations}


class Held(Reporter):
    """A reporter that does something once when its run is about to enter a stage, and remembers what the run said."""

    def __init__(self, request: JobRequest, stage: str, action: Callable[[], object]) -> None:
        """``stage`` empty: never."""
        super().__init__(request)
        self.said: list[str] = []
        self._held: tuple[str, Callable[[], object]] | None = (stage, action)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Do it before the stage begins."""
        if self._held and self._held[0] == name:
            action, self._held = self._held[1], None
            action()
        with super().stage(name):
            yield

    def progress(self, text: str, counts: Any = None) -> None:
        """Remember."""
        self.said.append(text)
        super().progress(text, counts)


def rows(start: int, count: int) -> list[dict[str, Any]]:
    """Rows as the table has them."""
    return [{"id": number, "v": "old", "note": f"note {number}"} for number in range(start, start + count)]


def values(*ids: int) -> str:
    """Rows of another writer as SQL."""
    return "values " + ", ".join(f"({number}L, 'theirs', 'note')" for number in ids)


@dataclass(frozen=True)
class Case:
    """What another writer does, and the fate of the merge. ``why``: what the run says when it is not as planned."""

    act: Callable[[Scene], object]
    fate: Fate
    why: str | tuple[str, ...] = ()

    def explains(self, text: str) -> bool:
        """Whether ``text`` says why."""
        return any(why in text for why in ((self.why,) if isinstance(self.why, str) else self.why))


def guide_row(act: str, case: Case) -> str:
    """The row of the guide's table."""
    said = f": `{case.why}`" if case.fate is Fate.REFUSED else ""
    return f"| {act} | {case.fate}{said} |"


def sql(*texts: str) -> Callable[[Scene], None]:
    """Statements of plain Spark."""

    def run(scene: Scene) -> None:
        for text in texts:
            scene.sql(text)

    return run


def rename(name: str, to: str) -> Callable[[Scene], None]:
    """Rename a column by PyIceberg."""

    def run(scene: Scene) -> None:
        with scene.bed.table().update_schema() as change:
            change.rename_column(name, to)

    return run


def partition(scene: Scene) -> None:
    """By another spec, in PyIceberg."""
    with scene.bed.table().update_spec() as change:
        change.add_field("id", BucketTransform(4), "spread")


def roll_back(scene: Scene) -> None:
    """To the first of two commits."""
    first = min(scene.bed.table().metadata.snapshots, key=lambda one: one.sequence_number or 0)
    scene.sql(f"call skipstone.system.rollback_to_snapshot('ns.t', {first.snapshot_id})")


def compact(scene: Scene) -> None:
    """A whole maintain run that compacts."""
    bed = MaintainBed(scene.root)
    assert bed.compact().counts["commits"] == 1
    bed.catalog.close()


def reindex(scene: Scene) -> None:
    """A whole reindex run of an index on the key."""
    request = JobRequest(
        kind=RunKind.REINDEX,
        run_id="33333333-00000001-1",
        attempt=1,
        warehouse=scene.bed.warehouse,
        owner_kind="SecondaryIndex",
        owner_name=INDEX.name,
        owner_uid=INDEX.uid,
        table=scene.bed.ref,
        indexes=(INDEX,),
        reindex=ReindexTask(index=INDEX),
    )
    assert run_reindex(request, Reporter(request)).outcome == "Committed"


REWRITE = "call skipstone.system.rewrite_data_files(table => 'ns.t', options => map('rewrite-all', 'true'))"
EXPIRE = "call skipstone.system.expire_snapshots(table => 'ns.t', older_than => now(), retain_last => 1)"

#: What another writer does, in the words of the guide.
CASES = {
    "appends rows without a key of the feed": Case(sql(f"insert into {T} {values(40, 99, 101)}"), Fate.COMMITS),
    "appends rows with a key of the feed": Case(
        sql(f"insert into {T} {values(100, 5)}"), Fate.AGAIN, "added rows that this merge concerns"
    ),
    "deletes rows by position in a file that the merge rewrites": Case(
        sql(f"delete from {T} where id = 7"), Fate.AGAIN, "another writer deleted rows of"
    ),
    "deletes rows by position in another file": Case(sql(f"delete from {T} where id = 27"), Fate.COMMITS),
    "deletes rows by an equality delete": Case(
        lambda scene: add_equality_delete(scene.bed.table(), {"id": [7, 27]}), Fate.AGAIN, "the equality delete"
    ),
    "drops a file that the merge rewrites": Case(
        sql(f"delete from {T} where id < 10"), Fate.AGAIN, "was removed by another writer"
    ),
    "drops another file": Case(sql(f"delete from {T} where id >= 20"), Fate.COMMITS),
    "compacts the table (`rewrite_data_files`)": Case(sql(REWRITE), Fate.AGAIN, "was removed by another writer"),
    "compacts the table (a maintain run)": Case(compact, Fate.AGAIN, "was removed by another writer"),
    "compacts it and expires snapshots, so that files are gone": Case(
        sql(REWRITE, EXPIRE), Fate.AGAIN, ("is gone", "the planned snapshot expired")
    ),
    "rolls the table back": Case(roll_back, Fate.AGAIN, "was rolled back"),
    "renames a column that the merge does not need": Case(
        rename("note", "remark"), Fate.AGAIN, "the schema of ns.t changed"
    ),
    "renames a column that the merge needs": Case(
        rename("id", "key"), Fate.REFUSED, "spec.keys[0]: the table has no column 'id'"
    ),
    "adds a column": Case(sql(f"alter table {T} add column more int"), Fate.AGAIN, "the schema of ns.t changed"),
    "changes the partitioning": Case(partition, Fate.AGAIN, "the partitioning of ns.t changed"),
    "expires snapshots older than the planned one": Case(sql(EXPIRE), Fate.COMMITS),
    "expires the planned snapshot": Case(
        sql(f"insert into {T} {values(40)}", EXPIRE), Fate.AGAIN, "the planned snapshot expired"
    ),
    "builds an index (a reindex run)": Case(reindex, Fate.COMMITS),
}


def merged_after(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The reference: ``found``, the rows that the other writer left, with the feed applied to them one by one."""
    feed = {row["id"]: row for row in FEED.to_pylist()}
    kept = [dict(row) for row in found if feed.get(row["id"], {}).get("op") != "D"]
    for row in kept:
        row["v"] = feed.get(row["id"], row)["v"]
    held = {row["id"] for row in found}
    names = list(found[0])
    return kept + [{name: feed[key].get(name) for name in names} for key in sorted(feed.keys() - held)]


def in_order(found: list[dict[str, Any]]) -> list[str]:
    """Rows, comparable."""
    return sorted(json.dumps(row, sort_keys=True) for row in found)
