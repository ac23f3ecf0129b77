"""Deleting objects: preconditions, finalizers, grace, what belongs to them, and namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from skipstone_local.server.answers.refusals import bad_request, build_status, conflict, details_of, forbidden
from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.server.requests.calls import read_map
from skipstone_local.server.writing.session import ApiSession, place_of, time_text, with_metadata
from skipstone_local.store import JsonObject, ObjectPlace

FOREGROUND, ORPHAN = "foregroundDeletion", "orphan"
POLICIES = ("Background", "Foreground", "Orphan")
KEPT_NAMESPACES = ("default",)
ENDED = ("Succeeded", "Failed")
#: Kinds of which a deletion answers with the object, even when it is gone.
ANSWERS_OBJECT = ("Pod", "PersistentVolumeClaim", "Service", "ServiceAccount", "ResourceQuota", "Namespace")


@dataclass(frozen=True, kw_only=True)
class DeleteOptions:
    """How to delete. ``grace``: seconds that a pod has to end; None: as the pod says."""

    propagation: str = "Background"
    grace: int | None = None
    uid: str = ""
    version: str = ""


def read_options(document: JsonObject) -> DeleteOptions:
    """Options as the body or the parameters of a request have them. Raises Refusal."""
    propagation = document.get("propagationPolicy")
    if document.get("orphanDependents") is not None:
        propagation = propagation or ("Orphan" if document["orphanDependents"] else "Background")
    propagation = propagation or "Background"
    if propagation not in POLICIES:
        raise bad_request(f'invalid propagationPolicy: "{propagation}" is not one of {", ".join(POLICIES)}')
    grace = document.get("gracePeriodSeconds")
    if grace is not None and (not isinstance(grace, int) or grace < 0):
        raise bad_request(f"invalid gracePeriodSeconds: {grace} is not a whole number from 0 on")
    required = read_map(document, "preconditions")
    return DeleteOptions(
        propagation=propagation,
        grace=grace,
        uid=required.get("uid") or "",
        version=required.get("resourceVersion") or "",
    )


def delete(session: ApiSession, kind: ServedKind, obj: JsonObject, options: DeleteOptions) -> JsonObject:
    """Delete an object; what the request answers with. Raises Refusal."""
    _check(kind, obj, options)
    marked = _marked(session, kind, obj, options)
    if marked != obj:
        obj = session.transaction.put(place_of(kind, obj), marked)
    if FOREGROUND in _finalizers(obj) or ORPHAN in _finalizers(obj):
        obj = _let_dependents_go(session, kind, obj) or obj
    if kind.name == "Namespace":
        empty_namespace(session, obj["metadata"]["name"])
    elif not _waits(obj):
        remove(session, kind, obj)
    is_gone = session.get(place_of(kind, obj)) is None
    if is_gone and kind.name not in ANSWERS_OBJECT:
        name = obj["metadata"]["name"]
        return build_status("Success", details=details_of(kind, name, uid=obj["metadata"]["uid"]))
    return obj


def _check(kind: ServedKind, obj: JsonObject, options: DeleteOptions) -> None:
    metadata, name = obj["metadata"], obj["metadata"]["name"]
    if options.uid and options.uid != metadata["uid"]:
        why = f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {metadata['uid']}"
        raise conflict(kind, name, why)
    if options.version and options.version != metadata["resourceVersion"]:
        raise conflict(kind, name, f"Precondition failed: ResourceVersion in precondition: {options.version}, "
                                   f"ResourceVersion in object meta: {metadata['resourceVersion']}")  # fmt: skip
    if kind.name == "Namespace" and name in KEPT_NAMESPACES:
        raise forbidden(kind, name, "this namespace may not be deleted")


def _finalizers(obj: JsonObject) -> list[str]:
    return obj["metadata"].get("finalizers") or []


def _waits(obj: JsonObject) -> bool:
    """Return whether something still has to be done before the object goes."""
    return bool(_finalizers(obj)) or bool(obj["metadata"].get("deletionGracePeriodSeconds"))


def _marked(session: ApiSession, kind: ServedKind, obj: JsonObject, options: DeleteOptions) -> JsonObject:
    """The object with the marks of its deletion; as it is, when it goes at once."""
    added = {"Foreground": [FOREGROUND], "Orphan": [ORPHAN]}.get(options.propagation, [])
    finalizers = [*_finalizers(obj), *(name for name in added if name not in _finalizers(obj))]
    metadata = {**obj["metadata"], **({"finalizers": finalizers} if finalizers else {})}
    grace = _grace(kind, obj, options)
    if not (finalizers or grace or kind.name == "Namespace" or metadata.get("deletionTimestamp")):
        return obj
    if metadata.get("deletionTimestamp"):
        left = metadata.get("deletionGracePeriodSeconds", 0)
        return {**obj, "metadata": {**metadata, **_ending(session, grace)} if grace < left else metadata}
    metadata |= _ending(session, grace)
    if kind.generations:
        metadata["generation"] = metadata["generation"] + 1
    ending = {"status": {**(obj.get("status") or {}), "phase": "Terminating"}} if kind.name == "Namespace" else {}
    return {**obj, "metadata": metadata, **ending}


def _ending(session: ApiSession, grace: int) -> JsonObject:
    return {
        "deletionTimestamp": time_text(session.now + timedelta(seconds=grace)),
        "deletionGracePeriodSeconds": grace,
    }


def _grace(kind: ServedKind, obj: JsonObject, options: DeleteOptions) -> int:
    """Seconds that whoever runs a pod has to end it: 0 when nobody runs it."""
    spec = obj.get("spec") or {}
    if kind.name != "Pod" or not spec.get("nodeName") or (obj.get("status") or {}).get("phase") in ENDED:
        return 0
    return options.grace if options.grace is not None else int(spec.get("terminationGracePeriodSeconds", 30))


def remove(session: ApiSession, kind: ServedKind, obj: JsonObject) -> None:
    """Remove an object that waits for nothing, and whatever goes with it."""
    place, uid = place_of(kind, obj), obj["metadata"]["uid"]
    session.transaction.remove(place)
    for dependent in session.transaction.dependents(uid):
        release(session, dependent)
    for reference in obj["metadata"].get("ownerReferences") or ():
        _tell_owner(session, str(reference.get("uid", "")))
    if place.namespace:
        _end_namespace(session, place.namespace)


def finish(session: ApiSession, kind: ServedKind, obj: JsonObject) -> bool:
    """Remove an object that is being deleted when nothing holds it any more; whether it was removed."""
    if not obj["metadata"].get("deletionTimestamp") or _waits(obj) or kind.name == "Namespace":
        return False
    remove(session, kind, obj)
    return True


def release(session: ApiSession, place: ObjectPlace) -> None:
    """Delete an object whose owners are all gone, or take those that are gone from its references."""
    obj, kind = session.get(place), session.kind_of(place)
    if obj is None:
        return
    references = obj["metadata"].get("ownerReferences") or []
    alive = [reference for reference in references if _exists(session, place, reference)]
    if len(alive) == len(references):
        return
    if not alive:
        if not obj["metadata"].get("deletionTimestamp"):
            delete(session, kind, obj, DeleteOptions())
        return
    session.transaction.put(place, with_metadata(obj, ownerReferences=alive))


def _exists(session: ApiSession, dependent: ObjectPlace, reference: JsonObject) -> bool:
    owner = session.transaction.find_uid(str(reference.get("uid", "")))
    return owner is not None and owner.namespace in ("", dependent.namespace)


def _let_dependents_go(session: ApiSession, kind: ServedKind, obj: JsonObject) -> JsonObject | None:
    """Delete what belongs to an object, or leave it alone; the object without the mark when that is done."""
    uid, keeps = obj["metadata"]["uid"], ORPHAN in _finalizers(obj)
    for place in session.transaction.dependents(uid):
        dependent = session.get(place)
        if dependent is None:
            continue
        if keeps:
            references = [each for each in dependent["metadata"]["ownerReferences"] if each.get("uid") != uid]
            session.transaction.put(place, with_metadata(dependent, ownerReferences=references))
        elif not dependent["metadata"].get("deletionTimestamp"):
            delete(session, session.kind_of(place), dependent, DeleteOptions())
    current = session.get(place_of(kind, obj))
    if current is None or (not keeps and _is_blocked(session, uid)):
        return current
    finalizers = [name for name in _finalizers(current) if name not in (FOREGROUND, ORPHAN)]
    return session.transaction.put(place_of(kind, current), with_metadata(current, finalizers=finalizers))


def _is_blocked(session: ApiSession, uid: str) -> bool:
    dependents = [dependent for place in session.transaction.dependents(uid) if (dependent := session.get(place))]
    references = [each for dependent in dependents for each in dependent["metadata"].get("ownerReferences") or ()]
    return any(each.get("blockOwnerDeletion") for each in references if each.get("uid") == uid)


def _tell_owner(session: ApiSession, uid: str) -> None:
    """Let an owner that waits for its dependents go when this was the last one."""
    place = session.transaction.find_uid(uid)
    owner = session.get(place) if place else None
    if place is None or owner is None or FOREGROUND not in _finalizers(owner):
        return
    kind = session.kind_of(place)
    current = _let_dependents_go(session, kind, owner)
    if current is not None:
        finish(session, kind, current)


def empty_namespace(session: ApiSession, namespace: str) -> None:
    """Delete everything in a namespace, and the namespace when nothing is left."""
    for place in session.transaction.places_in(namespace):
        obj = session.get(place)
        if obj is not None and not obj["metadata"].get("deletionTimestamp"):
            delete(session, session.kind_of(place), obj, DeleteOptions())
    _end_namespace(session, namespace)


def _end_namespace(session: ApiSession, namespace: str) -> None:
    place = ObjectPlace("namespaces", "", namespace)
    obj = session.get(place)
    if obj is None or not obj["metadata"].get("deletionTimestamp"):
        return
    if not session.transaction.places_in(namespace) and not _finalizers(obj):
        session.transaction.remove(place)
        for dependent in session.transaction.dependents(obj["metadata"]["uid"]):
            release(session, dependent)
