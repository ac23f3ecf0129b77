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

#: What pydantic calls text that is no JSON, and an object that does not say which of several kinds it is.
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
    found = getattr(error.__cause__, "response", None)
    return found if isinstance(found, Response) else None


def find_iceberg_error(error: BaseException) -> IcebergError | None:
    """What the catalog's server itself says; None when somebody on the way may have made the answer."""
    response = find_response(error)
    told = _object(response).get("error") if response is not None else None
    if response is None or not isinstance(told, dict):
        return None
    kind, message, code = told.get("type"), told.get("message"), told.get("code")
    if not isinstance(kind, str) or not kind or code != response.status_code:
        return None
    return IcebergError(response.status_code, kind, message if isinstance(message, str) else "")


def message_of(response: Response) -> str:
    """What the server says in the shape of Amazon's gateways or of Iceberg, in one line; empty in any other shape."""
    told = _object(response)
    inner = told.get("error", told)
    said = (inner.get("message") or inner.get("Message")) if isinstance(inner, dict) else None
    return _shortened(said) if isinstance(said, str) else ""


def is_from_elsewhere(error: ValidationError) -> bool:
    """Whether an answer that PyIceberg cannot read is not a JSON object, or lacks what every answer of its kind has."""
    told = error.errors(include_url=False, include_context=False, include_input=False)
    return any(not one["loc"] or (one["type"] == "missing" and len(one["loc"]) == 1) for one in told)


def find_validation(error: BaseException) -> ValidationError | None:
    """What pydantic says of a value, which PyIceberg raises as it is or as the cause of an error of its own."""
    found = error if isinstance(error, ValidationError) else error.__cause__
    return found if isinstance(found, ValidationError) else None


def is_damaged(error: BaseException) -> bool:
    """Whether what stands for a table's metadata is no JSON, or has no format version, which all of them have."""
    found = find_validation(error)
    return found is not None and any(one["type"] in _NO_METADATA for one in found.errors())


def first_line(error: BaseException) -> str:
    """What ``error`` says; of a database's error what the database said, without the statement."""
    said = str(error.orig if isinstance(error, DBAPIError) else error).strip()
    return _shortened(said) or type(error).__name__


def _object(response: Response) -> Mapping[str, object]:
    """The body, empty when it is not a JSON object."""
    try:
        told = response.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _shortened(text: str) -> str:
    """The first line of ``text``, with single blanks."""
    return " ".join(text.strip().split("\n", 1)[0].split())[:_MOST_QUOTED]
