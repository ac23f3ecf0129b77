"""A lake without a volume: tables in a bucket behind a REST catalog, both reached by pods at the node's address.

The servers are processes of this machine and end with the test module that uses them, so its resources must be gone
then. The test reads tables itself: paths in their metadata are the same for everybody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from demo.kube import Kube
from tests.e2e.lake import JsonObject, Lake, content
from tests.s3client import Keys, S3Client
from tests.s3server import OWNER, REGION, STRANGER, s3_server
from tests.spark.jars import FOR_S3_SESSIONS, jar_paths, s3a_jars
from tests.spark.restserver import ICEBERG, rest_catalog

#: What the catalog needs to write metadata into a bucket.
FOR_S3_CATALOG = (f"org.apache.iceberg:iceberg-aws:{ICEBERG}", "dev.failsafe:failsafe:3.3.2")
PREFIX, FEEDS = "prod/lake", "erp"
#: Secrets of the namespace: that of the Warehouse, and that of a reader of the landing bucket.
SECRETS = {"lake-keys": OWNER, "landing-keys": STRANGER}


@dataclass(frozen=True)
class BucketLake(Lake):
    """A namespace whose Warehouse is in ``lake`` below PREFIX, with feeds in ``landing`` below FEEDS."""

    lake: S3Client = field(kw_only=True)
    landing: S3Client = field(kw_only=True)
    catalog_uri: str = field(kw_only=True)

    def write(self, path: str, rows: Sequence[JsonObject] | str | bytes) -> None:
        """Put a source file into the landing bucket: rows in the format that its name tells."""
        text = rows.encode() if isinstance(rows, str) else rows
        body = text if isinstance(text, bytes) else content(text, path.rpartition(".")[2])
        answer = self.landing.send("PUT", f"{FEEDS}/{path}", body)
        assert answer.ok, answer.text

    def catalog(self, uri: str, **properties: str) -> RestCatalog:
        """The catalog at an address, to a reader who has the keys of the bucket."""
        storage = {
            "s3.endpoint": self.lake.endpoint,
            "s3.region": REGION,
            "s3.access-key-id": OWNER.access,
            "s3.secret-access-key": OWNER.secret,
        }
        return RestCatalog("reader", uri=uri, **storage, **properties)

    def table(self, name: str) -> Table:
        """The table `db.<name>` as it is now."""
        with self.catalog(self.catalog_uri) as catalog:
            return catalog.load_table(("db", name))

    def rows(self, name: str = "people") -> list[JsonObject]:
        """All rows of `db.<name>` as plain PyIceberg reads them, by id."""
        return sorted(self.table(name).scan().to_arrow().to_pylist(), key=lambda row: row["id"])

    def place(self, secret: str = "lake-keys", client: S3Client | None = None, prefix: str = PREFIX) -> JsonObject:
        """A place in a bucket as specs name it."""
        found = client or self.lake
        return {
            "bucket": found.bucket,
            "prefix": prefix,
            "region": REGION,
            "endpoint": found.endpoint,
            "pathStyleAccess": True,
            "credentialsSecretRef": {"name": secret},
        }

    def storage(self, secret: str = "lake-keys") -> JsonObject:
        """What a Warehouse says instead of a claim."""
        landing = {"name": "landing", "s3": self.place("landing-keys", self.landing, FEEDS)}
        return {
            "catalog": {"type": "Rest", "uri": self.catalog_uri},
            "storage": {"s3": self.place(secret)},
            "sourceLocations": [landing],
        }


@contextmanager
def bucket_lake(lake: Lake, folder: Path) -> Iterator[BucketLake]:
    """The namespace of ``lake`` with a bucket and a catalog that keep their files below ``folder``."""
    host = node_address(lake.kube)
    with s3_server(folder / "s3", host=host) as server:
        for name in ("lake", "landing"):
            server.make_bucket(name)
        mine = S3Client(server.endpoint, "lake", REGION, OWNER)
        landing = replace(mine, bucket="landing")
        _let_read(landing, STRANGER)
        with rest_catalog(folder, _catalog_settings(folder, server.endpoint), _catalog_jars(), host=host) as address:
            lake.apply(*(_secret(name, keys) for name, keys in SECRETS.items()))
            yield BucketLake(lake.kube, lake.folder, lake=mine, landing=landing, catalog_uri=address)


def node_address(kube: Kube) -> str:
    """Where pods reach servers of this machine."""
    config = json.loads(Path(kube.environment["KUBECONFIG"]).read_text())
    return str(urlsplit(config["clusters"][0]["cluster"]["server"]).hostname)


def _catalog_settings(folder: Path, endpoint: str) -> dict[str, str]:
    return {
        "CATALOG_URI": f"jdbc:sqlite:{folder}/rest.db",
        "CATALOG_CLIENTS": "1",
        "CATALOG_WAREHOUSE": "s3://lake/elsewhere",
        "CATALOG_IO__IMPL": "org.apache.iceberg.aws.s3.S3FileIO",
        "CATALOG_S3_ENDPOINT": endpoint,
        "CATALOG_S3_PATH__STYLE__ACCESS": "true",
        "CATALOG_HTTP__CLIENT_TYPE": "urlconnection",
        "CATALOG_CLIENT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": OWNER.access,
        "AWS_SECRET_ACCESS_KEY": OWNER.secret,
    }


def _catalog_jars() -> list[Path]:
    others = jar_paths("s3-catalog", FOR_S3_CATALOG)
    return [*others, *s3a_jars(), *jar_paths("s3-sessions", FOR_S3_SESSIONS)]


def _let_read(bucket: S3Client, reader: Keys) -> None:
    """No more than a source location needs."""
    statements = [
        {"Effect": "Allow", "Principal": {"AWS": [reader.access]}, "Action": [action], "Resource": [resource]}
        for action, resource in (
            ("s3:ListBucket", f"arn:aws:s3:::{bucket.bucket}"),
            ("s3:GetObject", f"arn:aws:s3:::{bucket.bucket}/*"),
        )
    ]
    rights = json.dumps({"Version": "2012-10-17", "Statement": statements})
    answer = bucket.send("PUT", "", rights.encode(), policy="")
    assert answer.ok, answer.text


def _secret(name: str, keys: Keys) -> JsonObject:
    data = {"AWS_ACCESS_KEY_ID": keys.access, "AWS_SECRET_ACCESS_KEY": keys.secret}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data}
