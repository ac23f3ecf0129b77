"""A table that lives on small commits, with two Inline indexes: what the growth benchmark drives and measures.

All runs are called in this process, as tests call them; none of them needs a JVM. What each commit does follows from
its number alone, so that a life can be lived in pieces and its rows can be checked against a replay.
"""

from __future__ import annotations

import json
import random
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.indexes.tables import index_identifier
from skipstone.runs.load import run_load
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone_core.codec import encode
from skipstone_core.contract.reports import JobReport, RunOutcome, TableState
from skipstone_core.contract.requests import (
    JobRequest,
    LoadTask,
    MaintainTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableRef,
)
from skipstone_core.maintenance.health import plan_due
from skipstone_core.maintenance.policies import (
    CompactionPolicy,
    MaintenancePolicy,
    MaintenanceStep,
    OrphanFilesAction,
    OrphanFilesPolicy,
    SnapshotPolicy,
)

from tests.spark.index_bed import Lake, index_on, local
from tests.spark.merge_bed import DELETE_D, INSERT, UPDATE, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "city", StringType()),
    NestedField(4, "v", LongType()),
)
FEED = pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("v", pa.int64())])
INDEXES = (
    replace(index_on("name", name="names"), is_inline=True),
    replace(index_on("city", "id", name="cities", include=("v",)), is_inline=True),
)
#: Ages as short as the benchmark is fast: it makes in a second what a schedule makes in minutes.
AGE_SECONDS = 100
POLICY = MaintenancePolicy(
    compaction=CompactionPolicy(target_file_size=64 * 1024 * 1024),
    snapshots=SnapshotPolicy(max_age_seconds=AGE_SECONDS, min_to_keep=20),
    orphan_files=OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60),
)
#: Rows at the beginning. A load and the merge after it leave as many as before, so that all commits have equal work.
ROWS = 5_000
LOADED, UPDATED = 10, 5
#: Commits after which merges change from copying to marking and back.
MODE_SPAN = 50
MODES = ("copy-on-write", "merge-on-read")


@dataclass(frozen=True, kw_only=True)
class Change:
    """What a commit does: rows that it loads, or the feed of a merge with a column ``op``."""

    number: int
    is_load: bool
    feed: pa.Table
    deleted: range = range(0)

    def applied(self, rows: dict[int, tuple[Any, ...]]) -> None:
        """Do it to ``rows``, by id."""
        for one in self.feed.to_pylist():
            rows[one["id"]] = (one["id"], one["name"], one["city"], one["v"])
        for number in self.deleted:
            del rows[number]


def first_rows() -> pa.Table:
    """What the table begins with."""
    return _rows(range(ROWS), -1)


def changes(begin: int, end: int) -> Iterator[Change]:
    """The commits from ``begin`` on: loads and merges in turn."""
    for number in range(begin, end):
        pair = number // 2
        oldest, newest = pair * LOADED, ROWS + pair * LOADED
        if number % 2 == 0:
            yield Change(number=number, is_load=True, feed=_rows(range(newest, newest + LOADED), number))
            continue
        deleted = range(oldest, oldest + LOADED)
        chosen = random.Random(number).sample(range(deleted.stop, newest + LOADED), UPDATED)
        yield Change(number=number, is_load=False, feed=_rows(sorted(chosen), number), deleted=deleted)


def _rows(ids: range | list[int], version: int) -> pa.Table:
    columns = [list(ids), [f"n{one % 977}-{version % 7}" for one in ids], [f"c{one % 53}" for one in ids]]
    return pa.Table.from_arrays([pa.array(one) for one in (*columns, [version] * len(ids))], schema=FEED)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds by the clock and of the processor."""

    wall: float
    cpu: float


@dataclass
class Life:
    """One table in ``root``; ``is_maintained``: between its commits, whenever its health says that something is due."""

    root: Path
    is_maintained: bool
    lake: Lake = field(init=False)
    state: TableState | None = None
    looks: dict[MaintenanceStep, float] = field(default_factory=dict)
    runs: int = 0

    def __post_init__(self) -> None:
        """Open it, or make it with its first rows."""
        self.root.mkdir(parents=True, exist_ok=True)
        self.lake = Lake(self.root)
        if self._progress.exists():
            told = json.loads(self._progress.read_text())
            self.runs = told["runs"]
            return
        self.lake.catalog.create_table(self.ref.identifier, SCHEMA, properties={"format-version": "2"})
        self.commit(Change(number=-1, is_load=True, feed=first_rows()))
        self.note(0)

    @property
    def _progress(self) -> Path:
        return self.root / "progress.json"

    @property
    def done(self) -> int:
        """How many commits it has had."""
        return int(json.loads(self._progress.read_text())["commits"])

    def note(self, commits: int) -> None:
        """Remember how far it is."""
        self._progress.write_text(json.dumps({"commits": commits, "runs": self.runs}))

    @property
    def ref(self) -> TableRef:
        """The table as requests carry it."""
        ref = self.lake.ref()
        return replace(ref, maintenance=POLICY) if self.is_maintained else ref

    def commit(self, change: Change) -> Cost:
        """A load or a merge, its indexes included. Raises RuntimeError unless it is committed and all are in sync."""
        if change.number >= 0 and change.number % MODE_SPAN == 0:
            self._set_mode(MODES[change.number // MODE_SPAN % 2])
        folder = f"feeds/{change.number}"
        request = self._request(change, self._feed(change, folder))
        cost, report = self._timed(run_load if change.is_load else run_merge, request)
        shutil.rmtree(self.root / folder)
        missing = [one.name for one in report.table_states[0].indexes if one.segments_missing]
        if report.message or missing:
            raise RuntimeError(f"commit {change.number}: {report.message}, indexes that are behind: {missing}")
        return cost

    def maintain(self) -> Cost:
        """What is due, as the operator decides it by the last report."""
        if not self.is_maintained or self.state is None or self.state.health is None:
            return Cost(wall=0, cpu=0)
        steps = plan_due(POLICY, self.state.health, self.looks, time.time())
        if not steps:
            return Cost(wall=0, cpu=0)
        request = replace(self._base(RunKind.MAINTAIN, "Table"), maintain=MaintainTask(policy=POLICY, steps=steps))
        cost, report = self._timed(run_maintain, request)
        if failed := [one for one in report.steps if not one.is_done]:
            raise RuntimeError(f"maintenance: {failed}")
        self.looks |= dict.fromkeys(steps, time.time())
        return cost

    def _timed(self, run: Any, request: JobRequest) -> tuple[Cost, JobReport]:
        wall, cpu = time.perf_counter(), time.process_time()
        report: JobReport = run(request, Reporter(request))
        cost = Cost(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
        if report.outcome is not RunOutcome.COMMITTED or not report.table_states:
            raise RuntimeError(f"{request.run_id}: {report.outcome} {report.message}")
        self.state = report.table_states[0]
        return cost, report

    def _set_mode(self, mode: str) -> None:
        with self.lake.table().transaction() as update:
            update.set_properties({"write.merge.mode": mode})

    def _feed(self, change: Change, folder: str) -> SourceSpec:
        import pyarrow.parquet as pq

        rows = change.feed
        if not change.is_load:
            rows = rows.append_column("op", pa.array(["U"] * len(rows)))
            gone = _rows(change.deleted, change.number)
            rows = pa.concat_tables([rows, gone.append_column("op", pa.array(["D"] * len(gone)))])
        path = self.root / folder
        path.mkdir(parents=True)
        pq.write_table(rows, path / "part-0.parquet")
        return SourceSpec(format=SourceFormat.PARQUET, paths=(folder,))

    def _request(self, change: Change, source: SourceSpec) -> JobRequest:
        if change.is_load:
            return replace(self._base(RunKind.LOAD, "LoadJob"), load=LoadTask(source=source))
        task = task_of("", source=source, when_matched=(DELETE_D, UPDATE), when_not_matched=(INSERT,))
        return replace(self._base(RunKind.MERGE, "MergeJob"), merge=task)

    def _base(self, kind: RunKind, owner: str) -> JobRequest:
        self.runs += 1
        uid = f"{self.runs:08d}-1111-0000-0000-000000000000"
        return JobRequest(
            kind=kind,
            run_id=f"{uid[:8]}-cafe-1",
            attempt=1,
            warehouse=self.lake.warehouse,
            owner_kind=owner,
            owner_name="job",
            owner_uid=uid,
            txn=uid,
            table=self.ref,
            indexes=INDEXES,
        )

    def check(self, commits: int) -> None:
        """Raise AssertionError unless the rows are those of a replay, and indexes answer as a scan does."""
        rows: dict[int, tuple[Any, ...]] = {}
        for change in (Change(number=-1, is_load=True, feed=first_rows()), *changes(0, commits)):
            change.applied(rows)
        found = self.lake.table().scan().to_arrow().to_pylist()
        assert sorted(tuple(one.values()) for one in found) == sorted(rows.values()), "rows differ from the replay"
        for condition in ("name = 'n7-3'", "city = 'c5' and id > 100", "id < 40"):
            self.lake.assert_exact(condition)
        for index in INDEXES:
            self.lake.assert_every_row_once(index)

    def sizes(self) -> dict[str, int]:
        """All that could grow, by name."""
        tables = {"table": self.lake.table()}
        for index in INDEXES:
            identifier = index_identifier(self.lake.warehouse, self.ref, index)
            tables[index.name] = self.lake.catalog.load_table(identifier)
        found = {f"{name}.{what}": size for name, one in tables.items() for what, size in _table_sizes(one).items()}
        if self.state is not None:
            found["status.bytes"] = len(json.dumps(encode(self.state)))
            found |= {f"{one.name}.entries": one.entries for one in self.state.indexes}
        own = [path for path in (self.root / ".skipstone").rglob("*") if path.is_file()]
        for path in own:
            kind = path.relative_to(self.root / ".skipstone").parts[0]
            found[f"own.{kind}.files"] = found.get(f"own.{kind}.files", 0) + 1
            found[f"own.{kind}.bytes"] = found.get(f"own.{kind}.bytes", 0) + path.stat().st_size
        found["disk.files"] = sum(path.is_file() for path in self.root.rglob("*"))
        found["catalog.bytes"] = sum(path.stat().st_size for path in self.root.glob("*.db"))
        return found


def _table_sizes(table: Table) -> dict[str, int]:
    """Of the metadata of a head, and of what lies on disk below the table's location."""
    metadata, head = table.metadata, table.current_snapshot()
    manifests = head.manifests(table.io) if head else []
    folder = local(table.location())
    disk = [path for path in folder.rglob("*") if path.is_file()]
    return {
        "metadata_file": local(table.metadata_location).stat().st_size,
        "manifest_list": local(head.manifest_list).stat().st_size if head else 0,
        "manifests": len(manifests),
        "manifest_bytes": sum(one.manifest_length for one in manifests),
        "live_files": sum((one.added_files_count or 0) + (one.existing_files_count or 0) for one in manifests),
        "properties": len(metadata.properties),
        "property_bytes": sum(len(name) + len(value) for name, value in metadata.properties.items()),
        "snapshots": len(metadata.snapshots),
        "snapshot_log": len(metadata.snapshot_log),
        "metadata_log": len(metadata.metadata_log),
        "refs": len(metadata.refs),
        "schemas": len(metadata.schemas),
        "disk_data": sum(path.parent.name == "data" for path in disk),
        "disk_metadata": sum(path.parent.name == "metadata" for path in disk),
        "disk_bytes": sum(path.stat().st_size for path in disk),
    }
