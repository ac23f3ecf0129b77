"""Lookups are exact: every key type, every index state, random predicates, against DuckDB over all rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from skipstone.indexes import tables
from skipstone.indexes.upkeep import compaction
from skipstone.query import ReadOptions, explain, read
from skipstone_core.errors import BadSpec

from tests.spark.index_bed import Lake, index_on, query, rows_of

NAN, INF = float("nan"), float("inf")
UTC = dt.UTC
LONG = "x" * 300


def wall(*parts: int) -> dt.datetime:
    """A time without zone: year, month, day, hour, minute, second, microsecond."""
    return dt.datetime(*parts, tzinfo=UTC).replace(tzinfo=None)  # type: ignore[misc,arg-type]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@dataclass(frozen=True)
class KeyCase:
    """Values of one type in two segments and conditions on them."""

    kind: pa.DataType
    values: tuple[object, ...]
    conditions: tuple[str, ...]


CASES = {
    "long": KeyCase(
        pa.int64(),
        (None, 0, -1, 5, 5, 2**63 - 1, -(2**63), 7),
        (
            "c = 5",
            "c in (5, 7, 99)",
            "c < 0",
            "c >= 5",
            "c is null",
            "c is not null",
            "c = 9223372036854775807",
            "not c = 5",
            "c > 4.5",
            "c = 5.0",
            "c = 5.5",
            "not (c < 5)",
        ),
    ),
    "int": KeyCase(pa.int32(), (None, 3, -3, 2**31 - 1, -(2**31)), ("c = 3", "c <= -3", "c = 2147483647", "c > 2.5")),
    "double": KeyCase(
        pa.float64(),
        (None, NAN, -NAN, 0.0, -0.0, INF, -INF, 1.5, -1.5, 5e-324, 1e300),
        ("c = 0", "c < 0", "c <= 0", "c > 1", "c >= -1.5", "c = 1.5", "c is null", "c in (0, 1.5)", "c > 10000000"),
    ),
    "float": KeyCase(
        pa.float32(), (None, NAN, 0.0, -0.0, INF, 0.5, -0.25), ("c = 0", "c = 0.5", "c < 0", "c > 0.25", "c <= -0.25")
    ),
    "string": KeyCase(
        pa.string(),
        (
            None,
            "",
            "a",
            "ab",
            "b",
            "é",
            "\ud7ff",
            "\ue000",
            "\uffff",
            "😀",
            "😀z",
            LONG + "a",
            LONG + "b",
            "\U0010ffff",
        ),
        (
            "c = 'ab'",
            "c like 'a%'",
            "c like 'é%'",
            "c like '😀%'",
            f"c like '{LONG}%'",
            f"c = '{LONG}b'",
            "c > '\uffff'",
            "c < '\ue000'",
            "c >= '😀'",
            "c in ('', 'b')",
            "c is null",
            "not c like 'a%'",
        ),
    ),
    "boolean": KeyCase(pa.bool_(), (None, True, False, True), ("c = true", "c = false", "c is null", "not c = true")),
    "date": KeyCase(
        pa.date32(),
        (
            None,
            dt.date(1, 1, 1),
            dt.date(1899, 12, 31),
            dt.date(1970, 1, 1),
            dt.date(2024, 2, 29),
            dt.date(9999, 12, 31),
        ),
        ("c = date '2024-02-29'", "c < date '1900-01-01'", "c between date '1970-01-01' and date '2024-02-28'"),
    ),
    "timestamp": KeyCase(
        pa.timestamp("us"),
        (
            None,
            wall(1883, 11, 18, 12, 3, 58, 1),
            wall(1969, 12, 31, 23, 59, 59, 999999),
            wall(2024, 1, 1, 0, 0, 0, 1),
            wall(2024, 1, 1, 0, 0, 0, 2),
        ),
        (
            "c = timestamp '2024-01-01 00:00:00.000001'",
            "c > timestamp '2024-01-01 00:00:00.000001'",
            "c < timestamp '1970-01-01 00:00:00'",
            "c <= timestamp '1883-11-18 12:03:58.000001'",
        ),
    ),
    "timestamptz": KeyCase(
        pa.timestamp("us", tz="UTC"),
        (None, *(dt.datetime(year, 11, 18, 12, 3, 58, 1, UTC) for year in (1883, 1969, 2023, 2024, 2025))),
        ("c = timestamp '2024-11-18 12:03:58.000001+00:00'", "c < timestamp '1900-01-01 00:00:00+00:00'"),
    ),
    "decimal": KeyCase(
        pa.decimal128(9, 2),
        (None, Decimal("0.00"), Decimal("-0.01"), Decimal("12.34"), Decimal("-9999999.99"), Decimal("9999999.99")),
        (
            "c = 12.34",
            "c = 12.340",
            "c > 12.335",
            "c >= 12.345",
            "c < 0",
            "c = 12.345",
            "c in (0, 12.34)",
            "c <= -0.005",
        ),
    ),
    "wide decimal": KeyCase(
        pa.decimal128(38, 10),
        (None, *map(Decimal, ("1.0000000001", "-12345678901234567890.5", "12345678901234567890.5", "0", "2", "-3"))),
        ("c = 1.0000000001", "c < 0", "c > 12345678901234567890", "c >= 1"),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_every_key_type_is_looked_up_as_duckdb_filters(lake: Lake, case: KeyCase) -> None:
    schema = pa.schema([pa.field("c", case.kind), pa.field("row", pa.int64())])
    table = lake.create(schema)
    for start in (0, 100, 200):
        values = pa.array(case.values, case.kind)
        table.append(pa.table({"c": values, "row": pa.array(range(start, start + len(values)))}, schema=schema))
    index = index_on("c")
    lake.reindex(index, max_segments=2)
    for condition in case.conditions:
        lake.assert_exact(condition)
    lake.reindex(index)
    for condition in case.conditions:
        lake.assert_exact(condition)
        assert lake.plan(condition).funnel.total == 3


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_keys_of_every_type_survive_a_merge_that_cuts_them_into_ranges(
    lake: Lake, case: KeyCase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 3)
    monkeypatch.setattr(compaction, "ROWS_PER_RANGE", 8)
    schema = pa.schema([pa.field("c", case.kind)])
    table = lake.create(schema)
    for start in range(8):
        values = pa.array([*case.values[start:], *case.values[:start]], case.kind)
        table.append(pa.table({"c": values}, schema=schema))
    index = index_on("c")
    lake.follow(index)
    entries = lake.index_table(index).entries
    assert {file.level for file in entries} == {1}
    assert sum(file.records for file in entries) == 8 * len(case.values)
    assert len(entries) > (case.kind != pa.bool_())
    for condition in case.conditions:
        lake.assert_exact(condition)


def test_binary_keys_can_be_looked_up_for_null(lake: Lake) -> None:
    schema = pa.schema([pa.field("b", pa.binary()), pa.field("u", pa.uuid())])
    lake.create(schema).append(pa.table({"b": [b"\xff\x00", None], "u": [None, bytes(16)]}, schema=schema))
    lake.reindex(index_on("b", "u"))
    found = read(lake.table(), ["b"], "b is null", ReadOptions())
    assert found["b"].to_pylist() == [None]


def test_a_binary_and_a_time_column_can_be_indexed(lake: Lake) -> None:
    schema = pa.schema([pa.field("b", pa.binary()), pa.field("at", pa.time64("us"))])
    index = index_on("b", "at")
    lake.create(schema).append(pa.table({"b": [b"\xff\x00", None], "at": [dt.time(1, 2, 3, 4), None]}, schema=schema))
    lake.reindex(index)
    assert lake.entries(index).num_rows == 2
    lake.assert_exact("b is null")


FLIGHTS = pa.schema(
    [
        pa.field("carrier", pa.string()),
        pa.field("flight", pa.int32()),
        pa.field("tail", pa.string()),
        pa.field("n", pa.int64()),
    ]
)
PAIR = index_on("carrier", "flight", name="pair")
TAIL = index_on("tail", name="tail")


def flights(seed: int, count: int = 300) -> pa.Table:
    random = np.random.default_rng(seed)
    carriers = random.choice(np.array(["AA", "UA", "B6", None], dtype=object), count)
    tails = [None if number % 9 == 0 else f"N{number:03d}" for number in random.integers(0, 200, count)]
    columns = {
        "carrier": carriers,
        "flight": random.integers(1, 40, count),
        "tail": tails,
        "n": np.arange(count) + seed * 1000,
    }
    return pa.table(columns, schema=FLIGHTS)


def test_a_composite_index_serves_its_leading_column_alone_and_all_together(lake: Lake) -> None:
    table = lake.create(FLIGHTS, properties={"write.parquet.row-group-limit": "50"})
    for seed in range(4):
        table.append(flights(seed))
    lake.reindex(PAIR)
    table.append(flights(4).set_column(0, FLIGHTS.field("carrier"), pa.array(["DL"] * 300)))
    lake.reindex(PAIR)
    for condition in ("carrier = 'AA' and flight = 7", "carrier = 'DL'", "carrier in ('DL', 'B6') and flight > 38"):
        assert lake.assert_exact(condition).num_rows > 0
        assert lake.plan(condition).indexes[0].used
    narrow, wide = lake.plan("carrier = 'AA' and flight = 7"), lake.plan("carrier = 'AA'")
    assert sum(map(len, narrow.row_groups.values())) < 24
    assert wide.row_groups == {}


def test_an_index_whose_first_column_is_not_narrowed_is_not_used_and_says_so(lake: Lake) -> None:
    lake.create(FLIGHTS).append(flights(1))
    lake.reindex(PAIR)
    text = explain(lake.table(), "flight = 7")
    assert "not used: LeadingColumnNotBound, the condition does not narrow its first column" in text
    lake.assert_exact("flight = 7")


def test_a_disjunction_over_two_indexes_is_served_by_both(lake: Lake) -> None:
    table = lake.create(FLIGHTS)
    for seed in range(3):
        table.append(flights(seed, 40))
    lake.reindex(PAIR)
    lake.reindex(TAIL, max_segments=2)
    plan = lake.plan("(carrier = 'AA' and flight = 7) or tail = 'N017'")
    assert [use.used for use in plan.indexes] == [True, True]
    lake.assert_exact("(carrier = 'AA' and flight = 7) or tail = 'N017'")


def test_an_index_that_tells_no_more_than_another_one_is_not_asked(lake: Lake) -> None:
    indexes = (index_on("k"), index_on("k", include=["n"], name="with_n"), index_on("s", name="by_s"))
    table = lake.create(pa.schema([("k", pa.int64()), ("s", pa.string()), ("n", pa.int64())]))
    for start in range(0, 200, 50):
        rows = range(start, start + 50)
        table.append(pa.table({"k": [n * 7 % 100 for n in rows], "s": [f"s{n % 3}" for n in rows], "n": [*rows]}))
    for index in indexes:
        lake.reindex(index)
    asked = {use.name.rsplit("_si_")[-1].rsplit("_", 1)[0]: use for use in lake.plan("k = 7").indexes}
    assert sorted(name for name, use in asked.items() if use.used) in (["idx"], ["with_n"]), asked
    narrower = [use for use in lake.plan("k = 7 and n > 100").indexes if use.used]
    assert any("with_n" in use.name for use in narrower)
    for condition in ("k = 7", "k = 7 and n > 100", "k = 7 and s = 's1'"):
        lake.assert_exact(condition)


def test_without_any_index_or_condition_everything_is_read(lake: Lake) -> None:
    lake.create(FLIGHTS).append(flights(1))
    assert read(lake.table()).num_rows == 300
    assert lake.plan("tail = 'N017'").indexes == ()


def test_indexes_can_be_left_out(lake: Lake) -> None:
    lake.create(FLIGHTS).append(flights(1))
    lake.reindex(TAIL)
    options = ReadOptions(use_indexes=False)
    assert "no index: Disabled" in explain(lake.table(), "tail = 'N017'", options)
    assert read(lake.table(), None, "tail = 'N017'", options).num_rows == lake.assert_exact("tail = 'N017'").num_rows


@pytest.mark.parametrize("condition", ["nope = 1", "flight = 'x'", "flight =", "lower(tail) = 'x'"])
def test_a_condition_that_does_not_fit_is_refused_with_a_sentence(lake: Lake, condition: str) -> None:
    lake.create(FLIGHTS)
    with pytest.raises(BadSpec):
        read(lake.table(), None, condition)


def test_an_unknown_column_is_refused_by_name(lake: Lake) -> None:
    lake.create(FLIGHTS)
    with pytest.raises(BadSpec, match="there is no column 'nope'"):
        read(lake.table(), ["nope"])


# --- random predicates over lakes in every state ---

MIXED = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("s", pa.string()),
        pa.field("f", pa.float64()),
        pa.field("d", pa.decimal128(9, 2)),
    ]
)
INDEXES = (
    index_on("k", name="k"),
    index_on("s", "k", name="sk"),
    index_on("f", name="f"),
    index_on("d", "s", name="d"),
)


def mixed(seed: int, count: int) -> pa.Table:
    random = np.random.default_rng(seed)
    low = int(random.integers(-20, 20))

    def some_null(values: list[object]) -> list[object]:
        return [None if random.random() < 0.1 else value for value in values]

    columns = {
        "k": some_null([int(key) for key in random.integers(low, low + 15, count)]),
        "s": some_null([f"s{number}😀"[: 1 + number % 4] for number in random.integers(0, 30, count)]),
        "f": some_null(
            [[NAN, 0.0, -0.0, INF, -INF, 0.5, -2.25, 3.0][number] for number in random.integers(0, 8, count)]
        ),
        "d": some_null([Decimal(int(number)) / 4 for number in random.integers(-40, 40, count)]),
    }
    return pa.table({name: pa.array(values, MIXED.field(name).type) for name, values in columns.items()}, schema=MIXED)


def some_segments(lake: Lake) -> None:
    table = lake.create(MIXED, properties={"write.parquet.row-group-limit": "16"})
    for seed in range(5):
        table.append(mixed(seed, 60))


def none_synced(lake: Lake) -> None:
    some_segments(lake)


def all_synced(lake: Lake) -> None:
    some_segments(lake)
    for index in INDEXES:
        lake.reindex(index)


def unevenly_synced(lake: Lake) -> None:
    some_segments(lake)
    for count, index in enumerate(INDEXES, 1):
        lake.reindex(index, max_segments=count)


def changed_after_sync(lake: Lake) -> None:
    all_synced(lake)
    lake.table().delete("k < 0")
    lake.table().append(mixed(9, 60))
    lake.reindex(INDEXES[0], max_segments=1)


def merged_runs(lake: Lake) -> None:
    some_segments(lake)
    for seed in range(5, 9):
        lake.table().append(mixed(seed, 30))
    for index in INDEXES:
        lake.reindex(index)


def damaged(lake: Lake) -> None:
    all_synced(lake)
    for index in INDEXES[:2]:
        for file in lake.index_table(index).entries[:3]:
            Path(file.path.removeprefix("file://")).write_bytes(b"PAR1 no more")


STATES: tuple[Callable[[Lake], None], ...] = (
    none_synced,
    all_synced,
    unevenly_synced,
    changed_after_sync,
    merged_runs,
    damaged,
)


@dataclass(frozen=True)
class Prepared:
    """A lake in some state with its rows as DuckDB reads them."""

    lake: Lake
    rows: pa.Table


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Prepared]:
    found = {}
    for state in STATES:
        lake = Lake(tmp_path_factory.mktemp(state.__name__))
        state(lake)
        found[state.__name__] = Prepared(lake, lake.table().scan().to_arrow())
    return found


NUMBERS = st.one_of(st.integers(-25, 40).map(str), st.sampled_from(["0.5", "-2.25", "3.0", "2.5", "-9.75", "0.0"]))
STRINGS = st.sampled_from(["'s'", "'s1'", "'s17'", "'s2😀'", "''", "'t'", "'s29'"])
COMPARED = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
LEAVES = st.one_of(
    st.builds("{} {} {}".format, st.sampled_from(["k", "f", "d"]), COMPARED, NUMBERS),
    st.builds("{} {} {}".format, st.just("s"), COMPARED, STRINGS),
    st.builds("{} in ({}, {})".format, st.sampled_from(["k", "f", "d"]), NUMBERS, NUMBERS),
    st.builds("s in ({}, {})".format, STRINGS, STRINGS),
    st.builds("{} is {}null".format, st.sampled_from(["k", "s", "f", "d"]), st.sampled_from(["", "not "])),
    st.builds("s like '{}%'".format, st.sampled_from(["s", "s1", "s2😀", "x"])),
    st.builds("k between {} and {}".format, st.integers(-25, 10), st.integers(-5, 40)),
    st.sampled_from(["k < d", "f = k", "k = 5 and s = 's1'"]),
)
PREDICATES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=4,
)


ANY_STATE = pytest.mark.parametrize("state", [state.__name__ for state in STATES])
ANY_CONDITION = given(condition=PREDICATES)


def random_conditions(count: int) -> settings:
    """So many of them for each state."""
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


@ANY_STATE
@random_conditions(10)
@ANY_CONDITION
def test_in_every_index_state_any_predicate_gives_what_a_full_scan_gives(
    prepared: dict[str, Prepared], state: str, condition: str
) -> None:
    assert_as_a_full_scan(prepared[state], condition)


@pytest.mark.soak
@ANY_STATE
@random_conditions(1000)
@ANY_CONDITION
def test_many_predicates_in_every_index_state(prepared: dict[str, Prepared], state: str, condition: str) -> None:
    assert_as_a_full_scan(prepared[state], condition)


def assert_as_a_full_scan(one: Prepared, condition: str) -> None:
    found = read(one.lake.table(), None, condition, one.lake.options)
    expected = query(f"select * from rows where {condition}", one.rows)
    assert rows_of(found) == rows_of(expected)


def test_the_states_do_differ_in_what_they_read(prepared: dict[str, Prepared]) -> None:
    condition = "s = 's17' or d = 3.25"
    read_files = {name: one.lake.plan(condition).funnel for name, one in prepared.items()}
    assert read_files["none_synced"].read == read_files["none_synced"].min_max
    assert read_files["all_synced"].read < read_files["all_synced"].min_max
