"""One run of one owner as it stands, and the verdict on a run that ended.

The launch protocol of reconcilers asks ``judge_run`` what to do next about ``status.currentRun``. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import assert_never

from skipstone_core.contract.reports import EXIT_BAD_DATA, EXIT_BAD_SPEC, JobReport, RunOutcome
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import format_time, read_reason
from skipstone_operator.ports import Timing
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.worlds.nodes import describe_stuck, find_overrun, find_silence_end, is_stuck
from skipstone_operator.worlds.pods import PodFacts


@dataclass(frozen=True, kw_only=True)
class ConfFacts:
    """One ConfigMap of a run."""

    name: str
    namespace: str
    uid: str
    run_id: str
    owner_uid: str
    operation: str = ""


@dataclass(frozen=True, kw_only=True)
class RunWorld:
    """``status.currentRun`` and the children that bear its name. ``executors``: those of this run still there."""

    current: CurrentRun
    owner_uid: str
    pod: PodFacts | None = None
    conf: ConfFacts | None = None
    executors: tuple[PodFacts, ...] = ()


class Ending(StrEnum):
    """How a run ended, for the operator."""

    SUCCEEDED = "Succeeded"
    REFUSED = "Refused"
    ABSENT = "Absent"
    UNKNOWN = "Unknown"
    LOST = "Lost"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The end of one run. ``report`` is None when the driver left none that can be read."""

    ending: Ending
    reason: Reason
    message: str
    report: JobReport | None = None


@dataclass(frozen=True)
class NotLaunched:
    """The intent is written; the pod was never seen."""


@dataclass(frozen=True)
class Foreign:
    """A child bears the run's name and belongs to somebody else."""

    what: str


@dataclass(frozen=True)
class Live:
    """The pod exists and has not ended.

    ``overdue``: the deadline of ``reason`` passed; ``stuck``: the pod should be gone.
    """

    pod: PodFacts
    reason: Reason
    message: str
    overdue: bool = False
    stuck: bool = False


@dataclass(frozen=True)
class Ended:
    """The driver container ended, or the pod was seen before and is gone."""

    verdict: Verdict
    pod: PodFacts | None


RunState = NotLaunched | Foreign | Live | Ended


def judge_run(run: RunWorld, *, now: datetime, timing: Timing) -> RunState:
    """How the current run stands."""
    if (foreign := find_foreign(run)) is not None:
        return Foreign(foreign)
    if run.pod is None:
        return NotLaunched() if run.current.launch_time is None else Ended(judge_missing(run.current), None)
    if run.pod.terminal:
        return Ended(judge_pod(run.pod, run.current), run.pod)
    if run.pod.given_up:
        return Ended(_judge_given_up(run.pod, run.current), run.pod)
    return _judge_live(run.pod, now, timing)


def find_foreign(run: RunWorld) -> str | None:
    """The child that has the name of the run and belongs to somebody else."""
    if run.pod is not None and (run.pod.owner_uid != run.owner_uid or run.pod.run_id != run.current.id):
        return f"Pod {run.pod.name}"
    if run.conf is not None and (run.conf.owner_uid != run.owner_uid or run.conf.run_id != run.current.id):
        return f"ConfigMap {run.conf.name}"
    return None


def _judge_live(pod: PodFacts, now: datetime, timing: Timing) -> Live:
    if is_stuck(pod, now):
        return Live(pod, Reason.DRIVER_STUCK, describe_stuck(pod, timing), stuck=True)
    if (overrun := find_overrun(pod, timing)) is not None and now >= overrun:
        return Live(pod, Reason.DEADLINE_EXCEEDED, "the driver pod ran into its deadline", overdue=True)
    if (end := find_silence_end(pod, timing)) is not None:
        message = (
            f"node {pod.node} does not answer; driver pod {pod.name} is stopped at {format_time(end)} if it stays so"
        )
        return Live(pod, Reason.NODE_NOT_READY, message, overdue=now >= end)
    if pod.waits is None:
        return Live(pod, Reason.DRIVER_RUNNING, pod.progress or "the driver is running")
    waited = (now - pod.created).total_seconds() if pod.created else 0.0
    overdue = pod.waits.bounded and waited >= timing.pending_deadline
    return Live(pod, pod.waits.reason, pod.waits.message, overdue=overdue)


def judge_missing(current: CurrentRun) -> Verdict:
    """The verdict on a pod that was there and is gone."""
    return _without_report(current, Reason.DRIVER_LOST, f"pod of run {current.id} was deleted", lost=True)


def _judge_given_up(pod: PodFacts, current: CurrentRun) -> Verdict:
    where = f"node {pod.node} did not confirm its end" if pod.node else "it did not go"
    return _without_report(
        current, Reason.DRIVER_LOST, f"driver pod {pod.name} was deleted and is given up: {where}", lost=True
    )


def judge_pod(pod: PodFacts, current: CurrentRun) -> Verdict:
    """The verdict on a pod whose driver ended: its report counts; without one nothing is known."""
    if pod.report is not None and pod.report.kind is current.kind:
        return judge_report(pod, pod.report, current)
    return _judge_silent(pod, current)


def judge_report(pod: PodFacts, report: JobReport, current: CurrentRun) -> Verdict:
    """What the report says, where it may be believed."""
    verdict = Verdict(ending=Ending.UNKNOWN, reason=report.reason, message=report.message, report=report)
    match report.outcome:
        case RunOutcome.COMMITTED | RunOutcome.ALREADY_COMMITTED | RunOutcome.ABSENT | RunOutcome.PLANNED if (
            not pod.succeeded or (report.outcome is RunOutcome.PLANNED) is not (current.kind is RunKind.DRY_RUN)
        ):
            # The node takes the last log lines of a driver that failed for its message: they prove nothing. No more
            # does a dry run that says of itself that it committed, or a merge that says that it was none.
            return _judge_silent(pod, current)
        case RunOutcome.COMMITTED | RunOutcome.ALREADY_COMMITTED | RunOutcome.PLANNED:
            return replace(verdict, ending=Ending.SUCCEEDED)
        case RunOutcome.ABSENT:
            return replace(verdict, ending=Ending.ABSENT)
        case RunOutcome.FAILED if pod.exit_code in (EXIT_BAD_SPEC, EXIT_BAD_DATA):
            return replace(verdict, ending=Ending.REFUSED)
        case RunOutcome.FAILED | RunOutcome.CONFLICTED | RunOutcome.UNKNOWN if not _was_ended(pod, current):
            return verdict
        case RunOutcome.RUNNING | RunOutcome.FAILED | RunOutcome.CONFLICTED | RunOutcome.UNKNOWN:
            return _judge_silent(pod, current)
        case _:
            assert_never(report.outcome)


def _was_ended(pod: PodFacts, current: CurrentRun) -> bool:
    """Return whether the driver was told to stop: what it then says of its failure tells of that only."""
    return bool(current.stop_reason) or pod.deleting or pod.disrupted


def _judge_silent(pod: PodFacts, current: CurrentRun) -> Verdict:
    if pod.deadline_passed:
        return _without_report(current, Reason.DEADLINE_EXCEEDED, "the driver pod ran into its deadline", lost=False)
    if pod.deleting or pod.disrupted:
        why = ": ".join(filter(None, (pod.end_reason, pod.text))) or "the pod was deleted"
        return _without_report(current, Reason.DRIVER_LOST, f"driver pod {pod.name} was lost: {why}", lost=True)
    if pod.end_reason == "OOMKilled":
        message = "the driver was killed for want of memory: raise spec.spark.driver.memory of the Warehouse"
        return _without_report(current, Reason.OUT_OF_MEMORY, message, lost=False)
    return _without_report(current, Reason.DRIVER_FAILED, _describe_silent(pod), lost=False)


def _describe_silent(pod: PodFacts) -> str:
    last = next(reversed(pod.text.strip().splitlines()), "")
    if pod.exit_code is None:
        message = f": {last}" if last else ""
        return f"driver pod {pod.name} ended, and nothing tells how its driver did{message}"
    how = f"the driver ended with exit code {pod.exit_code} and without a report that counts"
    return f"{how}; it said last: {last or 'no message'}"


#: Stops on request: the run follows again as soon as it is due, it neither failed nor was it lost.
REQUESTED_STOPS = frozenset(
    {
        Reason.SUSPENDED,
        Reason.DELETING,
        Reason.TABLE_NOT_FOUND,
        Reason.GIVING_WAY,
        Reason.WINDOW_CLOSED,
        Reason.MAINTENANCE_OFF,
        Reason.KEPT_DRIVER_BUSY,
    }
)
#: Stops that are nobody's fault: the attempt does not count.
_UNCOUNTED = REQUESTED_STOPS | {Reason.NODE_NOT_READY}


def _without_report(current: CurrentRun, reason: Reason, message: str, *, lost: bool) -> Verdict:
    # Once we decided to stop a driver, how its pod went says nothing more: the reason of the stop does.
    if current.stop_reason:
        stop = read_reason(current.stop_reason)
        ending = Ending.LOST if stop in _UNCOUNTED else Ending.UNKNOWN
        return Verdict(ending=ending, reason=stop, message=current.stop_message)
    return Verdict(ending=Ending.LOST if lost else Ending.UNKNOWN, reason=reason, message=message)
