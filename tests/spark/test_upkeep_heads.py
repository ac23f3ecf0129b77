"""What was the head of a table a moment ago stays when snapshots expire, however old: readers have begun on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from skipstone.tables.sharing.reach import read_reach
from skipstone.tables.storage import plain_location
from skipstone.tables.upkeep.expiry import Expired, expire_snapshots
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.maintenance.policies import SnapshotPolicy

from tests.spark.lake import ref_of
from tests.spark.secondengine import second_spark
from tests.spark.upkeep_bed import Life, later

AGE = 1000


@dataclass
class Scene:
    """A table, and another engine that works on it."""

    life: Life
    session: SparkSession

    @property
    def head(self) -> int:
        """The current snapshot."""
        head = self.life.head
        assert head is not None
        return head.snapshot_id

    def call(self, procedure: str, *arguments: object) -> None:
        """Call a procedure of Iceberg on the table."""
        told = ", ".join(["'ns.t'", *(str(one) for one in arguments)])
        self.session.sql(f"call skipstone.system.{procedure}({told})")

    def expire(self, in_use_since_ms: int | None = None, *, late_ms: int = 0) -> Expired:
        """Maintain at the last moment at which what the newest commit replaced is not too old."""
        replaced_ms = self.life.table.metadata.snapshot_log[-1].timestamp_ms
        ports = replace(later(), now_ms=lambda: replaced_ms + AGE * 1000 + late_ms)
        policy, ref = SnapshotPolicy(max_age_seconds=AGE), ref_of(self.life.table)
        return expire_snapshots(self.life.catalog, ref, policy, ports, in_use_since_ms=in_use_since_ms)

    def retained(self) -> set[int]:
        """Ids of all snapshots."""
        return {one.snapshot_id for one in self.life.table.metadata.snapshots}

    def check(self, snapshot_id: int) -> None:
        """The snapshot is read in full by both engines, and nothing lies about."""
        self.life.check()
        assert all(Path(plain_location(path)).exists() for path in read_reach(self.life.table).paths())
        found = self.session.read.option("versionAsOf", snapshot_id).table("skipstone.ns.t").select("id").toArrow()
        assert sorted(found["id"].to_pylist()) == self.life.rows[snapshot_id]


@pytest.fixture
def scene(warehouse: WarehouseRef, catalog: Catalog, spark: SparkSession) -> Iterator[Scene]:
    life = Life(warehouse, catalog)
    life.take([("job", 0), ("other", 0), ("job", 0)])
    yield Scene(life, second_spark(spark, warehouse))


def rolled_back(scene: Scene) -> None:
    scene.life.rollback(0)


def rolled_back_by_spark(scene: Scene) -> None:
    scene.call("rollback_to_snapshot", scene.life.table.metadata.snapshots[0].snapshot_id)


def set_by_spark(scene: Scene) -> None:
    scene.call("set_current_snapshot", scene.life.table.metadata.snapshots[1].snapshot_id)


def published_by_spark(scene: Scene) -> None:
    life = scene.life
    life.table.manage_snapshots().create_branch(scene.head, "audit").commit()
    for _ in range(2):
        life.table.append(life.batch(), branch="audit")
    life.note()
    scene.call("fast_forward", "'main'", "'audit'")
    life.table.manage_snapshots().remove_branch("audit").commit()


@pytest.mark.parametrize("moved", [rolled_back, rolled_back_by_spark, set_by_spark, published_by_spark])
def test_an_old_snapshot_that_became_the_head_again_stays_as_long_as_a_new_one(
    moved: Callable[[Scene], None], scene: Scene
) -> None:
    before = scene.head
    moved(scene)
    again = scene.head
    assert again != before
    scene.life.job()
    assert scene.expire().is_done
    assert again in scene.retained()
    assert before not in scene.retained() or moved is published_by_spark
    scene.check(again)
    assert scene.expire(late_ms=1).is_done
    assert scene.retained() == {scene.head}
    scene.check(scene.head)


def test_a_head_stays_while_a_run_may_read_it_also_when_it_was_rolled_back(scene: Scene) -> None:
    since, before = scene.life.table.metadata.snapshot_log[-1].timestamp_ms, scene.head
    scene.life.rollback(0)
    scene.life.job()
    assert scene.expire(since, late_ms=1).is_done
    assert before in scene.retained()
    scene.check(before)


def test_a_head_of_a_table_that_is_rarely_written_stays_when_the_next_commit_comes(scene: Scene) -> None:
    before = scene.head
    scene.life.other()
    assert scene.expire().is_done
    assert scene.retained() == {before, scene.head}
    scene.check(before)
