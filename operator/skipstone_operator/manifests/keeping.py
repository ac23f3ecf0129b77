"""The pod of a kept driver, and the pod of a run that is assigned to one.

The latter is never started by a node: its scheduler is the kept driver, which runs it in a process of its own, with the
files of the run's ConfigMap as the pod's spec has them. Called by reconcilers; pure.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from skipstone_core.contract.keeping import (
    CREDENTIALS_DIRECTORY,
    FILES_VARIABLE,
    IDLE_VARIABLE,
    WAREHOUSE_VARIABLE,
    scheduler_name,
)
from skipstone_core.contract.spark import SparkRef
from skipstone_core.ids import canonical_hash

from skipstone_operator.labels import (
    DRIVER_CONTAINER,
    DRIVER_ROLE,
    KEPT_DRIVER_LABEL,
    MANAGED_BY,
    MANAGED_BY_LABEL,
    MANIFEST_HASH_ANNOTATION,
    OPERATION_LABEL,
    OWNER_KIND_LABEL,
    OWNER_UID_LABEL,
    ROLE_LABEL,
    WAREHOUSE_UID_LABEL,
)
from skipstone_operator.manifests.names import APP_LABEL, COMPONENT_LABEL
from skipstone_operator.manifests.pods import (
    CONTAINER_SECURITY,
    authorities_env,
    downward,
    driver_resources,
    pod_spec,
    shared_mounts,
    shared_volumes,
)
from skipstone_operator.manifests.run import Owner, owned_by
from skipstone_operator.manifests.shape import SCRATCH, PodPlace, SecretVariable
from skipstone_operator.manifests.spark import plan_spark
from skipstone_operator.manifests.templates import merge_pod_template
from skipstone_operator.resources.warehouse import SparkSettings

Json = dict[str, Any]
COMPONENT = OPERATION = "Keep"
#: Ends the name of the account of kept drivers: their pods may read pods and write the statuses of those assigned.
KEPT_ACCOUNT_SUFFIX = "-kept"
#: The files of a larger request do not go into the spec of a pod.
MAX_FILES_BYTES = 256 * 1024
#: The kept driver's pod has reserved what the run uses.
_NOTHING = {"cpu": "0", "memory": "0"}
_OF_CONTAINER = (
    "name",
    "image",
    "imagePullPolicy",
    "args",
    "workingDir",
    "securityContext",
    "terminationMessagePolicy",
)
_OF_POD = ("restartPolicy", "serviceAccountName", "enableServiceLinks", "securityContext", "activeDeadlineSeconds")


@dataclass(frozen=True, kw_only=True)
class KeptPod:
    """What the pods of a Warehouse's kept drivers are made from. ``owner``: the Warehouse."""

    place: PodPlace
    owner: Owner
    spark: SparkSettings
    spark_ref: SparkRef


def kept_driver_name(warehouse_uid: str, number: int) -> str:
    """The name of the pod of a kept driver."""
    return f"{warehouse_uid.replace('-', '')[:8]}-kept-{number}"


def build_kept_driver(kept: KeptPod, number: int, idle_seconds: int | None) -> Json:
    """The pod of the kept driver ``number``; ``idle_seconds`` None: it stays without a run.

    Raises BadSpec for a podTemplate or a Spark setting that is not allowed.
    """
    place = kept.place
    spec = {
        **pod_spec(place, _container(kept, idle_seconds)),
        "automountServiceAccountToken": True,
        "volumes": [*shared_volumes(place), *_credentials_volumes(place.variables)],
    }
    name = kept_driver_name(place.warehouse_uid, number)
    metadata = {"name": name, "namespace": place.namespace, "labels": _labels(place.warehouse_uid)}
    pod = merge_pod_template({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, place.template)
    return _with_hash(owned_by(kept.owner, pod), kept_driver_hash(kept))


def kept_driver_hash(kept: KeptPod) -> str:
    """What changes when drivers that are kept have to be made again. How long one stays is not part of it."""
    container, template = _container(kept, None), kept.place.template
    spec = {**pod_spec(kept.place, container), "volumes": _credentials_volumes(kept.place.variables)}
    return canonical_hash({"spec": spec, "shared": shared_volumes(kept.place), "template": dict(template)})


def assign(pod: Json, conf_map: Json, *, name: str, uid: str) -> Json:
    """``pod`` of a run as the pod that the kept driver ``name`` with this ``uid`` runs."""
    container = pod["spec"]["containers"][0]
    own = {key: container[key] for key in _OF_CONTAINER if key in container}
    files = {"name": FILES_VARIABLE, "value": _files_of(conf_map)}
    spec = {key: pod["spec"][key] for key in _OF_POD if key in pod["spec"]}
    return {
        **pod,
        "metadata": {**pod["metadata"], "labels": {**pod["metadata"]["labels"], KEPT_DRIVER_LABEL: name}},
        "spec": {
            **spec,
            "automountServiceAccountToken": False,
            "schedulerName": scheduler_name(uid),
            "containers": [{**own, "env": [*container["env"], files], "resources": {"requests": _NOTHING}}],
        },
    }


def can_assign(conf_map: Json) -> bool:
    """Return whether the files of a run are small enough to be part of its pod."""
    return len(_files_of(conf_map).encode()) <= MAX_FILES_BYTES


def _files_of(conf_map: Json) -> str:
    return json.dumps(conf_map["data"], sort_keys=True)


def _with_hash(pod: Json, manifest_hash: str) -> Json:
    annotations = {**pod["metadata"].get("annotations", {}), MANIFEST_HASH_ANNOTATION: manifest_hash}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def _labels(warehouse_uid: str) -> dict[str, str]:
    return {
        APP_LABEL: "skipstone",
        MANAGED_BY_LABEL: MANAGED_BY,
        COMPONENT_LABEL: COMPONENT.lower(),
        OPERATION_LABEL: OPERATION,
        OWNER_KIND_LABEL: "Warehouse",
        OWNER_UID_LABEL: warehouse_uid,
        WAREHOUSE_UID_LABEL: warehouse_uid,
        ROLE_LABEL: DRIVER_ROLE,
    }


def _container(kept: KeptPod, idle_seconds: int | None) -> Json:
    place = kept.place
    env = [
        downward("POD_NAME", "metadata.name"),
        downward("POD_NAMESPACE", "metadata.namespace"),
        downward("POD_UID", "metadata.uid"),
        {"name": WAREHOUSE_VARIABLE, "value": place.warehouse_uid},
        *authorities_env(place),
        {"name": "HOME", "value": SCRATCH},
    ]
    if idle_seconds is not None:
        env.append({"name": IDLE_VARIABLE, "value": str(idle_seconds)})
    credentials = {"name": "credentials", "mountPath": CREDENTIALS_DIRECTORY, "readOnly": True}
    return {
        "name": DRIVER_CONTAINER,
        "image": place.image,
        "imagePullPolicy": place.pull_policy,
        "args": ["app", "keep"],
        "workingDir": SCRATCH,
        "env": env,
        "resources": driver_resources(plan_spark(kept.spark, kept.spark_ref)),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [*shared_mounts(place), *([credentials] if place.variables else [])],
    }


def _credentials_volumes(variables: tuple[SecretVariable, ...]) -> list[Json]:
    """One volume with a file for each variable: unlike a variable, it follows its Secret when that changes."""
    sources = [
        {
            "secret": {
                "name": variable.secret,
                "items": [{"key": variable.key, "path": variable.name}],
                **({"optional": True} if variable.optional else {}),
            }
        }
        for variable in variables
    ]
    return [{"name": "credentials", "projected": {"sources": sources}}] if sources else []
