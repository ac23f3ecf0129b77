"""The life of a table of format version 3: loads, merges and maintenance of ours between what plain Spark does to it.

Used by tests of row lineage. The test itself holds what each row is, its id and the commit that last changed it; plain
Spark reads the table after each step, and what it read of each snapshot must read the same for as long as it is there.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import pyarrow as pa
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV3
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from pytest import MonkeyPatch
from skipstone.compat.lineage.reading import file_row_id, read_entries, read_manifests
from skipstone.compat.pyiceberg import summary_of
from skipstone.query.changing import reading
from skipstone.query.planner import ReadOptions
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tables.sharing.reach import read_reach
from skipstone.tables.storage import plain_location
from skipstone_core.contract.reports import RunOutcome, StepReport
from skipstone_core.contract.requests import IndexRef
from skipstone_core.history.rowlineages import keeps_lineage
from skipstone_core.maintenance.policies import (
    CompactionPolicy,
    MaintenancePolicy,
    MaintenanceStep,
    OrphanFilesAction,
    OrphanFilesPolicy,
    SnapshotPolicy,
)
from skipstone_core.table_properties import MERGE_MODE, MergeMode

from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import DELETE_D, UPDATE, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "name", StringType()),
    NestedField(3, "part", StringType()),
)
BY_PART = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "part"))
PARTS = ("a", "b", "c")
INDEX = IndexRef(name="by-id", uid="33333333-0000-0000-0000-000000000000", columns=("id",), is_inline=True)
_DAY_MS = 86_400_000
#: Steps that commit snapshots, whose times must not be ahead of those of Spark.
COMMITTING = (MaintenanceStep.COMPACTION, MaintenanceStep.MANIFESTS)


class Row(NamedTuple):
    """A row without its key: what it holds, its id, and the sequence number of its last change (None: it has none)."""

    name: str
    part: str
    row_id: int | None
    changed: int | None


Rows = Mapping[int, Row]


class Change(NamedTuple):
    """What a step does to rows: keys that it gives a new name, or that go."""

    named: Mapping[int, str]
    gone: frozenset[int] = frozenset()


@dataclass
class LineageLife:
    """A table and the rows that each of its snapshots had."""

    bed: MaintainBed
    session: SparkSession
    draw: Random
    at: dict[int, Rows] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    steps: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @classmethod
    def begun(cls, bed: MaintainBed, session: SparkSession, draw: Random, version: int) -> LineageLife:
        """A table of three commits, which ``session`` knows too."""
        spec = draw.choice([UNPARTITIONED_PARTITION_SPEC, BY_PART])
        modes = {name: draw.choice([*MergeMode]) for name in (MERGE_MODE, "write.update.mode", "write.delete.mode")}
        properties = {"write.delete.granularity": draw.choice(["file", "partition"]), **modes}
        bed.create(SCHEMA, spec, **{"format-version": str(version), **properties})
        life = cls(bed, session, draw)
        life.log.append(f"{spec} {properties}")
        for _ in range(3):
            life.load()
        return life

    @property
    def name(self) -> str:
        """Of the table, for Spark."""
        return f"skipstone.{self.bed.namespace}.t"

    @property
    def version(self) -> int:
        """Of the table's format."""
        return int(self.bed.table().metadata.format_version)

    @property
    def rows(self) -> Rows:
        """Of the head."""
        head = self.bed.table().metadata.current_snapshot_id
        return self.at[head] if head is not None else {}

    def seen(self, snapshot_id: int) -> Rows:
        """As plain Spark reads them."""
        lineage = ("_row_id", "_last_updated_sequence_number") if self.version > 2 else ("null", "null")
        columns = ", ".join(("id", "name", "part", *lineage))
        found = self.session.sql(f"select {columns} from {self.name} version as of {snapshot_id}").collect()
        rows = {one[0]: Row(*one[1:]) for one in found}
        assert len(rows) == len(found), self.log
        return rows

    def load(self) -> None:
        """Our append of two files."""
        start = max(self.rows, default=-1) + 1
        new = {start + at: f"load {next(self.steps)}" for at in range(8)}
        rows = [{"id": key, "name": name, "part": part_of(key)} for key, name in new.items()]
        self.bed.append(rows[:4], rows[4:])
        self.note("load", Change(new))

    def merge(self) -> None:
        """A merge run of ours."""
        change = self._drawn()
        keys = [*change.named, *change.gone]
        feed = {
            "id": pa.array(keys, pa.int64()),
            "name": [change.named.get(key) for key in keys],
            "part": [part_of(key) for key in keys],
            "op": ["U" if key in change.named else "D" for key in keys],
        }
        report = self.bed.merge(task_of(self.bed.source(pa.table(feed)), when_matched=(DELETE_D, UPDATE)))
        assert report.outcome is RunOutcome.COMMITTED
        self.note("merge", change)

    def their_merge(self) -> None:
        """Spark's MERGE."""
        change = self._drawn()
        rows = [f"({key}L, '{name}', '{part_of(key)}', 'U')" for key, name in change.named.items()]
        rows += [f"({key}L, '', '', 'D')" for key in change.gone]
        self._sql(
            f"merge into {self.name} t using (select * from values {', '.join(rows)} as v(id, name, part, op)) s "
            "on t.id = s.id when matched and s.op = 'D' then delete when matched then update set name = s.name "
            "when not matched then insert (id, name, part) values (s.id, s.name, s.part)"
        )
        self.note("their_merge", change)

    def their_update(self) -> None:
        """Spark's UPDATE."""
        keys, name = self._some(4), f"update {next(self.steps)}"
        self._sql(f"update {self.name} set name = '{name}' where id in ({', '.join(map(str, keys))})")
        self.note("their_update", Change(dict.fromkeys(keys, name)))

    def their_delete(self) -> None:
        """Spark's DELETE."""
        keys = self._some(4)
        self._sql(f"delete from {self.name} where id in ({', '.join(map(str, keys))})")
        self.note("their_delete", Change({}, frozenset(keys)))

    def their_rewrite(self) -> None:
        """Spark's compaction."""
        table = f"{self.bed.namespace}.t"
        self._sql(
            f"call skipstone.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))"
        )
        self.note("their_rewrite", Change({}))

    def upgrade(self) -> None:
        """To format version 3, which commits no snapshot."""
        if self.version < 3:
            self._sql(f"alter table {self.name} set tblproperties ('format-version' = '3')")
            self.log.append("upgrade")

    def tag(self) -> None:
        """Keep the head."""
        table = self.bed.table()
        head = table.metadata.current_snapshot_id
        assert head is not None
        table.manage_snapshots().create_tag(head, f"tag{next(self.steps)}").commit()

    def repartition(self) -> None:
        """From now on the table is partitioned in another way."""
        with self.bed.table().update_spec() as change:
            for one in self.bed.table().spec().fields:
                change.remove_field(one.name)
            change.add_field("id", BucketTransform(2), f"bucket{next(self.steps)}")
        self.log.append("repartition")

    def compact(self) -> StepReport:
        """A maintain run that compacts, and enters an index."""
        self.bed.policy = CompactionPolicy(
            target_file_size=self.draw.choice([1500, 4000, 1 << 20]),
            min_input_files=self.draw.choice([2, 3]),
            delete_permille=self.draw.choice([1, 100, 500]),
            sort_by=self.draw.choice([(), (), ("id",), ("name", "id")]),
        )
        report = self.bed.run(self.bed.compaction(INDEX, max_commit_bytes=self.draw.choice([1, 1 << 30])))
        return self._kept(report.steps[0])

    def manifests(self) -> StepReport:
        """Write them again that are due."""
        return self._maintain(MaintenanceStep.MANIFESTS, MaintenancePolicy())

    def expire(self) -> StepReport:
        """Let all but the newest few go."""
        keep = SnapshotPolicy(max_age_seconds=0, min_to_keep=self.draw.randint(1, 3))
        return self._maintain(MaintenanceStep.SNAPSHOTS, MaintenancePolicy(snapshots=keep))

    def clean(self) -> StepReport:
        """Delete what nothing reaches: nothing is there but what Spark and we have left in other snapshots."""
        policy = OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60)
        return self._maintain(MaintenanceStep.ORPHAN_FILES, MaintenancePolicy(orphan_files=policy))

    def _maintain(self, step: MaintenanceStep, policy: MaintenancePolicy) -> StepReport:
        later = CommitPorts(now_ms=lambda: time.time_ns() // 1_000_000 + _DAY_MS // 2, pause=lambda _: None)
        report = self.bed.run(self.bed.maintenance((step,), policy), None if step in COMMITTING else later)
        return self._kept(report.steps[0])

    def _kept(self, done: StepReport) -> StepReport:
        assert done.is_done, (done, self.log)
        self.note(done.step.value, Change({}))
        self.check()
        return done

    def note(self, said: str, change: Change) -> None:
        """Compare the rows of a new head with those before and what the step did to them."""
        table = self.bed.table()
        head = table.current_snapshot()
        self.log.append(f"{said} {change}")
        assert head is not None
        if head.snapshot_id in self.at:
            assert self.seen(head.snapshot_id) == self.at[head.snapshot_id], self.log
            return
        parent = head.parent_snapshot_id
        while parent is not None and parent not in self.at:  # a run may commit several times
            one = table.snapshot_by_id(parent)
            assert one is not None
            parent = one.parent_snapshot_id
        before = self.at[parent] if parent is not None else {}
        after = self.seen(head.snapshot_id)
        assert {key: row.name for key, row in after.items()} == {
            key: change.named.get(key, before[key].name if key in before else "")
            for key in {*before, *change.named} - change.gone
        }, self.log
        if self.version > 2:
            self._check_lineage(before, change, after, head.sequence_number or 0)
        self.at[head.snapshot_id] = after

    def _check_lineage(self, before: Rows, change: Change, after: Rows, sequence: int) -> None:
        metadata = self.bed.table().metadata
        assert isinstance(metadata, TableMetadataV3)
        assert metadata.next_row_id is not None
        ids = [row.row_id for row in after.values() if row.row_id is not None]
        assert len(set(ids)) == len(after), self.log
        assert max(ids, default=-1) < metadata.next_row_id
        for key, row in after.items():
            old = before.get(key)
            if old is not None and old.row_id is not None:
                assert row.row_id == old.row_id, (key, self.log)
            if key in change.named:
                assert row.changed == sequence, (key, self.log)
            elif old is not None and old.changed is not None:
                assert row.changed == old.changed, (key, self.log)
            elif old is not None:
                assert row.changed is not None, (key, self.log)
                assert row.changed <= sequence, (key, self.log)

    def check(self) -> None:
        """Every retained snapshot reads as it did, its files have ids of their own, and no other file is there."""
        table = self.bed.table()
        for snapshot in table.metadata.snapshots:
            if snapshot.snapshot_id in self.at:
                assert self.seen(snapshot.snapshot_id) == self.at[snapshot.snapshot_id], self.log
            if snapshot.first_row_id is not None:
                self._check_ids(read_manifests(snapshot, table.io, self.version))
        location = Path(plain_location(table.location()))
        there = {str(path) for path in location.rglob("*") if path.is_file() and not path.name.startswith(".")}
        missing = {plain_location(path) for path in read_reach(table).paths()} - there
        assert not missing, self.log

    def check_changes(self, monkeypatch: MonkeyPatch) -> int:
        """Changes between two retained snapshots are those of their rows, by lineage or not; how often by lineage."""
        table, proven = self.bed.table(), 0
        for snapshot in table.metadata.snapshots:
            summary = summary_of(snapshot)
            operation = snapshot.summary.operation.value if snapshot.summary else ""
            if summary.get("engine-name") == "spark" and operation != "append":
                assert keeps_lineage(operation, summary), summary
        numbers = [snapshot.snapshot_id for snapshot in table.metadata.snapshots if snapshot.snapshot_id in self.at]
        for since, until in (*itertools.combinations(numbers, 2), *zip(numbers[1:], numbers, strict=False)):
            for lineage_bytes in (0, 1 << 60):
                monkeypatch.setattr(reading, "LINEAGE_BYTES", lineage_bytes)
                plan = reading.plan_changes(table, since, ReadOptions(snapshot_id=until), ["id"])
                proven += plan.is_by_lineage
                rows = pa.concat_tables(reading.read_changes(plan)).to_pylist()
                changed = sorted((row["id"], row["_change_type"], row["name"], row["part"]) for row in rows)
                assert changed == _changes(self.at[since], self.at[until]), (since, until, lineage_bytes, self.log)
        return proven

    def _check_ids(self, manifests: list[ManifestFile]) -> None:
        """Each live file has a range of ids to itself."""
        io = self.bed.table().io
        data = [one for one in manifests if one.content == ManifestContent.DATA]
        entries = [entry for manifest in data for entry in read_entries(manifest, io)]
        ranges = []
        for entry in entries:
            first = file_row_id(entry.data_file)
            assert first is not None, (entry, self.log)
            ranges.append((first, first + entry.data_file.record_count))
        ranges.sort()
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(ranges)), (ranges, self.log)

    def _drawn(self) -> Change:
        picked = [*self._some(5), max(self.rows, default=0) + 1]
        name = f"merge {next(self.steps)}"
        gone = frozenset(key for key in picked[:-1] if self.draw.random() < 0.3)
        return Change({key: name for key in picked if key not in gone}, gone)

    def _some(self, count: int) -> list[int]:
        keys = sorted(self.rows)
        return self.draw.sample(keys, min(count, len(keys)))

    def _sql(self, text: str) -> None:
        self.session.sql(text).collect()


def _changes(before: Rows, after: Rows) -> list[tuple[int, str, str, str]]:
    """The changes that make one of the other, without lineage."""
    changed = []
    for key in {*before, *after}:
        old, new = before.get(key), after.get(key)
        if old is None or new is None:
            kind, row = ("INSERT", new) if old is None else ("DELETE", old)
            assert row is not None
            changed.append((key, kind, row.name, row.part))
        elif old[:2] != new[:2]:
            changed += [(key, "UPDATE_BEFORE", *old[:2]), (key, "UPDATE_AFTER", *new[:2])]
    return sorted(changed)


def part_of(key: int) -> str:
    """The partition of a row, which never changes."""
    return PARTS[key // 3 % len(PARTS)]
