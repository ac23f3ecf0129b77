"""How all objects of a folder stand together, and whether anything is left to wait for. Pure.

By the rules of kstatus: Reconciling is in progress, Stalled has failed. What waits for an object that has failed, or
that does not exist, waits in vain: it counts as failed, too, as long as nobody does anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from skipstone_cli.escaping import clean_line
from skipstone_cli.kinds import TABLE, WAREHOUSE, ResourceKind
from skipstone_cli.reading import JsonObject, field_of, name_of, namespace_of, number_of, text_of, uid_of
from skipstone_cli.views.standings import Assessment, State, conditions_of, is_deleting, is_stale, judge
from skipstone_core.reasons import Reason

#: What fails so often is not waited for any more, although the operator goes on trying: that is about half a minute.
ATTEMPTS = 3
_REFERENCES = (("warehouseRef", WAREHOUSE), ("tableRef", TABLE))
#: A job that somebody has suspended, and planning servers, which nobody starts here.
_LEFT_ALONE = frozenset({Reason.SUSPENDED, Reason.REPLICAS_PENDING, Reason.REPLICAS_FAILED})


class Outlook(StrEnum):
    """How an object stands for somebody who waits for it."""

    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    OPEN = "open"


@dataclass(frozen=True)
class SeenObject:
    """An object and how it stands."""

    kind: ResourceKind
    obj: JsonObject
    assessment: Assessment

    @property
    def title(self) -> str:
        """As people write it, with its namespace if it is another than the usual one."""
        namespace = namespace_of(self.obj)
        place = "" if namespace == "default" else f" -n {namespace}"
        return f"{self.kind.short}/{name_of(self.obj)}{place}"

    @property
    def line(self) -> str:
        """One line for a terminal."""
        state = ": ".join(part for part in (self.assessment.reason, self.assessment.message) if part)
        return clean_line(f"{self.title}  {self.assessment.state}" + (f"  {state}" if state else ""))


@dataclass
class Board:
    """All objects of Skipstone's kinds by uid."""

    objects: dict[str, SeenObject] = field(default_factory=dict)

    def put(self, kind: ResourceKind, obj: JsonObject) -> SeenObject:
        """Take in an object as it is now."""
        judged = SeenObject(kind, obj, judge(kind, obj))
        self.objects[uid_of(obj)] = judged
        return judged

    def drop(self, obj: JsonObject) -> None:
        """The object is gone."""
        self.objects.pop(uid_of(obj), None)

    def judge_all(self, now: str) -> Iterator[tuple[SeenObject, Outlook]]:
        """Every object, and how it stands at ``now``, as Kubernetes writes times."""
        judged = tuple(self.objects.values())
        by_name = {(each.kind.name, namespace_of(each.obj), name_of(each.obj)): each for each in judged}
        for each in judged:
            yield each, self._stand(each, by_name, now)

    def _stand(self, judged: SeenObject, by_name: Mapping[tuple[str, str, str], SeenObject], now: str) -> Outlook:
        own = stand_alone(judged, now)
        if own is not Outlook.OPEN or judged.assessment.state is not State.WAITING:
            return own
        for name, kind in _REFERENCES:
            wanted = text_of(judged.obj, "spec", name, "name")
            if not wanted:
                continue
            needed = by_name.get((kind.name, namespace_of(judged.obj), wanted))
            if needed is None or self._stand(needed, by_name, now) in (Outlook.FAILED, Outlook.BLOCKED):
                return Outlook.BLOCKED
        return own


def _is_tried_again(obj: JsonObject, now: str) -> bool:
    """Return whether a failed object has another attempt that is waited for: one that is due, or one of the first."""
    if field_of(obj, "status", "currentRun"):
        return True
    due, attempts = text_of(obj, "status", "retryTime"), number_of(obj, "status", "failedAttempts") or 0
    return bool(due) and (due <= now or attempts < ATTEMPTS)


def stand_alone(judged: SeenObject, now: str) -> Outlook:
    """How an object stands by what it says itself; ``now`` as Kubernetes writes times."""
    obj, assessment = judged.obj, judged.assessment
    if is_deleting(obj) or is_stale(obj) or assessment.state is State.UNKNOWN:
        return Outlook.OPEN
    if assessment.reason in _LEFT_ALONE:
        return Outlook.DONE
    if assessment.state is State.FAILED:
        return Outlook.OPEN if _is_tried_again(obj, now) else Outlook.FAILED
    if assessment.state is State.COMPLETE:
        return Outlook.DONE
    reconciling = conditions_of(obj).get("Reconciling")
    open_still = assessment.state is not State.READY or (reconciling is not None and reconciling.status == "True")
    return Outlook.OPEN if open_still else Outlook.DONE
