"""The metadata of objects: what callers may say, and what the server says."""

from __future__ import annotations

import random
import uuid

from skipstone_local.server.answers.refusals import bad_request, conflict, invalid
from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.server.requests.calls import ApiTarget, read_map
from skipstone_local.server.writing.session import ApiSession
from skipstone_local.store import JsonObject

#: What callers may set; everything else in metadata is the server's.
CALLERS = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
#: What stays as it was created, or as a deletion set it.
SERVERS = (
    "uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion",
    "managedFields",
)  # fmt: skip
#: Letters of generated names: none that make words.
LETTERS = "bcdfghjklmnpqrstvwxz2456789"
LONGEST_PREFIX = 58


def check_identity(target: ApiTarget, obj: JsonObject) -> JsonObject:
    """The object with apiVersion, kind, name and namespace as the path says. Raises Refusal when it says otherwise."""
    kind = target.kind
    given = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.name
    if kind.is_ours and not (obj.get("apiVersion") and obj.get("kind")):
        raise bad_request("Object 'Kind' is missing in the body of the request")
    if given != (kind.api_version, kind.name):
        raise bad_request(
            f"the API version or the kind in the data ({given[0]}, Kind={given[1]}) does not match the expected one "
            f"({kind.api_version}, Kind={kind.name})"
        )
    metadata = read_map(obj, "metadata")
    # Schemas judge those of our kinds.
    for name in () if kind.is_ours else ("spec", "status"):
        read_map(obj, name)
    placed = {**metadata, **_name(target, metadata), **_namespace(target, metadata)}
    return {**obj, "apiVersion": kind.api_version, "kind": kind.name, "metadata": placed}


def _name(target: ApiTarget, metadata: JsonObject) -> JsonObject:
    name = metadata.get("name") or ""
    if target.name and name and name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    name = name or target.name or _generated(metadata.get("generateName"))
    if not name:
        why = "Required value: name or generateName is required"
        raise invalid(target.kind, "", "metadata.name", why, "FieldValueRequired")
    return {"name": name}


def _generated(prefix: object) -> str:
    if not isinstance(prefix, str) or not prefix:
        return ""
    # Not a secret: only a name that is not taken.
    return prefix[:LONGEST_PREFIX] + "".join(random.choices(LETTERS, k=5))


def _namespace(target: ApiTarget, metadata: JsonObject) -> JsonObject:
    namespace = metadata.get("namespace") or ""
    if namespace and namespace != target.namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
            if target.kind.namespaced
            else "namespace may not be set on an object that has no namespace"
        )
    return {"namespace": target.namespace} if target.namespace else {}


def new_metadata(session: ApiSession, kind: ServedKind, obj: JsonObject) -> JsonObject:
    """The object as it is created: with a uid, a time and the first generation."""
    metadata = obj["metadata"]
    kept = _callers(metadata)
    kept |= {name: metadata[name] for name in ("generateName", "managedFields") if metadata.get(name)}
    generation = {"generation": 1} if kind.generations else {}
    stamped = {**kept, "uid": str(uuid.uuid4()), "creationTimestamp": session.timestamp, **generation}
    return {**obj, "metadata": stamped}


def next_metadata(old: JsonObject, obj: JsonObject) -> JsonObject:
    """The object as it replaces ``old``: what is the server's stays, but for what admission refuses to change."""
    servers = {name: old["metadata"][name] for name in (*SERVERS, "generateName") if name in old["metadata"]}
    judged = {name: obj["metadata"][name] for name in ("uid", "deletionTimestamp") if obj["metadata"].get(name)}
    if "deletionTimestamp" in servers:
        judged.pop("deletionTimestamp", None)
    return {**obj, "metadata": {**_callers(obj["metadata"]), **servers, **judged}}


def _callers(metadata: JsonObject) -> JsonObject:
    return {name: metadata[name] for name in CALLERS if metadata.get(name)}


def check_based_on(kind: ServedKind, old: JsonObject, obj: JsonObject, *, is_patch: bool = False) -> None:
    """Raise Refusal when ``obj`` is another object than ``old``, or an older version of it.

    The uid of a patch is a field that it changes, not a condition.
    """
    name, uid = old["metadata"]["name"], obj["metadata"].get("uid")
    if uid and not is_patch and uid != old["metadata"]["uid"]:
        raise conflict(kind, name, f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
                                   f"{old['metadata']['uid']}")  # fmt: skip
    version = obj["metadata"].get("resourceVersion")
    if version and version != old["metadata"]["resourceVersion"]:
        raise conflict(kind, name)
