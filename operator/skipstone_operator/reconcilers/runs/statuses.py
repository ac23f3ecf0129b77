"""How a new status is laid over an object, and which Events go with it.

Called by every decider. Pure: what comes out is a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from skipstone_core.codec import encode
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import (
    Judgement,
    find_transitions,
    format_time,
    shorten,
    shorten_bytes,
)
from skipstone_operator.ports import EventRecord, EventType, Requeue
from skipstone_operator.reconcilers.runs.summaries import lay_conditions
from skipstone_operator.resources.common import CurrentRun
from skipstone_operator.resources.jobstatus import JobStatus
from skipstone_operator.resources.mergeschedule import MergeScheduleStatus
from skipstone_operator.resources.secondaryindex import SecondaryIndexStatus
from skipstone_operator.resources.table import TableStatus
from skipstone_operator.resources.warehouse import WarehouseStatus
from skipstone_operator.worlds.runs import Live
from skipstone_operator.worlds.steps import Create, PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import AnySubject, Subject

Status = TableStatus | WarehouseStatus | SecondaryIndexStatus | JobStatus | MergeScheduleStatus
T = TypeVar("T", bound=Status)
MAX_PROGRESS = 1024
#: Bytes that the API server takes as the note of an Event.
MAX_NOTE = 1024


def judged(status: T, subject: AnySubject, judgements: Sequence[Judgement], now: datetime) -> T:
    """``status`` with these conditions laid over its own, summed up, and with the generation that was judged."""
    generation = subject.meta.generation
    conditions = lay_conditions(status.conditions, judgements, generation=generation, now=now)
    return replace(status, conditions=conditions, observed_generation=generation)


def put_status(subject: Subject[object, T], status: T) -> PutStatus | None:
    """The write that makes ``status`` the object's, or None when it is already."""
    if status == subject.status:
        return None
    events = [
        EventRecord(regarding=subject.reference, type=t.type, reason=t.reason, note=shorten_bytes(t.message, MAX_NOTE))
        for t in find_transitions(subject.status.conditions, status.conditions)
    ]
    return PutStatus(
        object=dict(subject.raw),
        status=encode(status),
        events=tuple(events),
    )


def first_write(steps: Iterable[Step]) -> Step:
    """The first of these steps that writes; if none does, rest until the first of them wants to look again.

    Creates come last, for they alone may be refused again and again (a quota, no room in the Warehouse): what else
    there is to do must not wait for them. ``steps`` is read no further than needed.
    """
    delays: list[float | None] = []
    creates: list[Create] = []
    for step in steps:
        match step:
            case Rest():
                delays.append(step.requeue.after)
            case Create():
                creates.append(step)
            case _:
                return step
    return creates[0] if creates else Rest(requeue=Requeue(earliest(*delays)))


def or_rest(step: Step | None, after: float | None) -> Step:
    """``step``, or nothing until ``after`` seconds have passed."""
    return step if step is not None else Rest(requeue=Requeue(after))


def later(step: PutStatus | None, after: float) -> Step:
    """``step`` without hurry, or nothing: the next look is ``after`` seconds away in either case."""
    return Rest(requeue=Requeue(after)) if step is None else replace(step, requeue=Requeue(after))


def event(subject: AnySubject, type_: EventType, reason: Reason, note: str) -> EventRecord:
    """One Event about ``subject``."""
    return EventRecord(regarding=subject.reference, type=type_, reason=reason, note=shorten_bytes(note, MAX_NOTE))


def earliest(*delays: float | None) -> float | None:
    """The shortest of these delays; None is no delay at all."""
    return min((delay for delay in delays if delay is not None), default=None)


def followed(current: CurrentRun, live: Live) -> CurrentRun:
    """``current`` with what its pod shows: when it came to be, when it started, how far it is."""
    pod = live.pod
    created = format_time(pod.created) if pod.created else current.start_time
    return replace(
        current,
        launch_time=current.launch_time or created,
        running_time=current.running_time or (format_time(pod.started) if pod.started else None),
        progress=shorten(pod.progress, MAX_PROGRESS),
    )
