"""Of an index only the pages are read that may hold a wanted key, and what is found is what a scan finds."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from skipstone.files import pages
from skipstone.indexes import tables
from skipstone.query import plan_read
from skipstone.tables.parquetfiles import WholeFile, read_page_indexes

from tests.spark.index_bed import Lake, index_on

ROWS = 600
#: Keys of every kind, a few of which are asked for.
KEYS = {
    "long": (pa.int64(), lambda n: n - 300),
    "string": (pa.string(), lambda n: f"größe {n:04}"),
    "decimal": (pa.decimal128(12, 2), lambda n: Decimal(n * 7 - 900) / 4),
    "date": (pa.date32(), lambda n: n * 40 - 9000),
    "double": (pa.float64(), lambda n: (float("nan"), -0.0, 0.0)[n] if n < 3 else n / 3 - 60),
    "boolean": (pa.bool_(), lambda n: n % 3 == 0),
    "timestamp": (pa.timestamp("us"), lambda n: n * 10**12 - 10**14),
}


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake in whose small files pages are worth reading alone."""
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 128)
    monkeypatch.setattr(tables, "PAGE_ROWS", 16)
    monkeypatch.setattr(pages, "_WORTH_ROWS", 0)
    monkeypatch.setattr(pages, "_WORTH_FOOTER", 0)
    return Lake(tmp_path)


def fill(lake: Lake, kind: str, *, with_nulls: bool) -> None:
    """Two segments of the same keys in another order, with an index on ``k`` that holds ``n`` too."""
    type_, value = KEYS[kind]
    for seed in range(2):
        places = [*range(ROWS)]
        Random(seed).shuffle(places)
        keys = [None if with_nulls and n >= 520 else value(n) for n in places]
        data = pa.table({"k": pa.array(keys, type_), "n": pa.array(places, pa.int32())})
        (lake.create(data.schema) if seed == 0 else lake.table()).append(data)
    lake.reindex(index_on("k", include=["n"]))


@pytest.mark.parametrize("with_nulls", [False, True], ids=["values", "with nulls"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_list_of_keys_reads_the_pages_that_may_hold_one(lake: Lake, kind: str, *, with_nulls: bool) -> None:
    fill(lake, kind, with_nulls=with_nulls)
    shown = {"long": "-299, 7", "string": "'größe 0007', 'größe 0500'", "decimal": "-223.25, 12.5, 1e30"}
    shown |= {"date": "date '1970-01-01', date '1945-05-12'", "double": "0.0, 7.0, -59.0", "boolean": "true"}
    shown |= {"timestamp": "timestamp '1966-10-31 14:13:20'"}
    for condition in (
        f"k in ({shown[kind]})",
        f"k in ({shown[kind]}) and n < 250",
        f"k in ({shown[kind]}) or k is null",
    ):
        found = lake.assert_exact(condition)
        assert found.num_rows > 0


def test_pages_without_a_wanted_key_are_not_decoded(lake: Lake) -> None:
    fill(lake, "long", with_nulls=False)
    few, many = (f"k in ({', '.join(map(str, keys))})" for keys in (range(-300, 300, 60), range(-300, 300, 4)))
    for condition, most in ((few, 2 * 10 * 2 * tables.PAGE_ROWS), (many, 2 * ROWS)):
        answer = plan_read(lake.table(), condition, columns=["k", "n"]).answer
        assert answer is not None
        assert 0 < answer.probe.rows <= most
        assert answer.probe.whole_rows > ROWS
    found = {rows.num_rows for rows in map(lake.assert_exact, (few, many))}
    assert found == {20, 300}


def test_a_file_that_does_not_tell_of_its_pages_is_read_as_a_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake, "long", with_nulls=False)
    monkeypatch.setattr(pages.PageReader, "bounds", lambda *_: None)
    assert lake.assert_exact("k in (-299, 7, 12)").num_rows == 6


def test_an_index_tells_by_its_pages_how_many_rows_a_range_has(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 4096)
    data = pa.table({"k": np.arange(2000) * 7 % 2000})
    lake.create(data.schema).append(data)
    lake.reindex(index_on("k"))
    for condition, rows in (("k between 500 and 899", 400), ("k >= 1900", 100), ("k < 8", 8)):
        assert rows - 32 <= lake.plan(condition).at_least <= rows


def test_damaged_bounds_of_pages_are_not_believed(lake: Lake, tmp_path: Path) -> None:
    fill(lake, "long", with_nulls=False)
    (entry,) = lake.index_table(index_on("k", include=["n"])).entries
    written = Path(entry.path.removeprefix("file://")).read_bytes()
    with Path(entry.path.removeprefix("file://")).open("rb") as file:
        sealed = read_page_indexes(file)
        assert sealed is not None
        rows = WholeFile(file).group_rows
        assert pages.PageReader(file, "written", len(written), rows).bounds(0, "k0") is not None
    begin, indexes = sealed
    for number, place in enumerate(Random(1).sample(range(begin, begin + len(indexes)), 50)):
        damaged = bytearray(written)
        damaged[place] ^= 1 << number % 8
        copy = tmp_path / f"{number}.parquet"
        copy.write_bytes(damaged)
        with copy.open("rb") as file:
            assert pages.PageReader(file, copy.name, len(damaged), rows).bounds(0, "k0") is None
