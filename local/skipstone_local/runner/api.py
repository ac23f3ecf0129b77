"""Requests of the runner to an API server: what a kubelet asks, over HTTP, one at a time."""

from __future__ import annotations

import base64
import http.client
import json
import logging
import queue
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml

MERGE_PATCH = "application/merge-patch+json"
REQUEST_SECONDS = 30.0
#: How long a watch is kept; the server is asked to end it a little earlier.
WATCH_SECONDS = 240
PAGE = 500
#: Seconds between two attempts to watch, and how long the end of one is waited for.
RETRY_SECONDS, STOP_SECONDS = 0.5, 5.0
#: What follows the last object of a list.
LISTED_ALL = "LISTED_ALL"
_log = logging.getLogger(__name__)


class ApiError(OSError):
    """The API server is away, or answered what cannot be worked with; trying again later may help."""


class VersionGone(Exception):
    """The changes since a version are not known any more: list again."""


@dataclass(frozen=True)
class Answer:
    """Status and JSON body of an answer."""

    status: int
    body: dict[str, Any]

    @property
    def ok(self) -> bool:
        """Return whether the request was carried out."""
        return 200 <= self.status < 300


@dataclass(frozen=True, kw_only=True)
class ServerAccess:
    """Where the API server is, and what proves who asks."""

    server: str
    token: str = ""
    context: ssl.SSLContext | None = None

    @staticmethod
    def load(kubeconfig: Path) -> ServerAccess:
        """Read a kubeconfig with one cluster and one user who has a token. Raises ApiError."""
        try:
            document = yaml.safe_load(kubeconfig.read_text())
            cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
            return ServerAccess(server=cluster["server"], token=user.get("token", ""), context=_trust(cluster))
        except (OSError, ValueError, LookupError, TypeError, yaml.YAMLError) as error:
            raise ApiError(f"{kubeconfig} is not a kubeconfig that can be used: {error}") from error


def _trust(cluster: Mapping[str, Any]) -> ssl.SSLContext | None:
    if not str(cluster["server"]).startswith("https:"):
        return None
    if data := cluster.get("certificate-authority-data"):
        return ssl.create_default_context(cadata=base64.b64decode(data).decode())
    return ssl.create_default_context(cafile=cluster.get("certificate-authority"))


@dataclass
class Client:
    """Requests over one connection; for one thread."""

    login: ServerAccess
    _connection: http.client.HTTPConnection | None = field(default=None, repr=False)

    def get(self, path: str) -> dict[str, Any] | None:
        """The object at ``path``, None if there is none. Raises ApiError."""
        answer = self.request("GET", path)
        return None if answer.status == 404 else _body(answer, path)

    def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, kind: str = "application/json"
    ) -> Answer:
        """Send one request; an answer of any status but 401, 429 and 5xx. Raises ApiError."""
        try:
            answer = self._send(method, path, body, kind)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ApiError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if answer.status in (401, 429) or answer.status >= 500:
            raise ApiError(f"{method} {path}: {answer.status} {answer.body.get('message', '')}".rstrip())
        return answer

    def list(self, path: str) -> tuple[list[dict[str, Any]], str]:
        """All objects of a collection, and the version at which they are so. Raises ApiError."""
        items: list[dict[str, Any]] = []
        query = {"limit": str(PAGE)}
        while True:
            answer = self.request("GET", f"{path}?{urlencode(query)}")
            if answer.status == 410 and "continue" in query:
                items, query = [], {}
                continue
            page = _body(answer, path)
            items += page.get("items") or ()
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return items, metadata.get("resourceVersion", "")
            query["continue"] = metadata["continue"]

    def watch(self, path: str, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Changes of a collection after ``version``, until the server ends it. Raises ApiError and VersionGone."""
        query = urlencode(
            {
                "watch": "1",
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": str(WATCH_SECONDS),
            }
        )
        try:
            asked = self._ask("GET", f"{path}?{query}", None, "application/json", WATCH_SECONDS + REQUEST_SECONDS)
            with closing(asked) as response:
                yield from _read_events(response, path)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ApiError(f"watch {path}: {str(error) or type(error).__name__}") from error
        finally:
            self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError):
                connection.close()

    def abort(self) -> None:
        """End what another thread waits for."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, kind: str) -> Answer:
        kept = self._connection is not None
        try:
            return self._exchange(method, path, body, kind)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError):
            self.close()
            if not kept:
                raise
            # The server had closed a connection that was idle: all that is asked here may be asked twice.
            return self._exchange(method, path, body, kind)

    def _exchange(self, method: str, path: str, body: Mapping[str, Any] | None, kind: str) -> Answer:
        with closing(self._ask(method, path, body, kind, REQUEST_SECONDS)) as response:
            return Answer(response.status, _parse(response.read()))

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, kind: str, seconds: float
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._connect(seconds)
        headers = {"Accept": "application/json", "User-Agent": "skipstone-local-runner"}
        if self.login.token:
            headers["Authorization"] = f"Bearer {self.login.token}"
        data = None
        if body is not None:
            data, headers["Content-Type"] = json.dumps(body).encode(), kind
        self._connection.request(method, path, body=data, headers=headers)
        return self._connection.getresponse()

    def _connect(self, seconds: float) -> http.client.HTTPConnection:
        address = urlsplit(self.login.server)
        host = address.netloc
        if self.login.context is not None:
            return http.client.HTTPSConnection(host, timeout=seconds, context=self.login.context)
        return http.client.HTTPConnection(host, timeout=seconds)


@dataclass(frozen=True)
class News:
    """A change of ``object`` in the collection ``path``; the object is empty for LISTED_ALL."""

    change: str
    path: str
    object: dict[str, Any] = field(default_factory=dict)


class Watcher(threading.Thread):
    """Puts every change of a collection into ``news``.

    Objects are LISTED first, then comes LISTED_ALL without an object, then ADDED, MODIFIED and DELETED as they happen.
    """

    def __init__(self, login: ServerAccess, path: str, news: queue.SimpleQueue[News]) -> None:
        """Nothing is asked yet."""
        super().__init__(name=f"watch {path}", daemon=True)
        self._client, self._path, self._news = Client(login), path, news
        self._end = threading.Event()
        self._known: dict[str, dict[str, Any]] = {}

    def stop(self) -> None:
        """Watch no more; returns when the connection is closed."""
        self._end.set()
        self._client.abort()
        if self.is_alive():
            self.join(STOP_SECONDS)

    def run(self) -> None:
        """List and watch until told to end; what fails is tried again."""
        while not self._end.is_set():
            try:
                self._follow()
            except (ApiError, VersionGone) as error:
                _log.info("watched again: %s", error)
            except Exception:  # noqa: BLE001 - whoever waits for news must not wait for ever
                if not self._end.is_set():
                    _log.exception("watched again after a fault: %s", self._path)
            self._end.wait(RETRY_SECONDS)

    def _follow(self) -> None:
        items, version = self._client.list(self._path)
        present = {item["metadata"]["uid"]: item for item in items}
        for uid, gone in list(self._known.items()):
            if uid not in present:
                self._tell("DELETED", gone)
        for item in items:
            self._tell("LISTED", item)
        self._news.put(News(LISTED_ALL, self._path))
        while not self._end.is_set():
            for change, obj in self._client.watch(self._path, version):
                version = obj["metadata"]["resourceVersion"]
                if change != "BOOKMARK":
                    self._tell(change, obj)

    def _tell(self, change: str, obj: dict[str, Any]) -> None:
        uid = obj["metadata"]["uid"]
        if change == "DELETED":
            self._known.pop(uid, None)
        else:
            self._known[uid] = obj
        self._news.put(News(change, self._path, obj))


def _read_events(response: http.client.HTTPResponse, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if response.status != 200:
        _refuse(response.status, path)
    while line := response.readline():
        event = json.loads(line)
        if event["type"] == "ERROR":
            _refuse(event["object"].get("code"), path)
        yield event["type"], event["object"]


def _refuse(status: object, path: str) -> None:
    if status == 410:
        raise VersionGone(path)
    raise ApiError(f"watch {path}: {status}")


def _body(answer: Answer, path: str) -> dict[str, Any]:
    if not answer.ok:
        raise ApiError(f"GET {path}: {answer.status} {answer.body.get('message', '')}".rstrip())
    return answer.body


def _parse(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data or b"{}")
    except ValueError:
        return {"message": data[:1024].decode(errors="replace")}
    return body if isinstance(body, dict) else {"message": str(body)[:1024]}
