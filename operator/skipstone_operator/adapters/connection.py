"""One connection to the API server: configuration, credentials, one request at a time.

Used by the other adapters. Sends each request once: whoever asked decides whether to ask again, because a lost answer
to a POST may have created something. The exception is a request that the server refused to begin with (429, as when the
storage of a new kind starts) and wants to see again after some seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.request import getproxies

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from skipstone_core.errors import SkipstoneError

from skipstone_operator.credentials import Credentials

REQUEST_SECONDS = 30.0
SHORTEST_WAIT = 0.1
CONNECTIONS = 32
USER_AGENT = "skipstone-operator"
SERVICE_ACCOUNT_TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"


class ApiFault(ConnectionError):
    """The API server did not answer as it should: network, timeout, 401, 429, 5xx. Trying again later may help."""


class NoCluster(SkipstoneError):
    """There is no configuration for an API server."""


@dataclass(frozen=True)
class Answer:
    """An answer of the API server: HTTP status and JSON body (an empty object when there was none).

    ``wait``: seconds after which a server that refused to begin wants to see the request again.
    """

    status: int
    body: dict[str, Any]
    wait: float | None = None

    @property
    def ok(self) -> bool:
        """Return whether the request was carried out."""
        return 200 <= self.status < 300


@dataclass
class Connection:
    """Requests to one API server. Made by ``connect``; ``close`` when done."""

    client: ApiClient

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request and read its answer. Raises ApiFault, after at most 30 seconds.

        ``headers`` replace those that say JSON of both.
        """
        until = asyncio.get_running_loop().time() + REQUEST_SECONDS
        try:
            async with asyncio.timeout_at(until):
                answer = await self._send(method, path, query=query, body=body, headers=headers or {})
                while answer.wait is not None and asyncio.get_running_loop().time() + answer.wait < until:
                    await asyncio.sleep(answer.wait)
                    answer = await self._send(method, path, query=query, body=body, headers=headers or {})
        except (aiohttp.ClientError, OSError) as error:
            raise ApiFault(f"{method} {path}: {str(error) or type(error).__name__}") from error
        if answer.status == 401:
            await _configure(self.client.configuration)
        if answer.status in (401, 429) or answer.status >= 500:
            raise ApiFault(f"{method} {path}: {answer.status} {answer.body.get('message', '')}".rstrip())
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
    ) -> Answer:
        url, prepared = await self._prepared(method, path, query, headers)
        response = await self.client.rest_client.request(  # type: ignore[no-untyped-call]
            method, url, headers=prepared, body=body, _request_timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        )
        answer = read_answer(response.status, await response.read())
        return replace(answer, wait=_asked_wait(response.status, response.headers))

    async def _prepared(
        self, method: str, path: str, query: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[str, dict[str, str]]:
        pairs: Sequence[tuple[str, str]] = list((query or {}).items())
        prepared = await self.client.param_serialize(
            method,
            path,
            query_params=pairs,
            header_params={"Accept": JSON, "Content-Type": JSON, **headers},
            auth_settings=["BearerToken"],
        )
        return prepared[1], prepared[2]

    async def credentials(self) -> Credentials:
        """The configuration as it is now; reads a rotated token again."""
        configuration = self.client.configuration
        key = await configuration.get_api_key_with_prefix("BearerToken")
        return Credentials(
            server=configuration.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            token=key.partition(" ")[2].strip() if key else None,
            certificate_path=configuration.cert_file,
            key_path=configuration.key_file,
        )

    async def close(self) -> None:
        """Close the sockets."""
        await self.client.close()  # type: ignore[no-untyped-call]


async def connect() -> Connection:
    """A connection by $KUBECONFIG, by the pod's service account, or by ~/.kube/config. Raises NoCluster."""
    configuration = Configuration()
    configuration.connection_pool_maxsize = CONNECTIONS
    # Looking for a proxy and a .netrc costs each request two hops to another thread: only where there is a proxy.
    configuration.client_session_kwargs = {"trust_env": bool(getproxies())}
    await _configure(configuration)
    client = ApiClient(configuration)
    client.user_agent = USER_AGENT
    return Connection(client)


async def _configure(configuration: Configuration) -> None:
    try:
        if SERVICE_ACCOUNT_TOKEN.is_file() and not os.environ.get("KUBECONFIG"):
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
        else:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=os.environ.get("KUBECONFIG"), client_configuration=configuration, persist_config=False
            )
    except (config.ConfigException, TypeError, OSError) as error:
        raise NoCluster(f"no API server is configured: set KUBECONFIG or run in a pod ({error})") from error


def _asked_wait(status: int, headers: Mapping[str, str]) -> float | None:
    """Seconds in the Retry-After of a 429, at least SHORTEST_WAIT; None if it has none, or a date."""
    asked = headers.get("Retry-After", "")
    return max(float(asked), SHORTEST_WAIT) if status == 429 and asked.isdecimal() else None


def read_answer(status: int, data: bytes) -> Answer:
    """The answer in ``data``. Raises ApiFault for a success that is not a JSON object.

    A body cut short or encoded by something in between must never pass for an empty list: what is live would be
    taken for absent.
    """
    try:
        body = json.loads(data or b"{}")
    except ValueError:
        body = data[:1024].decode(errors="replace")
    if isinstance(body, dict):
        return Answer(status, body)
    if 200 <= status < 300:
        raise ApiFault(f"{status} with a body that is not a JSON object: {str(body)[:64]!r}")
    return Answer(status, {"message": str(body)[:1024]})
