"""Answers of the server: errors as Iceberg's protocol has them, and JSON.

Whoever cannot answer raises Refused: an error is never a shorter list. Must not know requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from starlette.responses import Response

#: After how many seconds a caller may try again what was refused for now.
RETRY_SECONDS: Final = 1
BAD_REQUEST, UNAUTHORIZED = "BadRequestException", "NotAuthorizedException"
UNAVAILABLE, UNSUPPORTED = "ServiceUnavailableException", "UnsupportedOperationException"
NO_TABLE, NO_NAMESPACE = "NoSuchTableException", "NoSuchNamespaceException"
NO_PLAN, NO_TASK, NO_SNAPSHOT = "NoSuchPlanIdException", "NoSuchPlanTaskException", "NoSuchSnapshotException"
_JSON: Final = "application/json"


class Refused(Exception):
    """A request that gets an error: ``kind`` is the type that clients of Iceberg know, ``message`` one sentence.

    ``outcome``: how metrics count it.
    """

    def __init__(
        self, status: int, kind: str, message: str, *, headers: Mapping[str, str] | None = None, outcome: str = ""
    ) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message
        self.headers = dict(headers or {})
        self.outcome = outcome or ("unavailable" if status == 503 else "refused")

    def response(self) -> Response:
        """As Iceberg's ErrorModel."""
        body = {"error": {"message": self.message, "type": self.kind, "code": self.status}}
        return Response(json.dumps(body), self.status, self.headers, _JSON)


class Passed(Exception):
    """What the catalog itself answered to the caller in place of a table: it goes to the caller as it is."""

    def __init__(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        super().__init__(status)
        self.status, self.content, self.headers = status, content, dict(headers)

    def response(self) -> Response:
        """The same answer."""
        return Response(self.content, self.status, self.headers)


def bad_request(message: str) -> Refused:
    """Refuse what can never succeed as it was sent."""
    return Refused(400, BAD_REQUEST, message)


def unavailable(message: str, *, outcome: str = "unavailable", seconds: int = RETRY_SECONDS) -> Refused:
    """Refuse for now."""
    return Refused(503, UNAVAILABLE, message, headers={"retry-after": str(seconds)}, outcome=outcome)


def json_response(content: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Answer 200 with JSON."""
    return Response(json.dumps(content), 200, dict(headers or {}), _JSON)
