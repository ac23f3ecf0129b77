"""What others do to a table, one by one: the observe run tells it, reads stay exact, a reindex builds what is missing.

Every action meets three indexes: one never built, one that knows the first two segments, one in sync. Plain Spark with
the Iceberg runtime says which files are live (its ``entries`` table) and which rows there are; DuckDB filters them.
`make test` takes every second action; which ones changes with the commit. `make soak-query` has the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.transforms import TruncateTransform
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone.runs.observe import run_observe
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.reports import IndexState
from skipstone_core.contract.requests import JobRequest, ObservedTable, ObserveTask, RunKind
from skipstone_core.reasons import Reason

from tests.examples import turn
from tests.spark.index_bed import Lake, index_on, query, rows_of
from tests.spark.kept import Kept
from tests.spark.secondengine import second_spark

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string()), ("v", pa.float64())])
NONE, PART, FULL = (index_on("k", name=name) for name in ("none", "part", "full"))
INDEXES = (NONE, PART, FULL)
T = "skipstone.ns.t"
CONDITIONS = ("k = 10", "k in (5, 60, 110, 160, 1005)", "k between 45 and 55", "k is null", "k >= 1000")


@dataclass(frozen=True)
class Scene:
    """One table, written by everybody."""

    lake: Lake
    session: SparkSession

    def sql(self, text: str) -> None:
        """Something that plain Spark does."""
        self.session.sql(text).collect()

    def snapshot(self, segment: int) -> int:
        """Id of the snapshot with this sequence number."""
        found = (one for one in self.lake.table().metadata.snapshots if one.sequence_number == segment)
        return next(found).snapshot_id

    def live(self) -> dict[str, int]:
        """Path of each live data file to its file sequence number, as Spark tells them."""
        found = self.session.sql(
            f"select data_file.file_path, file_sequence_number from {T}.entries "
            "where status < 2 and data_file.content = 0"
        ).collect()
        return {row[0]: row[1] for row in found}

    def rows(self) -> pa.Table:
        """The table as plain Spark reads it."""
        return self.session.table(T).toArrow()

    def observe(self) -> dict[str, IndexState]:
        """What an observe run reports of each index."""
        observed = ObservedTable(table=self.lake.ref(), indexes=INDEXES)
        request = JobRequest(
            kind=RunKind.OBSERVE,
            run_id="r-1",
            attempt=1,
            warehouse=self.lake.warehouse,
            owner_kind="Warehouse",
            owner_name="wh",
            owner_uid="u",
            observe=ObserveTask(tables=(observed,)),
        )
        (state,) = run_observe(request, Reporter(request)).table_states
        return {index.name: index for index in state.indexes}


def rows(start: int, count: int = 50) -> pa.Table:
    keys = np.arange(start, start + count)
    listed = [None if key % 17 == 0 else int(key) for key in keys]
    return pa.table({"k": listed, "name": [f"n{key % 5}" for key in keys], "v": keys / 4}, schema=SCHEMA)


def values(start: int) -> str:
    return f"(select /*+ coalesce(1) */ id, concat('n', id), id / 4 from range({start}, {start + 10}))"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """Segments 1 to 4 of one file each."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    table = lake.create(SCHEMA, properties={"format-version": "2"})
    for segment in range(4):
        table.append(rows(segment * 50))
    lake.reindex(PART, max_segments=2)
    lake.reindex(FULL)
    lake.catalog.close()
    return Kept(lake.root, tmp_path_factory.mktemp("kept"))


@pytest.fixture
def scene(kept: Kept, spark: SparkSession) -> Iterator[Scene]:
    """The kept lake, to be changed."""
    lake = Lake(kept.restored())
    yield Scene(lake, second_spark(spark, lake.warehouse))
    lake.catalog.close()


@dataclass(frozen=True)
class Action:
    """Something a writer does, and which segments an index that was in sync then lacks and has."""

    do: Callable[[Scene], object]
    missing: tuple[int, ...]
    synced: int


def sql(*texts: str) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        for text in texts:
            scene.sql(text)

    return run


def set_property(name: str, value: str) -> str:
    return f"alter table {T} set tblproperties ('{name}' = '{value}')"


MERGE = (
    f"merge into {T} t using (select 60L as k, 'new' as name, 1.5D as v union all select 2000L, 'x', 0D) s "
    "on t.k = s.k when matched then update set name = s.name when not matched then insert *"
)
REWRITE = "call skipstone.system.rewrite_data_files(table => 'ns.t', options => map('rewrite-all', 'true'))"
UPGRADE, ON_READ = set_property("format-version", "3"), set_property("write.delete.mode", "merge-on-read")


def rollback(scene: Scene) -> None:
    scene.sql(f"call skipstone.system.rollback_to_snapshot('ns.t', {scene.snapshot(2)})")


def rollback_and_go_on(scene: Scene) -> None:
    rollback(scene)
    scene.sql(f"insert into {T} {values(1000)}")


def cherry_pick(scene: Scene) -> None:
    """Publish a staged snapshot after another one: it gets files of its own sequence number."""
    scene.sql(set_property("write.wap.enabled", "true"))
    scene.session.conf.set("spark.wap.id", "audited")
    try:
        scene.sql(f"insert into {T} {values(1000)}")
    finally:
        scene.session.conf.unset("spark.wap.id")
    staged = max(scene.lake.table().metadata.snapshots, key=lambda one: one.sequence_number or 0)
    scene.sql(f"insert into {T} {values(1100)}")
    scene.sql(f"call skipstone.system.cherrypick_snapshot('ns.t', {staged.snapshot_id})")


def branch(scene: Scene, name: str = "b") -> None:
    """Plain Spark makes branches and tags with Iceberg's SQL extensions only."""
    table = scene.lake.table()
    table.manage_snapshots().create_branch(table.metadata.current_snapshot_id or 0, name).commit()


def branch_and_write(scene: Scene) -> None:
    branch(scene)
    scene.sql(f"insert into {T}.branch_b {values(1000)}")


def branch_and_append(scene: Scene) -> None:
    branch_and_write(scene)
    scene.sql(f"insert into {T} {values(1100)}")


def tag_and_delete(scene: Scene) -> None:
    table = scene.lake.table()
    table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, "kept").commit()
    scene.sql(f"delete from {T} where v < 12.5")


def fast_forward(scene: Scene) -> None:
    branch(scene, "audit")
    scene.sql(f"insert into {T}.branch_audit {values(1000)}")
    scene.sql("call skipstone.system.fast_forward('ns.t', 'main', 'audit')")


def evolve_partitioning(scene: Scene) -> None:
    with scene.lake.table().update_spec() as change:
        change.add_field("name", TruncateTransform(1), "initial")
    scene.sql(f"insert into {T} {values(1000)}")


def expire(scene: Scene) -> None:
    scene.sql(f"delete from {T} where k = 10")
    scene.sql("call skipstone.system.expire_snapshots(table => 'ns.t', older_than => now(), retain_last => 1)")


def pyiceberg(change: Callable[[Table], object]) -> Callable[[Scene], object]:
    return lambda scene: change(scene.lake.table())


ACTIONS = {
    "spark append": Action(sql(f"insert into {T} {values(1000)}"), (5,), 4),
    "spark insert overwrite": Action(sql(f"insert overwrite {T} {values(1000)}"), (5,), 0),
    "spark delete of a row": Action(sql(f"delete from {T} where k = 10"), (5,), 3),
    "spark delete of a file": Action(sql(f"delete from {T} where v < 12.5"), (), 3),
    "spark delete on read": Action(sql(ON_READ, f"delete from {T} where k in (10, 60)"), (), 4),
    "spark deletion vectors": Action(sql(UPGRADE, ON_READ, f"delete from {T} where k in (10, 60)"), (), 4),
    "spark update": Action(sql(f"update {T} set name = 'new' where k = 110"), (5,), 3),
    "spark update on read": Action(
        sql(set_property("write.update.mode", "merge-on-read"), f"update {T} set name = 'new' where k = 110"), (5,), 4
    ),
    "spark merge": Action(sql(MERGE), (5,), 3),
    "spark rewrite": Action(sql(REWRITE), (5,), 0),
    "spark rewrite after deletes": Action(sql(ON_READ, f"delete from {T} where k = 10", REWRITE), (6,), 0),
    "spark rewrite of manifests": Action(sql("call skipstone.system.rewrite_manifests('ns.t')"), (), 4),
    "spark rollback": Action(rollback, (), 2),
    "spark rollback, then append": Action(rollback_and_go_on, (5,), 2),
    "spark cherry-pick": Action(cherry_pick, (6, 7), 4),
    "spark branch": Action(branch_and_write, (), 4),
    "spark branch, then append": Action(branch_and_append, (6,), 4),
    "spark tag": Action(tag_and_delete, (), 3),
    "spark fast-forward": Action(fast_forward, (5,), 4),
    "spark expiry": Action(expire, (5,), 3),
    "spark truncate": Action(sql(f"truncate table {T}"), (), 0),
    "spark append under another partitioning": Action(evolve_partitioning, (5,), 4),
    "spark new column": Action(
        sql(f"alter table {T} add column extra int", f"insert into {T} select *, 7 from {values(1000)}"), (5,), 4
    ),
    "pyiceberg append": Action(pyiceberg(lambda table: table.append(rows(1000))), (5,), 4),
    "pyiceberg overwrite": Action(pyiceberg(lambda table: table.overwrite(rows(1000))), (6,), 0),
    "pyiceberg delete": Action(pyiceberg(lambda table: table.delete("k = 10")), (5,), 3),
    "pyiceberg delete of a file": Action(pyiceberg(lambda table: table.delete("v < 12.5")), (), 3),
    "pyiceberg upsert": Action(pyiceberg(lambda table: table.upsert(rows(1004, 3), join_cols=["k"])), (5,), 4),
}


def assert_exact(scene: Scene, rows: pa.Table) -> None:
    """Reads through the indexes have those of ``rows`` that DuckDB finds."""
    for condition in CONDITIONS:
        found = read(scene.lake.table(), None, condition)
        assert rows_of(found) == rows_of(query(f"select * from rows where {condition}", rows)), condition


def covered_paths(lake: Lake) -> dict[str, set[str]]:
    """Paths that each index knows, from its table as DuckDB reads it."""
    known = {NONE.name: set[str]()}
    for index in (PART, FULL):
        covers = query("select path from rows where kind = 'cover'", lake.index_table(index).table.scan().to_arrow())
        known[index.name] = set(covers["path"].to_pylist())
    return known


def actions() -> list[Any]:
    """Every second action has its turn; the others are for a soak."""
    first = turn(2)
    marks: list[list[Any]] = [[], [pytest.mark.soak]]
    return [
        pytest.param(action, marks=marks[(first + number) % 2], id=name)
        for number, (name, action) in enumerate(ACTIONS.items())
    ]


@pytest.mark.parametrize("action", actions())
def test_what_a_writer_did_is_reported_answered_rightly_and_caught_up(scene: Scene, action: Action) -> None:
    known = covered_paths(scene.lake)
    action.do(scene)
    live, left = scene.live(), scene.rows()
    states = scene.observe()
    assert (states["full"].missing_segments, states["full"].segments_synced) == (action.missing, action.synced)
    for index in INDEXES:
        state, lacking = states[index.name], {path for path in live if path not in known[index.name]}
        assert state.missing_segments == tuple(sorted({live[path] for path in lacking})), index.name
        assert (state.files_live, state.files_covered) == (len(live), len(live) - len(lacking)), index.name
    assert_exact(scene, left)

    for index in INDEXES:
        report = scene.lake.reindex(index)
        assert report.reason is Reason.COMMITTED, report.message
        assert report.counts["segments"] == states[index.name].segments_missing
        assert report.counts["files"] == len([path for path in live if path not in known[index.name]])
        scene.lake.assert_every_row_once(index)
    assert all(state.segments_missing == 0 for state in scene.observe().values())
    assert_exact(scene, left)


def test_a_file_that_the_table_lists_twice_gives_its_rows_twice(scene: Scene) -> None:
    paths = sorted(scene.live())
    scene.lake.table().add_files(paths[:2], check_duplicate_files=False)
    rows = scene.rows()
    assert len(rows) == 300
    assert_exact(scene, rows)
    for index in INDEXES:
        scene.lake.reindex(index)
    assert_exact(scene, rows)
    assert all(state.segments_missing == 0 for state in scene.observe().values())
