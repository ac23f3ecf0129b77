"""A real Iceberg REST catalog: the server of Iceberg's own tests, with an SQLite catalog behind it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.ports import free_port
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
def rest_catalog(root: Path) -> Iterator[str]:
    """The address of a server that keeps tables below ``root``; it ends with the block."""
    port = free_port()
    environment = {
        **os.environ,
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{root}/rest.db",
        "CATALOG_WAREHOUSE": f"file://{root}",
        "CATALOG_JDBC_SCHEMA__VERSION": "V1",
        "CATALOG_REST_PORT": str(port),
    }
    jars = ":".join(str(path) for path in resolved_jars("rest-server", SERVER_JARS))
    log = (root / "rest-server.log").open("wb")
    command = ["java", "-Xmx512m", "-cp", jars, "org.apache.iceberg.rest.RESTCatalogServer"]
    server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        _wait_until_ready(f"http://127.0.0.1:{port}", server, root / "rest-server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(300)
        log.close()


def _wait_until_ready(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            break
        try:
            if requests.get(f"{address}/v1/config", timeout=30).ok:
                return
        except requests.RequestException:
            time.sleep(0.2)
    raise RuntimeError(f"the REST catalog did not start: {log.read_text()[-2000:]}")
