"""Hints about indexes say which are read, never what a query answers; settings say when an index pays off."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest
import skipstone
from pyspark.sql import DataFrame, SparkSession
from skipstone.query.plans.explanation import RelationExplanation
from skipstone.query.plans.refusals import Refusal
from skipstone_core.indexing.use import NotUsed

from tests.spark.plans_bed import TABLE, Bed, answer, kept, module_bed

__all__ = ["kept", "module_bed"]

#: Both indexes serve it: the one on k, idx, finds rows in three files, by_g, on g, too.
BOTH = "k in (7, 14, 21) and g in ('g1', 'g2', 'g7', 'g13', 'g26')"
#: Hits of it are in nearly every row group of every file, so the cost rule turns the index away.
WIDE = "k between 3 and 390"


@pytest.fixture
def enabled(module_bed: Bed) -> Iterator[SparkSession]:
    """An enabled session on the table with an index on k and one on g."""
    skipstone.enable(module_bed.spark)
    yield module_bed.spark
    skipstone.disable(module_bed.spark)


def used(df: DataFrame, table: int = 0) -> set[str]:
    """The SecondaryIndexes that a relation is read by; the rows must be those of Spark."""
    relations = skipstone.explain(df).relations
    assert answer(skipstone.rewrite(df)) == answer(skipstone.no_index(df))
    plan = relations[table].plan
    return {use.name.split("__si_")[1].rsplit("_", 1)[0] for use in plan.indexes if use.used} if plan else set()


def only(df: DataFrame) -> RelationExplanation:
    (found,) = skipstone.explain(df).relations
    return found


def hinted(hint: str, condition: str = BOTH, rest: str = "") -> str:
    marked = f"/*+ {hint} */" if hint else ""
    return f"select {marked} t.k, t.n from {TABLE} t {rest} where {condition}"


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("SKIPSTONE_INDEX(t, by_g)", {"by_g"}),
        ("skipstone_index(t, BY_G)", {"by_g"}),
        ("SKIPSTONE_INDEX(ns.t, 'by-g')", {"by_g"}),
        ("SKIPSTONE_INDEX(by_g)", {"by_g"}),
        ("BROADCAST(t), SKIPSTONE_INDEX(t, by_g), COALESCE(2)", {"by_g"}),
        ("SKIPSTONE_INDEX(t, idx, by_g)", {"idx", "by_g"}),
        ("SKIPSTONE_INDEX(t, by_g) */ /*+ SKIPSTONE_INDEX(t, idx)", {"idx", "by_g"}),
        ("SKIPSTONE_NO_INDEX(t)", set()),
        ("SKIPSTONE_NO_INDEX", set()),
        ("SKIPSTONE_INDEX(t, idx), SKIPSTONE_NO_INDEX(t)", set()),
    ],
)
def test_a_hint_in_a_text_names_the_indexes(enabled: SparkSession, hint: str, expected: set[str]) -> None:
    text = hinted(hint)
    if "ns.t" in hint:
        text = text.replace(" t ", " ").replace("t.k, t.n", "k, n")
    df = enabled.sql(text)
    assert used(df) == expected
    if not expected:
        assert only(df).refusal is Refusal.HINTED
    assert ("Repartition" in df._jdf.queryExecution().analyzed().toString()) == ("COALESCE" in hint)


def test_a_hint_outlives_what_is_built_upon_it_and_leaves_other_frames_alone(enabled: SparkSession) -> None:
    table = enabled.table(TABLE)
    steered = table.hint("skipstone_index", "by_g")
    unsteered = used(table.where(BOTH))
    assert used(steered.where(BOTH).select("n")) == {"by_g"} != unsteered
    assert used(enabled.sql(f"select /*+ SKIPSTONE_INDEX(t, by_g) */ * from {TABLE} t").where(BOTH)) == {"by_g"}
    assert used(table.hint("SKIPSTONE_INDEX", "t", ["by_g"]).where(BOTH)) == {"by_g"}
    assert used(table.hint("skipstone_no_index").where(BOTH)) == set()
    assert used(table.where(BOTH)) == unsteered
    assert "ResolvedHint" in table.hint("broadcast")._jdf.queryExecution().analyzed().toString()
    assert len(skipstone.sql(enabled, hinted("SKIPSTONE_INDEX(t, by_g)")).collect()) == enabled.sql(hinted("")).count()


def test_skipstone_sql_reads_hints_in_any_session(module_bed: Bed) -> None:
    df = skipstone.sql(module_bed.spark, hinted("SKIPSTONE_INDEX(t, by_g)"))
    assert {use.name.split("__si_")[1][:4] for use in only(df).plan.indexes if use.used} == {"by_g"}  # type: ignore[union-attr]
    unnamed = module_bed.spark.table(TABLE).hint("skipstone_index", "by_g").where(BOTH)
    assert answer(skipstone.rewrite(unnamed)) == answer(skipstone.no_index(unnamed))


def test_each_table_of_a_query_has_its_own_hint(enabled: SparkSession) -> None:
    """In joins of a table with itself, in subqueries, and in common table expressions that are used twice."""
    joined = hinted(
        "SKIPSTONE_NO_INDEX(u), SKIPSTONE_INDEX(t, by_g)",
        "t.k in (7, 14) and t.g in ('g1', 'g13') and u.k = 21",
        f"join {TABLE} u on t.n = u.n",
    )
    df = enabled.sql(joined)
    first, second = skipstone.explain(df).relations
    assert used(df) == {"by_g"}
    assert (first.refusal, second.refusal) == (None, Refusal.HINTED)
    inner = f"select * from (select /*+ SKIPSTONE_INDEX(s, by_g) */ * from {TABLE} s where {BOTH})"
    assert used(enabled.sql(inner)) == {"by_g"}
    of_both = "select /*+ SKIPSTONE_INDEX(c, by_g) */ a.n from c a join c b on a.n = b.n"
    twice = f"with c as (select * from {TABLE} where {BOTH}) {of_both}"
    assert used(enabled.sql(twice)) == {"by_g"}
    enabled.table(TABLE).createOrReplaceTempView("seen")
    assert used(enabled.sql(f"select /*+ SKIPSTONE_INDEX(seen, by_g) */ n from seen where {BOTH}")) == {"by_g"}
    assert used(enabled.sql(f"select n from seen where {BOTH}")) != {"by_g"}


@pytest.mark.parametrize(
    ("hint", "warning"),
    [
        ("SKIPSTONE_INDEX(t, by_name)", "by_name"),
        ("SKIPSTONE_INDEX(u, by_g)", "reads no Iceberg table u"),
        ("SKIPSTONE_NO_INDEX(u)", "reads no Iceberg table u"),
    ],
)
def test_a_hint_that_names_nothing_is_left_out_with_a_warning(
    enabled: SparkSession, caplog: pytest.LogCaptureFixture, hint: str, warning: str
) -> None:
    unhinted = used(enabled.sql(hinted("")))
    caplog.clear()
    assert used(enabled.sql(hinted(hint))) == unhinted
    enabled.sql(hinted(hint)).collect()
    assert any(warning in one.getMessage() for one in caplog.records if one.levelno == logging.WARNING)
    for df in (enabled.sql(hinted(hint)), enabled.sql(hinted(hint)).where("n > 3").select("n")):
        assert warning in str(skipstone.explain(df)), "explain shows it, too"
    assert warning not in str(skipstone.explain(enabled.sql(hinted(""))))


def test_an_index_that_a_hint_names_is_used_whatever_it_costs(enabled: SparkSession) -> None:
    plain, steered = enabled.sql(hinted("", WIDE)), enabled.sql(hinted("SKIPSTONE_INDEX(t, idx)", WIDE))
    assert used(plain) == set()
    assert used(steered) == {"idx"}
    assert only(enabled.sql(hinted("SKIPSTONE_INDEX(t, idx)"))).plan.indexes[-1].code is NotUsed.HINTED  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("hint", "condition", "chosen"),
    [
        ("", "k = 7", "__si_idx_"),
        ("", WIDE, "Spark"),
        ("SKIPSTONE_INDEX(t, idx)", "k = 7", "__si_idx_"),
        ("SKIPSTONE_INDEX(t, idx)", BOTH, "__si_idx_"),
    ],
)
def test_explain_shows_what_each_way_to_read_costs(
    enabled: SparkSession, hint: str, condition: str, chosen: str
) -> None:
    text = str(skipstone.explain(enabled.sql(hinted(hint, condition))))
    costs = {
        name: int(cost.replace(",", "")) for name, cost in re.findall(r"cost of (.+): (?:at least )?([0-9,]+) ", text)
    }
    (line,) = (line for line in text.splitlines() if ", chosen" in line)
    assert chosen in line
    assert ("a hint names it" in line) == bool(hint)
    if not hint and chosen != "Spark":
        (cost,) = (cost for name, cost in costs.items() if chosen in name and f"cost of {name}: " in line)
        why = "it pays off" if cost <= costs["min/max alone"] else "an index this small is always read"
        assert why in line
    assert len(costs) >= 3
    assert costs["min/max alone"] == costs["Spark alone"] > 0


def test_settings_say_when_an_index_pays_off(enabled: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    query = enabled.sql(hinted("", WIDE))
    point = enabled.sql(hinted("", "k = 7"))
    assert (used(query), used(point)) == (set(), {"idx"})
    for setting, text, of_wide, of_point in (
        ("skipstone.narrowPart", "1", {"idx"}, {"idx"}),
        ("skipstone.narrowPart", "0", set(), set()),
        ("skipstone.worthwhilePart", "0", set(), set()),
        ("skipstone.narrowPart", "much", set(), {"idx"}),
        ("skipstone.worthwhilePart", "1.5", set(), {"idx"}),
        ("skipstone.narowPart", "1", set(), {"idx"}),
    ):
        enabled.conf.set(setting, text)
        assert (used(query), used(point)) == (of_wide, of_point), (setting, text)
        is_right = text in ("0", "1") and setting != "skipstone.narowPart"
        assert (f"warning: {setting} is " in str(skipstone.explain(point))) is not is_right
        enabled.conf.unset(setting)
    (unknown,) = (text for text in caplog.messages if "skipstone.narowPart" in text)  # once for all queries
    assert "skipstone.narowPart is set, but there is no such setting" in unknown
    warned = {one.getMessage() for one in caplog.records if "not a number from 0 to 1" in one.getMessage()}
    assert warned == {
        "skipstone.narrowPart is 'much', not a number from 0 to 1: it counts as 0.9, the default",
        "skipstone.worthwhilePart is '1.5', not a number from 0 to 1: it counts as 0.5, the default",
    }


def test_settings_say_which_side_of_a_join_runs_first_and_what_the_driver_takes(enabled: SparkSession) -> None:
    enabled.sql("create table if not exists skipstone.ns.keys using iceberg as select 7 as id, 'a' as name")
    joined = f"select t.n, t.g, s.name from skipstone.ns.keys s join {TABLE} t on t.k = s.id"
    point = hinted("", "k = 7")

    def outcome() -> tuple[bool, bool]:
        """Whether a side of the join runs first, and whether the driver reads rows of the point."""
        frames = [enabled.sql(joined), enabled.sql(point)]
        for df in frames:
            assert answer(skipstone.rewrite(df)) == answer(skipstone.no_index(df))
        of_join, of_point = (skipstone.explain(df) for df in frames)
        return any(relation.joined for relation in of_join.relations), any(one.driver for one in of_point.relations)

    for values, expected in (
        ({}, (False, True)),
        ({"skipstone.joinBytes": "0", "skipstone.smallSidePart": "1"}, (True, True)),
        ({"skipstone.joinBytes": "0", "skipstone.smallSidePart": "0"}, (False, True)),
        ({"skipstone.joinBytes": "1g", "skipstone.smallSidePart": "1"}, (False, True)),
        ({"skipstone.driverBytes": "1"}, (False, False)),
    ):
        for name, value in {"skipstone.driverRows": "1000", **values}.items():
            enabled.conf.set(name, value)
        assert outcome() == expected, values
        for name in values:
            enabled.conf.unset(name)
    enabled.conf.set("skipstone.driverRows", "0")  # as the bed has it
