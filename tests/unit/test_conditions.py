"""Conditions: times move only when the status flips, and only news becomes an Event."""

from __future__ import annotations

from datetime import timedelta

import pytest
from skipstone_core.reasons import Reason
from skipstone_operator.conditions import (
    COMPLETE,
    DEGRADED,
    FAILED,
    PROGRESSING,
    READY,
    SYNCED,
    Judgement,
    fails,
    find,
    find_transitions,
    holds,
    is_true,
    merge_conditions,
    shorten,
    shorten_bytes,
    unknown,
)
from skipstone_operator.ports import EventType
from skipstone_operator.resources.common import Condition, ConditionStatus

from tests.unit.kube_double import START
from tests.unit.world_cases import EARLIER, NOW, as_condition

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN


def merged(old: tuple[Condition, ...], *new: Judgement, generation: int = 2) -> tuple[Condition, ...]:
    return merge_conditions(old, new, generation=generation, now=START)


def test_a_new_condition_begins_now() -> None:
    (found,) = merged((), holds(READY, Reason.CHECKED, "fine"))
    assert (found.status, found.reason, found.message) == (TRUE, "Checked", "fine")
    assert (found.last_transition_time, found.observed_generation) == (NOW, 2)


@pytest.mark.parametrize(
    ("before", "after", "moves"),
    [(a, b, a is not b) for a in ConditionStatus for b in ConditionStatus],
    ids=lambda value: getattr(value, "value", str(value)),
)
def test_the_time_moves_exactly_when_the_status_flips(
    before: ConditionStatus, after: ConditionStatus, moves: bool
) -> None:
    old = as_condition(READY, before, Reason.CHECKED)
    (found,) = merged((old,), Judgement(READY, after, Reason.CHECK_FAILED))
    assert found.last_transition_time == (NOW if moves else EARLIER)
    assert (found.reason, found.observed_generation) == ("CheckFailed", 2)


def test_other_conditions_and_their_order_stay() -> None:
    old = (as_condition(READY, TRUE, Reason.CHECKED), as_condition(PROGRESSING, FALSE, Reason.IDLE))
    found = merged(old, holds(PROGRESSING, Reason.DRIVER_RUNNING), unknown(SYNCED, Reason.NOT_BUILT))
    assert [c.type for c in found] == [READY, PROGRESSING, SYNCED]
    assert found[0] == old[0]


def test_merging_twice_changes_nothing() -> None:
    once = merged((), holds(READY, Reason.CHECKED), fails(PROGRESSING, Reason.IDLE))
    later = START + timedelta(hours=1)
    judgements = (holds(READY, Reason.CHECKED), fails(PROGRESSING, Reason.IDLE))
    assert merge_conditions(once, judgements, generation=2, now=later) == once


def test_long_messages_are_cut() -> None:
    (found,) = merged((), fails(READY, Reason.CHECK_FAILED, "x" * 5000))
    assert len(found.message) == 1024
    assert shorten("short") == "short"


@pytest.mark.parametrize("letter", ["x", "ü", "…", "😀"])
def test_notes_of_events_are_cut_by_bytes(letter: str) -> None:
    cut = shorten_bytes(letter * 2000, 1024)
    assert 1000 < len(cut.encode()) <= 1024
    assert cut.endswith("…")
    assert shorten_bytes(letter, 1024) == letter


def test_finding_conditions() -> None:
    old = (as_condition(READY, TRUE, Reason.CHECKED), as_condition(FAILED, UNKNOWN, Reason.IDLE))
    assert find(old, READY) is old[0]
    assert find(old, SYNCED) is None
    assert is_true(old, READY)
    assert not is_true(old, FAILED)


def reasons(old: tuple[Condition, ...], new: tuple[Condition, ...]) -> list[tuple[str, str]]:
    return [(t.type.value, t.reason.value) for t in find_transitions(old, new)]


@pytest.mark.parametrize(
    ("type_", "before", "after", "events"),
    [
        (READY, None, (FALSE, Reason.CHECK_PENDING), [("Normal", "CheckPending")]),
        (READY, (FALSE, Reason.CHECK_PENDING), (TRUE, Reason.CHECKED), [("Normal", "Checked")]),
        (READY, (TRUE, Reason.CHECKED), (FALSE, Reason.CLAIM_NOT_FOUND), [("Warning", "ClaimNotFound")]),
        (READY, (TRUE, Reason.CHECKED), (TRUE, Reason.CHECKED), []),
        (READY, (FALSE, Reason.CLAIM_NOT_FOUND), (FALSE, Reason.CHECK_FAILED), [("Warning", "CheckFailed")]),
        (PROGRESSING, None, (FALSE, Reason.IDLE), []),
        (PROGRESSING, (TRUE, Reason.DRIVER_PENDING), (TRUE, Reason.UNSCHEDULABLE), [("Warning", "Unschedulable")]),
        (PROGRESSING, (FALSE, Reason.IDLE), (TRUE, Reason.DRIVER_RUNNING), [("Normal", "DriverRunning")]),
        (DEGRADED, None, (FALSE, Reason.HEALTHY), []),
        (DEGRADED, (FALSE, Reason.HEALTHY), (TRUE, Reason.COLUMN_REPLACED), [("Warning", "ColumnReplaced")]),
        (COMPLETE, (FALSE, Reason.DRIVER_RUNNING), (FALSE, Reason.RETRYING), []),
        (COMPLETE, (FALSE, Reason.DRIVER_RUNNING), (TRUE, Reason.COMMITTED), [("Normal", "Committed")]),
        (FAILED, (FALSE, Reason.DRIVER_RUNNING), (TRUE, Reason.BAD_RECORDS), [("Warning", "BadRecords")]),
    ],
)
def test_only_news_becomes_an_event(
    type_: str,
    before: tuple[ConditionStatus, Reason] | None,
    after: tuple[ConditionStatus, Reason],
    events: list[tuple[str, str]],
) -> None:
    old = () if before is None else (as_condition(type_, *before),)
    assert reasons(old, (as_condition(type_, *after),)) == events


def test_one_reason_in_two_conditions_is_one_event() -> None:
    new = (
        as_condition(READY, FALSE, Reason.TABLE_NOT_FOUND),
        as_condition(PROGRESSING, FALSE, Reason.TABLE_NOT_FOUND),
    )
    assert reasons((), new) == [("Warning", "TableNotFound")]


def test_an_event_without_message_says_what_the_reason_means() -> None:
    (found,) = find_transitions((), (as_condition(READY, TRUE, Reason.CHECKED),))
    assert found.message == Reason.CHECKED.sentence
    assert found.type is EventType.NORMAL
