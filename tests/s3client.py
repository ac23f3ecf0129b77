"""Signed requests to an S3 server, as they are on the wire: for tests of what a server honors, whoever asks.

Nothing here is known to the project's own client, which is what other tests are about.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

import requests

SECONDS = 300


@dataclass(frozen=True)
class Keys:
    """An access key and its secret."""

    access: str
    secret: str = field(repr=False)


@dataclass(frozen=True)
class S3Client:
    """Speaks to one bucket, with path-style addresses and SigV4."""

    endpoint: str
    bucket: str
    region: str
    keys: Keys

    def send(
        self,
        method: str,
        key: str = "",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        **query: str,
    ) -> requests.Response:
        """The answer to one request; ``query`` with ``_`` for ``-``."""
        path = "/" + quote(f"{self.bucket}/{key}" if key else self.bucket, safe="/~")
        asked = urlencode(sorted((name.replace("_", "-"), value) for name, value in query.items()), quote_via=quote)
        url = f"{self.endpoint}{path}" + (f"?{asked}" if asked else "")
        signed = self._signed(method, path, asked, body)
        return requests.request(method, url, data=body, headers={**(headers or {}), **signed}, timeout=SECONDS)

    def _signed(self, method: str, path: str, query: str, body: bytes) -> dict[str, str]:
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        digest = hashlib.sha256(body).hexdigest()
        headers = {"host": urlsplit(self.endpoint).netloc, "x-amz-content-sha256": digest, "x-amz-date": now}
        names = ";".join(headers)
        canonical = "\n".join(
            [method, path, query, *(f"{name}:{value}" for name, value in headers.items()), "", names, digest]
        )
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = f"AWS4{self.keys.secret}".encode()
        for part in (now[:8], self.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.keys.access}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
        return headers


def values(answer: requests.Response, name: str) -> list[str]:
    """The texts of all elements ``name`` of an answer in XML."""
    return [element.text or "" for element in ElementTree.fromstring(answer.content).iter() if _plain(element) == name]


def _plain(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
