"""Retries: what the end of a run makes of its record, and where each kind's status holds it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_core.codec import camel, encode
from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason
from skipstone_operator.measuring.measurements import FAILURES
from skipstone_operator.ports import Timing
from skipstone_operator.reconcilers.runs.lifecycle import Policy, decide
from skipstone_operator.reconcilers.runs.records import RunEnd, RunRecord, after, find_rule
from skipstone_operator.resources.common import LastRun, RunResult
from skipstone_operator.worlds.runs import REQUESTED_STOPS, Ending, Verdict
from skipstone_operator.worlds.steps import Rest

from tests.unit.kube_double import START
from tests.unit.test_lifecycle import LIVES, Life, run_of
from tests.unit.world_cases import EARLIER, SETTING, current_run, good_warehouse

#: What a status of each kind says of runs, as every release so far wrote it.
WRITTEN: dict[str, dict[str, Any]] = {
    "load": {"failedAttempts": 2, "lostAttempts": 1, "attempts": 3},
    "merge": {"failedAttempts": 2, "lostAttempts": 1, "attempts": 3},
    "confirm": {"confirm": {"attempts": 2, "reason": "BackoffLimitExceeded", "message": "all failed"}},
    "table change": {"failedAttempts": 2, "failedInputsHash": "f00d"},
    "reindex": {"failedAttempts": 2, "failedInputsHash": "f00d"},
    "maintain": {"failedMaintains": 2},
    "check": {"failedAttempts": 2},
    "observe": {"failedObserves": 2},
    "drop of a table": {"failedAttempts": 7},
    "drop of an index": {"failedAttempts": 7},
}
#: Its name of the run that ended last, and of the time of the next one.
NAMES = {"maintain": ("lastMaintainRun", "maintainRetryTime"), "observe": ("lastObserveRun", "observeRetryTime")}
LOST_ONCE = {"load", "merge"}
REMEMBERED = {"table change", "reindex"}


def last_of(life: Life) -> LastRun:
    plan = life.plan()
    return LastRun(
        id=life.intended().id,
        kind=plan.kind,
        attempt=2,
        result=RunResult.UNKNOWN,
        reason="DriverFailed",
        message="exit code 1",
        inputs_hash=plan.inputs_hash,
        generation=1,
        start_time=EARLIER,
        completion_time=EARLIER,
    )


def policy_of(name: str, retry_time: str) -> Policy[Any]:
    """The runs of a status that says that one failed, and when the next one starts."""
    last, retry = NAMES.get(name, ("lastRun", "retryTime"))
    status = {**WRITTEN[name], last: encode(last_of(LIVES[name]))}
    if name == "confirm":
        status["confirm"] = {**status["confirm"], "nextTime": retry_time}
    else:
        status[retry] = retry_time
    return LIVES[name].make(status, good_warehouse(), {"setting": SETTING, "run": None})


@pytest.mark.parametrize("name", LIVES)
def test_a_status_of_an_earlier_release_is_read_as_one_record(name: str) -> None:
    assert policy_of(name, "2026-01-01T12:01:00Z").record() == RunRecord(
        last=last_of(LIVES[name]),
        failures=2,
        losses=1 if name in LOST_ONCE else 0,
        retry_time="2026-01-01T12:01:00Z",
        refused_hash="f00d" if name in REMEMBERED else "",
    )


@pytest.mark.parametrize("name", LIVES)
def test_the_next_run_starts_at_its_time_and_not_before_it(name: str) -> None:
    waits = decide(policy_of(name, "2026-01-01T12:01:00Z"))
    assert isinstance(waits, Rest) or run_of(waits) is None
    starts = run_of(decide(policy_of(name, "2026-01-01T12:00:00Z")))
    assert starts is not None
    assert starts["attempt"] == (4 if name in LOST_ONCE else 3)


@pytest.mark.parametrize("name", LIVES)
def test_what_a_status_has_room_for_is_read_again(name: str) -> None:
    policy = policy_of(name, "2026-01-01T12:01:00Z")
    record = policy.fields.read(policy.status())
    more = replace(
        record,
        current=LIVES[name].intended(),
        failures=record.failures + 1,
        losses=record.losses + 1,
        retry_time="2026-01-01T12:02:00Z",
        refused_hash="beef",
    )
    held = {part for part in ("failures", "losses", "refused_hash") if getattr(policy.fields, part)}
    assert policy.fields.read(policy.fields.lay(policy.status(), more)) == replace(
        more,
        failures=more.failures if "failures" in held else 0,
        losses=more.losses if "losses" in held else 0,
        refused_hash="beef" if "refused_hash" in held else "",
    )


def test_every_count_of_failures_is_measured() -> None:
    counts = {life.policy().fields.failures for life in LIVES.values()}
    assert {camel(name) for name in counts if name} == set(FAILURES)


def end(ending: Ending, *, stop_reason: str = "", inputs_hash: str = "") -> RunEnd:
    verdict = Verdict(ending=ending, reason=Reason.DRIVER_FAILED, message="it ended")
    current = current_run(stop_reason=stop_reason)
    return RunEnd(current=current, verdict=verdict, ending=ending, inputs_hash=inputs_hash)


def waits(kind: RunKind, ends: Sequence[RunEnd], limit: int | None = None) -> list[float]:
    """Seconds until the next run after each of these ends."""
    record, rule, found = RunRecord(), replace(find_rule(kind, Timing()), limit=limit), []
    for each in ends:
        record = after(record, each, rule, START)
        found.append(record.wait(START))
    return found


FAILED, LOST, DONE = end(Ending.UNKNOWN), end(Ending.LOST), end(Ending.SUCCEEDED)


@pytest.mark.parametrize(
    ("kind", "failed", "lost", "done"),
    [
        (RunKind.LOAD, [10, 20, 40, 80, 160, 320, 360, 360], [10, 20, 40], 0),
        (RunKind.MERGE, [10, 20, 40, 80, 160, 320, 360, 360], [10, 20, 40], 0),
        (RunKind.TABLE, [10, 20, 40, 80, 160, 320, 360, 360], [10, 20, 40], 0),
        (RunKind.REINDEX, [10, 20, 40, 80, 160, 320, 360, 360], [10, 20, 40], 0),
        (RunKind.CONFIRM, [10, 20, 40, 80, 160, 320, 360, 360], [10, 20, 40], 0),
        (RunKind.DROP, [10, 20, 40, 80, 160, 320, 360, 360], [10, 20, 40], 0),
        (RunKind.MAINTAIN, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600], [10, 20, 40], 0),
        (RunKind.CHECK, [10, 20, 40, 80, 160, 300, 300], [10, 20, 40], 0),
        (RunKind.OBSERVE, [10, 20, 40, 80, 160, 300, 300], [10, 20, 40], 10),
    ],
)
def test_waits_double_up_to_the_cap_of_the_kind(
    kind: RunKind, failed: list[float], lost: list[float], done: float
) -> None:
    assert waits(kind, [FAILED] * len(failed)) == failed
    assert waits(kind, [LOST] * len(lost)) == lost
    assert waits(kind, [FAILED, FAILED, DONE, FAILED]) == [10, 20, done, 10]


@pytest.mark.parametrize("kind", RunKind)
def test_what_the_cluster_lost_counts_only_where_somebody_waits_for_an_answer(kind: RunKind) -> None:
    record = after(RunRecord(failures=3), LOST, find_rule(kind, Timing()), START)
    counts = kind in (RunKind.CHECK, RunKind.OBSERVE, RunKind.DROP, RunKind.CONFIRM)
    assert record.failures == (4 if counts else 3)


@pytest.mark.parametrize("kind", [RunKind.LOAD, RunKind.REINDEX, RunKind.MAINTAIN, RunKind.TABLE])
@pytest.mark.parametrize("reason", sorted(REQUESTED_STOPS))
def test_a_run_that_was_stopped_on_request_may_follow_at_once(kind: RunKind, reason: Reason) -> None:
    record = after(RunRecord(failures=3), end(Ending.LOST, stop_reason=reason), find_rule(kind, Timing()), START)
    assert (record.failures, record.retry_time, record.wait(START)) == (3, None, 0.0)


def test_a_refusal_is_remembered_until_a_run_succeeds() -> None:
    rule = find_rule(RunKind.REINDEX, Timing())
    record = after(RunRecord(failures=2), end(Ending.REFUSED, inputs_hash="f00d"), rule, START)
    assert (record.refused_hash, record.failures, record.retry_time) == ("f00d", 0, None)
    assert after(record, FAILED, rule, START).refused_hash == "f00d"
    assert after(record, DONE, rule, START).refused_hash == ""


def test_a_refusal_that_may_pass_is_tried_again() -> None:
    record = after(RunRecord(failures=2), end(Ending.REFUSED), find_rule(RunKind.REINDEX, Timing()), START)
    assert (record.refused_hash, record.failures, record.wait(START)) == ("", 3, 40.0)


@given(st.lists(st.sampled_from([FAILED, LOST]), max_size=12), st.integers(0, 4))
def test_attempts_end_with_the_failure_after_the_limit(ends: list[RunEnd], limit: int) -> None:
    rule, record = replace(find_rule(RunKind.LOAD, Timing()), limit=limit), RunRecord()
    failures = 0
    for each in ends:
        record, failures = after(record, each, rule, START), failures + (each is FAILED)
        if failures > limit:
            assert (record.refused_hash, record.retry_time) == (each.current.inputs_hash, None)
            return
        assert (record.refused_hash, record.failures) == ("", failures)
        assert record.wait(START) >= rule.base
