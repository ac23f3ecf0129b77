"""The launch protocol, common to every kind of run: intent first, then ConfigMap, then Pod, then its judgement.

Called by the deciders once ``status.currentRun`` is written. Pure: returns the one next step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from skipstone_core.contract.requests import SPARK_KINDS, RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.manifests import build_run
from skipstone_operator.ports import Refused, Requeue
from skipstone_operator.reconcilers.runs.placing import place_run
from skipstone_operator.reconcilers.runs.requests import RunPlan, build_manifest
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.pods import PodFacts
from skipstone_operator.worlds.runs import ConfFacts, RunWorld
from skipstone_operator.worlds.steps import Create, Delete, Slots, Step
from skipstone_operator.worlds.subjects import Children, Finding
from skipstone_operator.worlds.times import seconds_since

KEPT_SUCCEEDED = 1
KEPT_FAILED = 3
FOREIGN_POLL = 30.0
#: Seconds in which the pod of an intent is there, unless something kept the operator or the API server from making it.
PROMPT = 30.0
#: Seconds that a run waits for the kept driver that it was assigned to.
PATIENCE = 15.0
#: Seconds by which a pod may seem to be older than its intent: both times are whole seconds, of clocks in step.
SKEW = 5.0


def launch(run: RunWorld, plan: RunPlan, now: datetime, *, refused: bool = False) -> Step:
    """The next step towards a pod for the intended run: its ConfigMap, then the Pod itself.

    ``refused``: the API server refused the pod of the run before; one for a kept driver may be why.
    """
    conf_map, pod = build_run(build_manifest(plan, run.current))
    if run.conf is None:
        return Create(object=conf_map)
    pod = place_run(plan, run.current, conf_map, pod, now, refused=refused)
    return Create(object=pod, slots=find_slots(plan), grounds=plan.grounds)


def find_slots(plan: RunPlan) -> Slots | None:
    """What bounds runs like this one: a claim for one pod bounds all, ``maxConcurrentRuns`` those with Spark.

    A drop or a confirm run never waits behind a long merge: it is small, and much waits for it.
    """
    warehouse, one_node = plan.warehouse, plan.claim is not None and plan.claim.one_node
    if plan.claim is not None and plan.claim.one_pod:
        bound = f"claim {plan.claim.name!r} is ReadWriteOncePod, so one pod uses it at a time"
        return Slots(warehouse.meta.uid, 1, frozenset(kind.value for kind in RunKind), one_node, bound)
    spark = frozenset(kind.value for kind in SPARK_KINDS)
    if plan.kind in SPARK_KINDS:
        limit = warehouse.spec.max_concurrent_runs
        return Slots(warehouse.meta.uid, limit, spark, one_node, f"spec.maxConcurrentRuns allows {limit}")
    return Slots(warehouse.meta.uid, None, spark, one_node) if one_node else None


def is_stale(current: CurrentRun, plan: RunPlan) -> bool:
    """Return whether what the run depends on changed since its intent was written."""
    return current.inputs_hash != plan.inputs_hash


def is_prompt(current: CurrentRun, moment: datetime) -> bool:
    """Return whether the intent is so recent that no pod of it can have come and gone unseen.

    A moment before the intent shows that a clock was set back or is wrong, and not how much time passed.
    """
    passed = seconds_since(current.start_time, moment)
    return passed is not None and -SKEW <= passed < PROMPT


def discard(run: RunWorld) -> Step | None:
    """Remove the ConfigMap of an intent that is given up, if it has one."""
    return delete_conf(run.conf) if run.conf is not None else None


def delete_pod(pod: PodFacts, after: float = 0.0) -> Delete:
    """Delete this very pod."""
    return Delete(kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid, requeue=Requeue(after))


def delete_conf(conf: ConfFacts) -> Delete:
    """Delete this very ConfigMap."""
    return Delete(kind="ConfigMap", namespace=conf.namespace, name=conf.name, uid=conf.uid)


def clean_executors(run: RunWorld) -> Step | None:
    """Delete the next executor that outlived its driver."""
    return next((delete_pod(pod) for pod in run.executors if pod.live and not pod.deleting), None)


def trim(children: Children, busy: Iterable[str], *, keep: bool = True) -> Step | None:
    """Delete the next child that history does not keep: 1 succeeded and 3 failed runs stay, with their ConfigMaps.

    ``busy`` are the names of runs that are intended or running; ``keep`` False keeps nothing.
    """
    if not children.pods and not children.confs:
        return None
    names = set(busy)
    ended = sorted((p for p in children.pods if p.terminal and p.run_id not in names), key=_newest_first, reverse=True)
    good = [pod for pod in ended if pod.succeeded][: KEPT_SUCCEEDED if keep else 0]
    bad = [pod for pod in ended if not pod.succeeded][: KEPT_FAILED if keep else 0]
    kept = {pod.run_id for pod in (*good, *bad)}
    for pod in ended:
        if pod.run_id not in kept and not pod.deleting:
            return delete_pod(pod)
    alive = names | kept | {pod.run_id for pod in children.pods if not pod.terminal}
    return next((delete_conf(conf) for conf in children.confs if conf.run_id not in alive), None)


def _newest_first(pod: PodFacts) -> tuple[str, str]:
    moment = pod.ended or pod.created
    return (moment.isoformat() if moment else "", pod.name)


def find_busy_driver(pod: PodFacts, now: datetime) -> Finding | None:
    """Why a run that was assigned is taken back: its kept driver has not begun it for too long."""
    if not pod.kept_by or pod.waits is None or pod.created is None or (now - pod.created).total_seconds() < PATIENCE:
        return None
    message = f"the kept driver did not begin the run within {PATIENCE:.0f} s; it starts in a pod of its own"
    return Finding(Reason.KEPT_DRIVER_BUSY, message)


def find_live(children: Children, kinds: Iterable[RunKind]) -> PodFacts | None:
    """A pod of one of these kinds that may still be running."""
    operations = {kind.value for kind in kinds}
    return next((pod for pod in children.pods if pod.live and pod.operation in operations), None)


def next_attempt(children: Children, kinds: Iterable[RunKind], known: int) -> int:
    """The number after every attempt that is known from status or from pods still there."""
    operations = {kind.value for kind in kinds}
    return max((known, *(pod.attempt for pod in children.pods if pod.operation in operations))) + 1


def adopted_intent(pod: PodFacts, plan: RunPlan, now: str) -> CurrentRun:
    """The intent that fits a live pod of ours whose status was lost."""
    parts = pod.run_id.split("-")
    intent = plan.intent(max(1, pod.attempt), now)
    return replace(intent, id=pod.run_id, inputs_hash=parts[-2] if len(parts) >= 2 else intent.inputs_hash)


def is_awaited(finding: Finding) -> bool:
    """Return whether a run that cannot be created for this reason waits without a deadline: the run itself is fine."""
    return finding.reason in (Reason.WAITING_FOR_QUOTA, Reason.DRIVER_STUCK)


def refusal_finding(refusal: Refused) -> Finding:
    """How a refused create is shown."""
    if refusal.by_quota:
        return Finding(Reason.WAITING_FOR_QUOTA, refusal.message)
    if refusal.by_dead_node:
        return Finding(Reason.DRIVER_STUCK, refusal.message)
    return Finding(Reason.POD_REJECTED, f"the API server refused the run: {refusal.message}")
