"""A lake in a bucket behind a proxy that counts and delays requests, for benchmarks: ours and plain Spark through it.

A real S3 server, a real PostgreSQL as catalog. Peers read and write by Iceberg's own S3FileIO, and sources by S3A.
What makes the tables goes to the server itself.
"""

from __future__ import annotations

import multiprocessing
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.table import Table
from pyspark.sql import SparkSession
from skipstone.files.writer import DataFileWriter, to_data_files, write_spec
from skipstone.session import LOCAL
from skipstone.storage.opening import open_storage

from tests.s3client import S3Client
from tests.s3proxy import Proxy, s3_proxy
from tests.s3server import OWNER, REGION, s3_server
from tests.spark.jars import FOR_S3_SESSIONS, ICEBERG_RUNTIME, jar_paths, s3a_jars
from tests.spark.postgres import PASSWORD, USER, postgres
from tests.spark.s3_bed import S3Bed, pod
from tests.storages import PREFIX

BUCKET = "lake"
CATALOG = "skipstone"
_T = TypeVar("_T")


@dataclass(frozen=True)
class S3Lake:
    """``bed``: through the proxy, as runs and sessions have it; ``direct``: past it."""

    bed: S3Bed
    direct: S3Bed
    proxy: Proxy

    def name(self, table: str = "t") -> str:
        """A table, in Spark."""
        return f"{CATALOG}.{self.bed.namespace}.{table}"

    def address(self, path: str) -> str:
        """Where Spark finds a source."""
        return open_storage(self.bed.warehouse).address(path)

    def make(self, name: str, files: list[pa.Table], per_commit: int, properties: dict[str, str]) -> Table:
        """A table of ``files``, so many of them in each commit."""
        identifier = (self.bed.namespace, name)
        table = self.direct.catalog.create_table(identifier, files[0].schema, properties=properties)
        spec = write_spec(table, "bench")
        with ThreadPoolExecutor(2) as pool:
            written = list(pool.map(lambda one: _written(spec, *one), enumerate(files)))
        for first in range(0, len(files), per_commit):
            with table.transaction() as change, change.update_snapshot().fast_append() as append:
                for file in to_data_files(written[first : first + per_commit], table):
                    append.append_data_file(file)
        return table

    def session(self) -> SparkSession:
        """Plain Spark with Iceberg, in two cores, and the Warehouse's catalog."""
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:postgresql://127.0.0.1:{self.bed.server.port}/postgres",
            ".jdbc.user": USER,
            ".jdbc.password": PASSWORD,
            ".jdbc.schema-version": "V1",
            ".warehouse": f"s3://{BUCKET}/{PREFIX}",
            ".cache-enabled": "false",
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".s3.endpoint": self.bed.bucket.endpoint,
            ".s3.path-style-access": "true",
            ".http-client.type": "urlconnection",
            ".client.region": REGION,
        }
        builder = SparkSession.builder.appName("bench").master("local[2]")
        builder = builder.config("spark.sql.extensions", _EXTENSIONS).config("spark.sql.shuffle.partitions", "2")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        for name, value in settings.items():
            builder = builder.config(f"spark.sql.catalog.{CATALOG}{name}", value)
        for name, value in open_storage(self.bed.warehouse).hadoop_settings().items():
            builder = builder.config(f"spark.hadoop.{name}", value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel("ERROR")
        return spark


_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


@contextmanager
def s3_lake(latency_seconds: float = 0.0) -> Iterator[S3Lake]:
    """A lake of its own, gone with the block; every request through its proxy takes so much longer."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skipstone-bench-")))
        os.environ["SKIPSTONE_CACHE_DIR"] = str(folder / "decodes")
        _java_settings()
        server = stack.enter_context(s3_server(folder / "s3"))
        database = stack.enter_context(postgres())
        stack.enter_context(pod(database))
        server.make_bucket(BUCKET)
        proxy = stack.enter_context(s3_proxy(server.endpoint))
        direct = S3Bed(S3Client(server.endpoint, BUCKET, REGION, OWNER), database)
        bed = S3Bed(replace(direct.bucket, endpoint=proxy.endpoint), database)
        proxy.delay_seconds = latency_seconds
        yield S3Lake(bed, direct, proxy)


def in_own_process(call: Callable[..., _T], *given: Any) -> _T:
    """What ``call`` gives in a process that remembers nothing, as a driver's pod; decodes are kept on the machine."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(call, *given).result()


def _java_settings() -> None:
    """As tests set them: the JVM of a process has all jars and finds the keys."""
    jars = [*jar_paths("iceberg-runtime", ICEBERG_RUNTIME), *jar_paths("s3-sessions", FOR_S3_SESSIONS), *s3a_jars()]
    settings = {**LOCAL, "spark.driver.memory": "3g", "spark.sql.catalogImplementation": "in-memory"}
    settings["spark.driver.extraClassPath"] = ":".join(str(path) for path in jars)
    options = " ".join(f"--conf {shlex.quote(f'{key}={value}')}" for key, value in settings.items())
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{options} pyspark-shell"
    os.environ["JDK_JAVA_OPTIONS"] = f"-Daws.accessKeyId={OWNER.access} -Daws.secretAccessKey={OWNER.secret}"
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def _written(spec: Any, number: int, rows: pa.Table) -> bytes:
    writer = DataFileWriter(spec, f"{number:05}-0")
    writer.write(rows)
    (written,) = writer.close()
    return written.to_row()
