"""Queries say what they ask for in every way that Spark has: arguments, collations, days that Python cannot hold."""

from __future__ import annotations

import skipstone

from tests.spark.index_bed import index_on
from tests.spark.plans_bed import TABLE, Bed, answer, bed, filled, kept

__all__ = ["bed", "filled", "kept"]


def test_what_sparks_sql_takes_is_taken(filled: Bed) -> None:
    frame = filled.spark.table(TABLE)
    asked = {
        "named": skipstone.sql(filled.spark, f"select n from {TABLE} where k = :k", {"k": 7}),
        "by keyword": skipstone.sql(filled.spark, sqlQuery=f"select n from {TABLE} where k = :k", args={"k": 7}),
        "by position": skipstone.sql(filled.spark, f"select n from {TABLE} where k = ?", [7]),
        "a frame": skipstone.sql(filled.spark, "select n from {df} where k = 7", df=frame),
        "a frame and a value": skipstone.sql(
            filled.spark, "select n from {query} where k = {spark}", query=frame, spark=7
        ),
        "all": skipstone.sql(filled.spark, "select n from {df} where k = :k", args={"k": 7}, df=frame.where("n >= 0")),
    }
    for how, df in asked.items():
        assert skipstone.explain(df).is_rewritten, how
        assert answer(df) == ["Row(n=1)"], how


def test_the_usual_collation_may_be_named(filled: Bed) -> None:
    for condition in (
        "g = 'g13' collate UTF8_BINARY",
        "g collate UTF8_BINARY = 'g13'",
        "collate(g, 'UTF8_BINARY') in ('g13', 'no')",
    ):
        found = filled.query(f"select * from {TABLE} where {condition}")
        assert found.files_read, condition
        assert found.answer, condition
    begins = filled.query(f"select * from {TABLE} where startswith(g collate UTF8_BINARY, 'g13')")
    assert begins.only.plan is not None, str(begins.explanation)
    assert not filled.query(f"select * from {TABLE} where g collate UTF8_LCASE = 'G13'").explanation.is_rewritten


def test_days_and_moments_beyond_pythons_years_are_asked_of_an_index(bed: Bed) -> None:
    bed.spark.sql(f"create table {TABLE} (k int, d date, t timestamp, n timestamp_ntz) using iceberg")
    years = ("-0005", "0000", "0001", "1999", "9999", "+10000", "+12345")
    for number, year in enumerate(years):
        day = f"{year}-06-15"
        values = f"{number}, date '{day}', timestamp '{day} 12:00:00', timestamp_ntz '{day} 12:00:00'"
        bed.spark.sql(f"insert into {TABLE} values ({values}), ({number} + 100, date '2000-01-01', null, null)")
    bed.reindex(*(index_on(column, name=f"by_{column}") for column in "dtn"))
    kinds = {"d": "date '{}'", "t": "timestamp '{} 12:00:00'", "n": "timestamp_ntz '{} 12:00:00'"}
    for column, written in kinds.items():
        far, old = (written.format(f"{year}-06-15") for year in ("+10000", "0000"))
        counts = {
            f"{column} > {far}": 1,
            f"{column} >= {far}": 2,
            f"{column} = {far}": 1,
            f"{column} in ({far}, {old})": 2,
            f"{column} < {old}": 1,
            f"{column} = {old}": 1,
            f"not {column} < {far}": 2,
        }
        for condition, count in counts.items():
            found = bed.query(f"select k from {TABLE} where {condition}")
            assert len(found.answer) == count, condition
            assert found.only.plan is not None, str(found.explanation)
            assert found.only.plan.funnel.min_max <= count + 2, str(found.explanation)
        assert len(bed.query(f"select k from {TABLE} where {column} < {far} and k < 100").answer) == 5
