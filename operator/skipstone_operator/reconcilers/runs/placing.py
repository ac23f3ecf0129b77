"""Whether a run goes to a kept driver of its Warehouse or into a pod of its own, and why.

Called by ``launch`` for the pod of an intended run. Pure.
"""

from __future__ import annotations

from datetime import datetime

from skipstone_operator.labels import COLD_START_ANNOTATION
from skipstone_operator.manifests import Owner, PodPlace, find_claims, find_variables
from skipstone_operator.manifests.keeping import (
    KEPT_ACCOUNT_SUFFIX,
    KeptPod,
    assign,
    can_assign,
    kept_driver_hash,
)
from skipstone_operator.ports import JsonObject, RunDefaults
from skipstone_operator.reconcilers.runs.places import build_warehouse_ref
from skipstone_operator.reconcilers.runs.requests import RunPlan, build_spark_ref, effective_image
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.kinds import API_VERSION, WAREHOUSE
from skipstone_operator.worlds.keeping import KEPT_KINDS, KeptDriver, choose_driver
from skipstone_operator.worlds.subjects import ClaimFacts, WarehouseSubject


def plan_kept_pod(warehouse: WarehouseSubject, claim: ClaimFacts | None, defaults: RunDefaults) -> KeptPod:
    """What the pods of the Warehouse's kept drivers are made from."""
    ref, spark = build_warehouse_ref(warehouse), warehouse.spec.spark
    place = PodPlace(
        namespace=warehouse.meta.namespace,
        warehouse_uid=warehouse.meta.uid,
        claims=find_claims(warehouse.spec, ref),
        authorities=warehouse.spec.ca_bundle_ref,
        image=effective_image(warehouse, defaults),
        pull_policy=defaults.image_pull_policy,
        pull_secrets=defaults.image_pull_secrets,
        service_account=spark.service_account_name or f"{defaults.service_account}{KEPT_ACCOUNT_SUFFIX}",
        variables=find_variables(warehouse.spec, ref),
        one_node=claim is not None and claim.one_node,
        template=spark.pod_template or {},
    )
    owner = Owner(api_version=API_VERSION, kind=WAREHOUSE.name, name=warehouse.meta.name, uid=warehouse.meta.uid)
    return KeptPod(place=place, owner=owner, spark=spark, spark_ref=build_spark_ref(warehouse, defaults))


def place_run(  # noqa: PLR0913
    plan: RunPlan, current: CurrentRun, conf_map: JsonObject, pod: JsonObject, now: datetime, *, refused: bool = False
) -> JsonObject:
    """The pod of the run, for a kept driver if one can take it. ``pod``: its own pod; ``conf_map``: its files.

    ``refused``: the API server refused a pod of this run.
    """
    if plan.warehouse.spec.warm_drivers is None or plan.kind not in KEPT_KINDS:
        return pod
    before = "the API server refused a pod of the run" if refused else None
    choice = before or _find_hindrance(plan, current, conf_map) or _choose(plan, now)
    if isinstance(choice, KeptDriver):
        return assign(pod, conf_map, name=choice.name, uid=choice.pod.uid)
    annotations = {**pod["metadata"].get("annotations", {}), COLD_START_ANNOTATION: choice}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


def _choose(plan: RunPlan, now: datetime) -> KeptDriver | str:
    if plan.kept is None:
        return "no kept driver is ready"
    kept_hash = kept_driver_hash(plan_kept_pod(plan.warehouse, plan.claim, plan.defaults))
    return choose_driver(plan.kept, kept_hash, now)


def _find_hindrance(plan: RunPlan, current: CurrentRun, conf_map: JsonObject) -> str | None:
    """Why the run needs a pod of its own, whatever drivers are kept: what it has, no other run may have."""
    if current.attempt > 1:
        return f"attempt {current.attempt} does not share a pod with other runs"
    if plan.locations:
        return f"the run mounts source location {plan.locations[0]!r}, which a kept driver does not have"
    if plan.source_warehouse is not None:
        name = plan.source_warehouse.meta.name
        return f"the run has the credentials of Warehouse {name!r}, which a kept driver does not have"
    if not can_assign(conf_map):
        return "the request of the run is too large for the spec of a pod"
    return None
