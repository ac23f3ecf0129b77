"""The demonstration's Warehouse as its pods reach it: a folder of a volume, or a bucket with a REST catalog.

`open_lake` tells which one from the root that a program was given. Plain PyIceberg, Spark and obstore; knows nothing
of Skipstone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import obstore
from obstore.store import S3Store
from pyiceberg.catalog import Catalog, load_catalog

#: Rows of an Sql catalog are keyed by the catalog's name, so others must use the Warehouse's.
CATALOG = "skipstone"
#: First what names Spark's jars: the image's archive of classes is for class paths that begin with it. Then those that
#: the demonstration's image adds; only the JVM's own class path finds drivers of databases.
CLASS_PATH = "/opt/skipstone/classpath.jar:/opt/demo/jars/*"
#: On a machine without that image: where the jars are.
CLASS_PATH_VARIABLE = "DEMO_CLASS_PATH"
#: Variables of pods that reach a bucket, besides AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, which clients find.
ENDPOINT, REGION, CATALOG_URI = "AWS_ENDPOINT_URL", "AWS_REGION", "DEMO_CATALOG_URI"
SOURCES = ("landing", "feeds")


class Lake(Protocol):
    """What pods do with a Warehouse besides Skipstone."""

    def writing(self) -> AbstractContextManager[Path]:
        """A folder whose files are in the Warehouse when the block ends."""
        ...

    def reading(self) -> AbstractContextManager[Path]:
        """A folder with the source files of the Warehouse."""
        ...

    def catalog(self) -> Catalog:
        """The catalog, as any PyIceberg user opens it."""
        ...

    def spark_settings(self) -> dict[str, str]:
        """What a plain Spark session needs to read tables of the catalog."""
        ...

    def planned_settings(self, url: str, token: str) -> dict[str, str]:
        """What a plain Spark session needs to read them through the planning server at ``url``."""
        ...

    def reach(self) -> dict[str, str]:
        """What PyIceberg needs to reach the files."""
        ...


def open_lake(root: str, environment: Mapping[str, str] = os.environ) -> Lake:
    """The Warehouse at ``root``: a folder, or s3://bucket/prefix."""
    if not root.startswith("s3://"):
        return Volume(Path(root))
    place = urlsplit(root)
    return Bucket(
        name=place.netloc,
        prefix=place.path.strip("/"),
        endpoint=environment[ENDPOINT],
        region=environment[REGION],
        catalog_uri=environment[CATALOG_URI],
    )


def planned(url: str) -> dict[str, str]:
    """Spark's settings of a REST catalog that leaves the choice of files to its server."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    return {f"{prefix}.type": "rest", f"{prefix}.uri": url, f"{prefix}.scan-planning-mode": "server"}


@dataclass(frozen=True)
class Volume:
    """A Warehouse on a volume that is mounted at ``root``, with its catalog in an SQLite file."""

    root: Path

    def writing(self) -> AbstractContextManager[Path]:
        """The root itself."""
        return nullcontext(self.root)

    def reading(self) -> AbstractContextManager[Path]:
        """The root itself."""
        return nullcontext(self.root)

    def catalog(self) -> Catalog:
        """The SQLite file."""
        return load_catalog(CATALOG, type="sql", uri=f"sqlite:///{self.root}/catalog.db", warehouse=str(self.root))

    def spark_settings(self) -> dict[str, str]:
        """Iceberg's JDBC catalog on the SQLite file."""
        prefix = f"spark.sql.catalog.{CATALOG}"
        return {
            f"{prefix}.type": "jdbc",
            f"{prefix}.uri": f"jdbc:sqlite:{self.root}/catalog.db",
            f"{prefix}.jdbc.schema-version": "V1",
            f"{prefix}.warehouse": str(self.root),
            "spark.driver.extraClassPath": os.environ.get(CLASS_PATH_VARIABLE, CLASS_PATH),
        }

    def planned_settings(self, url: str, token: str) -> dict[str, str]:
        """Iceberg's REST catalog; the files are on the volume."""
        return {**planned(url), f"spark.sql.catalog.{CATALOG}.token": token}

    def reach(self) -> dict[str, str]:
        """Nothing: the volume is mounted."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A Warehouse below ``prefix`` of a bucket, with a REST catalog."""

    name: str
    prefix: str
    endpoint: str
    region: str
    catalog_uri: str

    @contextmanager
    def writing(self) -> Iterator[Path]:
        """An empty folder; its files are put into the bucket at the end."""
        with tempfile.TemporaryDirectory() as scratch:
            yield Path(scratch)
            for path in sorted(Path(scratch).rglob("*.csv")):
                obstore.put(self._store(), str(path.relative_to(scratch)), path)

    @contextmanager
    def reading(self) -> Iterator[Path]:
        """A copy of the source files."""
        store = self._store()
        with tempfile.TemporaryDirectory() as scratch:
            for folder in SOURCES:
                for entry in obstore.list(store, folder).collect():
                    target = Path(scratch) / entry["path"]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(bytes(obstore.get(store, entry["path"]).bytes()))
            yield Path(scratch)

    def catalog(self) -> Catalog:
        """The REST catalog; it gives no keys, so they are those of the environment."""
        return load_catalog(CATALOG, type="rest", uri=self.catalog_uri, **self.reach())

    def spark_settings(self) -> dict[str, str]:
        """Iceberg's REST catalog, with Iceberg's own reader of S3."""
        prefix = f"spark.sql.catalog.{CATALOG}"
        return {
            f"{prefix}.type": "rest",
            f"{prefix}.uri": self.catalog_uri,
            f"{prefix}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            f"{prefix}.client.region": self.region,
            f"{prefix}.s3.endpoint": self.endpoint,
            f"{prefix}.s3.path-style-access": "true",
            f"{prefix}.http-client.type": "urlconnection",
            "spark.driver.extraClassPath": os.environ.get(CLASS_PATH_VARIABLE, CLASS_PATH),
        }

    def planned_settings(self, url: str, token: str) -> dict[str, str]:
        """The same with the server before the catalog, which asks nobody for a token here."""
        return self.spark_settings() | planned(url)

    def reach(self) -> dict[str, str]:
        """Where the bucket is."""
        return {"s3.endpoint": self.endpoint, "s3.region": self.region, "s3.force-virtual-addressing": "false"}

    def _store(self) -> S3Store:
        plaintext = self.endpoint.startswith("http://")
        return S3Store(
            self.name,
            prefix=self.prefix or None,
            endpoint=self.endpoint,
            region=self.region,
            virtual_hosted_style_request=False,
            client_options={"allow_http": plaintext},
        )
