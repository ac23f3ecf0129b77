"""Replacing objects: versions, generations, the status on its own, finalizers."""

from __future__ import annotations

import copy

from skipstone_local.server.answers.refusals import invalid, not_found
from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.server.requests.calls import ApiTarget
from skipstone_local.server.writing.creating import check_size
from skipstone_local.server.writing.defaults import fill_defaults
from skipstone_local.server.writing.deleting import finish
from skipstone_local.server.writing.metadata import check_based_on, check_identity, next_metadata
from skipstone_local.server.writing.quotas import count_quota
from skipstone_local.server.writing.session import ApiSession, with_metadata
from skipstone_local.store import JsonObject

#: Kinds that may be replaced only by who says which version it read.
STRICT_KINDS = ("Lease",)


def find(session: ApiSession, target: ApiTarget) -> JsonObject:
    """The object that a path names. Raises Refusal."""
    obj = session.get(target.place)
    if obj is None:
        raise not_found(target.kind, target.name)
    return obj


def replace(
    session: ApiSession, target: ApiTarget, document: JsonObject, *, field_validation: str = "Warn"
) -> JsonObject:
    """Replace an object, or its status alone; the object as it is stored. Raises Refusal, Rejected."""
    old = find(session, target)
    obj = check_identity(target, document)
    check_based_on(target.kind, old, obj)
    if not obj["metadata"].get("resourceVersion") and (target.kind.is_ours or target.kind.name in STRICT_KINDS):
        # What cannot be decoded is refused first.
        session.judge.decode(copy.deepcopy(obj), field_validation=field_validation)
        why = "Invalid value: 0: must be specified for an update"
        raise invalid(target.kind, target.name, "metadata.resourceVersion", why)
    return store(session, target, old, obj, field_validation=field_validation)


def store(
    session: ApiSession, target: ApiTarget, old: JsonObject, obj: JsonObject, *, field_validation: str = "Warn"
) -> JsonObject:
    """Store ``obj`` in the place of ``old``: with what only the server may change as it was. Raises Refusal, Rejected.

    ``obj`` is complete: a patch has been laid over ``old`` before.
    """
    kind = target.kind
    session.warnings.extend(session.judge.decode(obj, field_validation=field_validation))
    new = next_metadata(old, fill_defaults(kind, obj))
    new = _with_status(kind, old, new) if target.subresource == "status" else _without_status(kind, old, new)
    if "managedFields" in obj.get("metadata", {}) and not target.subresource:
        new["metadata"]["managedFields"] = obj["metadata"]["managedFields"]
    judged = session.judge.admit(new, old=old, subresource=target.subresource, field_validation="Ignore")
    session.warnings.extend(judged.warnings)
    new = with_metadata(judged.obj)
    if kind.name == "ResourceQuota":
        new = count_quota(session, new)
    _check_finalizers(kind, old, new)
    if new == old:
        return old
    check_size(new)
    if kind.generations and _counted(kind, new) != _counted(kind, old):
        new["metadata"]["generation"] = old["metadata"]["generation"] + 1
    stored = session.transaction.put(target.place, new)
    finish(session, kind, stored)
    return stored


def _with_status(kind: ServedKind, old: JsonObject, new: JsonObject) -> JsonObject:
    """``old`` with the status of ``new``; of a pod labels and annotations change with it."""
    metadata = old["metadata"] if kind.is_ours else {**new["metadata"], **_owners(old)}
    kept = {name: value for name, value in old.items() if name != "status"}
    status = {"status": new["status"]} if "status" in new else {}
    return {**kept, "metadata": metadata, **status}


def _owners(old: JsonObject) -> JsonObject:
    return {"ownerReferences": old["metadata"]["ownerReferences"]} if "ownerReferences" in old["metadata"] else {}


def _without_status(kind: ServedKind, old: JsonObject, new: JsonObject) -> JsonObject:
    if not kind.has_status:
        return new
    kept = {name: value for name, value in new.items() if name != "status"}
    return {**kept, "status": old["status"]} if "status" in old else kept


def _counted(kind: ServedKind, obj: JsonObject) -> JsonObject:
    """Return the part that a generation counts: all but metadata and status; of kinds of Kubernetes the spec."""
    if kind.is_ours:
        return {name: value for name, value in obj.items() if name not in ("metadata", "status")}
    return {"spec": obj.get("spec")}


def _check_finalizers(kind: ServedKind, old: JsonObject, new: JsonObject) -> None:
    if not old["metadata"].get("deletionTimestamp"):
        return
    before = old["metadata"].get("finalizers") or []
    added = [name for name in new["metadata"].get("finalizers") or [] if name not in before]
    if added:
        why = f"Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers {added}"
        raise invalid(kind, new["metadata"]["name"], "metadata.finalizers", why, "FieldValueForbidden")
