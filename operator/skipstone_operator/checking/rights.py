"""What the operator's account must be allowed to do. The chart's Roles grant exactly this, and a test compares them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from skipstone_operator.ports import JsonObject
from skipstone_operator.resources.kinds import GROUP, KINDS

JOBS = ("loadjobs", "mergejobs")
CORE = ""
#: What planning servers consist of, besides a ConfigMap and a Secret.
SERVER = (
    (CORE, "serviceaccounts"),
    (CORE, "services"),
    ("apps", "deployments"),
    ("networking.k8s.io", "networkpolicies"),
    ("policy", "poddisruptionbudgets"),
)


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource, of one object if ``name`` is not empty. ``resource`` may have a subresource."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        """As people write it."""
        where = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {where}{f' {self.name}' if self.name else ''}"


def watched_rights() -> Iterator[Right]:
    """The rights in every watched namespace."""
    for kind in KINDS.values():
        yield from _rights(GROUP, kind.plural, "get", "list", "watch", "update")
        yield from _rights(GROUP, f"{kind.plural}/status", "update")
        yield from _rights(GROUP, f"{kind.plural}/finalizers", "update")
    yield Right(GROUP, "mergejobs", "create")
    for plural in JOBS:
        yield Right(GROUP, plural, "delete")
    for resource in ("pods", "configmaps"):
        yield from _rights(CORE, resource, "get", "list", "watch", "create", "delete")
    # A run whose kept driver is gone is ended in its name.
    yield Right(CORE, "pods/status", "update")
    yield Right(CORE, "configmaps", "update")
    yield from _rights(CORE, "persistentvolumeclaims", "get", "list", "watch")
    for group, resource in SERVER:
        yield from _rights(group, resource, "get", "list", "watch", "create", "update", "delete")
    # The key of a planning server is created; no Secret is ever read.
    yield Right(CORE, "secrets", "create")
    yield from _rights("events.k8s.io", "events", "create", "patch")


def lease_rights(lease: str) -> Iterator[Right]:
    """The rights in the release's own namespace."""
    group = "coordination.k8s.io"
    yield Right(group, "leases", "create")
    yield Right(group, "leases", "get", lease)
    yield Right(group, "leases", "update", lease)


def build_review(right: Right, namespace: str) -> JsonObject:
    """The question to the API server whether whoever asks has ``right`` in ``namespace``."""
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "namespace": namespace,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verb,
        "name": right.name,
    }
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }


def _rights(group: str, resource: str, *verbs: str) -> Iterator[Right]:
    return (Right(group, resource, verb) for verb in verbs)
