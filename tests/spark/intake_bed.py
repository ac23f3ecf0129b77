"""A folder of files that a consumer takes into a table whose commits change no row: what is consumed, and when.

Used by the tests of consumption only. No Spark: catalog, table, ledger and storage are real.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from skipstone.runs.intake import Intake, source_record, take_source
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.committing.commits import CommitPorts, TableCommit, commit_table
from skipstone.tables.filesets import pin_table
from skipstone.tables.records.ledger import ConsumedFiles
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ConsumePolicy,
    JobRequest,
    RunKind,
    SourceFormat,
    SourceSpec,
    WarehouseRef,
)
from skipstone_core.history.commits import Outcome
from skipstone_core.history.consumption import NAME_BYTES, entry

from tests.spark.lake import append, ref_of

CONSUMER = "MergeSchedule ns/feed"
ROWS = pa.table({"id": pa.array([1], pa.int64())})
_UIDS = itertools.count(1)


@dataclass
class IntakeBed:
    """One warehouse with the table ``ns.t`` and the folder ``feed``."""

    root: Path
    paths: tuple[str, ...] = ("feed",)
    consumer: str = CONSUMER
    settle_seconds: int = 0
    notes: list[str] = field(default_factory=list)
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        """Make the table and the folder."""
        self.catalog = open_catalog(self.warehouse)
        self.catalog.create_namespace_if_not_exists("ns")
        self.catalog.create_table(("ns", "t"), ROWS.schema, properties={"format-version": "2"})
        (self.root / "feed").mkdir()

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        return WarehouseRef(name="wh", root=str(self.root), catalog=CatalogRef(type=CatalogType.SQL))

    @property
    def memory(self) -> ConsumedFiles:
        """What the consumer remembers."""
        return ConsumedFiles(warehouse=self.warehouse, consumer=self.consumer)

    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(("ns", "t"))

    def drop(self, *names: str, content: str = "x") -> None:
        """Put files into the folder."""
        for name in names:
            (self.root / "feed" / name).write_text(content)

    def take(self, uid: str = "") -> tuple[str, Intake | Outcome]:
        """What a job takes: the job's uid and the answer."""
        uid = uid or f"{next(_UIDS):08d}-0000-0000-0000-000000000000"
        request = JobRequest(
            kind=RunKind.MERGE,
            run_id=f"{uid[:8]}-1",
            attempt=1,
            warehouse=self.warehouse,
            owner_kind="MergeJob",
            owner_name="m",
            owner_uid=uid,
            txn=uid,
        )
        source = SourceSpec(
            format=SourceFormat.CSV,
            paths=self.paths,
            consume=ConsumePolicy.NEW,
            consumer=self.consumer,
            settle_seconds=self.settle_seconds,
        )
        return uid, take_source(request, self.table(), source, self.notes.append)

    def commit(self, uid: str, intake: Intake, ports: CommitPorts | None = None) -> Outcome:
        """Commit what was taken."""
        table = self.table()
        change = TableCommit(pinned=pin_table(table), txn=uid, record=source_record(intake, {}), ledger=intake.ledger)
        return commit_table(self.catalog, ref_of(table), change, ports)

    def consume(self) -> list[str]:
        """Take and commit; the names of the files."""
        uid, intake = self.take()
        if not isinstance(intake, Intake):
            return []
        self.commit(uid, intake)
        return names_of(intake)

    def append(self) -> int:
        """Another writer commits; its snapshot."""
        found = append(self.table(), ROWS).current_snapshot()
        assert found is not None
        return found.snapshot_id

    def head(self) -> int | None:
        """The current snapshot."""
        found = self.table().current_snapshot()
        return found.snapshot_id if found else None

    def remembered(self, names: list[str]) -> set[str]:
        """Those of ``names`` that count as consumed."""
        table = self.table()
        known = {name for name, _ in self.memory.entries(table, self.memory.find_head(table))}
        return {name for name in names if entry(f"feed/{name}", 0, 0)[:NAME_BYTES] in known}

    def records(self) -> list[Path]:
        """All records on disk."""
        return [path for path in (self.root / ".skipstone" / "consumed").rglob("*") if path.is_file()]


def names_of(intake: Intake | Outcome) -> list[str]:
    """The names of the files taken."""
    assert isinstance(intake, Intake), intake
    return [Path(file.path).name for file in intake.listing.files]


def rewrite_unseen(path: Path, content: str) -> None:
    """New content of equal length under the old size and modification time; only the change of status tells."""
    before = path.stat()
    # Many kernels note times by a clock that ticks every few milliseconds, which a quick test does not outlast
    while path.stat().st_ctime_ns == before.st_ctime_ns:
        path.write_text(content)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
