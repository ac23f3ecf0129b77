"""Users' own sessions on a Warehouse in a bucket: by Iceberg's file system for S3, and by Hadoop's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
import skipstone
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession
from skipstone.query import read
from skipstone.query.datasource import SkipstoneDataSource
from skipstone.query.pinned import pin_source
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.requests import ReindexTask, RunKind

from tests.s3client import S3Client
from tests.s3server import OWNER, REGION, S3Server
from tests.spark.index_bed import index_on
from tests.spark.lake import append
from tests.spark.merge_bed import rows_of
from tests.spark.postgres import PASSWORD, USER, Server, postgres
from tests.spark.s3_bed import S3Bed, pod
from tests.storages import PREFIX

SCHEMA = pa.schema([("k", pa.int64()), ("name", pa.string())])
BY_K = index_on("k")
ICEBERG = {
    "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    "s3.endpoint": "{endpoint}",
    "s3.path-style-access": "true",
    "http-client.type": "urlconnection",
    "client.region": REGION,
}
HADOOP = {
    "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    "s3.endpoint": "{endpoint}",
    "client.region": REGION,
    "hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "hadoop.fs.s3a.endpoint": "{endpoint}",
    "hadoop.fs.s3a.endpoint.region": REGION,
    "hadoop.fs.s3a.path.style.access": "true",
    "hadoop.fs.s3a.connection.ssl.enabled": "false",
    "hadoop.fs.s3a.access.key": OWNER.access,
    "hadoop.fs.s3a.secret.key": OWNER.secret,
}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as found, pod(found):
        yield found


@pytest.fixture(scope="module")
def bed(server: Server, s3: S3Server) -> S3Bed:
    """Three segments, all of them in an index."""
    s3.make_bucket("sessions")
    made = S3Bed(S3Client(s3.endpoint, "sessions", REGION, OWNER), server)
    made.catalog.create_table(made.ref.identifier, SCHEMA)
    for segment in range(3):
        numbers = range(segment, 300, 3)
        append(made.table(), pa.table({"k": numbers, "name": [f"n{n}" for n in numbers]}, schema=SCHEMA))
    request = made.request(RunKind.REINDEX, indexes=(BY_K,), reindex=ReindexTask(index=BY_K))
    run_reindex(request, Reporter(request))
    return made


def session(spark: SparkSession, bed: S3Bed, **settings: str) -> SparkSession:
    made = spark.newSession()
    known = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:postgresql://127.0.0.1:{bed.server.port}/postgres",
        ".jdbc.user": USER,
        ".jdbc.password": PASSWORD,
        ".jdbc.schema-version": "V1",
        ".warehouse": f"s3://{bed.bucket.bucket}/{PREFIX}",
        **{f".{name}": value.format(endpoint=bed.bucket.endpoint) for name, value in settings.items()},
    }
    for name, value in known.items():
        made.conf.set(f"spark.sql.catalog.skipstone{name}", value)
    return made


@pytest.mark.parametrize("settings", [ICEBERG, HADOOP], ids=["S3FileIO", "S3A"])
def test_sql_reads_through_the_indexes(spark: SparkSession, bed: S3Bed, settings: dict[str, str]) -> None:
    opened = session(spark, bed, **settings)
    for rows in ("0", "1000000"):
        opened.conf.set("skipstone.driverRows", rows)
        found = skipstone.sql(opened, f"select * from skipstone.{bed.namespace}.t where k = 42")
        assert rows_of(found.toArrow()) == ["(42, 'n42')"]
        (relation,) = skipstone.explain(found).relations
        assert relation.is_rewritten, relation
        assert relation.plan is not None
        assert relation.plan.funnel.read == 1
    whole = opened.table(f"skipstone.{bed.namespace}.t").toArrow()
    assert rows_of(whole) == rows_of(bed.table().scan().to_arrow())


def test_the_data_source_reads_through_the_indexes(spark: SparkSession, bed: S3Bed) -> None:
    opened = spark.newSession()
    opened.dataSource.register(SkipstoneDataSource)
    login = f"{USER}:{quote(PASSWORD)}"
    uri = f"postgresql+psycopg2://{login}@127.0.0.1:{bed.server.port}/postgres"
    options = {
        "catalog": "skipstone",
        "catalog.type": "sql",
        "catalog.uri": uri,
        "catalog.s3.endpoint": bed.bucket.endpoint,
        "catalog.s3.region": REGION,
        "filter": "k = 42",
    }
    found = opened.read.format("skipstone").options(**options).load(f"{bed.namespace}.t")
    assert rows_of(found.toArrow()) == ["(42, 'n42')"]


def test_a_catalog_in_pyicebergs_configuration_needs_no_properties_to_reach_the_bucket(
    bed: S3Bed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lake = {
        "type": "sql",
        "uri": f"postgresql://{USER}:{quote(PASSWORD)}@127.0.0.1:{bed.server.port}/postgres",
        "s3.endpoint": bed.bucket.endpoint,
        "s3.region": REGION,
        "s3.access-key-id": OWNER.access,
        "s3.secret-access-key": OWNER.secret,
    }
    lines = ["catalog:", "  skipstone:", *(f"    {name}: {value}" for name, value in lake.items())]
    (tmp_path / ".pyiceberg.yaml").write_text("\n".join(lines))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    pinned = pin_source({"path": f"{bed.namespace}.t", "catalog": "skipstone"})
    assert read(pinned.table(), ["name"], "k = 42").to_pylist() == [{"name": "n42"}]
