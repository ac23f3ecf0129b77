"""The pods of a run: what driver and executors share, and the driver itself.

Every pod passes Pod Security ``restricted``. Called by ``run``; pure.
"""

from __future__ import annotations

from typing import Any

from skipstone_core.contract.requests import RunKind
from skipstone_core.ids import CATALOG_VARIABLES

from skipstone_operator.labels import DRIVER_CONTAINER, WAREHOUSE_UID_LABEL
from skipstone_operator.manifests.names import conf_map_name, driver_pod_name, run_labels
from skipstone_operator.manifests.shape import (
    AUTHORITIES_DIRECTORY,
    AUTHORITIES_FILE,
    BLOCK_MANAGER_PORT,
    CONF_DIRECTORY,
    DRIVER_PORT,
    PROPERTIES_FILE,
    PYTHON,
    REQUEST_FILE,
    SCRATCH,
    SPARK_DIRECTORY,
    ClaimMount,
    PodPlace,
    PodShape,
    SecretVariable,
)
from skipstone_operator.manifests.spark import SparkPlan
from skipstone_operator.manifests.templates import merge_pod_template
from skipstone_operator.resources.storage import AuthorityRef

USER_ID = 10001
#: Tells the image's entrypoint which certificates to trust besides the system's.
AUTHORITIES_VARIABLE = "SKIPSTONE_CA_BUNDLE"
#: The volume that they are in.
AUTHORITIES = "authorities"
#: Java would see all cores of the node, and choose a collector for several: that one takes a tenth of the heap for
#: itself, two places for one in a row of 1 MiB, and keeps a heap that it once had.
ONE_CORE_JVM = "-XX:+UseSerialGC"
#: Memory of runs without Spark: an idle interpreter with Arrow loaded, and room for the manifests of a large table.
LIGHT_REQUESTS = {"cpu": "100m", "memory": "256Mi"}
LIGHT_LIMITS = {"memory": "2Gi"}

#: What a maintain run that gives way has left for the commit in hand.
LAST_COMMIT_SECONDS = 60

POD_SECURITY = {
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
    "fsGroup": USER_ID,
    "fsGroupChangePolicy": "OnRootMismatch",
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def build_driver_pod(shape: PodShape, plan: SparkPlan | None, deadline_seconds: int | None) -> dict[str, Any]:
    """The pod whose main container is the run. ``plan`` None is a run without Spark: no JVM, a small request."""
    spec = {
        **pod_spec(shape, driver_container(shape, plan)),
        "automountServiceAccountToken": True,
        "volumes": [*shared_volumes(shape), *map(_claim_volume, shape.source_claims), conf_volume(shape)],
    }
    if deadline_seconds is not None:
        spec["activeDeadlineSeconds"] = deadline_seconds
    if shape.request.kind is RunKind.MAINTAIN:
        spec["terminationGracePeriodSeconds"] = LAST_COMMIT_SECONDS
    metadata = {
        "name": driver_pod_name(shape.request.run_id),
        "namespace": shape.namespace,
        "labels": run_labels(shape.request, shape.warehouse_uid),
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    return merge_pod_template(pod, shape.template)


def pod_spec(shape: PodPlace, container: dict[str, Any]) -> dict[str, Any]:
    """The pod spec around ``container``, without what differs between driver and executors."""
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": shape.service_account,
        "enableServiceLinks": False,
        "securityContext": POD_SECURITY,
        "containers": [container],
    }
    if shape.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in shape.pull_secrets]
    if shape.one_node:
        spec["affinity"] = one_node_affinity(shape.warehouse_uid)
    return spec


def one_node_affinity(warehouse_uid: str) -> dict[str, Any]:
    """Every pod of the Warehouse on one node. The scheduler lets the first one choose: it matches its own term."""
    term = {
        "labelSelector": {"matchLabels": {WAREHOUSE_UID_LABEL: warehouse_uid}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def driver_container(shape: PodShape, plan: SparkPlan | None) -> dict[str, Any]:
    """The container that runs the app of the request's kind."""
    container = {
        "name": DRIVER_CONTAINER,
        "image": shape.image,
        "imagePullPolicy": shape.pull_policy,
        "args": ["app", shape.request.kind.lower()],
        "workingDir": SCRATCH,
        "env": [*map(_secret_variable, shape.source_variables), *credentials_env(shape), *driver_env(plan)],
        "resources": driver_resources(plan),
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            *shared_mounts(shape),
            *map(_claim_mount, shape.source_claims),
            {"name": "conf", "mountPath": CONF_DIRECTORY, "readOnly": True},
        ],
    }
    if plan is not None and not plan.local:
        container["ports"] = [
            {"name": "driver-rpc-port", "containerPort": DRIVER_PORT, "protocol": "TCP"},
            {"name": "blockmanager", "containerPort": BLOCK_MANAGER_PORT, "protocol": "TCP"},
        ]
    return container


def driver_resources(plan: SparkPlan | None) -> dict[str, Any]:
    """Requests and limits. Local mode may go over its memory request by one overhead per Python worker."""
    if plan is None:
        return {"requests": dict(LIGHT_REQUESTS), "limits": dict(LIGHT_LIMITS)}
    requested = plan.driver_heap_mib + plan.driver_overhead_mib
    workers = plan.driver_cores if plan.local else 0
    return {
        "requests": {"cpu": plan.driver_cpu_request, "memory": f"{requested}Mi"},
        "limits": {"memory": f"{requested + workers * plan.driver_overhead_mib}Mi"},
    }


def credentials_env(shape: PodPlace, *, catalog: bool = True) -> list[dict[str, Any]]:
    """The variables with credentials, and where the certificates of authorities are.

    ``catalog`` False leaves out those of the catalog.
    """
    env = [
        _secret_variable(variable)
        for variable in shape.variables
        if catalog or not variable.name.startswith(CATALOG_VARIABLES)
    ]
    return [*env, *authorities_env(shape)]


def authorities_env(shape: PodPlace) -> list[dict[str, Any]]:
    """The variable that tells where the certificates of authorities are, if there are any."""
    if shape.authorities is None:
        return []
    return [{"name": AUTHORITIES_VARIABLE, "value": f"{AUTHORITIES_DIRECTORY}/{AUTHORITIES_FILE}"}]


def _secret_variable(variable: SecretVariable) -> dict[str, Any]:
    reference: dict[str, Any] = {"name": variable.secret, "key": variable.key}
    if variable.optional:
        reference["optional"] = True
    return {"name": variable.name, "valueFrom": {"secretKeyRef": reference}}


def driver_env(plan: SparkPlan | None) -> list[dict[str, Any]]:
    """Variables of the driver; later ones may refer to earlier ones."""
    env = [
        downward("POD_NAME", "metadata.name"),
        downward("POD_NAMESPACE", "metadata.namespace"),
        downward("POD_IP", "status.podIP"),
        {"name": "SKIPSTONE_REQUEST", "value": f"{CONF_DIRECTORY}/{REQUEST_FILE}"},
        {"name": "PYSPARK_PYTHON", "value": PYTHON},
        {"name": "HOME", "value": SCRATCH},
    ]
    if plan is not None:
        env.append({"name": "PYSPARK_SUBMIT_ARGS", "value": submit_arguments(plan)})
    if plan is not None and plan.local and plan.driver_cores == 1:
        env.append({"name": "SPARK_SUBMIT_OPTS", "value": ONE_CORE_JVM})
    return env


def downward(name: str, path: str) -> dict[str, Any]:
    """A variable that carries a field of the pod itself."""
    return {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}


def submit_arguments(plan: SparkPlan) -> str:
    """What only the running pod knows; all else is in spark.properties, then in the image's own defaults.

    In local mode nobody else has to reach the driver: it listens on the loopback address and needs no API server.
    """
    address = "127.0.0.1" if plan.local else "$(POD_IP)"
    in_cluster = (
        "--master k8s://https://$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT) "
        "--conf spark.kubernetes.driver.pod.name=$(POD_NAME) "
    )
    return (
        f"--properties-file {CONF_DIRECTORY}/{PROPERTIES_FILE} --load-spark-defaults "
        f"--conf spark.driver.host={address} --conf spark.driver.bindAddress={address} "
        f"{'' if plan.local else in_cluster}pyspark-shell"
    )


def shared_volumes(shape: PodPlace) -> list[dict[str, Any]]:
    """Claims and two scratch folders. Spark takes a volume of the name ``spark-local-dir-…`` as its own scratch."""
    return [
        *(_claim_volume(claim) for claim in shape.claims),
        {"name": "tmp", "emptyDir": {}},
        {"name": "spark-local-dir-1", "emptyDir": {}},
        *(_authorities_volume(authorities) for authorities in (shape.authorities,) if authorities is not None),
    ]


def _claim_volume(claim: ClaimMount) -> dict[str, Any]:
    source = {"claimName": claim.claim, **({"readOnly": True} if claim.read_only else {})}
    return {"name": claim.name, "persistentVolumeClaim": source}


def _authorities_volume(reference: AuthorityRef) -> dict[str, Any]:
    items = [{"key": reference.key, "path": AUTHORITIES_FILE}]
    return {"name": AUTHORITIES, "configMap": {"name": reference.name, "items": items}}


def shared_mounts(shape: PodPlace) -> list[dict[str, Any]]:
    """Where the shared volumes appear; claims at the roots that the request names."""
    mounts = [
        *(_claim_mount(claim) for claim in shape.claims),
        {"name": "tmp", "mountPath": SCRATCH},
        {"name": "spark-local-dir-1", "mountPath": SPARK_DIRECTORY},
    ]
    if shape.authorities is not None:
        mounts.append({"name": AUTHORITIES, "mountPath": AUTHORITIES_DIRECTORY, "readOnly": True})
    return mounts


def _claim_mount(claim: ClaimMount) -> dict[str, Any]:
    return {"name": claim.name, "mountPath": claim.path, **({"readOnly": True} if claim.read_only else {})}


def conf_volume(shape: PodShape) -> dict[str, Any]:
    """The run's ConfigMap as files."""
    return {"name": "conf", "configMap": {"name": conf_map_name(shape.request.run_id)}}
