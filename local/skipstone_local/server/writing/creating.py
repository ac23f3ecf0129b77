"""Creating objects: names, namespaces, first values, admission, quotas."""

from __future__ import annotations

import json

from skipstone_local.server.answers.refusals import MOST_OBJECT_BYTES, Refusal, already_exists, forbidden, not_found
from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.server.requests.calls import ApiTarget
from skipstone_local.server.writing.defaults import begin_status, fill_defaults
from skipstone_local.server.writing.metadata import check_identity, new_metadata
from skipstone_local.server.writing.quotas import check_quotas, count_quota
from skipstone_local.server.writing.session import ApiSession, place_of
from skipstone_local.store import JsonObject, ObjectPlace

ACCOUNT = "default"


def create(
    session: ApiSession, target: ApiTarget, document: JsonObject, *, field_validation: str = "Warn"
) -> JsonObject:
    """Create an object; the object as it is stored. Raises Refusal, Rejected."""
    kind = target.kind
    sent = check_identity(target, document)
    session.warnings.extend(session.judge.decode(sent, field_validation=field_validation))
    obj = new_metadata(session, kind, sent)
    session.warnings.extend(note for note in (kind.note,) if note)
    name = obj["metadata"]["name"]
    check_namespace(session, kind, target.namespace, name)
    obj = begin_status(kind, fill_defaults(kind, obj))
    judged = session.judge.admit(obj, field_validation="Ignore")
    session.warnings.extend(judged.warnings)
    obj = judged.obj
    check_size(obj)
    if session.get(place_of(kind, obj)) is not None:
        raise already_exists(kind, name)
    check_quotas(session, kind, obj)
    if kind.name == "ResourceQuota":
        obj = count_quota(session, obj)
    stored = session.transaction.put(place_of(kind, obj), obj)
    if kind.name == "Namespace":
        furnish(session, name)
    return stored


def check_namespace(session: ApiSession, kind: ServedKind, namespace: str, name: str) -> None:
    """Raise Refusal when nothing can be created in a namespace: it is missing, or being deleted."""
    if not kind.namespaced:
        return
    obj = session.get(ObjectPlace("namespaces", "", namespace))
    if obj is None:
        namespaces = session.catalog.of_resource("namespaces")
        raise not_found(namespaces, namespace)
    if obj["metadata"].get("deletionTimestamp"):
        cause = {
            "reason": "NamespaceTerminating",
            "message": f"namespace {namespace} is being terminated",
            "field": "metadata.namespace",
        }
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        raise forbidden(kind, name, why, [cause])


def check_size(obj: JsonObject) -> None:
    """Raise Refusal for an object that no API server could store."""
    if len(json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()) > MOST_OBJECT_BYTES:
        raise Refusal(413, "RequestEntityTooLarge", "etcdserver: request is too large")


def furnish(session: ApiSession, namespace: str) -> None:
    """Create what every namespace has."""
    target = ApiTarget(session.catalog.of_resource("serviceaccounts"), namespace, ACCOUNT)
    create(session, target, {})
