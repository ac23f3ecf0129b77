"""The one next step towards the planning server that a Warehouse asks for.

Its objects are written one after the other, the Deployment last; each carries the hash of its manifest and is written
again when that differs. What the Warehouse no longer asks for is deleted. The status names the server before the first
object is made, so that one which is left behind is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from skipstone_core.contract.planning import PlanningSettings
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import PLANNING_READY, fails
from skipstone_operator.labels import MANIFEST_HASH_ANNOTATION
from skipstone_operator.manifests import Owner, PodPlace, find_claims, find_variables
from skipstone_operator.manifests.planning import PlanningServer, ServerPod, build_seal, build_server, server_name
from skipstone_operator.ports import JsonObject, Refused, Requeue
from skipstone_operator.reconcilers.planning.judging import (
    RETRY_SECONDS,
    find_claim_obstacle,
    judge_foreign_owner,
    judge_refusal,
    judge_rollout,
    keep_silent,
    seconds_to_retry,
    tell,
)
from skipstone_operator.reconcilers.runs.places import build_warehouse_ref
from skipstone_operator.reconcilers.runs.requests import effective_image
from skipstone_operator.reconcilers.runs.statuses import or_rest
from skipstone_operator.resources.kinds import API_VERSION, WAREHOUSE
from skipstone_operator.resources.planning.spec import PlanningSpec, replicas_of
from skipstone_operator.worlds.steps import Apply, Delete, Rest, Step
from skipstone_operator.worlds.subjects import Finding, Raw, ServerObject
from skipstone_operator.worlds.worlds import WarehouseWorld

#: Seconds until what others have to change is looked at again.
POLL = 30.0
#: Seconds until an object that is being deleted is looked at again.
GOING_POLL = 5.0


def decide_planning(world: WarehouseWorld, obstacle: Finding | None) -> Step:
    """The next write for the server; ``obstacle`` is what is wrong with the Warehouse itself."""
    warehouse = world.warehouse
    if warehouse.spec.planning is None:
        return _remove(world)
    if (finding := obstacle or find_claim_obstacle(world.claim)) is not None:
        return or_rest(tell(world, fails(PLANNING_READY, finding.reason, finding.message)), POLL)
    if warehouse.status.planning is None:
        message = "the planning server is being made"
        return or_rest(tell(world, fails(PLANNING_READY, Reason.REPLICAS_PENDING, message)), POLL)
    step = _next_write(world, warehouse.spec.planning)
    if isinstance(step, Apply) and (delay := seconds_to_retry(world)) > 0:
        return Rest(requeue=Requeue(delay))
    return step if step is not None else or_rest(tell(world, judge_rollout(world)), None)


def refused(world: WarehouseWorld, step: Apply, refusal: Refused) -> Step:
    """The API server refused an object of the server: the condition quotes it, and it is tried again."""
    kind, name = str(step.object["kind"]), str(step.object["metadata"]["name"])
    return or_rest(tell(world, judge_refusal(kind, name, refusal), RETRY_SECONDS), RETRY_SECONDS)


def _remove(world: WarehouseWorld) -> Step:
    """Delete what there is, the Deployment first; then forget it."""
    own = [obj for obj in world.server.objects.values() if obj.is_owned_by(world.warehouse.meta.uid)]
    return next(_deletes(reversed(own)), None) or or_rest(keep_silent(world), None)


def _deletes(objects: Iterable[ServerObject]) -> Iterator[Delete]:
    for each in objects:
        if not each.deleting:
            yield Delete(kind=each.kind, namespace=each.namespace, name=each.name, uid=each.uid)


def _next_write(world: WarehouseWorld, spec: PlanningSpec) -> Step | None:
    server = _plan(world, spec)
    wanted = build_server(server)
    for manifest in wanted:
        beforehand = (build_seal(server, world.server.key),) if manifest["kind"] == "Deployment" else ()
        if (step := _write(world, manifest, beforehand)) is not None:
            return step
    kinds = {manifest["kind"] for manifest in wanted}
    unwanted = (obj for kind, obj in world.server.objects.items() if kind not in kinds)
    return next(_deletes(obj for obj in unwanted if obj.is_owned_by(world.warehouse.meta.uid)), None)


def _write(world: WarehouseWorld, manifest: JsonObject, beforehand: tuple[JsonObject, ...]) -> Step | None:
    existing = world.server.objects.get(str(manifest["kind"]))
    if existing is None:
        return Apply(object=manifest, beforehand=beforehand)
    if existing.deleting:
        message = f"waiting until {existing.kind} {existing.name!r} is deleted"
        return or_rest(tell(world, fails(PLANNING_READY, Reason.REPLICAS_PENDING, message)), GOING_POLL)
    if not existing.is_owned_by(world.warehouse.meta.uid):
        return or_rest(tell(world, judge_foreign_owner(existing)), POLL)
    if existing.hash == manifest["metadata"]["annotations"][MANIFEST_HASH_ANNOTATION]:
        return None
    return Apply(object=_laid_over(manifest, existing.raw), beforehand=beforehand)


def _laid_over(manifest: JsonObject, existing: Raw) -> JsonObject:
    """``manifest`` as the next version of ``existing``; labels and annotations of others stay."""
    old, new = existing["metadata"], manifest["metadata"]
    kept = {name: old[name] for name in ("resourceVersion", "uid", "finalizers") if name in old}
    joined = {name: {**(old.get(name) or {}), **new[name]} for name in ("labels", "annotations")}
    return {**manifest, "metadata": {**new, **kept, **joined}}


def _plan(world: WarehouseWorld, spec: PlanningSpec) -> PlanningServer:
    warehouse = world.warehouse
    settings = PlanningSettings(
        warehouse=build_warehouse_ref(warehouse),
        mode=spec.mode,
        verify=spec.verify,
        allow_plaintext_tokens=spec.allow_plaintext_tokens,
        upstream_timeout_seconds=spec.upstream_timeout_seconds,
    )
    conf = world.server.objects.get("ConfigMap")
    pod = ServerPod(
        place=_place(world, settings, spec.service_account_name or server_name(warehouse.meta.name)),
        replicas=replicas_of(spec, warehouse.spec.catalog),
        resources=spec.resources,
        tokens=spec.tokens_secret_ref,
        longest_request=settings.plan_timeout_seconds + settings.upstream_timeout_seconds,
    )
    return PlanningServer(
        owner=Owner(api_version=API_VERSION, kind=WAREHOUSE.name, name=warehouse.meta.name, uid=warehouse.meta.uid),
        settings=settings,
        pod=pod,
        own_account=spec.service_account_name is None,
        allow_from=spec.allow_from,
        settings_uid=conf.uid if conf is not None else "",
    )


def _place(world: WarehouseWorld, settings: PlanningSettings, account: str) -> PodPlace:
    warehouse, claim, defaults = world.warehouse, world.claim, world.setting.defaults
    return PodPlace(
        namespace=warehouse.meta.namespace,
        warehouse_uid=warehouse.meta.uid,
        claims=find_claims(warehouse.spec, settings.warehouse),
        authorities=warehouse.spec.ca_bundle_ref,
        image=effective_image(warehouse, defaults),
        pull_policy=defaults.image_pull_policy,
        pull_secrets=defaults.image_pull_secrets,
        service_account=account,
        variables=find_variables(warehouse.spec, settings.warehouse),
        one_node=claim is not None and claim.one_node,
        template=warehouse.spec.spark.pod_template or {},
    )
