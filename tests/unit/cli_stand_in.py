"""A stand-in for an API server, which answers as each test says, and objects as an API server stores them.

Used by the tests of the command line, for what no real API server does: hostile, cut and strange answers, logs without
a kubelet, thousands of objects.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml
from skipstone_cli.app import app
from skipstone_cli.kinds import API_VERSION, GROUP, KINDS, VERSION
from typer.testing import CliRunner, Result

TIME = "2026-01-02T03:04:05Z"
PLURALS = {kind.name: kind.plural for kind in KINDS}


@dataclass(frozen=True)
class Reply:
    """One answer: a body that is no text is sent as JSON. ``length``: what Content-Length claims."""

    body: Any
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None

    @property
    def data(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


@dataclass(frozen=True)
class Request:
    """What was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: list[tuple[str, str]]
    body: Any = None


@dataclass
class StandIn:
    """Answers by path. Paths without an answer give an empty list of the kind that they ask for."""

    answers: dict[str, Callable[[Request], Reply]] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    url: str = ""
    kubeconfig: Path = Path()

    def answer(self, path: str, body: Any, status: int = 200, **more: Any) -> None:
        """Always answer the same."""
        self.answers[path] = lambda _request: Reply(body, status, **more)

    def store(self, *objects: dict[str, Any], namespace: str = "lake") -> None:
        """Answer lists and GETs with these objects."""
        for kind in KINDS:
            mine = [one for one in objects if one["kind"] == kind.name]
            self.answer(collection(kind.name, namespace), listing(kind.name, mine))
            for one in mine:
                self.answer(f"{collection(kind.name, namespace)}/{one['metadata']['name']}", one)

    def reply(self, request: Request) -> Reply:
        self.requests.append(request)
        if request.path in self.answers:
            return self.answers[request.path](request)
        plural = request.path.rpartition("/")[2]
        names = {**{value: name for name, value in PLURALS.items()}, "events": "Event", "pods": "Pod"}
        return Reply(listing(names[plural], [])) if plural in names else Reply(refusal(404, "not found"), 404)

    def run(self, *arguments: str, **environment: str) -> Result:
        """The command line with this server, in namespace ``lake``."""
        given = {"KUBECONFIG": str(self.kubeconfig), "NO_COLOR": "1", "COLUMNS": "80", "TERM": "dumb", **environment}
        return CliRunner().invoke(app, list(arguments), env=given)


@contextmanager
def stand_in(folder: Path) -> Iterator[StandIn]:
    """A running server and a kubeconfig for it."""
    found = StandIn()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            split = urlsplit(self.path)
            size = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(size)) if size else None
            asked = Request(self.command, split.path, dict(parse_qsl(split.query)), self.headers.items(), body)
            reply = found.reply(asked)
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.data) if reply.length is None else reply.length))
            self.end_headers()
            self.wfile.write(reply.data)
            self.close_connection = reply.length is not None

        do_PATCH = do_POST = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_address[1]}"
    found.kubeconfig = write_kubeconfig(folder / "config", found.url)
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def write_kubeconfig(path: Path, server: str, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    """A kubeconfig with one context, named after the file."""
    name = path.name
    document = {
        "clusters": [{"name": name, "cluster": {"server": server, **cluster}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "lake"}}],
        "current-context": name,
    }
    path.write_text(yaml.safe_dump(document))
    return path


def collection(kind: str, namespace: str = "lake") -> str:
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/{PLURALS[kind]}"


def core(*rest: str) -> str:
    return "/".join(("/api/v1/namespaces/lake", *rest))


def listing(kind: str, items: list[dict[str, Any]], more: str = "") -> dict[str, Any]:
    version = API_VERSION if kind in PLURALS else "v1"
    metadata = {"resourceVersion": "7", **({"continue": more} if more else {})}
    return {"apiVersion": version, "kind": f"{kind}List", "metadata": metadata, "items": items}


def refusal(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "code": code}


def stored(
    kind: str, name: str, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **metadata: Any
) -> dict[str, Any]:
    """An object as the API server stores it."""
    meta = {"name": name, "namespace": "lake", "uid": f"uid-{name}", "generation": 1, "creationTimestamp": TIME}
    told = {"observedGeneration": 1, **status} if status is not None else {}
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {**meta, **metadata},
        "spec": spec or {},
        "status": told,
    }


def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": TIME}


READY = condition("Ready", "True", "Checked", "fine")


def warehouse(name: str = "lake", *conditions: dict[str, str], **spec: Any) -> dict[str, Any]:
    return stored("Warehouse", name, spec, {"conditions": list(conditions or (READY,)), "storage": "pvc/lake"})


def table(name: str = "orders", *conditions: dict[str, str], maintenance: Any = None, **status: Any) -> dict[str, Any]:
    spec = {"warehouseRef": {"name": "lake"}, **({"maintenance": maintenance} if maintenance is not None else {})}
    return stored("Table", name, spec, {"conditions": list(conditions or (READY,)), **status})


def index(name: str = "by-day", *conditions: dict[str, str], **status: Any) -> dict[str, Any]:
    spec = {"tableRef": {"name": "orders"}}
    return stored("SecondaryIndex", name, spec, {"conditions": list(conditions or (READY,)), **status})


def job(kind: str, name: str, *conditions: dict[str, str], created: str = TIME, **status: Any) -> dict[str, Any]:
    told = {"conditions": list(conditions), **status}
    return stored(kind, name, {"tableRef": {"name": "orders"}}, told, creationTimestamp=created)


def driver(name: str, owner: str, *, attempt: int = 1, operation: str = "Merge", state: str = "running",
           created: str = TIME, **status: Any) -> dict[str, Any]:  # fmt: skip
    """A driver pod whose container is in ``state``."""
    labels = {
        "skipstone.dev/owner-uid": owner, "skipstone.dev/run-id": f"abc-def-{attempt}",
        "skipstone.dev/operation": operation, "spark-role": "driver",
    }  # fmt: skip
    container = {"name": "spark-kubernetes-driver", "state": {state: {}}}
    told = {"phase": "Running", "containerStatuses": [container], **status}
    return {"metadata": {"name": name, "labels": labels, "creationTimestamp": created}, "status": told}
