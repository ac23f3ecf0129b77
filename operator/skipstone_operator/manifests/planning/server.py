"""All objects that a planning server consists of.

Reconcilers write what ``build_server`` returns, one after the other. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skipstone_core.contract.planning import PLANNING_PORT, PlanningSettings
from skipstone_core.ids import canonical_hash

from skipstone_operator.labels import MANIFEST_HASH_ANNOTATION
from skipstone_operator.manifests.planning.deployment import SETTINGS_FILE, ServerPod, build_deployment
from skipstone_operator.manifests.planning.names import (
    pod_labels,
    seal_name,
    server_labels,
    server_name,
    server_selector,
)
from skipstone_operator.manifests.run import Owner
from skipstone_operator.manifests.shape import PodPlace

SEAL_KEY = "seal"


@dataclass(frozen=True, kw_only=True)
class PlanningServer:
    """All that decides how a server looks. ``settings_uid``: of its ConfigMap; empty while there is none.

    ``own_account``: the server gets a ServiceAccount of its own; ``pod.place`` names the account. ``allow_from``: the
    peers of a NetworkPolicy that may connect; None: everybody.
    """

    owner: Owner
    settings: PlanningSettings
    pod: ServerPod
    own_account: bool
    allow_from: Sequence[Mapping[str, Any]] | None
    settings_uid: str

    @property
    def place(self) -> PodPlace:
        """Where its pods are."""
        return self.pod.place


def build_server(server: PlanningServer) -> tuple[dict[str, Any], ...]:
    """The objects in the order in which they are written, each with the hash of its manifest.

    What is not among them is not wanted. Raises BadSpec for a podTemplate that is not allowed.
    """
    # Pods that must share a node cannot leave it one by one: a budget would keep that node from being drained.
    has_budget = server.pod.replicas > 1 and not server.place.one_node
    built = [
        *([_service_account(server)] if server.own_account else []),
        _conf_map(server),
        _network_policy(server),
        _service(server),
        *([_disruption_budget(server)] if has_budget else []),
        _deployment(server),
    ]
    return tuple(map(_hashed, built))


def build_seal(server: PlanningServer, key: str) -> dict[str, Any]:
    """The Secret that all replicas share. It goes with the ConfigMap, whose uid is in its name.

    It is created and never read, so nobody compares it with anything.
    """
    conf = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": server_name(server.owner.name),
        "uid": server.settings_uid,
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": seal_name(server.owner.name, server.settings_uid),
            "namespace": server.place.namespace,
            "labels": server_labels(server.owner.name, server.owner.uid),
            "ownerReferences": [conf],
        },
        "type": "Opaque",
        "immutable": True,
        "stringData": {SEAL_KEY: key},
    }


def _service_account(server: PlanningServer) -> dict[str, Any]:
    return {**_object(server, "v1", "ServiceAccount"), "automountServiceAccountToken": False}


def _conf_map(server: PlanningServer) -> dict[str, Any]:
    return {**_object(server, "v1", "ConfigMap"), "data": {SETTINGS_FILE: server.settings.to_json()}}


def _network_policy(server: PlanningServer) -> dict[str, Any]:
    # Catalogs and stores may be anywhere, so the way out is open.
    rule: dict[str, Any] = {"ports": [{"protocol": "TCP", "port": PLANNING_PORT}]}
    if server.allow_from is not None:
        rule["from"] = [dict(peer) for peer in server.allow_from]
    spec = {
        "podSelector": {"matchLabels": server_selector(server.owner.uid)},
        "policyTypes": ["Ingress"],
        "ingress": [rule],
    }
    return {**_object(server, "networking.k8s.io/v1", "NetworkPolicy"), "spec": spec}


def _service(server: PlanningServer) -> dict[str, Any]:
    port = {
        "name": "http",
        "protocol": "TCP",
        "appProtocol": "http",
        "port": PLANNING_PORT,
        "targetPort": "http",
    }
    return {
        **_object(server, "v1", "Service"),
        "spec": {"type": "ClusterIP", "selector": server_selector(server.owner.uid), "ports": [port]},
    }


def _disruption_budget(server: PlanningServer) -> dict[str, Any]:
    spec = {
        "maxUnavailable": 1,
        "selector": {"matchLabels": server_selector(server.owner.uid)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }
    return {**_object(server, "policy/v1", "PodDisruptionBudget"), "spec": spec}


def _deployment(server: PlanningServer) -> dict[str, Any]:
    spec = build_deployment(
        server.pod,
        labels=pod_labels(server.owner.name, server.owner.uid),
        name=server_name(server.owner.name),
        seal=(seal_name(server.owner.name, server.settings_uid), SEAL_KEY),
        settings_hash=canonical_hash({"settings": server.settings.to_json()}),
    )
    return {**_object(server, "apps/v1", "Deployment"), "spec": spec}


def _object(server: PlanningServer, api_version: str, kind: str) -> dict[str, Any]:
    reference = {
        "apiVersion": server.owner.api_version,
        "kind": server.owner.kind,
        "name": server.owner.name,
        "uid": server.owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        "name": server_name(server.owner.name),
        "namespace": server.place.namespace,
        "labels": server_labels(server.owner.name, server.owner.uid),
        "ownerReferences": [reference],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _hashed(manifest: dict[str, Any]) -> dict[str, Any]:
    annotations = {MANIFEST_HASH_ANNOTATION: canonical_hash(manifest)}
    return {**manifest, "metadata": {**manifest["metadata"], "annotations": annotations}}
