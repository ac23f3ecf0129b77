"""Which steps of maintenance are due, what keeps them from being done, and when the clock makes others due.

Called by the decider of maintain runs and by the condition Healthy. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from skipstone_core.contract.requests import RunKind
from skipstone_core.ids import MAINTAIN_ANNOTATION
from skipstone_core.maintenance.asked import find_asked_steps
from skipstone_core.maintenance.health import plan_due, seconds_to_due
from skipstone_core.maintenance.policies import MaintenancePolicy, MaintenanceStep

from skipstone_operator.reconcilers.jobs.status import is_finished
from skipstone_operator.reconcilers.maintenance.health import count
from skipstone_operator.reconcilers.maintenance.readers import find_read_since
from skipstone_operator.reconcilers.runs.policies import build_policy
from skipstone_operator.reconcilers.runs.statuses import earliest
from skipstone_operator.resources.table import TableStatus
from skipstone_operator.worlds.subjects import Finding, TableSubject, is_dry_run
from skipstone_operator.worlds.times import past_time
from skipstone_operator.worlds.windows import Opening, find_opening
from skipstone_operator.worlds.worlds import JobWorld, TableWorld


@dataclass(frozen=True, kw_only=True)
class Due:
    """What a maintain run would do now. Empty ``steps``: nothing.

    ``pending``: what the health and the clock ask for, whatever is held back or asked by hand. ``request``: the value
    of the annotation that asks by hand, or empty. ``held``: why orphan files are not looked for, in a sentence.
    ``wait``: seconds until the clock alone makes a step due.
    """

    policy: MaintenancePolicy
    steps: tuple[MaintenanceStep, ...] = ()
    pending: tuple[MaintenanceStep, ...] = ()
    request: str = ""
    held: str = ""
    wait: float | None = None


def find_due(world: TableWorld, table: TableSubject, status: TableStatus) -> Due:
    """What is due by the policy of the spec, the health that ``status`` tells, and the time."""
    policy = build_policy(table.spec.maintenance) or MaintenancePolicy()
    now = world.setting.now.timestamp()
    health = count(status.health)
    looks, held = last_looks(world, status), find_hold(world, policy)
    pending = () if health is None else plan_due(policy, health, looks, now, in_use_since_ms=in_use_since_ms(world))
    request = asked_by_hand(table, status)
    by_hand = tuple(step for step in configured(policy) if request and step in find_asked_steps(request))
    # A request that cannot be answered now waits, and keeps nothing that is due from being done.
    asked = _unheld(by_hand, held)
    steps = asked or _unheld(pending, held)
    return Due(
        policy=policy,
        steps=steps,
        pending=pending,
        request=request if asked else "",
        held=held if MaintenanceStep.ORPHAN_FILES in (*by_hand, *pending) else "",
        wait=None if health is None else seconds_to_due(policy, health, looks, now),
    )


def _unheld(steps: Iterable[MaintenanceStep], held: str) -> tuple[MaintenanceStep, ...]:
    """``steps`` without the look for orphan files while something holds it back."""
    return tuple(step for step in steps if not held or step is not MaintenanceStep.ORPHAN_FILES)


def asked_by_hand(table: TableSubject, status: TableStatus) -> str:
    """The value of the annotation by which a user asks for maintenance since the last run that answered one."""
    asked = table.meta.annotations.get(MAINTAIN_ANNOTATION, "")[:256]
    return "" if asked == status.observed_maintain else asked


def configured(policy: MaintenancePolicy) -> tuple[MaintenanceStep, ...]:
    """All steps that the policy asks for."""
    asked = {
        MaintenanceStep.RESOLVE_EQUALITY_DELETES: policy.equality_deletes,
        MaintenanceStep.COMPACTION: policy.compaction,
        MaintenanceStep.MANIFESTS: policy.compaction,
        MaintenanceStep.SNAPSHOTS: policy.snapshots,
        MaintenanceStep.ORPHAN_FILES: policy.orphan_files,
    }
    return tuple(step for step in MaintenanceStep if asked[step] is not None)


def last_looks(world: TableWorld, status: TableStatus) -> dict[MaintenanceStep, float]:
    """When each step was last done, in seconds since 1970."""
    ends = (
        (result.step, past_time(result.time, world.setting.now)) for result in status.last_maintenance if result.done
    )
    return {step: moment.timestamp() for step, moment in ends if moment is not None}


def find_hold(world: TableWorld, policy: MaintenancePolicy) -> str:
    """Why files that no metadata names may still be committed by a job, in a sentence; empty: they cannot."""
    if policy.orphan_files is None:
        return ""
    return next(_holds(world.jobs, policy.orphan_files.older_than_seconds), "")


def _holds(jobs: Iterable[JobWorld], older_than: int) -> Iterator[str]:
    for job_world in jobs:
        job, status = job_world.job, job_world.job.status
        if is_finished(status) or is_dry_run(job):
            continue
        who = f"{job.kind} {job.meta.name}"
        if status.attempts > 0 or status.current_run is not None or status.confirm is not None:
            yield f"orphan files are not looked for while {who} has begun and may still commit what look like them"
        elif (job.spec.active_deadline_seconds or 0) > older_than:
            yield (
                f"orphan files are not looked for while {who} is unfinished, since its spec.activeDeadlineSeconds is "
                "longer than spec.maintenance.orphanFiles.olderThan: raise olderThan"
            )


def unfinished(world: TableWorld) -> tuple[str, ...]:
    """Uids of the resources whose runs may still commit to the table or to its indexes."""
    jobs = (job_world.job.meta.uid for job_world in world.jobs if not is_finished(job_world.job.status))
    return tuple(sorted((*jobs, *(index.meta.uid for index in world.place.indexes))))


def in_use_since_ms(world: TableWorld) -> int | None:
    """From when on what was the head of the table may be read beside a maintain run; None: nothing reads it.

    By a run that began then, or by a job or schedule that has the table as its source.
    """
    # A driver that is given up may go on reading where its node is only cut off.
    others = (pod for pod in world.pods if not pod.terminal and pod.operation != RunKind.MAINTAIN)
    read = find_read_since(world.readers, world.setting.now)
    begun = (moment for moment in (read, *(pod.created for pod in others)) if moment is not None)
    first = min(begun, default=None)
    return None if first is None else int(first.timestamp() * 1000)


def find_window(world: TableWorld, table: TableSubject) -> Opening | Finding | None:
    """The window at this moment, or what is wrong with it; None: maintenance may run at any time."""
    maintenance = table.spec.maintenance
    window = maintenance.window if maintenance is not None else None
    return None if window is None else find_opening(window, world.setting.now)


def seconds_to_turn(world: TableWorld, table: TableSubject) -> float | None:
    """Seconds until the window opens or closes next."""
    opening = find_window(world, table)
    if not isinstance(opening, Opening):
        return None
    moments = (moment for moment in (opening.closes, opening.opens) if moment is not None)
    return earliest(*((moment - world.setting.now).total_seconds() for moment in moments))
