"""Long lists and large expressions: looked up in a time that grows with them, same answer, or left to Spark."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from skipstone.query.plans.analysis import longlists
from skipstone.query.plans.refusals import Refusal

from tests.spark.index_bed import index_on
from tests.spark.jvmcalls import counted_calls
from tests.spark.plans_bed import TABLE, Bed, Checked, open_bed

FILES, ROWS = 3, 400
START = datetime(1969, 12, 25, 5, 4, 3, 21, tzinfo=UTC)
#: As a long list and in it: what a text must not lose on its way.
ODD = {7: "null", 8: "", 9: "\U0001f600\U0001f680", 10: 'it\'s, "quoted"\n', 11: "\u0000é"}
WIDE_TEXT = "\U0001f600" * 6_001


def row(number: int) -> dict[str, object]:
    """Keys are null in every hundredth row."""
    return {
        "k": None if number % 100 == 99 else number,
        "text": WIDE_TEXT if number == 1_001 else ODD.get(number, f"text{number}"),
        "day": date(1969, 1, 1) + timedelta(days=number),
        "at": (START + timedelta(hours=number)).replace(tzinfo=None),
        "moment": START + timedelta(minutes=number),
        "money": Decimal(number).scaleb(-2) - 1,
        "wide": Decimal(10**20 + number).scaleb(-10),
        "ratio": (float("nan"), -0.0, float("inf"))[number] if number < 3 else number / 3,
    }


SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("money", pa.decimal128(9, 2)),
        ("wide", pa.decimal128(38, 10)),
        ("ratio", pa.float64()),
    ]
)


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """Three files, whose bounds are alike, with indexes on k and on text."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"))
    table = made.lake.create(SCHEMA)
    for file in range(FILES):
        rows = [row(number) for number in range(file, FILES * ROWS, FILES)]
        table.append(pa.Table.from_pylist(rows, schema=SCHEMA))
    made.reindex(index_on("k"), index_on("text", name="by_text"))
    yield made
    made.lake.catalog.close()


def listed(first: int, count: int) -> str:
    """So many keys from ``first`` on; those beyond the first are in no file."""
    return ", ".join(map(str, (first, *range(10_000, 9_999 + count))))


@pytest.fixture
def calls() -> Iterator[list[str]]:
    """What is sent to the JVM."""
    with counted_calls() as sent:
        yield sent


def test_the_length_of_a_list_does_not_show_in_the_talk_with_the_jvm(bed: Bed, calls: list[str]) -> None:
    # What the JVM has collected meanwhile is tidied up by whoever comes next: the least counts.
    few, many = (min(sent(bed, calls, count) for _ in range(3)) for count in (300, 3_000))
    assert many < few + 50


def sent(bed: Bed, calls: list[str], count: int) -> int:
    """The number of calls that a query with a list of ``count`` keys makes."""
    df = bed.spark.sql(f"select text from {TABLE} where k in ({listed(5, count)})")
    calls.clear()
    found = bed.check(df)
    assert (found.files_read, len(found.answer)) == ([1], 1), str(found.explanation)
    assert max(map(len, calls)) < 8_000
    return len(calls)


def literals(number: int) -> dict[str, str]:
    """The values of a row as SQL writes them."""
    values = row(number)
    text = str(values["text"]).replace("\\", "\\\\").replace("'", "\\'")
    return {
        "k": str(values["k"] or "null"),
        "text": f"'{text}'",
        "day": f"date'{values['day']}'",
        "at": f"timestamp_ntz'{values['at']}'",
        "moment": f"timestamp'{values['moment']}'",
        "money": f"{values['money']}bd",
        "wide": f"cast('{values['wide']}' as decimal(38, 10))",
        "ratio": f"cast('{values['ratio']}' as double)",
    }


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_values_of_every_type_are_those_of_the_list(bed: Bed, zone: str) -> None:
    bed.spark.conf.set("spark.sql.session.timeZone", zone)
    # without NaN and -0.0, which plain Iceberg loses
    rows = [literals(number) for number in range(FILES, FILES * 150, FILES)]
    lists = {name: ", ".join(one[name] for one in rows) for name in rows[0]}
    found = bed.query(f"select * from {TABLE} where " + " and ".join(f"{name} in ({lists[name]})" for name in lists))
    assert (found.files_read, len(found.answer)) == ([1], 149 - 2), str(found.explanation)
    assert all(f"{name} in (" in found.only.text() for name in lists)
    assert bed.query(f"select k from {TABLE} where text not in ({lists['text']}) and k in (5, 8)").files_read == [1]


def test_lists_in_subqueries_are_lists_too(bed: Bed) -> None:
    inner = f"select k from {TABLE} where k in ({listed(404, 300)})"
    found = bed.query(f"select text, (select max(k) from ({inner})) from {TABLE} where k in ({listed(5, 300)})")
    assert found.files_read == [1, 1], str(found.explanation)
    found = bed.query(f"select text from {TABLE} where k in ({inner}) and k in ({listed(404, 300)})")
    assert found.files_read == [1, 1], str(found.explanation)


def test_a_text_is_fetched_whole_wherever_it_is_cut(bed: Bed) -> None:
    for name in ("a", "ab"):
        found = bed.query(f"select k as {name} from {TABLE} where text = '{WIDE_TEXT}'")
        assert (found.files_read, len(found.answer)) == ([1], 1), str(found.explanation)


def test_what_is_too_long_is_left_to_spark(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longlists, "MAX_VALUES", 200)
    too_long = f"k in ({listed(5, 300)})"
    assert bed.query(f"select text from {TABLE} where {too_long}").refusals == [Refusal.LIST_TOO_LONG]
    assert bed.query(f"select text from {TABLE} where {too_long} and text = 'text5'").files_read == [1]
    monkeypatch.setattr(longlists, "MAX_LEAVES", 200)
    found: Checked = bed.query(
        f"select text from {TABLE} where " + " or ".join(f"k = {number}" for number in range(150))
    )
    assert found.explanation.refusal is Refusal.LIST_TOO_LONG
