"""Pods: containers, their variables, mounts and resources; a pod's spec never changes. Pure but for defaults."""

from __future__ import annotations

from typing import Any

from skipstone_local.admission.builtin.shapes import AMOUNTS, ANY, FLAG, NUMBER, TEXT
from skipstone_local.admission.failures import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_FOUND,
    REQUIRED,
    Failures,
    FieldFailure,
    JsonObject,
    unsupported,
)
from skipstone_local.admission.metadata.names import label_problems, variable_problems
from skipstone_local.admission.quantities import parse_quantity

_VARIABLE = {"name": TEXT, "value": TEXT, "valueFrom": {}}
_MOUNT = {"name": TEXT, "mountPath": TEXT, "readOnly": FLAG, "subPath": TEXT}
_RESOURCES = {"requests": AMOUNTS, "limits": AMOUNTS}
_CONTAINER = {
    **dict.fromkeys(("name", "image", "workingDir", "imagePullPolicy", "terminationMessagePath"), TEXT),
    "command": [TEXT],
    "args": [TEXT],
    "env": [_VARIABLE],
    "volumeMounts": [_MOUNT],
    "resources": _RESOURCES,
}
_VOLUME = {
    "name": TEXT,
    "persistentVolumeClaim": {"claimName": TEXT, "readOnly": FLAG},
    "configMap": {"name": TEXT},
    "secret": {"secretName": TEXT},
    "emptyDir": {},
}
POD = {
    "metadata": ANY,
    "spec": {
        **dict.fromkeys(("restartPolicy", "serviceAccountName", "nodeName", "priorityClassName"), TEXT),
        **dict.fromkeys(("activeDeadlineSeconds", "terminationGracePeriodSeconds"), NUMBER),
        "containers": [_CONTAINER],
        "initContainers": [_CONTAINER],
        "volumes": [_VOLUME],
    },
    "status": {},
}
_CHANGEABLE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
_FIXED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def complete_pod(obj: JsonObject) -> None:
    """Set the defaults that a kubelet relies on."""
    spec = obj.setdefault("spec", {}) or {}
    obj["spec"] = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 30} | spec
    for volume in obj["spec"].get("volumes") or ():
        if not set(volume) - {"name"}:
            volume["emptyDir"] = {}
    obj.setdefault("status", {"phase": "Pending"})


def check_pod(obj: JsonObject, old: JsonObject | None) -> Failures:
    """Return what is wrong with a Pod."""
    spec = obj["spec"]
    if old is not None:
        same = _fixed_part(spec) == _fixed_part(old.get("spec", {}))
        return [] if same else [FieldFailure(FORBIDDEN, "spec", detail=_FIXED)]
    failures = _check_volumes(spec.get("volumes") or [])
    volumes = {volume.get("name", "") for volume in spec.get("volumes") or () if not _check_volumes([volume])}
    containers = spec.get("containers") or []
    if not containers:
        failures.append(FieldFailure(REQUIRED, "spec.containers"))
    failures += _check_containers(containers, "spec.containers", volumes)
    failures += _check_containers(spec.get("initContainers") or [], "spec.initContainers", volumes)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        failures.append(unsupported("spec.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never")))
    return failures


def _fixed_part(spec: JsonObject) -> JsonObject:
    kept = {name: value for name, value in spec.items() if name not in _CHANGEABLE}
    for name in ("containers", "initContainers"):
        kept[name] = [{**container, "image": ""} for container in spec.get(name) or ()]
    return kept


def _check_name(name: str, path: str) -> Failures:
    if not name:
        return [FieldFailure(REQUIRED, path)]
    return [FieldFailure(INVALID, path, name, problem) for problem in label_problems(name)]


def _check_volumes(volumes: list[Any]) -> Failures:
    failures: Failures = []
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        name, at = volume.get("name", ""), f"spec.volumes[{index}]"
        wrong = _check_name(name, f"{at}.name")
        if name in seen:
            wrong.append(FieldFailure(DUPLICATE, f"{at}.name", name))
        if "persistentVolumeClaim" in volume and not (volume["persistentVolumeClaim"] or {}).get("claimName"):
            wrong.append(FieldFailure(REQUIRED, f"{at}.persistentVolumeClaim.claimName"))
        seen |= set() if wrong else {name}
        failures += wrong
    return failures


def _check_containers(containers: list[Any], at: str, volumes: set[str]) -> Failures:
    failures: Failures = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        path, name = f"{at}[{index}]", container.get("name", "")
        failures += _check_name(name, f"{path}.name")
        if name in seen:
            failures.append(FieldFailure(DUPLICATE, f"{path}.name", name))
        seen.add(name)
        if not container.get("image"):
            failures.append(FieldFailure(REQUIRED, f"{path}.image"))
        failures += _check_variables(container.get("env") or [], f"{path}.env")
        failures += _check_mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
        failures += _check_resources(container.get("resources") or {}, f"{path}.resources")
    return failures


def _check_variables(variables: list[Any], at: str) -> Failures:
    failures = []
    for index, variable in enumerate(variables):
        name, path = variable.get("name", ""), f"{at}[{index}].name"
        problems = variable_problems(name) if name else ()
        failures += [FieldFailure(INVALID, path, name, problem) for problem in problems]
        if not name:
            failures.append(FieldFailure(REQUIRED, path))
    return failures


def _check_mounts(mounts: list[Any], at: str, volumes: set[str]) -> Failures:
    failures, seen = [], set()
    for index, mount in enumerate(mounts):
        name, path = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            failures.append(FieldFailure(REQUIRED, f"{at}[{index}].name"))
        if name not in volumes:
            failures.append(FieldFailure(NOT_FOUND, f"{at}[{index}].name", name))
        if not path:
            failures.append(FieldFailure(REQUIRED, f"{at}[{index}].mountPath"))
        if path in seen:
            failures.append(FieldFailure(INVALID, f"{at}[{index}].mountPath", path, "must be unique"))
        seen.add(path)
    return failures


def _check_resources(resources: JsonObject, at: str) -> Failures:
    failures = []
    limits = resources.get("limits") or {}
    for name, amount in (resources.get("requests") or {}).items():
        limit = limits.get(name)
        if limit is not None and parse_quantity(str(amount)) > parse_quantity(str(limit)):
            detail = f"must be less than or equal to {name} limit of {limit}"
            failures.append(FieldFailure(INVALID, f"{at}.requests", str(amount), detail))
    return failures
