"""A small warehouse for load tests: real catalog, real files, real runs.

Used by the tests of sources and loads only.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone.runs.load import run_load
from skipstone.runs.reporting.report import Reporter
from skipstone.sources.plain import PlainLimits
from skipstone.tables.catalogs import open_catalog
from skipstone.tables.committing.commits import CommitPorts
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.badrecords import BadRecordPolicy, BadRecordsSpec
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    JobRequest,
    LoadTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    TableRef,
    WarehouseRef,
)

_UIDS = itertools.count(1)
HEADER = {"header": "true"}


@dataclass
class ListSink:
    """Keeps reports."""

    shown: list[str] = field(default_factory=list)
    last: str = ""

    def show(self, report: str) -> None:
        """Keep a report on the way."""
        self.shown.append(report)

    def finish(self, report: str, short: str) -> None:
        """Keep the last report."""
        self.last = report


@dataclass
class Bed:
    """One warehouse in a directory with one namespace ``ns``."""

    root: Path
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        """Open its catalog."""
        self.catalog = open_catalog(self.warehouse)
        self.catalog.create_namespace_if_not_exists("ns")

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        return WarehouseRef(name="wh", root=str(self.root), catalog=CatalogRef(type=CatalogType.SQL))

    def create(self, schema: Schema, name: str = "t", **options: Any) -> Table:
        """Make a table of format version 2."""
        spec: PartitionSpec = options.pop("partition_spec", UNPARTITIONED_PARTITION_SPEC)
        properties = {"format-version": "2", **options}
        return self.catalog.create_table(("ns", name), schema, partition_spec=spec, properties=properties)

    def put(self, name: str, content: str | bytes) -> str:
        """Write a source file; returns its path relative to the root."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def request(self, source: SourceSpec, name: str = "t", **options: Any) -> JobRequest:
        """A load of ``source`` by a job of its own; ``uid``, ``bad_records``, ``time_zone``, ``attempt``."""
        uid = options.pop("uid", None) or f"00000000-0000-0000-0000-{next(_UIDS):012d}"
        attempt = options.pop("attempt", 1)
        return JobRequest(
            kind=RunKind.LOAD,
            run_id=f"{uid[-8:]}-cafe-{attempt}",
            attempt=attempt,
            warehouse=self.warehouse,
            owner_kind="LoadJob",
            owner_name="job",
            owner_uid=uid,
            txn=uid,
            table=TableRef(namespace="ns", name=name, uid=f"table-{name}"),
            load=LoadTask(source=source, **options),
        )

    def load(self, source: SourceSpec, name: str = "t", **options: Any) -> JobReport:
        """Run a load in this process."""
        ports: CommitPorts | None = options.pop("ports", None)
        limits: PlainLimits | None = options.pop("limits", None)
        return run(self.request(source, name, **options), ports, limits)

    def table(self, name: str = "t") -> Table:
        """The table as it is now."""
        return self.catalog.load_table(("ns", name))

    def arrow(self, name: str = "t") -> pa.Table:
        """All rows, read by PyIceberg."""
        return self.table(name).scan().to_arrow()

    def rows(self, name: str = "t") -> list[dict[str, Any]]:
        """All rows as dictionaries, in the order of the first column."""
        table = self.arrow(name)
        return table.sort_by(table.column_names[0]).to_pylist()

    def data_files(self) -> set[str]:
        """Data files that are in the storage, committed or not."""
        return {str(path) for path in (self.root / "ns").rglob("*.parquet")}


def run(request: JobRequest, ports: CommitPorts | None = None, limits: PlainLimits | None = None) -> JobReport:
    """Run ``request`` with a reporter of its own; ``limits``: of the source that the driver reads."""
    share = (
        DriverShare(rows=limits.rows, source_bytes=limits.unpacked_bytes, decoded_bytes=limits.most_decoded)
        if limits
        else USUAL_SHARE
    )
    return run_load(request, Reporter(request, ListSink()), ports, share)


def csv(*paths: str, options: Mapping[str, str] | None = None, **rest: Any) -> SourceSpec:
    """A Csv source with header."""
    return SourceSpec(format=SourceFormat.CSV, paths=paths, options={**HEADER, **(options or {})}, **rest)


def source(kind: SourceFormat, *paths: str, **rest: Any) -> SourceSpec:
    """A source of any format."""
    return SourceSpec(format=kind, paths=paths, **rest)


def bad(policy: BadRecordPolicy, max_count: int | None = None) -> BadRecordsSpec:
    """A policy for bad records."""
    return BadRecordsSpec(policy=policy, max_count=max_count)


def again(request: JobRequest) -> JobRequest:
    """The next attempt of the same job."""
    attempt = request.attempt + 1
    return replace(request, attempt=attempt, run_id=f"{request.owner_uid[-8:]}-cafe-{attempt}")
