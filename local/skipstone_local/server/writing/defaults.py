"""What the API server fills into objects of Kubernetes' own kinds, beside what admission completes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.store import JsonObject

POD_SPEC: JsonObject = {
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "serviceAccountName": "default",
    "enableServiceLinks": True,
    "securityContext": {},
}
CONTAINER: JsonObject = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
#: The status of a new object, by kind; of other kinds it is empty.
STATUSES: Mapping[str, JsonObject] = {
    "Namespace": {"phase": "Active"},
    "Pod": {"phase": "Pending", "qosClass": "BestEffort"},
    "PersistentVolumeClaim": {"phase": "Pending"},
    "Service": {"loadBalancer": {}},
    "Deployment": {},
    "PodDisruptionBudget": {
        "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
    },
}  # fmt: skip


def fill_defaults(kind: ServedKind, obj: JsonObject) -> JsonObject:
    """The object with the defaults of its kind; kinds of Skipstone have them in their schemas."""
    fill = FILLERS.get(kind.name)
    return obj if fill is None else fill(obj)


def begin_status(kind: ServedKind, obj: JsonObject) -> JsonObject:
    """The object with the status of a new one: what callers say of it does not count."""
    if not kind.has_status:
        return obj
    bare = {name: value for name, value in obj.items() if name != "status"}
    return bare if kind.is_ours else {**bare, "status": dict(STATUSES.get(kind.name, {}))}


def fill_pod_spec(spec: JsonObject) -> JsonObject:
    """A pod's spec with defaults."""
    filled = {**POD_SPEC, **spec}
    for part in ("containers", "initContainers"):
        if isinstance(spec.get(part), list):
            filled[part] = [_container(each) for each in spec[part]]
    return filled


def _container(container: object) -> object:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    _, _, tag = image.rpartition("/")[2].partition(":")
    always = not container.get("image") or (tag in ("", "latest") and "@" not in image)
    return {**CONTAINER, "imagePullPolicy": "Always" if always else "IfNotPresent", **container}


def _spec(obj: JsonObject) -> JsonObject:
    spec = obj.get("spec")
    return spec if isinstance(spec, dict) else {}


def _pod(obj: JsonObject) -> JsonObject:
    return {**obj, "spec": fill_pod_spec(_spec(obj))} if isinstance(obj.get("spec"), dict) else obj


def _namespace(obj: JsonObject) -> JsonObject:
    labels = {**(obj["metadata"].get("labels") or {}), "kubernetes.io/metadata.name": obj["metadata"]["name"]}
    return {**obj, "metadata": {**obj["metadata"], "labels": labels}, "spec": {"finalizers": ["kubernetes"]}}


def _service(obj: JsonObject) -> JsonObject:
    spec = {"type": "ClusterIP", "sessionAffinity": "None", "clusterIP": "127.0.0.1", **_spec(obj)}
    if isinstance(spec.get("ports"), list):
        spec["ports"] = [_port(port) for port in spec["ports"]]
    return {**obj, "spec": spec}


def _port(port: object) -> object:
    return {"protocol": "TCP", "targetPort": port.get("port"), **port} if isinstance(port, dict) else port


def _deployment(obj: JsonObject) -> JsonObject:
    spec = {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, **_spec(obj)}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    spec["strategy"] = spec.get("strategy") or rolling
    template = spec.get("template")
    if isinstance(template, dict) and isinstance(template.get("spec"), dict):
        spec["template"] = {**template, "spec": fill_pod_spec(template["spec"])}
    return {**obj, "spec": spec}


FILLERS: Mapping[str, Callable[[JsonObject], JsonObject]] = {
    "Pod": _pod,
    "Namespace": _namespace,
    "Service": _service,
    "Deployment": _deployment,
}
