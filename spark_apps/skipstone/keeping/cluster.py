"""The API server as a kept driver needs it: the pods that are assigned to it, and their statuses.

No thread is started here: threads do not survive the fork of a run's process. Watching is a process of its own, which
writes what it hears into a pipe.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
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
#: How long the API server lets a watch go on before it is begun again with a LIST.
WATCH_SECONDS = 240
RETRY_SECONDS = 1.0
MERGE_PATCH = "application/merge-patch+json"
#: The change of the first line after each LIST.
LISTED = "LISTED"
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

    def connect(self) -> http.client.HTTPConnection:
        """A new connection, which opens when it is used."""
        if self.is_plain:
            return http.client.HTTPConnection(self.host, self.port, timeout=TIMEOUT_SECONDS)
        authority = self.account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        return http.client.HTTPSConnection(self.host, self.port, timeout=TIMEOUT_SECONDS, context=context)

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
        """Lay ``change`` over the object at ``path``; repeating it does no harm."""
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


def watch_for_ever(server: ApiServer, scheduler: str, pipe: int) -> NoReturn:
    """Write a line of JSON into ``pipe`` for each LIST and each event of pods that ``scheduler`` is to run."""
    while True:
        try:
            _watch_once(server, scheduler, pipe)
        except BrokenPipeError:
            os._exit(0)  # nobody listens any more
        except (OSError, http.client.HTTPException, ValueError) as error:
            _log.warning("the watch begins again: %s", error)
            time.sleep(RETRY_SECONDS)


def _watch_once(server: ApiServer, scheduler: str, pipe: int) -> None:
    selection = {"fieldSelector": f"spec.schedulerName={scheduler}"}
    client = PodClient(server)
    listed = client.request("GET", f"{server.pods()}?{urlencode(selection)}")
    client.close()
    if not listed.ok:
        raise OSError(f"LIST of pods: {listed.status} {listed.body.get('message', '')}")
    _write(pipe, {"type": LISTED, "items": listed.body.get("items") or []})
    version = str((listed.body.get("metadata") or {}).get("resourceVersion", ""))
    asked = {"watch": "1", "resourceVersion": version, "timeoutSeconds": str(WATCH_SECONDS)}
    connection = server.connect()
    try:
        connection.timeout = WATCH_SECONDS + TIMEOUT_SECONDS
        connection.request("GET", f"{server.pods()}?{urlencode({**selection, **asked})}", headers=server.headers())
        response = connection.getresponse()
        if response.status != HTTPStatus.OK:
            raise OSError(f"WATCH of pods: {response.status}")
        while line := response.readline():
            event = json.loads(line)
            if event.get("type") == "ERROR":
                return
            _write(pipe, event)
    finally:
        connection.close()


def _write(pipe: int, event: JsonObject) -> None:
    content = json.dumps(event).encode() + b"\n"
    while content:
        content = content[os.write(pipe, content) :]
