"""One request to the API server, and what its answer means.

What does not look like an answer of Kubernetes is never taken for one: a login page with status 200, a body that is cut
or empty, an object of another kind. Used by ``api`` only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException
from urllib3 import HTTPHeaderDict, Retry

from skipstone_cli import __version__
from skipstone_cli.cluster.kubeconfig import Login
from skipstone_cli.errors import CliError, Expired, Forbidden, NotFound, Refused, Unreachable
from skipstone_cli.reading import JsonObject, text_of

CONNECT_SECONDS = 10.0
READ_SECONDS = 60.0
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
#: What kind of body each method has.
BODIES = {"PATCH": MERGE_PATCH, "POST": JSON, "DELETE": JSON}
CHUNK = 64 * 1024
MAX_SAID = 300
#: What is wrong with an object may be much, and is said to be corrected.
WRONG, MAX_REASONS = (400, 422), 4000
#: Whoever is told to come back later than in so many seconds is told so, and does not wait.
LONGEST_WAIT = 10.0


class PatientRetry(Retry):
    """Tries again when the server says, unless that is long from now."""

    def get_retry_after(self, response: urllib3.BaseHTTPResponse) -> float | None:
        """The seconds that the server asks for. Raises InvalidHeader for more than LONGEST_WAIT."""
        seconds = super().get_retry_after(response)
        if seconds is not None and seconds > LONGEST_WAIT:
            raise urllib3.exceptions.InvalidHeader(f"it says to try again in {seconds:g} seconds")
        return seconds


#: Reads are tried again after a lost connection. A redirect is an answer: API servers send none.
RETRIES = PatientRetry(
    total=3,
    connect=2,
    read=2,
    status=3,
    redirect=False,
    raise_on_redirect=False,
    raise_on_status=False,
    backoff_factor=0.2,
    status_forcelist=(429, 503),
    respect_retry_after_header=True,
)
NO_RETRIES = Retry(total=0, redirect=False, raise_on_redirect=False, raise_on_status=False)
#: What an API server says of a path below a group that it does not serve.
NO_SUCH_PATH = b"404 page not found"


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. ``right``: what a user must be allowed to do for it, in words.

    ``body``: of a PATCH a merge patch, of a POST the object, of a DELETE its options.
    ``accept``: the form of the answer.
    """

    path: tuple[str, ...]
    right: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: JsonObject | None = None
    method: str = "GET"
    accept: str = f"{JSON}, */*"


class Transport:
    """Requests to the API server of one login."""

    def __init__(
        self, login: Login, *, patient: bool = True, on_warning: Callable[[str], None] = lambda warning: None
    ) -> None:
        """Open no connection yet. Raises CliError for certificates that cannot be used.

        ``on_warning``: called with each warning of the API server.
        """
        self._on_warning = on_warning
        login.configuration.retries = RETRIES if patient else NO_RETRIES
        self._login = login
        self.server = str(login.configuration.host)
        if not login.configuration.verify_ssl:
            # Whoever says so in the kubeconfig knows.
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        try:
            self._client: Any = ApiClient(login.configuration)
        except (OSError, ValueError, ImportError) as error:
            raise CliError(f"the kubeconfig's settings for {self.server} cannot be used: {error}") from error

    def close(self) -> None:
        """Close idle connections: a server that ends waits for them.

        A pool that an error still refers to, by its traceback, is not closed by being dropped.
        """
        manager = self._client.rest_client.pool_manager
        for key in list(manager.pools.keys()):  # it cannot be iterated itself
            manager.pools[key].close()
        manager.clear()

    def read(self, ask: Ask, *, kind: str) -> JsonObject:
        """The object of ``kind`` that the API server answers. Raises CliError of the sort that fits."""
        return self._object(self._answer(ask), kind)

    def read_plain(self, ask: Ask, *, kind: str) -> JsonObject:
        """As ``read``, for kinds that have no metadata: lists of kinds."""
        return self._object(self._answer(ask), kind, has_metadata=False)

    def delete(self, ask: Ask) -> None:
        """Ask for a deletion, which may answer with the object or with a Status. Raises as ``read``."""
        self._answer(ask)

    def _answer(self, ask: Ask) -> bytes:
        response = self._send(ask)
        try:
            data = response.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        if response.status >= 300 or response.status < 200:
            raise self._refusal(ask, response.status, data)
        return bytes(data)

    def stream(self, ask: Ask) -> Iterator[bytes]:
        """The body of the answer piece by piece. Raises as ``read``, and Unreachable when it is cut."""
        response = self._send(ask, endless="true" in (ask.query.get("follow"), ask.query.get("watch")))
        try:
            if response.status != 200:
                raise self._refusal(ask, response.status, response.read())
            if "html" in str(response.headers.get("Content-Type", "")):
                raise self._strange("answers with a web page")
            yield from _pieces(response)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            response.close()

    def _send(self, ask: Ask, *, endless: bool = False) -> urllib3.BaseHTTPResponse:
        path = "/".join(quote(part, safe="") for part in ask.path)
        url = f"{self.server}/{path}" + (f"?{urlencode(ask.query)}" if ask.query else "")
        headers = HTTPHeaderDict({"Accept": ask.accept, "User-Agent": f"skipstone-cli/{__version__}"})
        if ask.body is not None:
            headers["Content-Type"] = BODIES[ask.method]
        try:
            if token := self._login.configuration.get_api_key_with_prefix("BearerToken"):
                headers["Authorization"] = token.strip()
            for name, value in self._login.headers:
                headers.add(name, value.encode().decode("latin-1"))
            timeout = (CONNECT_SECONDS, None if endless else READ_SECONDS)
            answer = self._client.rest_client.request(
                ask.method, url, headers=headers, body=ask.body, _request_timeout=timeout
            )
        except (urllib3.exceptions.HTTPError, ApiException, OSError) as error:
            raise self._unreachable(error) from error
        except (ConfigException, ValueError) as error:
            raise CliError(f"{self.server} cannot be asked with the credentials of the kubeconfig: {error}") from error
        response: urllib3.BaseHTTPResponse = answer.response
        for warning in response.headers.getlist("Warning"):
            self._on_warning(_text_of_warning(warning))
        return response

    def _object(self, data: bytes, kind: str, *, has_metadata: bool = True) -> JsonObject:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError) as error:
            begins = data[:40].decode(errors="replace")
            what = f"begins with {begins!r}" if data else "is empty"
            raise self._strange(f"gives an answer that is not JSON or was cut ({len(data)} bytes, {what})") from error
        if text_of(body, "kind") != kind or (has_metadata and not isinstance(body.get("metadata"), dict)):
            what = text_of(body, "kind") or "something else"
            raise self._strange(f"answers with {what} where a {kind} was asked for")
        return dict(body)

    def _refusal(self, ask: Ask, status: int, data: bytes) -> CliError:
        """The error for an answer that is not a success."""
        if status == 401:
            return CliError(f"{self.server} refuses your credentials: they are missing, wrong or expired; log in again")
        if status == 404 and data.strip() == NO_SUCH_PATH:
            group = "/".join(ask.path[:3])
            return CliError(f"{self.server} does not serve {group}: install the CRDs of Skipstone first")
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            body = None
        if text_of(body, "kind") != "Status":
            return self._strange(f"answers with HTTP status {status} and no Status of Kubernetes")
        return self._verdict(ask, status, body)

    def _verdict(self, ask: Ask, status: int, body: JsonObject) -> CliError:
        """The error for a Status of Kubernetes."""
        text = text_of(body, "message")[: MAX_REASONS if status in WRONG else MAX_SAID]
        if status == 403:
            return Forbidden(ask.right, text)
        if status == 404:
            return NotFound(text)
        if status == 410:
            return Expired(text)
        if status == 429 or status >= 500:
            return Unreachable(f"{self.server} cannot answer now ({status} {text}): try again")
        message = f"the API server refuses to {ask.right}: {text or status}"
        return Refused(message, status=status, reason=text_of(body, "reason"), answer=text)

    def _strange(self, what: str) -> Unreachable:
        return Unreachable(
            f"{self.server} {what}: check that the kubeconfig names a Kubernetes API server, with no proxy between"
        )

    def _unreachable(self, error: Exception) -> Unreachable:
        cause: object = error
        while isinstance(cause, urllib3.exceptions.MaxRetryError) and cause.reason is not None:
            cause = cause.reason
        text = str(cause).strip() or type(cause).__name__
        text = " ".join(text.rpartition("object at ")[2].partition(">: ")[2].split()) or " ".join(text.split())
        if "CERTIFICATE" in text.upper() or "SSL" in text.upper():
            return Unreachable(
                f"the certificate of {self.server} or yours is not accepted: check the kubeconfig ({text[:MAX_SAID]})"
            )
        return Unreachable(f"{self.server} cannot be reached: check the network and the kubeconfig ({text[:MAX_SAID]})")


def _text_of_warning(header: str) -> str:
    """The text of a header ``299 - "text"``."""
    _, quote_mark, rest = header.partition('"')
    return re.sub(r"\\(.)", r"\1", rest.rpartition('"')[0]) if quote_mark else header


def _pieces(response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """The body as it comes: a follower sees each line when it is written."""
    if getattr(response, "chunked", False):
        yield from response.stream(CHUNK)
        return
    while piece := response.read1(CHUNK):
        yield piece
