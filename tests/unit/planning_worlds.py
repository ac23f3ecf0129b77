"""Catalogs with two replicas of a planning server before each, for reads while something goes wrong."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from skipstone_core.contract.planning import PlanningSettings
from skipstone_core.contract.requests import CatalogRef, CatalogType, WarehouseRef

from tests.debian import unpack_package
from tests.examples import ALL_CASES
from tests.s3client import S3Client
from tests.s3proxy import s3_proxy
from tests.s3server import OWNER, REGION, s3_server
from tests.spark.index_bed import Lake
from tests.spark.postgres import postgres
from tests.spark.restserver import rest_catalog
from tests.spark.s3_bed import pod
from tests.storages import s3_ref
from tests.unit.planning_faults import TOKEN, UPSTREAM_SECONDS, Reader, World
from tests.unit.serving_bed import guard, rest_settings, secrets, sql_settings
from tests.unit.serving_replicas import faked_clock, replicas


def sql_world(stack: ExitStack, root: Path, reader: Reader) -> World:
    """An Sql catalog and two replicas; their clocks can jump where all cases are taken."""
    settings = sql_settings(root, files_per_page=2, upstream_timeout_seconds=UPSTREAM_SECONDS)
    clock, environment = root / "clock", secrets(TOKEN, "the-seal-of-the-faults")
    if ALL_CASES:
        clock.write_text("+0")
        (library,) = unpack_package("libfaketime").rglob("libfaketimeMT.so.1")
        environment |= faked_clock(library, clock)
    lake = Lake(root)
    balancer = stack.enter_context(replicas(root / "replicas", settings, environment))
    return World(lake, balancer, reader, clock=clock if ALL_CASES else None)


def rest_world(stack: ExitStack, root: Path, reader: Reader) -> World:
    """A REST catalog, a guard before it, and two replicas."""
    uri = stack.enter_context(rest_catalog(root))
    upstream = stack.enter_context(guard(uri))
    given = {"files_per_page": 2, "upstream_timeout_seconds": UPSTREAM_SECONDS}
    settings = rest_settings(upstream.address, root, **given)
    environment = secrets(seal="the-seal-of-the-faults")
    balancer = stack.enter_context(replicas(root / "replicas", settings, environment))
    return World(Lake(root, kind=rest_settings(uri, root).warehouse.catalog), balancer, reader, upstream)


class BucketLake(Lake):
    """A lake in a bucket, with a PostgreSQL as its catalog."""

    bucket: S3Client
    port: int

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        return in_bucket(self.bucket, self.port)


def in_bucket(bucket: S3Client, port: int) -> WarehouseRef:
    """A Warehouse in ``bucket``, at the address that it has there."""
    catalog = CatalogRef(type=CatalogType.SQL, uri=f"postgresql://127.0.0.1:{port}/postgres")
    return WarehouseRef(name="wh", catalog=catalog, s3=s3_ref(bucket))


def bucket_world(stack: ExitStack, root: Path, reader: Reader) -> World:
    """A bucket, which replicas and clients ask by a proxy, and a PostgreSQL as catalog."""
    server = stack.enter_context(s3_server(root / "s3"))
    server.make_bucket("faults")
    proxy = stack.enter_context(s3_proxy(server.endpoint))
    port = stack.enter_context(pod(stack.enter_context(postgres()))).port
    BucketLake.bucket, BucketLake.port = S3Client(server.endpoint, "faults", REGION, OWNER), port
    warehouse = in_bucket(S3Client(proxy.endpoint, "faults", REGION, OWNER), port)
    settings = PlanningSettings(warehouse=warehouse, files_per_page=2, upstream_timeout_seconds=UPSTREAM_SECONDS)
    lake, environment = BucketLake(root), secrets(TOKEN, "the-seal-of-the-faults")
    balancer = stack.enter_context(replicas(root / "replicas", settings, environment))
    return World(lake, balancer, reader, bucket=proxy, place=lambda path: server.buckets / path.removeprefix("s3://"))
