"""A server of `skipstone local` in a thread of the test's process, and requests to it over HTTP."""

from __future__ import annotations

import http.client
import json
import ssl
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from skipstone_local.places import RootFolder
from skipstone_local.server import serving
from skipstone_local.server.opening import read_address

Obj = dict[str, Any]
CORE = "/api/v1/namespaces/default"
OURS = "/apis/skipstone.dev/v1alpha1/namespaces/default"
JSON = "application/json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"


@dataclass
class LocalApi:
    """Requests in one namespace, whatever paths say: ``default`` in them stands for it.

    Each answers with the object; ``code``, ``headers`` and ``text`` are those of the last answer.
    """

    root: RootFolder
    namespace: str = field(default_factory=lambda: f"n-{uuid.uuid4().hex[:8]}")
    code: int = 0
    text: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Open the connection, and make the namespace."""
        address = read_address(self.root.kubeconfig)
        assert address is not None
        self.token = address.token
        context = ssl.create_default_context(cafile=str(self.root.authority))
        self.connection = http.client.HTTPSConnection("127.0.0.1", address.port, context=context, timeout=300)
        self.post("/api/v1/namespaces", {"metadata": {"name": self.namespace}})

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def send(self, method: str, path: str, content: bytes | None = None, **headers: str) -> str:
        """Send one request as it is; names of headers have _ for -."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        path = path.replace("/namespaces/default", f"/namespaces/{self.namespace}")
        self.connection.request(method, path, body=content, headers=named)
        answer = self.connection.getresponse()
        self.code, self.headers = answer.status, {name.lower(): value for name, value in answer.getheaders()}
        self.text = answer.read().decode()
        return self.text

    def ask(self, method: str, path: str, body: object = None, media: str = JSON, **query: str) -> Obj:
        """Send one request as the owner."""
        content = None if body is None else json.dumps(body).encode()
        url = f"{path}?{urlencode(query)}" if query else path
        self.send(method, url, content, Authorization=f"Bearer {self.token}", Content_Type=media)
        return read(self.text)

    def get(self, path: str, **query: str) -> Obj:
        return self.ask("GET", path, **query)

    def post(self, path: str, body: Obj, **query: str) -> Obj:
        return self.ask("POST", path, body, **query)

    def put(self, path: str, body: Obj, **query: str) -> Obj:
        return self.ask("PUT", path, body, **query)

    def patch(self, path: str, body: object, media: str = MERGE, **query: str) -> Obj:
        return self.ask("PATCH", path, body, media, **query)

    def delete(self, path: str, body: Obj | None = None, **query: str) -> Obj:
        return self.ask("DELETE", path, body, **query)

    def names(self, path: str, **query: str) -> list[str]:
        """The names of all objects of a collection."""
        return [item["metadata"]["name"] for item in self.get(path, **query)["items"]]

    def apply(self, path: str, body: Obj, manager: str = "me", **query: str) -> Obj:
        """Apply an object on the server's side."""
        return self.patch(path, body, APPLY, fieldManager=manager, **query)


def read(text: str) -> Obj:
    """The object in an answer; an empty one for text."""
    try:
        found: Obj = json.loads(text)
    except ValueError:
        return {}
    return found


@contextmanager
def served(folder: Path) -> Iterator[RootFolder]:
    """Serve the objects in a folder."""
    with serving(folder):
        yield RootFolder(folder)


def conf(name: str, data: Mapping[str, str] | None = None, **metadata: Any) -> Obj:
    """A ConfigMap."""
    return {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata},
        "data": dict({"a": "1"} if data is None else data),
    }  # fmt: skip


def owner_of(obj: Obj, **more: Any) -> Obj:
    """A reference to an owner."""
    named = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": obj["metadata"]["name"]}
    return {**named, "uid": obj["metadata"]["uid"], **more}
