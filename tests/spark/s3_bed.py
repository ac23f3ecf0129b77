"""A lake in a bucket for tests of runs: a real PostgreSQL as catalog, a real S3 server, no directory anywhere.

Used by the tests of runs on S3. Credentials are in the environment, as a pod has them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone.runs.load import run_load
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.storage.opening import open_storage
from skipstone.tables.catalogs import PASSWORD_VARIABLE, USER_VARIABLE, open_catalog
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE, DriverShare
from skipstone_core.contract.places import SourceLocationRef
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    JobRequest,
    LoadTask,
    MergeTask,
    RunKind,
    SourceSpec,
    TableRef,
    WarehouseRef,
)

from tests.s3client import S3Client
from tests.s3server import OWNER
from tests.spark.duck import connection
from tests.spark.merge_bed import rows_of
from tests.spark.postgres import PASSWORD, USER, Server
from tests.storages import PREFIX, credentials, s3_ref

_UIDS = itertools.count(1)
#: Where nothing is small enough for the driver alone.
NOTHING_HERE = NO_SHARE


@contextmanager
def pod(server: Server) -> Iterator[Server]:
    """The environment of a driver: keys of the bucket and of the catalog."""
    given = {USER_VARIABLE: USER, PASSWORD_VARIABLE: PASSWORD}
    with credentials(OWNER):
        os.environ.update(given)
        try:
            yield server
        finally:
            for name in given:
                del os.environ[name]


@dataclass
class S3Bed:
    """A Warehouse in ``bucket`` below PREFIX with one namespace; ``locations``: others that it reads from."""

    bucket: S3Client
    server: Server
    locations: tuple[SourceLocationRef, ...] = ()
    limits: DriverShare = USUAL_SHARE
    catalog: Catalog = field(init=False)

    def __post_init__(self) -> None:
        """Open its catalog; the namespace is the bucket's own, since all share the database."""
        self.catalog = open_catalog(self.warehouse)
        self.catalog.create_namespace_if_not_exists(self.namespace)

    @property
    def namespace(self) -> str:
        """Of the table."""
        return self.bucket.bucket.replace("-", "_")

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        uri = f"postgresql://127.0.0.1:{self.server.port}/postgres"
        catalog = CatalogRef(type=CatalogType.SQL, uri=uri)
        return WarehouseRef(name="wh", catalog=catalog, s3=s3_ref(self.bucket), locations=self.locations)

    @property
    def ref(self) -> TableRef:
        """The table as requests carry it."""
        return TableRef(namespace=self.namespace, name="t", uid="11111111-aaaa-bbbb-cccc-000000000000")

    def create(self, schema: Schema, **properties: str) -> Table:
        """Make the table."""
        return self.catalog.create_table(self.ref.identifier, schema, properties={"format-version": "2", **properties})

    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table(self.ref.identifier)

    def put(self, path: str, content: bytes | str | pa.Table, prefix: str = PREFIX) -> str:
        """A file as people put it; Parquet of a table."""
        if isinstance(content, pa.Table):
            sink = pa.BufferOutputStream()
            pq.write_table(content, sink)
            content = sink.getvalue().to_pybytes()
        body = content.encode() if isinstance(content, str) else content
        assert self.bucket.send("PUT", f"{prefix}/{path}", body).ok
        return path

    def objects(self) -> list[str]:
        """All objects of the bucket."""
        return sorted(entry.path for entry in open_storage(self.warehouse).list(""))

    def request(self, kind: RunKind, uid: str = "", attempt: int = 1, **task: Any) -> JobRequest:
        """What the operator would write; each call is another job unless ``uid`` says which."""
        uid = uid or f"{next(_UIDS):08d}-0000-0000-0000-000000000000"
        return JobRequest(
            kind=kind,
            run_id=f"{uid[:8]}-cafe-{attempt}",
            attempt=attempt,
            warehouse=self.warehouse,
            owner_kind=f"{kind.value}Job",
            owner_name="job",
            owner_uid=uid,
            txn=uid,
            table=self.ref,
            **task,
        )

    def load(self, source: SourceSpec, limits: DriverShare = USUAL_SHARE, uid: str = "", **options: Any) -> JobReport:
        """A whole load run; in Spark with NOTHING_HERE."""
        request = self.request(RunKind.LOAD, uid, load=LoadTask(source=source, **options))
        return run_load(request, Reporter(request), None, limits)

    def merge(self, task: MergeTask, uid: str = "", attempt: int = 1) -> JobReport:
        """A whole merge run."""
        request = self.request(RunKind.MERGE, uid, attempt, merge=task)
        return run_merge(request, Reporter(request), None, self.limits)

    def rows(self) -> list[str]:
        """The rows in no order, as PyIceberg reads them."""
        return rows_of(self.table().scan().to_arrow())

    def duck_rows(self, folder: Path) -> list[str]:
        """The rows of the live data files in no order, as DuckDB reads them, below ``folder``; deletes are ignored."""
        for task in self.table().scan().plan_files():
            found = self.bucket.send("GET", task.file.file_path.removeprefix(f"s3://{self.bucket.bucket}/"))
            (folder / Path(task.file.file_path).name).write_bytes(found.content)
        with connection() as duck:
            return rows_of(duck.sql(f"select * from read_parquet('{folder}/*.parquet')").to_arrow_table())


def rows(table: pa.Table | Sequence[dict[str, Any]]) -> list[str]:
    """As ``S3Bed.rows`` gives them."""
    return rows_of(table if isinstance(table, pa.Table) else pa.Table.from_pylist(list(table)))
