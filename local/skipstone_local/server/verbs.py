"""What each method does to what a path names."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from http import HTTPStatus

from skipstone_local.admission import Rejected
from skipstone_local.server.answers.refusals import bad_request, invalid, unknown_media
from skipstone_local.server.answers.showing import Form, choose_form
from skipstone_local.server.kinds.events import to_stored
from skipstone_local.server.patches.applying import ApplyRequest, apply
from skipstone_local.server.patches.lists import Shape
from skipstone_local.server.patches.merging import apply_operations, merge, merge_strategically
from skipstone_local.server.reading import read_page
from skipstone_local.server.requests.calls import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiCall,
    ApiTarget,
    read_map,
    read_object,
    read_value,
)
from skipstone_local.server.reviews import answer_review
from skipstone_local.server.subresources import bind, evict, issue_token
from skipstone_local.server.writing.creating import create
from skipstone_local.server.writing.deleting import delete, read_options
from skipstone_local.server.writing.metadata import check_based_on, check_identity
from skipstone_local.server.writing.session import ApiSession
from skipstone_local.server.writing.updating import find, replace, store
from skipstone_local.store import JsonObject


@dataclass
class Carried:
    """The answer to a request."""

    code: int
    body: JsonObject
    warnings: list[str] = field(default_factory=list)


def carry_out(session: ApiSession, call: ApiCall) -> Carried:
    """Carry a request out in a transaction, which is taken back if it is dry. Raises Refusal, Rejected."""
    if call.kind.name.startswith("SelfSubject"):
        return Carried(201, answer_review(call.kind, call.document()))
    form = choose_form(call.kind, call.accept, call.query)
    session.transaction.discarded = call.method != "GET" and call.is_dry
    carried = VERBS[call.method](session, call, form)
    carried.warnings = session.warnings
    return carried


def _get(session: ApiSession, call: ApiCall, form: Form) -> Carried:
    if call.target.name:
        return Carried(200, form.one(find(session, call.target)))
    return Carried(200, read_page(session, call, form))


def _post(session: ApiSession, call: ApiCall, form: Form) -> Carried:
    if call.target.subresource:
        made = POSTED[call.target.subresource](session, call.target, call.options())
        return Carried(201, made)
    target, document = _stored(session, call.target), to_stored(call.kind, call.document())
    made = create(session, target, document, field_validation=call.field_validation)
    return Carried(201, form.one(made))


def _put(session: ApiSession, call: ApiCall, form: Form) -> Carried:
    target, document = _stored(session, call.target), to_stored(call.kind, call.document())
    return Carried(200, form.one(replace(session, target, document, field_validation=call.field_validation)))


def _stored(session: ApiSession, target: ApiTarget) -> ApiTarget:
    """The target with the kind that the store has it as: Events are of the core group."""
    return dataclasses.replace(target, kind=session.catalog.of_resource(target.kind.resource))


def _patch(session: ApiSession, call: ApiCall, form: Form) -> Carried:
    if call.media == APPLY_PATCH:
        return _apply(session, call, form)
    old = find(session, call.target)
    patched = _patched(call, form.whole(old))
    document = to_stored(call.kind, patched)
    target = _stored(session, call.target)
    _check_name(call, old, document)
    document = check_identity(target, document)
    check_based_on(call.kind, old, document, is_patch=True)
    try:
        stored = store(session, target, old, document, field_validation=call.field_validation)
    except Rejected as refused:
        if refused.status != HTTPStatus.BAD_REQUEST:
            raise
        # A patch that makes what cannot be decoded is a wrong value of the patch, not a wrong request.
        problem = refused.message.partition(": ")[2]
        raise invalid(call.kind, call.target.name, "patch", f"Invalid value: {problem}") from refused
    return Carried(200, form.one(stored))


def _patched(call: ApiCall, served: JsonObject) -> JsonObject:
    patch = read_value(call.body)
    if call.media == JSON_PATCH:
        patched = apply_operations(served, patch)
    elif not isinstance(patch, dict):
        raise bad_request("the patch is not an object")
    elif call.media == MERGE_PATCH:
        patched = merge(served, patch)
    elif call.media == STRATEGIC_PATCH and not call.kind.is_ours:
        patched = merge_strategically(served, patch, Shape({}))
    else:
        strategic = () if call.kind.is_ours else (STRATEGIC_PATCH,)
        raise unknown_media((JSON_PATCH, MERGE_PATCH, *strategic, APPLY_PATCH))
    if not isinstance(patched, dict):
        raise bad_request("the patch leaves no object")
    return patched


def _check_name(call: ApiCall, old: JsonObject, patched: JsonObject) -> None:
    name = read_map(patched, "metadata").get("name")
    known = old["metadata"]["name"]
    if name != known:
        raise bad_request(f"the name of the object ({name or ''}) does not match the name on the URL ({known})")


def _apply(session: ApiSession, call: ApiCall, form: Form) -> Carried:
    target, document = _stored(session, call.target), to_stored(call.kind, read_object(call.body, is_yaml=True))
    document = check_identity(target, document)
    live = session.get(target.place)
    applied = ApplyRequest(
        kind=target.kind,
        obj=document,
        manager=call.query.get("fieldManager", ""),
        time=session.timestamp,
        subresource=call.target.subresource,
        force=call.flag("force"),
    )
    merged = apply(live, applied)
    if live is None:
        if target.subresource:
            find(session, target)
        return Carried(201, form.one(create(session, target, merged, field_validation=call.field_validation)))
    stored = store(session, target, live, merged, field_validation=call.field_validation)
    return Carried(200, form.one(stored))


def _delete(session: ApiSession, call: ApiCall, form: Form) -> Carried:
    options = read_options({**_options_in(call), **call.options()})
    if call.target.name:
        answer = delete(session, call.kind, find(session, call.target), options)
        return Carried(200, answer if answer.get("kind") == "Status" else form.one(answer))
    selection = call.selection
    stored = session.transaction.select(call.kind.resource, call.target.namespace)
    chosen = [obj for obj in stored if selection.matches(obj)]
    for obj in chosen:
        current = session.get(ApiTarget(call.kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]).place)
        if current is not None:
            delete(session, call.kind, current, options)
    return Carried(200, form.many(chosen, {"resourceVersion": str(session.transaction.version)}))


def _options_in(call: ApiCall) -> JsonObject:
    """The options that a deletion has as parameters."""
    options: JsonObject = {}
    if call.query.get("propagationPolicy"):
        options["propagationPolicy"] = call.query["propagationPolicy"]
    if (grace := call.number("gracePeriodSeconds")) is not None:
        options["gracePeriodSeconds"] = grace
    return options


VERBS = {"GET": _get, "POST": _post, "PUT": _put, "PATCH": _patch, "DELETE": _delete}
POSTED = {"binding": bind, "eviction": evict, "token": issue_token}
