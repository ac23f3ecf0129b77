"""A REST catalog of the tests' own that vends credentials for each table that it tells of, as Polaris and others do.

Behind it is PyIceberg's SQL catalog, which alone has the keys of the bucket. Each answer holds other keys; who
refuses those that have ended is the proxy before the S3 server.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock, Thread
from typing import Any

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest, Table

from tests.s3client import Keys, S3Client
from tests.s3server import OWNER, VENDED

#: Begins every key, and every secret.
CANARY = "canary-vended"
NAMESPACE, TABLE = 3, 5


@dataclass
class Vendor:
    """The catalog behind ``address``. ``given``: the keys that it gave; ``seconds``: how long it says they are good.

    ``is_away``: it answers nothing else than 503, ``refused`` times so far.
    """

    inner: SqlCatalog
    address: str = ""
    seconds: float | None = 3600.0
    in_list: bool = False
    is_away: bool = False
    refused: int = 0
    given: list[str] = field(default_factory=list)
    delegations: set[str | None] = field(default_factory=set)
    lock: Lock = field(default_factory=Lock)
    keys: Iterator[Keys] = field(default_factory=lambda: itertools.cycle(VENDED))

    def told(self, table: Table) -> dict[str, Any]:
        """A table with credentials, in the configuration or in the list of credentials that came later."""
        with self.lock:
            keys = next(self.keys)
            self.given.append(keys.access)
        vended = {"s3.access-key-id": keys.access, "s3.secret-access-key": keys.secret}
        if self.seconds is not None:
            vended["s3.session-token-expires-at-ms"] = str(int((time.time() + self.seconds) * 1000))
        listed = [{"prefix": table.location(), "config": vended}] if self.in_list else []
        return {
            "metadata-location": table.metadata_location,
            "metadata": json.loads(table.metadata.model_dump_json()),
            "config": {} if self.in_list else vended,
            "storage-credentials": listed,
        }


@contextmanager
def vending_catalog(bucket: S3Client) -> Iterator[Vendor]:
    """A server on loopback whose tables are in ``bucket``; it ends with the block."""
    with TemporaryDirectory() as folder, _serving(Path(folder), bucket) as vendor:
        yield vendor


@contextmanager
def _serving(root: Path, bucket: S3Client) -> Iterator[Vendor]:
    keys = {"s3.access-key-id": OWNER.access, "s3.secret-access-key": OWNER.secret}
    place = {"s3.endpoint": bucket.endpoint, "s3.region": bucket.region}
    inner = SqlCatalog(
        "inner", uri=f"sqlite:///{root}/inner.db", warehouse=f"s3://{bucket.bucket}/tables", **keys, **place
    )
    vendor = Vendor(inner)
    handler = type("Vending", (_Handler,), {"vendor": vendor})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        vendor.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield vendor
        finally:
            server.shutdown()
            thread.join()
            inner.close()


class _Handler(BaseHTTPRequestHandler):
    vendor: Vendor
    protocol_version = "HTTP/1.1"

    def handle_request(self) -> None:
        """Answer one request; one at a time, as SQLite wants it."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.vendor.is_away:
            self.vendor.refused += 1
            self._answer(503, {})
            return
        parts = self.path.partition("?")[0].strip("/").split("/")
        self.vendor.delegations.add(self.headers.get("x-iceberg-access-delegation"))
        try:
            with self.vendor.lock:
                found = self._found(parts, body)
            self._answer(200, found() if callable(found) else found)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            self._fail(404, error)
        except (CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError) as error:
            self._fail(409, error)

    do_GET = do_POST = do_HEAD = do_DELETE = handle_request

    def _found(self, parts: list[str], body: bytes) -> dict[str, Any] | Callable[[], dict[str, Any]]:
        if parts[1:] == ["config"]:
            return {"defaults": {}, "overrides": {}}
        if len(parts) < NAMESPACE:
            return self._namespaces(body)
        namespace = parts[2]
        if len(parts) == NAMESPACE or parts[3] == "properties":
            return self._properties(namespace, body)
        if len(parts) < TABLE:
            return self._tables(namespace, body)
        table = self.vendor.inner.load_table((namespace, parts[4]))
        if self.command == "POST":
            asked = CommitTableRequest.model_validate_json(body)
            done = self.vendor.inner.commit_table(table, asked.requirements, asked.updates)
            return {
                "metadata-location": done.metadata_location,
                "metadata": json.loads(done.metadata.model_dump_json()),
            }
        return lambda: self.vendor.told(table)

    def _namespaces(self, body: bytes) -> dict[str, Any]:
        inner = self.vendor.inner
        if self.command == "POST":
            asked = json.loads(body)
            inner.create_namespace(tuple(asked["namespace"]), asked.get("properties", {}))
            return asked  # type: ignore[no-any-return]
        return {"namespaces": [list(name) for name in inner.list_namespaces()]}

    def _properties(self, namespace: str, body: bytes) -> dict[str, Any]:
        inner = self.vendor.inner
        if self.command == "POST":
            asked = json.loads(body)
            inner.update_namespace_properties(namespace, set(asked.get("removals", [])), asked.get("updates", {}))
            return {"removed": [], "updated": list(asked.get("updates", {})), "missing": []}
        return {"namespace": [namespace], "properties": inner.load_namespace_properties(namespace)}

    def _tables(self, namespace: str, body: bytes) -> dict[str, Any] | Callable[[], dict[str, Any]]:
        inner = self.vendor.inner
        if self.command == "POST":
            asked = json.loads(body)
            schema, spec = Schema.model_validate(asked["schema"]), PartitionSpec.model_validate(asked["partition-spec"])
            properties = asked.get("properties", {})
            made = inner.create_table((namespace, asked["name"]), schema, partition_spec=spec, properties=properties)
            return lambda: self.vendor.told(made)
        found = [{"namespace": [namespace], "name": name[-1]} for name in inner.list_tables(namespace)]
        return {"identifiers": found}

    def _fail(self, status: int, error: Exception) -> None:
        told = {"message": str(error), "type": type(error).__name__, "code": status}
        self._answer(status, {"error": told})

    def _answer(self, status: int, found: dict[str, Any]) -> None:
        body = b"" if self.command == "HEAD" else json.dumps(found).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""
