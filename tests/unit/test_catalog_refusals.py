"""Which answers of a catalog's server are refusals, and how they are told."""

from __future__ import annotations

import io
import json

import pytest
from pyiceberg.exceptions import BadRequestError, ForbiddenError, RESTError
from requests import HTTPError, PreparedRequest, Response
from skipstone.tables.answers.refusals import find_refusal, tell_trouble
from skipstone_core.reasons import Reason


def failed(status: int, body: bytes, error: type[Exception] = RESTError) -> Exception:
    """What PyIceberg raises for an answer; it says what the body says."""
    response = Response()
    response.status_code, response.raw, response.request = status, io.BytesIO(body), PreparedRequest()
    response.request.headers = {}  # type: ignore[assignment]
    found = error(f"said {body.decode()}")
    found.__cause__ = HTTPError(response=response)
    return found


def iceberg(status: int, kind: str = "BadRequestException", message: str = "no") -> bytes:
    """A body as the REST specification has it."""
    return json.dumps({"error": {"code": status, "type": kind, "message": message}}).encode()


@pytest.mark.parametrize("status", [400, 401, 403, 404, 406, 422])
def test_an_error_in_icebergs_form_with_a_clients_status_is_a_refusal(status: int) -> None:
    told = find_refusal(failed(status, iceberg(status)))
    assert told is not None
    assert told.text == "BadRequestException: no"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((status, iceberg(status)) for status in (408, 409, 425, 429, 500, 502, 503, 504)),
        (400, iceberg(400, "CommitStateUnknownException")),
        (400, iceberg(502)),
        (400, iceberg(400, "")),
        (400, b""),
        (400, b"[]"),
        (400, b"<html></html>"),
        (400, b'{"error": "invalid_request"}'),
        (400, b'{"code": 400, "type": "BadRequestException", "message": "no"}'),
    ],
)
def test_what_may_be_no_refusal_is_none(status: int, body: bytes) -> None:
    assert find_refusal(failed(status, body)) is None


def test_an_error_without_an_answer_is_no_refusal() -> None:
    assert find_refusal(ConnectionError("no answer")) is None


@pytest.mark.parametrize(
    ("error", "reason", "said"),
    [
        (failed(400, iceberg(400), BadRequestError), Reason.CATALOG_UNAVAILABLE, "refused a request: "),
        (failed(403, iceberg(403), ForbiddenError), Reason.CATALOG_UNAVAILABLE, "refused the credentials of "),
        (failed(400, b"<html></html>", BadRequestError), Reason.CATALOG_UNAVAILABLE, "did not answer: "),
        (ConnectionError("gone"), Reason.CATALOG_UNAVAILABLE, "did not answer: gone"),
        (
            failed(
                400, iceberg(400, "IllegalArgumentException", "Invalid update timestamp 1: before 2"), BadRequestError
            ),
            Reason.CLOCK_SKEWED,
            "refused a change for its time ",
        ),
    ],
)
def test_trouble_with_a_catalog_is_told_by_its_cause(error: Exception, reason: Reason, said: str) -> None:
    found, told = tell_trouble(error)
    assert found is reason
    assert told.startswith(said)
