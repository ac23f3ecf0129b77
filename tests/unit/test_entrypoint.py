"""What the containers of runs make of their environment before they start Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
import requests

ENTRYPOINT = Path(__file__).parents[2] / "spark_apps" / "entrypoint.sh"
#: Arrow looks for credentials, and for a region, as soon as it opens a file system.
OPEN_BUCKET = "from pyarrow.fs import S3FileSystem; S3FileSystem(endpoint_override='http://127.0.0.1:1', region='r')"
LAST = "/last"
KEYS = {"AWS_ACCESS_KEY_ID": "access", "AWS_SECRET_ACCESS_KEY": "secret"}


class Metadata(HTTPServer):
    """A metadata service of a machine, which knows nothing, and what it was asked."""

    def __init__(self) -> None:
        """On a port of its own."""
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Refusing)


class Refusing(BaseHTTPRequestHandler):
    """Answers that there is nothing."""

    server: Metadata

    def refuse(self) -> None:
        """Note the request."""
        self.server.asked.append(self.path)
        self.send_error(404)

    do_GET = do_PUT = refuse

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    with Metadata() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def questions(metadata: Metadata, keys: dict[str, str]) -> list[str]:
    """What the service is asked while Arrow opens a bucket in a container with these keys."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    address = f"http://127.0.0.1:{metadata.server_port}"
    told = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": address, "HOME": "/nonexistent", **keys}
    command = ["bash", ENTRYPOINT, sys.executable, "-c", OPEN_BUCKET]
    subprocess.run(command, env=inherited | told, check=True, timeout=300)
    requests.get(f"{address}{LAST}", timeout=300)  # the service takes one after the other: it has seen all before
    return [path for path in metadata.asked if path != LAST]


def test_runs_with_keys_ask_no_metadata_service(metadata: Metadata) -> None:
    assert questions(metadata, KEYS) == []


def test_runs_without_keys_ask_the_metadata_service_of_their_machine(metadata: Metadata) -> None:
    assert questions(metadata, {}) != []
