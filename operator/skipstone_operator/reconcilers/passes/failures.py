"""What a pass that failed tells: a condition on every resource that nobody could judge.

Called by the entry for a whole pass and by the table's decider for one job. Works on objects as the API gave them, for
what cannot be read may be the reason of the failure. The normal pass replaces what is told here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from skipstone_core.codec import encode, salvage
from skipstone_core.errors import BadSpec, ContractViolation, SkipstoneError
from skipstone_core.reasons import Reason

from skipstone_operator.conditions import (
    COMPLETE,
    FAILED,
    PROGRESSING,
    READY,
    find,
    is_true,
    shorten_bytes,
    unknown,
)
from skipstone_operator.ports import AccessDenied, EventRecord, EventType, JsonObject, Key, Ports, Refused, Requeue
from skipstone_operator.reconcilers.passes.perform import perform
from skipstone_operator.reconcilers.runs.statuses import MAX_NOTE
from skipstone_operator.reconcilers.runs.summaries import lay_conditions
from skipstone_operator.resources.common import Condition
from skipstone_operator.resources.kinds import API_VERSION, KINDS, LOAD_JOB, MERGE_JOB, TABLE, TABLE_FIELD
from skipstone_operator.worlds.steps import PutStatus, Rest, Step
from skipstone_operator.worlds.subjects import AnySubject, Finding, Raw

JOBS = (LOAD_JOB.name, MERGE_JOB.name)
#: Seconds until a job that could not be judged is looked at again.
POLL = 30.0
#: Jobs told of one failed pass; the others are told when these are.
MAX_TOLD = 50
logger = logging.getLogger(__name__)


class WriteRefused(SkipstoneError):
    """The API server refused a status, a finalizer or a delete: the Role or the CRD does not fit this operator.

    ``object`` is what could not be written; None when it is gone.
    """

    def __init__(self, message: str, obj: JsonObject | None) -> None:
        """``message`` quotes the API server."""
        super().__init__(message)
        self.object = obj


def guarded(decide: Callable[[], Step], subject: AnySubject, now: datetime) -> Step:
    """What ``decide`` says of one of several resources of a pass; one that it fails at keeps no other from going on."""
    try:
        return decide()
    except Exception as error:
        logger.warning("could not be judged: %s", error, exc_info=True, extra={"key": str(subject.key)})
        return tell(subject.raw, find_failure(error), now)


def find_failure(error: Exception) -> Finding:
    """The reason and the sentence of a failure."""
    if isinstance(error, BadSpec):
        return Finding(error.reason, str(error))
    if isinstance(error, ContractViolation):
        return Finding(Reason.INVALID_SPEC, f"{error}: correct the field, or run the release that knows it")
    if isinstance(error, AccessDenied):
        return Finding(Reason.INTERNAL_ERROR, f"the operator may not read what it needs; bind its Role: {error}")
    text = " ".join(str(error).split())
    message = f"the operator failed at this resource and tries again: {type(error).__name__}: {text}"
    return Finding(Reason.INTERNAL_ERROR, f"{message}; the operator's log tells more")


def tell(raw: Raw, finding: Finding, now: datetime) -> Step:
    """The write that makes the failure a condition; nothing when it is one already, or the job has ended."""
    status = raw.get("status")
    known: Raw = status if isinstance(status, Mapping) else {}
    old = _read_conditions(known.get("conditions"))
    is_job = raw["kind"] in JOBS
    generation = int(raw["metadata"].get("generation") or 0)
    types = (PROGRESSING,) if is_job else (READY, PROGRESSING)
    ended = is_job and any(is_true(old, type_) for type_ in (COMPLETE, FAILED))
    # A message may differ each time; writing it each time would wake this resource each time.
    is_shown = all(_has_finding(find(old, type_), finding, generation) for type_ in types)
    if ended or is_shown:
        return Rest(requeue=Requeue(POLL))
    new = lay_conditions(
        old, (unknown(type_, finding.reason, finding.message) for type_ in types), generation=generation, now=now
    )
    return PutStatus(
        object=dict(raw),
        status={**known, "observedGeneration": generation, "conditions": encode(new)},
        events=(_event(raw, finding),),
        requeue=Requeue(POLL),
    )


def _read_conditions(value: object) -> tuple[Condition, ...]:
    kept: list[Condition] = []
    for each in value if isinstance(value, list) else ():
        try:
            kept.append(salvage(Condition, each))
        except ContractViolation:
            continue
    return tuple(kept)


def _has_finding(condition: Condition | None, finding: Finding, generation: int) -> bool:
    return condition is not None and (condition.reason, condition.observed_generation, condition.status) == (
        finding.reason.value,
        generation,
        unknown(condition.type, finding.reason).status,
    )


def _event(raw: Raw, finding: Finding) -> EventRecord:
    regarding = {"apiVersion": API_VERSION, "kind": raw["kind"]}
    regarding |= {name: str(raw["metadata"].get(name, "")) for name in ("namespace", "name", "uid")}
    note = shorten_bytes(finding.message, MAX_NOTE)
    return EventRecord(regarding=regarding, type=EventType.WARNING, reason=finding.reason, note=note)


async def tell_failure(key: Key, ports: Ports, error: Exception) -> None:
    """Tell a failed pass in the conditions of what is reconciled under ``key``. Never raises."""
    try:
        # Whatever else the key stands for is well: telling it there too would be undone and done again.
        only = error.object if isinstance(error, WriteRefused) else None
        concerned = await _concerned(key, ports) if only is None else (only,)
        await _tell_all(concerned, ports, find_failure(error))
    except Exception as fault:  # noqa: BLE001 - the failure itself is about to be raised
        logger.warning("the failure could not be told: %s", fault, extra={"key": str(key)})


async def _tell_all(concerned: Iterable[JsonObject], ports: Ports, finding: Finding) -> None:
    written = 0
    for raw in concerned:
        step = tell(raw, finding, ports.clock.now())
        if isinstance(step, PutStatus) and written < MAX_TOLD:
            written += 1
            await _write(step, ports)


async def _write(step: PutStatus, ports: Ports) -> None:
    outcome = await perform(step, ports)
    if isinstance(outcome, Refused):
        # What another release left in the status is refused with it: only what can be read is kept.
        kind = KINDS[step.object["kind"]]
        readable = {**encode(salvage(kind.status, step.status)), "conditions": step.status["conditions"]}
        outcome = await perform(PutStatus(object=step.object, status=readable, events=step.events), ports)
    if isinstance(outcome, Refused):
        logger.warning("the failure could not be told: %s", outcome.message)


async def _concerned(key: Key, ports: Ports) -> Iterable[JsonObject]:
    if key.kind not in KINDS:
        return ()
    obj = await ports.kube.get(key.kind, key.namespace, key.name)
    concerned = [] if obj is None else [obj]
    if key.kind == TABLE.name:
        for kind in JOBS:
            concerned += await ports.kube.list(kind, key.namespace, fields={TABLE_FIELD: key.name})
    return concerned
