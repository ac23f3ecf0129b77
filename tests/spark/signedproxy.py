"""A proxy before a REST catalog that lets through what is signed as AWS4-HMAC-SHA256 says, and nothing else.

It computes every signature itself, from the bytes that arrived, as Amazon's documents describe it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qsl, quote, urlsplit

from tests.s3client import Keys

REGION, SERVICE = "eu-central-1", "glue"
#: Where pods with a role ask for keys.
ROLE = "/role"
_FORM = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, ?"
    r"SignedHeaders=([^,]+), ?Signature=(\w+)"
)
MISMATCH = "The request signature we calculated does not match the signature you provided"
EXPIRED = "The security token included in the request is expired"
BEHIND = "Signature expired: 20260101T000000Z is now earlier than 20260101T000500Z (20260101T001000Z - 5 min.)"
AHEAD = "Signature not yet current: 20260101T001000Z is still later than 20260101T000500Z (20260101T000000Z + 5 min.)"


@dataclass
class SignedProxy:
    """Before the catalog ``upstream``. ``faults``: what the next requests of a method are answered instead.

    ``says``: why it refuses requests that are signed as they should be; empty when it does not.
    """

    upstream: str
    keys: Keys
    token: str = ""
    address: str = ""
    says: str = ""
    seen: list[tuple[str, str, int]] = field(default_factory=list)
    faults: dict[str, list[int]] = field(default_factory=dict)

    def sent(self, method: str, end: str) -> list[int]:
        """The answers to requests of ``method`` whose path ends with ``end``."""
        return [status for how, path, status in self.seen if how == method and path.partition("?")[0].endswith(end)]


@contextmanager
def signed_proxy(upstream: str, keys: Keys, token: str = "") -> Iterator[SignedProxy]:
    """One on loopback; it ends with the block."""
    proxy = SignedProxy(upstream, keys, token)
    handler = type("Signed", (_Handler,), {"proxy": proxy})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        proxy.address = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=[0.02])
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    proxy: SignedProxy
    protocol_version = "HTTP/1.1"

    def handle_request(self) -> None:
        """Verify, then forward."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path == ROLE:
            self._answer(200, json.dumps(self._role()).encode())
        elif refusal := self._refusal(body):
            self._answer(403, json.dumps({"message": refusal}).encode())
        elif self.proxy.faults.get(self.command):
            self._answer(self.proxy.faults[self.command].pop(0), b"")
        else:
            self._answer(*self._forwarded(body))

    do_GET = do_POST = do_HEAD = do_DELETE = handle_request

    def _role(self) -> dict[str, str]:
        keys = {"AccessKeyId": self.proxy.keys.access, "SecretAccessKey": self.proxy.keys.secret}
        return {**keys, "Token": self.proxy.token, "Expiration": "2099-01-01T00:00:00Z"}

    def _refusal(self, body: bytes) -> str:
        form = _FORM.fullmatch(self.headers.get("authorization", ""))
        if form is None:
            return "Missing Authentication Token"
        access, day, region, service, names, signature = form.groups()
        needed = {"host", "x-amz-date"} | ({"x-amz-security-token"} if self.proxy.token else set())
        if access != self.proxy.keys.access or needed - {*names.split(";")}:
            return "The security token included in the request is invalid"
        if self.proxy.token != self.headers.get("x-amz-security-token", ""):
            return "The security token included in the request is invalid"
        if (region, service) != (REGION, SERVICE):
            return f"Credential should be scoped to {REGION} and {SERVICE}"
        if not hmac.compare_digest(signature, self._signature(day, names, body)):
            return MISMATCH
        return self.proxy.says

    def _signature(self, day: str, names: str, body: bytes) -> str:
        url = urlsplit(self.path)
        pairs = sorted((_escaped(k), _escaped(v)) for k, v in parse_qsl(url.query, keep_blank_values=True))
        headers = [f"{name}:{' '.join(self.headers.get(name, '').split())}" for name in names.split(";")]
        digest = hashlib.sha256(body).hexdigest()
        query = "&".join(f"{name}={value}" for name, value in pairs)
        canonical = "\n".join([self.command, quote(url.path, safe="/~"), query, *headers, "", names, digest])
        moment, scope = self.headers.get("x-amz-date", ""), f"{day}/{REGION}/{SERVICE}/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = f"AWS4{self.proxy.keys.secret}".encode()
        for part in (day, REGION, SERVICE, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.new(key, text.encode(), "sha256").hexdigest()

    def _forwarded(self, body: bytes) -> tuple[int, bytes]:
        behind = HTTPConnection(urlsplit(self.proxy.upstream).netloc, timeout=300)
        behind.request(self.command, self.path, body, {"content-type": "application/json"})
        answer = behind.getresponse()
        found = answer.status, answer.read()
        behind.close()
        return found

    def _answer(self, status: int, body: bytes) -> None:
        self.proxy.seen.append((self.command, self.path, status))
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        if status == 503:
            self.send_header("retry-after", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _escaped(text: str) -> str:
    return quote(text, safe="-_.~")
