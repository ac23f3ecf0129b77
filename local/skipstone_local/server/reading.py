"""Reading objects: one, or a page of a collection as it was at one moment."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from skipstone_local.server.answers.refusals import OLD_CONTINUE, Refusal, bad_request, expired
from skipstone_local.server.answers.showing import Form
from skipstone_local.server.requests.calls import ApiCall
from skipstone_local.server.writing.session import ApiSession, place_of
from skipstone_local.store import Compacted, JsonObject, ObjectPlace


def read_page(session: ApiSession, call: ApiCall, form: Form) -> JsonObject:
    """A list: all that is selected, or the page that the request asks for. Raises Refusal."""
    after, moment = _start(session, call)
    matching = _matching(session, call, after, moment)
    limit, metadata = call.number("limit") or 0, {"resourceVersion": str(moment)}
    try:
        page = [obj for _, obj in zip(range(limit), matching, strict=False)] if limit else list(matching)
        if limit and len(page) == limit and next(matching, None) is not None:
            metadata["continue"] = _token(place_of(call.kind, page[-1]), moment)
    except Compacted as error:
        raise expired(OLD_CONTINUE) from error
    return form.many(page, metadata)


def _matching(session: ApiSession, call: ApiCall, after: ObjectPlace | None, moment: int) -> Iterator[JsonObject]:
    selection, target = call.selection, call.target
    stored = session.transaction.select(target.kind.resource, target.namespace, after=after, moment=moment)
    return (obj for obj in stored if selection.matches(obj))


def _start(session: ApiSession, call: ApiCall) -> tuple[ObjectPlace | None, int]:
    """Behind which object the page begins, and of which version it is."""
    token, current = call.query.get("continue", ""), session.transaction.version
    if token:
        return _read_token(call, token)
    version = call.number("resourceVersion") or 0
    if version > current:
        raise Refusal(504, "Timeout", f"Too large resource version: {version}, current: {current}", {
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]})  # fmt: skip
    if call.query.get("resourceVersionMatch") == "Exact":
        return None, version
    return None, current


def _token(last: ObjectPlace, moment: int) -> str:
    text = json.dumps({"v": "local/v1", "rv": moment, "start": [last.namespace, last.name]}, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode()


def _read_token(call: ApiCall, token: str) -> tuple[ObjectPlace, int]:
    try:
        decoded = json.loads(base64.urlsafe_b64decode(token))
        namespace, name = decoded["start"]
        return ObjectPlace(call.kind.resource, str(namespace), str(name)), int(decoded["rv"])
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request("continue key is not valid: it was not given by this server") from error
