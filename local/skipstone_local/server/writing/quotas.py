"""ResourceQuotas: how many objects a namespace may have. Amounts of CPU, memory and storage are not counted."""

from __future__ import annotations

import json

from skipstone_local.server.answers.refusals import forbidden, invalid
from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.server.requests.calls import read_map
from skipstone_local.server.writing.session import ApiSession
from skipstone_local.store import JsonObject

#: Kinds whose objects a quota may name without `count/`.
NAMED = (
    "configmaps", "persistentvolumeclaims", "pods", "resourcequotas", "secrets", "services",
)  # fmt: skip
ENDED = ("Succeeded", "Failed")


def check_quotas(session: ApiSession, kind: ServedKind, obj: JsonObject) -> None:
    """Raise Refusal when a quota of the namespace allows no further object of a kind."""
    if not kind.namespaced:
        return
    namespace = obj["metadata"]["namespace"]
    for quota in session.transaction.select("resourcequotas", namespace):
        hard = (quota.get("spec") or {}).get("hard") or {}
        for name in (name for name in hard if name in _names(kind)):
            used = _used(session, name, namespace)
            if used + 1 > int(str(hard[name])):
                counts = f"requested: {name}=1, used: {name}={used}, limited: {name}={hard[name]}"
                why = f"exceeded quota: {quota['metadata']['name']}, {counts}"
                raise forbidden(kind, obj["metadata"]["name"], why)


def count_quota(session: ApiSession, quota: JsonObject) -> JsonObject:
    """The quota with a status: what it allows, and what there is."""
    hard = read_map(quota.get("spec") or {}, "hard")
    namespace = quota["metadata"]["namespace"]
    for name in (name for name in hard if _resource(name)):
        if not str(hard[name]).isdecimal():
            kind = session.catalog.of_resource("resourcequotas")
            why = f"Invalid value: {json.dumps(hard[name])}: must be a whole number from 0 on"
            raise invalid(kind, quota["metadata"]["name"], f"spec.hard[{name}]", why)
    counted = {name: _used(session, name, namespace) for name in hard if _resource(name)}
    if left_out := sorted(hard.keys() - counted.keys()):
        session.warnings.append(f"this server does not enforce quotas of {', '.join(left_out)}")
    used = {name: str(number) for name, number in counted.items()}
    return {**quota, "status": {"hard": {name: str(value) for name, value in hard.items()}, "used": used}}


def _names(kind: ServedKind) -> tuple[str, ...]:
    plain = (kind.plural,) if not kind.group and kind.plural in NAMED else ()
    return (f"count/{kind.qualified}", *plain)


def _resource(name: str) -> str:
    if name.startswith("count/"):
        return name.removeprefix("count/")
    return name if name in NAMED else ""


def _used(session: ApiSession, name: str, namespace: str) -> int:
    resource = _resource(name)
    if name != "pods":
        return session.transaction.count(resource, namespace)
    pods = session.transaction.select(resource, namespace)
    return sum((pod.get("status") or {}).get("phase") not in ENDED for pod in pods)
