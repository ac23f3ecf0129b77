"""The API server as a kept driver needs it: the pods that are assigned to it, and their statuses.

No thread is started here: threads do not survive the fork of a run's process. Watching is a process of its own, which
writes what it hears into a pipe.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_SECONDS = 10.0
#: How long the API server lets a watch go on; the next one begins where it ended, without a LIST.
WATCH_SECONDS = 240
#: A watch that brings nothing for so long is given up: the API server sends a bookmark about once a minute.
SILENCE_SECONDS = 90
#: The kernel asks the other end of a silent connection after so many seconds, so often, and so many times: this finds
#: a connection that is half open and costs the API server no request.
KEEPALIVE = {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}
RETRY_SECONDS = 1.0
MERGE_PATCH = "application/merge-patch+json"
#: The change of the first line after each LIST, and of the line with the kept driver's own pod.
LISTED, OWN = "LISTED", "OWN"
_log = logging.getLogger(__name__)
JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What the API server answered; ``body`` is empty for what is not a JSON object."""

    status: int
    body: JsonObject

    @property
    def ok(self) -> bool:
        """Return whether it did what was asked."""
        return self.status < HTTPStatus.MULTIPLE_CHOICES


@dataclass(frozen=True, kw_only=True)
class ApiServer:
    """Where the API server is, and by which account it is asked."""

    host: str
    port: int
    namespace: str
    is_plain: bool = False
    account: Path = ACCOUNT

    @staticmethod
    def from_environment(environment: Mapping[str, str], account: Path = ACCOUNT) -> ApiServer:
        """As every pod is told it."""
        return ApiServer(
            host=environment.get("KUBERNETES_SERVICE_HOST", ""),
            port=int(environment.get("KUBERNETES_SERVICE_PORT", "443")),
            namespace=environment["POD_NAMESPACE"],
            is_plain=environment.get("SKIPSTONE_API_SCHEME", "https") == "http",
            account=account,
        )

    def connect(self, timeout: float = TIMEOUT_SECONDS) -> http.client.HTTPConnection:
        """A new connection, on which an answer may keep silent for ``timeout`` seconds. Raises OSError."""
        connection = self._prepare(timeout)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in KEEPALIVE.items():
            connection.sock.setsockopt(socket.IPPROTO_TCP, option, value)
        return connection

    def _prepare(self, timeout: float) -> http.client.HTTPConnection:
        if self.is_plain:
            return http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        authority = self.account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)

    def headers(self) -> dict[str, str]:
        """Kubernetes renews the token while the pod runs."""
        token = self.account / "token"
        known = {"Accept": "application/json"}
        return {**known, "Authorization": f"Bearer {token.read_text().strip()}"} if token.exists() else known

    def pods(self, name: str = "", subresource: str = "") -> str:
        """The path of the pods here, of one, or of a subresource of it."""
        return "/".join(filter(None, (f"/api/v1/namespaces/{self.namespace}/pods", name, subresource)))


@dataclass
class PodClient:
    """Requests one after the other over one connection. Raises OSError when the API server does not answer."""

    server: ApiServer
    _connection: http.client.HTTPConnection | None = field(default=None, init=False)

    def patch(self, path: str, change: JsonObject) -> Answer:
        """Lay ``change`` over the object at ``path``. It may be sent twice, if an answer is lost."""
        return self.request("PATCH", path, change)

    def request(self, method: str, path: str, body: JsonObject | None = None) -> Answer:
        """Ask once more on a new connection if the API server closed the old one."""
        if self._connection is not None:
            try:
                return self._ask(self._connection, method, path, body)
            except (OSError, http.client.HTTPException):
                self.close()
        self._connection = self.server.connect()
        try:
            return self._ask(self._connection, method, path, body)
        except http.client.HTTPException as error:
            self.close()
            raise OSError(f"the API server's answer cannot be read: {error}") from error
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, if there is one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: JsonObject | None) -> Answer:
        headers = self.server.headers() | ({"Content-Type": MERGE_PATCH} if body is not None else {})
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return Answer(response.status, _read_object(response.read()))


def _read_object(content: bytes) -> JsonObject:
    try:
        read = json.loads(content)
    except ValueError:
        return {}
    return read if isinstance(read, dict) else {}


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Watches the pods of a kept driver: those that ``scheduler`` is to run. ``own``: the name of the driver's pod.

    ``pipe``: gets a line of JSON for each LIST, for each event, and for the driver's own pod at each LIST and watch.
    """

    server: ApiServer
    scheduler: str
    own: str
    pipe: int

    def watch_for_ever(self) -> NoReturn:
        """Watch until nobody reads the pipe any more."""
        while True:
            try:
                version = self._list()
                while version:
                    self._read_own()
                    begun = time.monotonic()
                    version = self._watch(version)
                    if time.monotonic() < begun + RETRY_SECONDS:
                        time.sleep(RETRY_SECONDS)  # a server that ends each watch at once is not asked all the time
            except BrokenPipeError:
                os._exit(0)  # nobody listens any more
            except (OSError, http.client.HTTPException, ValueError) as error:
                _log.warning("the watch begins again: %s", error)
                time.sleep(RETRY_SECONDS)

    def _list(self) -> str:
        """Write a LIST; the resourceVersion of it."""
        listed = self._get(f"{self.server.pods()}?{urlencode(self._selection)}")
        if not listed.ok:
            raise OSError(f"LIST of pods: {listed.status} {listed.body.get('message', '')}")
        self._write({"type": LISTED, "items": listed.body.get("items") or []})
        return str((listed.body.get("metadata") or {}).get("resourceVersion", ""))

    def _read_own(self) -> None:
        """Write the driver's own pod: it ends without an owner, which no pod of the selection shows."""
        answer = self._get(self.server.pods(self.own))
        if answer.ok or answer.status == HTTPStatus.NOT_FOUND:
            self._write({"type": OWN, "object": answer.body if answer.ok else {}})

    def _watch(self, version: str) -> str:
        """Write all events from ``version`` on; the version to go on from, empty if it takes a LIST."""
        asked = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
        query = urlencode({**self._selection, **asked, "allowWatchBookmarks": "true"})
        connection = self.server.connect(SILENCE_SECONDS)
        try:
            connection.request("GET", f"{self.server.pods()}?{query}", headers=self.server.headers())
            response = connection.getresponse()
            if response.status != HTTPStatus.OK:
                raise OSError(f"WATCH of pods: {response.status}")
            while line := response.readline():
                event = json.loads(line)
                if event.get("type") == "ERROR":
                    return ""
                version = str(event["object"]["metadata"]["resourceVersion"])
                if event["type"] != "BOOKMARK":
                    self._write(event)
        finally:
            connection.close()
        return version

    def _get(self, path: str) -> Answer:
        client = PodClient(self.server)
        try:
            return client.request("GET", path)
        finally:
            client.close()

    @property
    def _selection(self) -> dict[str, str]:
        return {"fieldSelector": f"spec.schedulerName={self.scheduler}"}

    def _write(self, event: JsonObject) -> None:
        content = json.dumps(event).encode() + b"\n"
        while content:
            content = content[os.write(self.pipe, content) :]
