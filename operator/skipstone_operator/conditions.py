"""Conditions: how new judgements are laid over old ones, and which of them are worth an Event.

Called by reconcilers when they build a status. Pure: the time comes in, nothing goes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from skipstone_core.reasons import Reason

from skipstone_operator.ports import EventType
from skipstone_operator.resources.common import Condition, ConditionStatus

MAX_MESSAGE = 1024

READY = "Ready"
PROGRESSING = "Progressing"
COMPLETE = "Complete"
FAILED = "Failed"
SYNCED = "Synced"
DEGRADED = "Degraded"
HEALTHY = "Healthy"
#: Of schedules: the last MergeJob left columns of its source out in which rows have a value.
COLUMNS_IGNORED = "ColumnsIgnored"
COLUMNS_GONE = "ColumnsGone"
#: Of schedules: one of the MergeJobs that are kept left out changes that do not fit.
CHANGES_LEFT_OUT = "ChangesLeftOut"
PLANNING_READY = "PlanningReady"
WARM_DRIVERS_READY = "WarmDriversReady"
RECONCILING = "Reconciling"
STALLED = "Stalled"
#: What sums up the other conditions for tools that know no kind: there, and True, only while it holds.
SUMMARIES = frozenset({RECONCILING, STALLED})

#: Statuses that are bad news, by type of condition.
_BAD = {
    READY: ConditionStatus.FALSE,
    SYNCED: None,
    COMPLETE: None,
    FAILED: ConditionStatus.TRUE,
    DEGRADED: ConditionStatus.TRUE,
    PROGRESSING: None,
    HEALTHY: ConditionStatus.FALSE,
    PLANNING_READY: ConditionStatus.FALSE,
    WARM_DRIVERS_READY: ConditionStatus.FALSE,
}
#: Reasons of Progressing that a user should look at.
_WORRYING = frozenset(
    {
        Reason.IMAGE_PULL_FAILED,
        Reason.UNSCHEDULABLE,
        Reason.CONTAINER_CONFIG_ERROR,
        Reason.VOLUME_UNAVAILABLE,
        Reason.POD_REJECTED,
        Reason.NODE_NOT_READY,
        Reason.DRIVER_STUCK,
        Reason.RETRYING,
        Reason.OUTCOME_UNKNOWN,
        Reason.RESOURCE_CONFLICT,
        Reason.INVALID_SPEC,
    }
)
#: Reasons of Ready=False that every resource passes through on its way up, and of Healthy=False that a run ends soon.
_ORDINARY = frozenset(
    {
        Reason.CHECK_PENDING,
        Reason.RUN_INTENDED,
        Reason.NOT_BUILT,
        Reason.DELETING,
        Reason.SMALL_FILES,
        Reason.MANY_DELETES,
        Reason.MANY_MANIFESTS,
        Reason.SNAPSHOTS_PENDING,
        Reason.WINDOW_CLOSED,
        Reason.REPLICAS_PENDING,
        Reason.KEPT_DRIVERS_PENDING,
    }
)


def read_reason(text: str) -> Reason:
    """The reason that ``text`` names; Unrecognized for one that this release does not know."""
    try:
        return Reason(text)
    except ValueError:
        return Reason.UNRECOGNIZED


@dataclass(frozen=True)
class Judgement:
    """One condition as it should be now."""

    type: str
    status: ConditionStatus
    reason: Reason
    message: str = ""


def holds(type_: str, reason: Reason, message: str = "") -> Judgement:
    """The condition is True."""
    return Judgement(type_, ConditionStatus.TRUE, reason, message)


def fails(type_: str, reason: Reason, message: str = "") -> Judgement:
    """The condition is False."""
    return Judgement(type_, ConditionStatus.FALSE, reason, message)


def unknown(type_: str, reason: Reason, message: str = "") -> Judgement:
    """Return a judgement of Unknown: nobody can tell yet if the condition holds."""
    return Judgement(type_, ConditionStatus.UNKNOWN, reason, message)


def format_time(moment: datetime) -> str:
    """A point in time as Kubernetes writes it: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def shorten(message: str, limit: int = MAX_MESSAGE) -> str:
    """``message`` in at most ``limit`` characters."""
    return message if len(message) <= limit else message[: limit - 1] + "…"


def shorten_bytes(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` bytes of UTF-8."""
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode(errors="ignore") + "…"


def merge_conditions(
    old: Sequence[Condition], new: Iterable[Judgement], *, generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Lay ``new`` over ``old``: ``lastTransitionTime`` moves only where the status flips; others stay as they are."""
    before = {condition.type: condition for condition in old}
    merged = {
        judgement.type: _merge_one(before.get(judgement.type), judgement, generation, format_time(now))
        for judgement in new
    }
    kept = [merged.pop(condition.type, condition) for condition in old]
    return (*kept, *merged.values())


def _merge_one(old: Condition | None, new: Judgement, generation: int, now: str) -> Condition:
    flipped = old is None or old.status is not new.status
    return Condition(
        type=new.type,
        status=new.status,
        reason=new.reason.value,
        message=shorten(new.message),
        last_transition_time=now if flipped or old is None else old.last_transition_time,
        observed_generation=generation,
    )


def without(conditions: Iterable[Condition], type_: str) -> tuple[Condition, ...]:
    """The conditions of all other types."""
    return tuple(condition for condition in conditions if condition.type != type_)


def find(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of this type."""
    return next((condition for condition in conditions if condition.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Return whether the condition of this type is there and True."""
    condition = find(conditions, type_)
    return condition is not None and condition.status is ConditionStatus.TRUE


@dataclass(frozen=True)
class Transition:
    """A change of status or reason that people should hear of."""

    type: EventType
    reason: Reason
    message: str


def find_transitions(old: Sequence[Condition], new: Sequence[Condition]) -> tuple[Transition, ...]:
    """What changed from ``old`` to ``new`` in status or reason, each reason once."""
    before = {condition.type: (condition.status, condition.reason) for condition in old}
    changed = [
        c for c in new if before.get(c.type) != (c.status, c.reason) and _is_news(c, is_first=c.type not in before)
    ]
    by_reason = {condition.reason: condition for condition in reversed(changed)}
    return tuple(_transition(condition) for condition in reversed(by_reason.values()))


def _transition(condition: Condition) -> Transition:
    reason = read_reason(condition.reason)
    return Transition(_severity(condition), reason, condition.message or reason.sentence)


def _is_news(condition: Condition, *, is_first: bool) -> bool:
    # The condition that is summed up is the news.
    if condition.type in SUMMARIES:
        return False
    # A job's Complete and Failed repeat the reason of Progressing until one of them becomes True.
    if condition.type in (COMPLETE, FAILED):
        return condition.status is ConditionStatus.TRUE
    if is_first and condition.type in (PROGRESSING, DEGRADED, HEALTHY):
        return condition.reason not in (Reason.IDLE, Reason.HEALTHY)
    return True


def _severity(condition: Condition) -> EventType:
    reason = read_reason(condition.reason)
    bad = condition.status is _BAD.get(condition.type) and reason not in _ORDINARY
    worrying = condition.type == PROGRESSING and reason in _WORRYING
    return EventType.WARNING if bad or worrying else EventType.NORMAL
