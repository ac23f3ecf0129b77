"""The Warehouse's podTemplate: what it may hold, and how it is laid over our pods.

An allow-list: whatever could lend a pod rights that the Warehouse's author was not given is refused by name.
Called by ``pods``, ``executors`` and reconcilers (``check_pod_template``); pure.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from skipstone_core.errors import BadSpec
from skipstone_core.reasons import Reason

FIELD = "spec.spark.podTemplate"
TOP = ("metadata", "spec")
METADATA = ("labels", "annotations")
SPEC = (
    "affinity",
    "containers",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
)
#: Fields that may be written out as long as they are false.
ONLY_FALSE = ("hostIPC", "hostNetwork", "hostPID")
#: Our scratch volumes, which may be given another size or kind, and the kinds that hold nobody else's data.
SCRATCH_VOLUMES = ("tmp", "spark-local-dir-1")
SCRATCH_KINDS = ("name", "emptyDir", "ephemeral")
#: Pods of such a class displace those of everybody else.
SYSTEM_PRIORITY = "system-"
CONTAINER = ("name", "env", "resources")
ENV = ("name", "value")
#: Prefixes of labels, annotations and variables that carry Skipstone's or Spark's own meaning.
OWN_METADATA = ("skipstone.dev/", "app.kubernetes.io/", "spark-", "kubernetes.io/", "pod-security.kubernetes.io/")
OWN_ENV = ("SKIPSTONE_", "SPARK_", "PYSPARK_", "POD_", "LD_", "PYTHON", "JAVA_", "JDK_", "KUBERNETES_")
OWN_ENV_NAMES = ("PATH", "HOME")


def check_pod_template(template: Mapping[str, Any] | None) -> None:
    """Raise BadSpec that names the first field which is not allowed."""
    template = _object(template or {}, FIELD, TOP)
    metadata = _object(template.get("metadata", {}), f"{FIELD}.metadata", METADATA)
    for section in METADATA:
        _check_metadata(metadata.get(section, {}), f"{FIELD}.metadata.{section}")
    spec = _object(template.get("spec", {}), f"{FIELD}.spec", SPEC)
    for name in ONLY_FALSE:
        if spec.get(name, False) is not False:
            raise _refused(f"{FIELD}.spec.{name}", "runs never share the node's own namespaces; remove it")
    _check_volumes(spec.get("volumes", ()), f"{FIELD}.spec.volumes")
    _check_containers(spec.get("containers", ()), f"{FIELD}.spec.containers")
    _check_priority(spec.get("priorityClassName", ""), f"{FIELD}.spec.priorityClassName")
    for name in ("nodeSelector", "affinity"):
        _object(spec.get(name, {}), f"{FIELD}.spec.{name}")
    for name in ("imagePullSecrets", "tolerations", "topologySpreadConstraints"):
        _objects(spec.get(name, ()), f"{FIELD}.spec.{name}")


def merge_pod_template(pod: dict[str, Any], template: Mapping[str, Any]) -> dict[str, Any]:
    """``pod`` with the template's fields added: maps joined (ours win), lists appended, resources replaced by key.

    Raises BadSpec when the template is not allowed. ``pod`` has exactly one container.
    """
    check_pod_template(template)
    merged: dict[str, Any] = copy.deepcopy(pod)
    for section, values in template.get("metadata", {}).items():
        merged["metadata"][section] = {**values, **merged["metadata"].get(section, {})}
    _merge_spec(merged["spec"], template.get("spec", {}))
    return merged


def _merge_spec(spec: dict[str, Any], template: Mapping[str, Any]) -> None:
    for name, value in template.items():
        if name == "containers":
            _merge_container(spec["containers"][0], value[0] if value else {})
        elif name == "volumes":
            theirs = {volume["name"]: volume for volume in value}
            spec["volumes"] = [theirs.get(volume["name"], volume) for volume in spec["volumes"]]
        elif name not in ONLY_FALSE:
            spec[name] = joined(spec.get(name), value)


def _merge_container(container: dict[str, Any], template: Mapping[str, Any]) -> None:
    container["env"] = [*template.get("env", ()), *container.get("env", ())]
    resources = container.get("resources", {})
    for section, values in template.get("resources", {}).items():
        resources = {**resources, section: {**resources.get(section, {}), **values}}
    if resources:
        container["resources"] = resources


def joined(ours: Any, theirs: Any) -> Any:
    """Maps joined key by key, lists one after the other; of two plain values ours stays."""
    if ours is None:
        return copy.deepcopy(theirs)
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return {**ours, **{key: joined(ours.get(key), value) for key, value in theirs.items()}}
    if isinstance(ours, list) and isinstance(theirs, list):
        return [*ours, *theirs]
    return ours


def _check_priority(value: Any, path: str) -> None:
    if not isinstance(value, str):
        raise _refused(path, "expected a string")
    if value.startswith(SYSTEM_PRIORITY):
        raise _refused(path, "classes that begin with system- are for the cluster's own pods; name another one")


def _check_containers(value: Any, path: str) -> None:
    containers = _objects(value, path)
    if len(containers) > 1:
        raise _refused(f"{path}[1]", "a run has one container; put env and resources for it into the first entry")
    for container in containers:
        _object(container, f"{path}[0]", CONTAINER)
        _check_resources(container.get("resources", {}), f"{path}[0].resources")
        for entry in _objects(container.get("env", ()), f"{path}[0].env"):
            _check_env(entry, f"{path}[0].env")


def _check_volumes(value: Any, path: str) -> None:
    for volume in _objects(value, path):
        name = str(volume.get("name"))
        if name not in SCRATCH_VOLUMES:
            raise _refused(f"{path}[{name}]", f"only these volumes may be given again: {', '.join(SCRATCH_VOLUMES)}")
        _object(volume, f"{path}[{name}]", SCRATCH_KINDS)


def _check_resources(value: Any, path: str) -> None:
    for section, values in _object(value, path, ("requests", "limits")).items():
        _object(values, f"{path}.{section}")


def _check_env(entry: Mapping[str, Any], path: str) -> None:
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise _refused(f"{path}[].name", "every variable needs a name")
    _object(entry, f"{path}[{name}]", ENV)
    if name.startswith(OWN_ENV) or name in OWN_ENV_NAMES:
        raise _refused(f"{path}[{name}]", "this variable is set by Skipstone; remove it")
    if not isinstance(entry.get("value", ""), str):
        raise _refused(f"{path}[{name}].value", "the value must be a string; put it in quotes")


def _check_metadata(value: Any, path: str) -> None:
    for key, text in _object(value, path).items():
        if str(key).startswith(OWN_METADATA):
            raise _refused(f"{path}[{key}]", "this key is set by Skipstone; remove it")
        if not isinstance(text, str):
            raise _refused(f"{path}[{key}]", "the value must be a string; put it in quotes")


def _objects(value: Any, path: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(value, list | tuple):
        raise _refused(path, "expected a list")
    for position, item in enumerate(value):
        _object(item, f"{path}[{position}]")
    return value


def _object(value: Any, path: str, allowed: tuple[str, ...] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _refused(path, "expected an object")
    if allowed is not None and (extra := sorted(set(map(str, value)) - set(allowed))):
        raise _refused(f"{path}.{extra[0]}", f"this field may not be set; allowed here: {', '.join(allowed)}")
    return value


def _refused(path: str, message: str) -> BadSpec:
    return BadSpec(Reason.INVALID_SPEC, message, field=path)
