"""A real Iceberg REST catalog: the server of Iceberg's own tests, with an SQLite catalog behind it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

from tests.ports import listening_ports
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
        yield _wait_until_ready(host, server, root / "rest-server.log")
    finally:
        server.terminate()
        server.wait(300)
        log.close()


def _wait_until_ready(host: str, server: subprocess.Popen[bytes], log: Path) -> str:
    """The address of the server, at the port that the kernel gave it, as soon as it answers."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        for port in listening_ports(server.pid):
            if _answers(f"http://{host}:{port}"):
                return f"http://{host}:{port}"
        time.sleep(0.2)
    raise RuntimeError(f"the REST catalog did not start: {log.read_text()[-2000:]}")


def _answers(address: str) -> bool:
    try:
        return requests.get(f"{address}/v1/config", timeout=30).ok
    except requests.RequestException:
        return False
