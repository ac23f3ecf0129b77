"""Reads what a catalog's server answered from the error that PyIceberg makes of it. Pure; judges nothing.

The body of an error is ``{"error": {"message": ..., "type": ..., "code": ...}}`` in Iceberg's REST specification
(``IcebergErrorResponse``). Gateways, proxies and services of Amazon send other ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError
from requests import Response
from sqlalchemy.exc import DBAPIError

#: What pydantic calls text that is not JSON, and an object that does not say which of several kinds it is.
_NO_METADATA = frozenset({"json_invalid", "union_tag_not_found"})
#: Longest text of a server that is quoted, in characters.
_MOST_QUOTED = 500


@dataclass(frozen=True)
class IcebergError:
    """An error in Iceberg's own form: ``status`` is that of HTTP, ``kind`` the name of an exception."""

    status: int
    kind: str
    message: str

    @property
    def text(self) -> str:
        """In one line."""
        return f"{self.kind}: {_shortened(self.message)}"


def find_response(error: BaseException) -> Response | None:
    """The answer of the server that ``error`` was made of; None when it was made on this side."""
    response = getattr(error.__cause__, "response", None)
    return response if isinstance(response, Response) else None


def find_iceberg_error(error: BaseException) -> IcebergError | None:
    """Return the error of the catalog's server itself; None when a proxy may have made the answer."""
    response = find_response(error)
    body = _object(response).get("error") if response is not None else None
    if response is None or not isinstance(body, dict):
        return None
    kind, message, code = body.get("type"), body.get("message"), body.get("code")
    if not isinstance(kind, str) or not kind or code != response.status_code:
        return None
    return IcebergError(response.status_code, kind, message if isinstance(message, str) else "")


def message_of(response: Response) -> str:
    """Return the server's message in one line, in the form of Amazon's gateways or of Iceberg; else empty."""
    body = _object(response)
    inner = body.get("error", body)
    message = (inner.get("message") or inner.get("Message")) if isinstance(inner, dict) else None
    return _shortened(message) if isinstance(message, str) else ""


def is_from_elsewhere(error: ValidationError) -> bool:
    """Return whether an unreadable answer is not a JSON object, or lacks what every answer of its kind has."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return any(
        not problem["loc"] or (problem["type"] == "missing" and len(problem["loc"]) == 1) for problem in problems
    )


def find_validation(error: BaseException) -> ValidationError | None:
    """Return the error of pydantic, which PyIceberg raises as it is or as the cause of an error of its own."""
    validation = error if isinstance(error, ValidationError) else error.__cause__
    return validation if isinstance(validation, ValidationError) else None


def is_damaged(error: BaseException) -> bool:
    """Return whether the metadata file is not JSON, or lacks the format version, which all metadata has."""
    validation = find_validation(error)
    return validation is not None and any(problem["type"] in _NO_METADATA for problem in validation.errors())


def first_line(error: BaseException) -> str:
    """Return the message of ``error``; of a database's error the database's own, without the statement."""
    text = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    return _shortened(text) or type(error).__name__


def _object(response: Response) -> Mapping[str, object]:
    """The body, empty when it is not a JSON object."""
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _shortened(text: str) -> str:
    """The first line of ``text``, with single blanks."""
    return " ".join(text.strip().split("\n", 1)[0].split())[:_MOST_QUOTED]
