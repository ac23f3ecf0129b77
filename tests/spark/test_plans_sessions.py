"""A query is rewritten in the session of its DataFrame, whichever session the thread has used last."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import skipstone
from pyspark.sql import SparkSession

from tests.spark.plans_bed import TABLE, Bed, answer, module_bed

__all__ = ["module_bed"]

#: Settings that an expression can see when it is evaluated, with the value of each of two sessions.
SETTINGS = {
    "spark.sql.session.timeZone": ("Europe/Berlin", "America/New_York"),
    "spark.sql.ansi.enabled": ("false", "true"),
    "spark.sql.caseSensitive": ("false", "true"),
    "spark.sql.decimalOperations.allowPrecisionLoss": ("true", "false"),
    "spark.sql.mapKeyDedupPolicy": ("LAST_WIN", "EXCEPTION"),
    "spark.sql.legacy.timeParserPolicy": ("CORRECTED", "LEGACY"),
    "spark.sql.legacy.castComplexTypesToString.enabled": ("false", "true"),
    "spark.sql.legacy.sizeOfNull": ("false", "true"),
    "spark.sql.jsonGenerator.ignoreNullFields": ("true", "false"),
}
#: Text that the sessions evaluate differently, or that one of them refuses to evaluate.
SEEN = {
    "time zone": "current_timezone()",
    "local time": "date_format(timestamp_seconds(0), 'yyyy-MM-dd HH')",
    "date of a moment": "string(date(timestamp_seconds(0)))",
    "cast that fails": "string(try_cast('x' as int))",
    "digits of a product": "string(cast(1.23456789 as decimal(38, 18)) * cast(1.23456789 as decimal(38, 18)))",
    "first of two keys": "string(map(1, 'a', 1, 'b')[1])",
    "lenient date": "string(try_to_timestamp('2024-2-3', 'yyyy-MM-dd'))",
    "array as text": "string(array(1, null))",
    "size of null": "string(size(cast(null as array<int>)))",
    "interval": "string(make_interval(0, 0, 0, 1, 2, 3))",
    "json": "to_json(named_struct('a', cast(null as int)))",
}


@pytest.fixture(params=[0, 1], ids=["first", "second"])
def sessions(module_bed: Bed, request: pytest.FixtureRequest) -> Iterator[tuple[SparkSession, SparkSession]]:
    """The session of the query, and another one."""
    own, other = module_bed.spark, module_bed.spark.newSession()
    before = {name: own.conf.get(name) for name in SETTINGS}
    for name, values in SETTINGS.items():
        own.conf.set(name, values[request.param])
        other.conf.set(name, values[1 - request.param])
    own.conf.set("skipstone.driverRows", "0" if request.param else "1000")
    yield own, other
    activate(own)
    own.conf.set("skipstone.driverRows", "0")
    for name, value in before.items():
        own.conf.set(name, value)


def activate(session: SparkSession) -> None:
    """Make ``session`` the one that the thread used last."""
    session._jvm.SparkSession.setActiveSession(session._jsparkSession)  # type: ignore[union-attr]


def is_active(session: SparkSession) -> bool:
    """Whether ``session`` is the one that the thread used last."""
    active = session._jvm.SparkSession.getActiveSession()  # type: ignore[union-attr]
    return bool(active.isDefined() and active.get().equals(session._jsparkSession))


def test_expressions_are_evaluated_in_the_session_of_the_dataframe(sessions: tuple[SparkSession, SparkSession]) -> None:
    own, other = sessions
    used = 0
    for name, seen in SEEN.items():
        text = f"coalesce({seen}, 'none')"
        try:
            (value,) = own.sql(f"select {text}").first() or ()
        except Exception:  # noqa: BLE001 - the session refuses to evaluate it; so must the rewritten query
            continue
        df = own.sql(f"select n from {TABLE} where g = if({text} = '{value}', 'g37', 'g1')")
        expected = answer(df)
        activate(other)
        rewritten = skipstone.rewrite(df)
        assert is_active(other)
        assert "'g37'" in str(skipstone.explain(rewritten)), name
        assert answer(rewritten) == expected, name
        used += rewritten is not df
    assert used > len(SEEN) / 2


def test_a_thread_that_used_no_session_is_left_so(module_bed: Bed) -> None:
    df = module_bed.spark.sql(f"select n from {TABLE} where k = 7")
    sessions = module_bed.spark._jvm.SparkSession  # type: ignore[union-attr]
    sessions.clearActiveSession()
    try:
        assert skipstone.explain(df).is_rewritten
        assert not sessions.getActiveSession().isDefined()
    finally:
        activate(module_bed.spark)
