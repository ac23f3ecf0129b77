"""What is posted to an object: a pod's node, its eviction, a token of an account."""

from __future__ import annotations

from datetime import timedelta

from skipstone_local.server.answers.refusals import bad_request, build_status, conflict
from skipstone_local.server.requests.calls import ApiTarget, read_map
from skipstone_local.server.requests.tokens import Identity, issue
from skipstone_local.server.writing.deleting import delete, read_options
from skipstone_local.server.writing.session import ApiSession, place_of, time_text
from skipstone_local.server.writing.updating import find
from skipstone_local.store import JsonObject

LONGEST_SECONDS = 1 << 32


def bind(session: ApiSession, target: ApiTarget, binding: JsonObject) -> JsonObject:
    """Put a pod on a node. Raises Refusal when it is on one."""
    pod = find(session, target)
    node = read_map(binding, "target").get("name")
    if not isinstance(node, str) or not node:
        raise bad_request("target.name is required: name the node")
    if pod["spec"].get("nodeName"):
        why = f'pod {target.name} is already assigned to node "{pod["spec"]["nodeName"]}"'
        raise conflict(target.kind, target.name, why)
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": session.timestamp}
    status = pod.get("status") or {}
    conditions = [each for each in status.get("conditions") or () if each.get("type") != "PodScheduled"]
    bound = {
        **pod,
        "spec": {**pod["spec"], "nodeName": node},
        "status": {**status, "conditions": [*conditions, scheduled]},
    }
    session.transaction.put(place_of(target.kind, pod), bound)
    return build_status("Success", code=201)


def evict(session: ApiSession, target: ApiTarget, eviction: JsonObject) -> JsonObject:
    """Delete a pod, as its options say."""
    delete(session, target.kind, find(session, target), read_options(read_map(eviction, "deleteOptions")))
    return build_status("Success", code=201)


def issue_token(session: ApiSession, target: ApiTarget, request: JsonObject) -> JsonObject:
    """Answer with a token of the account, which may do everything; bound to a pod, it reaches this pod only.

    It lasts as long as the server's own. Raises Refusal.
    """
    find(session, target)
    spec = read_map(request, "spec")
    bound = read_map(spec, "boundObjectRef")
    pod = str(bound.get("name") or "") if bound.get("kind") == "Pod" else ""
    user = f"system:serviceaccount:{target.namespace}:{target.name}"
    token = issue(session.token, Identity(user, target.namespace, pod))
    seconds = spec.get("expirationSeconds") or 3600
    if not isinstance(seconds, int) or not 0 < seconds < LONGEST_SECONDS:
        raise bad_request("spec.expirationSeconds is not a number of seconds")
    ends = session.now + timedelta(seconds=seconds)
    status = {"token": token, "expirationTimestamp": time_text(ends)}
    return {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", **request, "status": status}
