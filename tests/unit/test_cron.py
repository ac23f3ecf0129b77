"""The times of cron expressions: in order, each once, the same from wherever one looks, over changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from skipstone_core.errors import BadSpec
from skipstone_operator.worlds.cron import Cron, read_cron

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo")
EXPRESSIONS = (
    *("* * * * *", "*/7 * * * *", "0,30 * * * *", "*/20 1-3 * * *", "0 * * * *", "30 2 * * *", "0 3 * * *"),
    *("15 1,2,3 * * *", "30 2 * * SUN", "0 0 1 * *", "59 23 28-31 * *", "5 */6 * * MON-FRI", "0 0 13 * FRI"),
)
#: Hours around the changes of the clocks in 2026, and some others.
AROUND = (
    "2026-03-29",
    "2026-10-25",
    "2026-03-08",
    "2026-11-01",
    "2026-04-05",
    "2026-10-04",
    "2026-07-14",
    "2026-12-31",
)


@st.composite
def instants(draw: st.DrawFn) -> datetime:
    day = datetime.fromisoformat(draw(st.sampled_from(AROUND))).replace(tzinfo=UTC)
    return day + timedelta(seconds=draw(st.integers(-30 * 3600, 54 * 3600)))


crons = st.builds(lambda e, z: Cron(e, ZoneInfo(z)), st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES))


@settings(deadline=None)
@given(crons, st.lists(instants(), min_size=3, max_size=3))
def test_times_do_not_depend_on_where_one_begins(cron: Cron, moments: list[datetime]) -> None:
    start, middle, end = sorted(moments)
    whole = list(islice(cron.between(start, end), 5000))
    if len(whole) < 5000:
        assert whole == [*cron.between(start, middle), *cron.between(middle, end)]
        assert cron.latest(start, end) == (whole[-1] if whole else None)
    assert whole == sorted(set(whole))
    assert all(moment.second == 0 and start < moment <= end for moment in whole)
    following = cron.next_after(start)
    assert following is not None
    assert whole[:1] in ([], [following])


@settings(deadline=None)
@given(crons, instants())
def test_the_latest_time_is_found_over_any_span(cron: Cron, end: datetime) -> None:
    found = cron.latest(end - timedelta(days=400), end)
    assert found is not None
    assert list(cron.between(found, end)) == []


def local(schedule: str, day: str, zone: str = "Europe/Berlin") -> list[str]:
    start = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone))
    times = read_cron(schedule, zone).between(start - timedelta(minutes=1), start + timedelta(hours=25))
    texts = [moment.astimezone(ZoneInfo(zone)).strftime("%d %H:%M%z") for moment in times]
    return [text[3:] for text in texts if text[:2] == day[-2:]]


def test_a_time_that_the_clocks_skip_is_taken_right_after() -> None:
    assert local("30 2 * * *", "2026-03-28") == ["02:30+0100"]
    assert local("30 2 * * *", "2026-03-29") == ["03:00+0200"]
    assert local("30 2 * * *", "2026-03-30") == ["02:30+0200"]


def test_a_time_that_the_clocks_repeat_is_taken_once() -> None:
    assert local("30 2 * * *", "2026-10-25") == ["02:30+0200"]


def test_steps_go_on_by_the_real_minutes() -> None:
    assert len(local("*/30 * * * *", "2026-03-29")) == 46
    assert len(local("*/30 * * * *", "2026-10-25")) == 50


def test_a_leap_day_is_found_years_ahead_and_years_back() -> None:
    cron = read_cron("0 0 29 2 *", "UTC")
    assert cron.next_after(datetime(2024, 3, 1, tzinfo=UTC)) == datetime(2028, 2, 29, tzinfo=UTC)
    assert cron.latest(datetime(2020, 3, 1, tzinfo=UTC), datetime(2028, 2, 1, tzinfo=UTC)) == datetime(
        2024, 2, 29, tzinfo=UTC
    )


@pytest.mark.parametrize("macro", ["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"])
def test_macros_are_known(macro: str) -> None:
    assert read_cron(macro, "UTC").next_after(datetime(2026, 1, 1, tzinfo=UTC)) is not None


@pytest.mark.parametrize(
    ("schedule", "zone", "says"),
    [
        ("0 0 30 2 *", "UTC", "spec.schedule"),
        ("0 0 31 4,6 *", "UTC", "spec.schedule"),
        ("0 0 * * FRI-MON", "UTC", "spec.schedule"),
        ("61 * * * *", "UTC", "spec.schedule"),
        ("* * * *", "UTC", "spec.schedule"),
        ("@reboot", "UTC", "spec.schedule"),
        ("@hourly", "Mars/Olympus", "spec.timeZone"),
        ("@hourly", "Europe", "spec.timeZone"),
        ("@hourly", "../etc/passwd", "spec.timeZone"),
    ],
)
def test_what_has_no_times_is_refused_by_field(schedule: str, zone: str, says: str) -> None:
    with pytest.raises(BadSpec, match=says):
        read_cron(schedule, zone)
