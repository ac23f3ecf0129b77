"""What of the resources needs somebody, or waits: open problems with their way out.

Used by the page. Judges conditions by type, status and reason; what to do about a reason is in the core's list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum

from skipstone_core.reasons import Reason
from skipstone_core.remedies import find_remedy

from skipstone_report.reading import JOB_KINDS, ConditionSeen, Entity


class Urgency(IntEnum):
    """Who is needed. ``words``: as the page says it."""

    ACT = 0
    WATCH = 1
    WAIT = 2

    @property
    def words(self) -> str:
        """As the page says it."""
        return ("Needs you", "May need you", "Waits")[self]


#: The status of a condition that is bad news, by its type.
_BAD = {
    **dict.fromkeys(("Ready", "Healthy", "Synced", "PlanningReady", "WarmDriversReady"), "False"),
    **dict.fromkeys(("Failed", "Degraded"), "True"),
}
#: Reasons of bad news that end by themselves.
_PASSING = frozenset(
    {
        *(Reason.CHECK_PENDING, Reason.RUN_INTENDED, Reason.NOT_BUILT, Reason.DELETING, Reason.SEGMENTS_MISSING),
        *(Reason.SMALL_FILES, Reason.MANY_DELETES, Reason.MANY_MANIFESTS, Reason.SNAPSHOTS_PENDING),
        *(
            Reason.REPLICAS_PENDING,
            Reason.KEPT_DRIVERS_PENDING,
            Reason.WINDOW_CLOSED,
            Reason.PREVIOUS_JOB_ACTIVE,
            Reason.WAREHOUSE_NOT_READY,
            Reason.TABLE_NOT_READY,
        ),
    }
)
#: Reasons of Progressing by which a run does not get on.
_STUCK = {
    **dict.fromkeys(
        (Reason.IMAGE_PULL_FAILED, Reason.CONTAINER_CONFIG_ERROR, Reason.VOLUME_UNAVAILABLE, Reason.POD_REJECTED),
        Urgency.ACT,
    ),
    **dict.fromkeys((Reason.RESOURCE_CONFLICT, Reason.INVALID_SPEC, Reason.INTERNAL_ERROR), Urgency.ACT),
    **dict.fromkeys((Reason.UNSCHEDULABLE, Reason.RETRYING, Reason.OUTCOME_UNKNOWN), Urgency.WATCH),
    **dict.fromkeys((Reason.SOURCE_LOCATION_NOT_FOUND, Reason.TABLE_NOT_FOUND), Urgency.WATCH),
    **dict.fromkeys((Reason.WAITING_FOR_TABLE, Reason.WAITING_FOR_TURN, Reason.WAITING_FOR_QUOTA), Urgency.WAIT),
    **dict.fromkeys((Reason.WAITING_FOR_WAREHOUSE, Reason.SUSPENDED, Reason.GIVING_WAY), Urgency.WAIT),
}
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class OpenProblem:
    """One problem of one object. ``meaning`` and ``way_out`` are the core's sentences, empty for a foreign reason."""

    entity: Entity
    urgency: Urgency
    condition: str
    reason: str
    message: str
    since: datetime | None

    @property
    def meaning(self) -> str:
        """Return the meaning of the reason."""
        known = _known(self.reason)
        return known.sentence if known is not None else ""

    @property
    def way_out(self) -> str:
        """Return the way out."""
        return find_remedy(self.reason)


def find_problems(entities: Iterable[Entity]) -> list[OpenProblem]:
    """All problems: the urgent ones first, of these what jobs wait for before the jobs, then the newest first."""
    return sorted((problem for entity in entities for problem in _problems_of(entity)), key=_rank)


def _rank(problem: OpenProblem) -> tuple[int, bool, float, str, str]:
    is_job = problem.entity.kind in JOB_KINDS
    return (problem.urgency, is_job, -(problem.since or _LONG_AGO).timestamp(), problem.entity.key, problem.condition)


def _problems_of(entity: Entity) -> Iterator[OpenProblem]:
    reasons = set[str]()
    for condition in entity.conditions:
        urgency = _urgency(condition, is_job=entity.kind in JOB_KINDS)
        # One cause often shows in several conditions.
        if urgency is not None and condition.reason not in reasons:
            reasons.add(condition.reason)
            yield OpenProblem(
                entity=entity,
                urgency=urgency,
                condition=f"{condition.type} is {condition.status}",
                reason=condition.reason,
                message=condition.message,
                since=condition.since,
            )
    if refused := entity.text("status.properties.refused"):
        yield OpenProblem(
            entity=entity,
            urgency=Urgency.ACT,
            condition="A table property is refused",
            reason="",
            message=refused,
            since=entity.moment("status.observedTime"),
        )


def _urgency(condition: ConditionSeen, *, is_job: bool) -> Urgency | None:
    reason = _known(condition.reason)
    if condition.type == "Progressing":
        return _STUCK.get(reason) if reason is not None else None
    if _BAD.get(condition.type) != condition.status or (is_job and condition.type == "Ready"):
        return None
    return Urgency.WAIT if reason in _PASSING else Urgency.ACT


def _known(reason: str) -> Reason | None:
    try:
        return Reason(reason)
    except ValueError:
        return None
