"""Keys and included values that Python has no dates, times or texts for, as Spark writes them, in merged indexes."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from skipstone.indexes.upkeep import compaction
from skipstone.query import ReadOptions, plan_read, read

from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append

#: Values as they are stored, in order, and a condition that tells some of them from the others.
FOREIGN = {
    "date": (pa.date32(), (-(2**31), -719163, 0, 2932897, 2**31 - 1), "> date '9999-12-31'"),
    "timestamp": (
        pa.timestamp("us"),
        (-(2**63), -62135596800000001, 0, 253402300800000000, 2**63 - 1),
        "< timestamp '1970-01-01 00:00:00'",
    ),
    "timestamptz": (
        pa.timestamp("us", tz="UTC"),
        (-(2**63), -62135596800000001, 0, 253402300800000000, 2**63 - 1),
        ">= timestamp '1970-01-01 00:00:00+00:00'",
    ),
    "string": (pa.string(), (b"\x80", b"a", b"caf\xc3\xa9", b"caf\xe9", b"\xff\xfe"), "like 'caf%'"),
}
SEGMENTS, ROWS = 8, 20
NO_INDEX = ReadOptions(use_indexes=False)


@pytest.mark.parametrize("kind", FOREIGN)
def test_runs_are_merged_and_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    monkeypatch.setattr(compaction, "ROWS_PER_RANGE", ROWS)
    of, values, test = FOREIGN[kind]
    lake = Lake(tmp_path)
    lake.create(pa.schema([("x", of), ("n", pa.int64())]))
    for segment in range(SEGMENTS):
        append(lake.table(), _rows(of, values[segment % len(values)], segment))
    for index in (index_on("x", name="key"), index_on("n", name="beside", include=["x"])):
        lake.follow(index)
        assert {file.level for file in lake.index_table(index).entries} == {1}
        assert len(lake.index_table(index).entries) > 1
        lake.assert_every_row_once(index)
    for condition, columns in ((f"x {test}", ["x"]), (f"n >= 0 and x {test}", ["n", "x"])):
        assert plan_read(lake.table(), condition, columns=columns).answer is not None
        found, expected = (_stored(read(lake.table(), columns, condition, one)) for one in (None, NO_INDEX))
        assert found == expected
        assert 0 < len(found) < SEGMENTS * ROWS
    assert not caplog.records


def _rows(of: pa.DataType, value: int | bytes, segment: int) -> pa.Table:
    """A file of one value, so that ranges of keys can be cut."""
    numbers = range(segment * ROWS, (segment + 1) * ROWS)
    return pa.table({"x": pa.array([value] * ROWS, _plain(of)).view(of), "n": numbers})


def _stored(rows: pa.Table) -> list[tuple[object, ...]]:
    """Rows in no order, as Python can hold them."""
    columns = (column.combine_chunks() for column in rows.columns)
    return sorted(zip(*(column.view(_plain(column.type)).to_pylist() for column in columns), strict=True))


def _plain(of: pa.DataType) -> pa.DataType:
    return pa.binary() if pa.types.is_string(of) else pa.int32() if pa.types.is_date(of) else pa.int64()
