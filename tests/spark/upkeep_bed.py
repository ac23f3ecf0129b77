"""A table with a history: commits of ours and of others, deletes, branches, tags, rollbacks; and what snapshots hold.

Used by tests of maintenance. Every snapshot's rows are read when it is made, and must read the same for as long as it
is retained; the files below the table's location are those that its metadata reaches and those that the test planted.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.expressions import In
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession
from skipstone.files.reader import describe_files, read_data_file
from skipstone.tables.committing.commits import CommitPorts, TableCommit, commit_table, find_txn
from skipstone.tables.filesets import pin_table, read_file_set
from skipstone.tables.sharing.reach import read_reach
from skipstone.tables.storage import plain_location
from skipstone.tables.upkeep.expiry import Expired, expire_snapshots
from skipstone.tables.upkeep.layout import superfluous_deletes
from skipstone.tables.upkeep.manifests import Rewritten, rewrite_manifests
from skipstone.tables.upkeep.orphans import Orphans, OrphanSite, Spared, clean_orphans
from skipstone_core.contract.requests import WarehouseRef
from skipstone_core.history.commits import Committed, Present, RolledBack, TxnRecord
from skipstone_core.maintenance.policies import OrphanFilesAction, OrphanFilesPolicy, SnapshotPolicy

from tests.spark.lake import append, ref_of, write_files
from tests.spark.rawdeletes import add_position_delete, add_vectors

DAY_MS = 86_400_000
NAME = ("ns", "t")
SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string())])
PARTS = ("a", "b", "c")
#: Where files are left, and how their names end.
PLACES = (
    ("data", ".parquet"),
    ("data/part=a", ".parquet"),
    ("metadata", ".avro"),
    ("metadata", ".metadata.json"),
    ("metadata", ".stats"),
    ("data/.hidden", ".crc"),
    ("elsewhere", ""),
)


def later(ms: int = DAY_MS) -> CommitPorts:
    """A world in which it is later, and nobody waits."""
    return CommitPorts(now_ms=lambda: time.time_ns() // 1_000_000 + ms, pause=lambda _: None)


@dataclass
class Life:
    """A table, the rows of its snapshots, and its jobs.

    ``partitioned``: by the column ``part``. ``version``: of the format; in 3 the other engine, which PyIceberg is in 2,
    commits as we do, writes deletion vectors of several data files into one file, and leaves branches without commits.
    ``spark``: a session of another engine, for steps that write by it.
    """

    warehouse: WarehouseRef
    catalog: Catalog
    partitioned: bool = False
    version: int = 2
    rows: dict[int, list[int]] = field(default_factory=dict)
    jobs: dict[str, tuple[int, int]] = field(default_factory=dict)
    planted: set[str] = field(default_factory=set)
    recorded: set[str] = field(default_factory=set)
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    spark: SparkSession | None = None

    def __post_init__(self) -> None:
        """An empty table, unless there is one."""
        if self.catalog.table_exists(NAME):
            return
        table = self.catalog.create_table(NAME, SCHEMA, properties={"format-version": str(self.version)})
        if self.partitioned:
            with table.update_spec() as update:
                update.add_identity("part")

    @property
    def table(self) -> Table:
        """As it is now."""
        return self.catalog.load_table(NAME)

    def batch(self) -> pa.Table:
        """Two new rows."""
        ids = [next(self.numbers) for _ in range(2)]
        return pa.table({"id": ids, "part": [PARTS[one // 2 % len(PARTS)] for one in ids]}, schema=SCHEMA)

    def job(self) -> None:
        """A commit of ours."""
        table, rows = self.table, self.batch()
        txn = f"job-{len(self.jobs)}"
        change = TableCommit(
            pinned=pin_table(table), added=write_files(table, rows), txn=txn, record=TxnRecord(time_ms=0)
        )
        outcome = commit_table(self.catalog, ref_of(table), change)
        assert isinstance(outcome, Committed), outcome
        self.jobs[txn] = (outcome.snapshot_id, rows["id"][0].as_py())
        self.note()

    def other(self) -> None:
        """An append of another engine."""
        self._append(self.batch())
        self.note()

    def _append(self, rows: pa.Table) -> None:
        if self.version > 2:
            append(self.table, rows)
        else:
            self.table.append(rows)

    def _replace(self, removed: Sequence[DataFile], rows: pa.Table) -> None:
        """Write other files in the place of some."""
        table = self.table
        files = read_file_set(table)
        change = TableCommit(
            pinned=files.pinned,
            added=write_files(table, rows) if len(rows) else (),
            removed=tuple(removed),
            replaced=superfluous_deletes(table, files, {file.file_path for file in removed}),
        )
        outcome = commit_table(self.catalog, ref_of(table), change)
        assert isinstance(outcome, Committed), outcome

    def delete(self, number: int) -> None:
        """Another engine deletes rows by writing files again."""
        if not (victims := self.live()[number % 3 :: 3]):
            return
        if self.version > 2:
            rows, files = self.table.scan().to_arrow(), read_file_set(self.table)
            removed = [files.data_file(one) for one in range(len(files))]
            self._replace(removed, rows.filter(~pc.field("id").isin(victims)))
        else:
            self.table.delete(In("id", set(victims)))
        self.note()

    def mark(self, number: int) -> None:
        """Another engine deletes rows by position."""
        files = read_file_set(self.table)
        if not len(files):
            return
        if self.version > 2:
            records, some = files.files["records"].to_pylist(), range(number % 2, len(files), 1 + number % 3)
            add_vectors(self.table, {one: range(1 + files.has_deletes(one))[: records[one]] for one in some or [0]})
        else:
            add_position_delete(self.table, files.data_file(number % len(files)), [0])
        self.note()

    def rewrite(self) -> None:
        """Another engine writes all rows into one file, or those of every other file."""
        if not self.live():
            return
        if self.version > 2:
            table, files = self.table, read_file_set(self.table)
            half = range(0, len(files), 2)
            described = describe_files(table, files, half)
            rows = [batch for file in described for batch in read_data_file(file, SCHEMA.names)]
            self._replace([files.data_file(one) for one in half], pa.Table.from_batches(rows, SCHEMA))
        else:
            self.table.overwrite(self.table.scan().to_arrow())
        self.note()

    def insert(self) -> None:
        """Spark appends two rows."""
        values = ", ".join(f"({row['id']}, '{row['part']}')" for row in self.batch().to_pylist())
        self._sql(f"insert into {{table}} values {values}")

    def replace(self, number: int) -> None:
        """Spark moves rows to another part by writing their files again."""
        self._sql(f"update {{table}} set part = '{PARTS[number % 3]}' where id % 3 = {number % 3}")

    def _sql(self, statement: str) -> None:
        if self.spark is not None:
            self.spark.sql(statement.format(table=f"{self.warehouse.catalog.name}.ns.t"))
            self.note()

    def tag(self, number: int) -> None:
        """Name a retained snapshot."""
        if snapshot := self.chosen(number):
            self.table.manage_snapshots().create_tag(snapshot.snapshot_id, f"tag{next(self.numbers)}").commit()

    def branch(self, number: int) -> None:
        """Another engine commits to a branch of its own."""
        if snapshot := self.chosen(number):
            name = f"branch{next(self.numbers)}"
            self.table.manage_snapshots().create_branch(snapshot.snapshot_id, name).commit()
            if self.version < 3:
                self.table.append(self.batch(), branch=name)
                self.note()

    def unname(self, number: int) -> None:
        """Drop a branch or tag."""
        if names := sorted(self.table.metadata.refs.keys() - {"main"}):
            name = names[number % len(names)]
            changed = self.table.manage_snapshots()
            (changed.remove_tag if name.startswith("tag") else changed.remove_branch)(name).commit()

    def rollback(self, number: int) -> None:
        """Set main to a retained snapshot."""
        if snapshot := self.chosen(number):
            self.table.manage_snapshots().set_current_snapshot(snapshot.snapshot_id).commit()

    def expire(self, number: int) -> Expired:
        """Let all but the newest few go, and check what is left."""
        policy = SnapshotPolicy(max_age_seconds=0, min_to_keep=1 + number % 4)
        before = {job: type(find_txn(self.table, job)) for job in self.jobs}
        expired = expire_snapshots(self.catalog, ref_of(self.table), policy, later())
        assert expired.is_done, expired
        self.check()
        assert {job: type(find_txn(self.table, job)) for job in self.jobs} == before
        return expired

    def plant(self, number: int) -> None:
        """Leave a file that no metadata names."""
        root = plain_location(self.table.location())
        folder, ending = PLACES[number % len(PLACES)]
        path = Path(root, folder, f"left-{next(self.numbers)}-{uuid.uuid4()}{ending}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"left behind")
        self.planted.add(str(path))

    def change(self, number: int) -> None:
        """Write a planted file again: it is another one then."""
        if self.planted:
            path = sorted(self.planted)[number % len(self.planted)]
            Path(path).write_bytes(b"another content" * (1 + number))
            self.recorded.discard(path)

    def clean(self) -> Orphans:
        """Look for orphans: those go that an earlier look found, and the others are found."""
        policy = OrphanFilesPolicy(action=OrphanFilesAction.DELETE, older_than_seconds=60)
        spared = Spared(run_id=f"0000{next(self.numbers):04}-12345678-1")
        site = OrphanSite(
            catalog=self.catalog,
            warehouse=self.warehouse,
            ref=ref_of(self.table),
            spared=spared,
            now_ms=later().now_ms,
        )
        cleaned = clean_orphans(site, policy)
        assert cleaned.deleted == len(self.recorded)
        self.planted -= self.recorded
        assert cleaned.count == len(self.planted)
        self.recorded = set(self.planted)
        self.check()
        return cleaned

    def manifests(self) -> Rewritten:
        """Write those again that are due."""
        done = rewrite_manifests(self.catalog, ref_of(self.table), "00000000-12345678-1", later(0))
        if done.outcome is not None:
            assert isinstance(done.outcome, Committed), done
            self.note()
            assert done.written < done.replaced
        assert rewrite_manifests(self.catalog, ref_of(self.table), "00000000-12345678-2").outcome is None
        self.check()
        return done

    def take(self, steps: Sequence[tuple[str, int]]) -> None:
        """Take steps, each with a number that chooses what it is about."""
        for word, number in steps:
            method: Callable[..., object] = getattr(self, word)
            method(*([number] if method.__code__.co_argcount == 2 else []))  # type: ignore[attr-defined]

    def check(self) -> None:
        """Every retained snapshot has the rows that it had, and no file is there that none reaches."""
        table = self.table
        for snapshot in table.metadata.snapshots:
            assert self.read(snapshot.snapshot_id) == self.rows[snapshot.snapshot_id]
        assert self.files() == {plain_location(path) for path in read_reach(table).paths()} | self.planted

    def check_jobs(self) -> None:
        """What the table says of its jobs is true: whether the commit of each is in the history of main."""
        for job in self.jobs:
            found = find_txn(self.table, job)
            if isinstance(found, Present | RolledBack):
                assert isinstance(found, Present) == (self.jobs[job][0] in self.history)

    @property
    def history(self) -> set[int]:
        """Snapshots that were ancestors of the head of main when they were there; see ``note``."""
        return self._ancestors[self.head.snapshot_id] if self.head else set()

    _ancestors: dict[int, set[int]] = field(default_factory=dict)

    @property
    def head(self) -> Snapshot | None:
        """The head of main."""
        return self.table.current_snapshot()

    def note(self) -> None:
        """Remember the rows and ancestors of new snapshots."""
        for one in sorted(self.table.metadata.snapshots, key=lambda one: one.sequence_number or 0):
            if one.snapshot_id not in self.rows:
                parent = one.parent_snapshot_id
                self._ancestors[one.snapshot_id] = {one.snapshot_id} | (self._ancestors[parent] if parent else set())
                self.rows[one.snapshot_id] = self.read(one.snapshot_id)

    def read(self, snapshot_id: int) -> list[int]:
        """Ids in a snapshot, sorted."""
        return sorted(self.table.scan(snapshot_id=snapshot_id).to_arrow()["id"].to_pylist())

    def live(self) -> list[int]:
        """Ids in the head."""
        return self.read(self.head.snapshot_id) if self.head else []

    def chosen(self, number: int) -> Snapshot | None:
        """One of the retained snapshots."""
        found = self.table.metadata.snapshots
        return found[number % len(found)] if found else None

    def files(self) -> set[str]:
        """All below the location, but for checksums that Hadoop keeps of files that are there."""
        root = Path(plain_location(self.table.location()))
        there = {str(path) for path in root.rglob("*") if path.is_file()}
        return there - {str(Path(path).with_name(f".{Path(path).name}.crc")) for path in there}
