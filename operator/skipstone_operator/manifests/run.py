"""One run's inputs, and the two objects made of them.

Reconcilers create what ``build_run`` returns: the ConfigMap first, the Pod last. Pure; golden files hold the output.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml
from skipstone_core.contract.requests import SPARK_KINDS, JobRequest

from skipstone_operator.manifests.executors import build_executor_template
from skipstone_operator.manifests.names import conf_map_name, run_labels
from skipstone_operator.manifests.places import (
    find_claims,
    find_source_claims,
    find_source_variables,
    find_variables,
)
from skipstone_operator.manifests.pods import build_driver_pod
from skipstone_operator.manifests.shape import EXECUTOR_TEMPLATE_FILE, PROPERTIES_FILE, REQUEST_FILE, PodShape
from skipstone_operator.manifests.spark import SparkPlan, build_spark_properties, plan_spark, render_properties
from skipstone_operator.ports import RunDefaults
from skipstone_operator.resources.warehouse import WarehouseSpec

#: Ends the name of the account whose pods may report and nothing else.
LOCAL_ACCOUNT_SUFFIX = "-local"


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The resource that owns a run's children; they vanish with it."""

    api_version: str
    kind: str
    name: str
    uid: str


@dataclass(frozen=True, kw_only=True)
class RunManifest:
    """All that decides how a run's ConfigMap and Pod look.

    ``one_node``: the claim is ReadWriteOnce or ReadWriteOncePod, so all pods of the Warehouse share a node.
    ``source_warehouse``: that of the source table, if it is not ``warehouse``.
    ``deadline_seconds``: the pod is ended by the kubelet after this time; None: no bound.
    """

    request: JobRequest
    owner: Owner
    namespace: str
    warehouse: WarehouseSpec
    warehouse_uid: str
    defaults: RunDefaults
    deadline_seconds: int | None = None
    one_node: bool = False
    source_warehouse: WarehouseSpec | None = None


def build_run(run: RunManifest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The ConfigMap ``<run>-conf`` and the Pod ``<run>-driver``.

    Raises BadSpec naming the field for a podTemplate or a Spark setting that is not allowed.
    """
    shape = pod_shape(run)
    plan = plan_spark(run.warehouse.spark, run.request.spark) if run.request.kind in SPARK_KINDS else None
    pod = build_driver_pod(shape, plan, run.deadline_seconds)
    return owned_by(run.owner, conf_map(run, shape, plan)), owned_by(run.owner, pod)


def pod_shape(run: RunManifest) -> PodShape:
    """What driver and executors of ``run`` have in common."""
    spark, source, source_ref = run.warehouse.spark, run.source_warehouse, run.request.source_warehouse
    return PodShape(
        request=run.request,
        namespace=run.namespace,
        warehouse_uid=run.warehouse_uid,
        claims=find_claims(run.warehouse, run.request.warehouse),
        authorities=run.warehouse.ca_bundle_ref,
        image=spark.image or run.defaults.image,
        pull_policy=run.defaults.image_pull_policy,
        pull_secrets=run.defaults.image_pull_secrets,
        service_account=spark.service_account_name or default_account(run),
        variables=find_variables(run.warehouse, run.request.warehouse),
        one_node=run.one_node,
        template=spark.pod_template or {},
        source_claims=find_source_claims(source, source_ref) if source and source_ref else (),
        source_variables=find_source_variables(source, source_ref) if source and source_ref else (),
    )


def default_account(run: RunManifest) -> str:
    """The chart's account: the one that may make executors only for a run that does."""
    makes_executors = run.request.kind in SPARK_KINDS and run.request.spark.instances > 0
    return run.defaults.service_account + ("" if makes_executors else LOCAL_ACCOUNT_SUFFIX)


def conf_map(run: RunManifest, shape: PodShape, plan: SparkPlan | None) -> dict[str, Any]:
    """The ConfigMap: the request, and for Spark runs its properties and the executors' template."""
    data = {REQUEST_FILE: run.request.to_json()}
    if plan is not None:
        data[PROPERTIES_FILE] = render_properties(build_spark_properties(shape, plan))
        if not plan.local:
            data[EXECUTOR_TEMPLATE_FILE] = render_template(build_executor_template(shape))
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": conf_map_name(run.request.run_id),
            "namespace": run.namespace,
            "labels": run_labels(run.request, run.warehouse_uid),
        },
        "immutable": True,
        "data": data,
    }


def render_template(template: Mapping[str, Any]) -> str:
    """YAML without aliases, in a fixed order."""
    return yaml.safe_dump(json.loads(json.dumps(template)), sort_keys=True, width=120)


def owned_by(owner: Owner, manifest: dict[str, Any]) -> dict[str, Any]:
    """``manifest`` as that of an object that goes with ``owner``."""
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {**manifest["metadata"], "ownerReferences": [reference]}
    return {**manifest, "metadata": metadata}
