"""Pods whose node does not answer: nobody confirms their end, so they stay for as long as nobody acts.

A kubelet confirms that its pods ended; that of a dead node never does. Commits carry transaction ids, so a run may be
given up although its driver may go on, unseen: whichever attempt commits first is the only one. ``settle`` is called
where pods are read, the rest where runs are judged. Pure.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from skipstone_operator.conditions import format_time
from skipstone_operator.ports import Timing
from skipstone_operator.worlds.pods import PodFacts

#: A kubelet that is well confirms the end of a pod at most so long after its grace.
CONFIRMED = timedelta(seconds=30)


def settle(pod: PodFacts, now: datetime, timing: Timing) -> PodFacts:
    """``pod``, given up when it should have been gone for so long that it is not waited for any more."""
    end = find_end(pod, timing)
    return replace(pod, given_up=True) if end is not None and now >= end else pod


def find_end(pod: PodFacts, timing: Timing) -> datetime | None:
    """When a pod that is being deleted is given up."""
    if pod.terminal or pod.leaves is None:
        return None
    return pod.leaves + timedelta(seconds=timing.lost_after)


def is_stuck(pod: PodFacts, now: datetime) -> bool:
    """Return whether the pod should be gone and is not."""
    return not pod.terminal and pod.leaves is not None and now >= pod.leaves + CONFIRMED


def seconds_to_change(pod: PodFacts, now: datetime, timing: Timing) -> float | None:
    """Seconds until what is to be said or done of a pod changes although nobody writes to it."""
    moments = (
        None if pod.leaves is None else pod.leaves + CONFIRMED,
        find_end(pod, timing),
        find_silence_end(pod, timing),
        find_overrun(pod, timing),
    )
    left = ((moment - now).total_seconds() for moment in moments if moment is not None)
    return min((seconds for seconds in left if seconds > 0), default=None)


def find_silence_end(pod: PodFacts, timing: Timing) -> datetime | None:
    """When a driver whose node does not answer is stopped, if its node stays so."""
    if pod.deleting or pod.unanswered is None:
        return None
    return pod.unanswered + timedelta(seconds=timing.silence_deadline)


def find_overrun(pod: PodFacts, timing: Timing) -> datetime | None:
    """When a pod is stopped that its kubelet should have ended by itself."""
    if pod.deleting or pod.limit is None:
        return None
    return pod.limit + timedelta(seconds=timing.lost_after)


def is_on_dead_node(pod: PodFacts) -> bool:
    """Return whether the pod is given up and its node was not heard of when it should have gone."""
    return pod.given_up and pod.unanswered is not None


def describe_stuck(pod: PodFacts, timing: Timing) -> str:
    """Where a pod that does not go is, until when it is waited for, and how to get on at once."""
    end = find_end(pod, timing)
    where = f"node {pod.node} does not confirm it" if pod.node else "no node has it"
    until = f"the run is given up at {format_time(end)}, " if end is not None and not pod.given_up else ""
    return f"driver pod {pod.name} is deleted and {where}; {until}or at once after: {find_way_out(pod)}"


def find_way_out(pod: PodFacts) -> str:
    """The command that removes the pod for good."""
    force = f"kubectl delete pod {pod.name} -n {pod.namespace} --force"
    if not pod.finalizers:
        return force
    patch = """'{"metadata":{"finalizers":null}}'"""
    return f"{force} --wait=false; kubectl patch pod {pod.name} -n {pod.namespace} --type merge -p {patch}"
