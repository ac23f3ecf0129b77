"""The Deployment of a planning server: one pod template of the data plane's image, without a JVM.

Every pod passes Pod Security ``restricted``. Called by ``server``; pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skipstone_core.codec import encode
from skipstone_core.contract.planning import (
    HEALTHY_PATH,
    PLANNING_PORT,
    READY_PATH,
    SEAL_VARIABLE,
    SETTINGS_VARIABLE,
    TOKENS_VARIABLE,
)

from skipstone_operator.labels import DOMAIN
from skipstone_operator.manifests.planning.names import server_selector
from skipstone_operator.manifests.pods import (
    CONTAINER_SECURITY,
    credentials_env,
    pod_spec,
    shared_mounts,
    shared_volumes,
)
from skipstone_operator.manifests.shape import CONF_DIRECTORY, SCRATCH, PodPlace
from skipstone_operator.manifests.templates import merge_pod_template
from skipstone_operator.resources.planning.spec import ServerResources, TokensRef

CONTAINER = "planning"
SETTINGS_FILE = "planning.json"
SETTINGS_HASH_ANNOTATION = f"{DOMAIN}/settings-hash"
#: Before SIGTERM: until load balancers have heard that the pod goes.
DRAIN_SECONDS = 5
#: For refusing new requests before, and for closing after, those in progress have ended.
END_SECONDS = 15
#: How long a rollout may take without progress.
PROGRESS_SECONDS = 300
#: What of the Warehouse's podTemplate is laid under the server's pods. Sizes are its own.
_TEMPLATE_SPEC = ("affinity", "imagePullSecrets", "nodeSelector", "priorityClassName", "tolerations")
Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ServerPod:
    """What the pods of a server are made from. ``longest_request``: in seconds, which the end of a pod waits for."""

    place: PodPlace
    replicas: int
    resources: ServerResources
    tokens: TokensRef | None
    longest_request: int


def build_deployment(
    pod: ServerPod, *, labels: Mapping[str, str], name: str, seal: tuple[str, str], settings_hash: str
) -> Json:
    """The spec of the Deployment. ``seal`` is the name of a Secret and its key.

    Raises BadSpec for a podTemplate that is not allowed.
    """
    selector = {"matchLabels": server_selector(pod.place.warehouse_uid)}
    return {
        "replicas": pod.replicas,
        "selector": selector,
        "revisionHistoryLimit": 2,
        "progressDeadlineSeconds": PROGRESS_SECONDS,
        # A replica goes when another one is ready: clients do not ask twice.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
        "template": _pod_template(pod, labels, name, seal, settings_hash),
    }


def _pod_template(
    pod: ServerPod, labels: Mapping[str, str], name: str, seal: tuple[str, str], settings_hash: str
) -> Json:
    place = pod.place
    spec = {
        **pod_spec(place, _container(pod, seal)),
        "restartPolicy": "Always",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": DRAIN_SECONDS + pod.longest_request + END_SECONDS,
        "volumes": [*shared_volumes(place), {"name": "conf", "configMap": {"name": name}}],
    }
    if not place.one_node:
        spec["topologySpreadConstraints"] = [_spread(place.warehouse_uid)]
    metadata = {"labels": dict(labels), "annotations": {SETTINGS_HASH_ANNOTATION: settings_hash}}
    return merge_pod_template({"metadata": metadata, "spec": spec}, _placement(place.template))


def _placement(template: Mapping[str, Any]) -> Json:
    """What of ``template`` says where pods run and how they reach others."""
    spec = template.get("spec") or {}
    kept: Json = {name: spec[name] for name in _TEMPLATE_SPEC if name in spec}
    if env := [variable for container in spec.get("containers") or () for variable in container.get("env") or ()]:
        kept["containers"] = [{"env": env}]
    return {**template, "spec": kept}


def _spread(warehouse_uid: str) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": server_selector(warehouse_uid)},
        "matchLabelKeys": ["pod-template-hash"],
    }


def _container(pod: ServerPod, seal: tuple[str, str]) -> Json:
    place = pod.place
    return {
        "name": CONTAINER,
        "image": place.image,
        "imagePullPolicy": place.pull_policy,
        "args": ["app", "serve"],
        "workingDir": SCRATCH,
        "env": [*credentials_env(place), *_env(pod, seal)],
        "ports": [{"name": "http", "containerPort": PLANNING_PORT, "protocol": "TCP"}],
        "resources": encode(pod.resources),
        "readinessProbe": _probe(READY_PATH, period=5, timeout=5, failures=2),
        "livenessProbe": _probe(HEALTHY_PATH, period=10, timeout=5, failures=6),
        "startupProbe": _probe(HEALTHY_PATH, period=1, timeout=5, failures=60),
        "lifecycle": {"preStop": {"sleep": {"seconds": DRAIN_SECONDS}}},
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *map(_read_only, shared_mounts(place)),
            {"name": "conf", "mountPath": CONF_DIRECTORY, "readOnly": True},
        ],
    }


def _read_only(mount: Json) -> Json:
    """``mount`` so that the server cannot write to a claim; its volume stays writable for runs on the same node."""
    return {**mount, "readOnly": True} if mount["name"] == "warehouse" else mount


def _env(pod: ServerPod, seal: tuple[str, str]) -> list[Json]:
    secrets = {SEAL_VARIABLE: seal}
    if pod.tokens is not None:
        secrets[TOKENS_VARIABLE] = (pod.tokens.name, pod.tokens.key)
    return [
        *(_secret_variable(variable, name, key) for variable, (name, key) in secrets.items()),
        {"name": SETTINGS_VARIABLE, "value": f"{CONF_DIRECTORY}/{SETTINGS_FILE}"},
        {"name": "HOME", "value": SCRATCH},
    ]


def _secret_variable(variable: str, name: str, key: str) -> Json:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}


def _probe(path: str, *, period: int, timeout: int, failures: int) -> Json:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }
