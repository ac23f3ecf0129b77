"""A real Iceberg REST catalog: the server of Iceberg's own tests, with an SQLite catalog behind it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.ports import answering_port
from tests.spark.jars import resolved_jars

ICEBERG = "1.11.0"
JETTY = "12.1.5"
SERVER_JARS = (
    f"org.apache.iceberg:iceberg-open-api:{ICEBERG}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}",
    f"org.apache.iceberg:iceberg-core:{ICEBERG}:tests",
    f"org.eclipse.jetty.ee10:jetty-ee10-servlet:{JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-server:{JETTY}",
    f"org.eclipse.jetty.compression:jetty-compression-gzip:{JETTY}",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
    "org.junit.jupiter:junit-jupiter-api:5.13.4",
    "org.slf4j:slf4j-simple:2.0.17",
)
START_SECONDS = 300


@contextmanager
def rest_catalog(
    root: Path, settings: Mapping[str, str] | None = None, jars: Sequence[Path] = (), *, host: str = "127.0.0.1"
) -> Iterator[str]:
    """The address of a server that keeps tables below ``root``, unless ``settings`` say otherwise; ends with the block.

    ``settings``: variables of the server. ``jars``: what it needs besides for them. ``host``: of the address.
    """
    environment = {
        **os.environ,
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{root}/rest.db",
        "CATALOG_WAREHOUSE": f"file://{root}",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_REST_PORT": "0",
        **(settings or {}),
    }
    classes = ":".join(str(path) for path in (*resolved_jars("rest-server", SERVER_JARS), *jars))
    log = (root / "rest-server.log").open("wb")
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-Djava.net.preferIPv4Stack=true"]
    command = ["java", *flags, "-cp", classes, "org.apache.iceberg.rest.RESTCatalogServer"]
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        port = answering_port(
            server, lambda port: _answers(f"http://{host}:{port}"), root / "rest-server.log", seconds=START_SECONDS
        )
        yield f"http://{host}:{port}"
    finally:
        server.terminate()
        server.wait(300)
        log.close()


def _answers(address: str) -> bool:
    try:
        return requests.get(f"{address}/v1/config", timeout=30).ok
    except requests.RequestException:
        return False
