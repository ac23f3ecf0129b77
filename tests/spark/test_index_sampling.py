"""A look at a part of what an index would be read for tells when its hits are everywhere, and when they are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from skipstone.indexes import tables
from skipstone.indexes.asking import sampling
from skipstone_core.indexing import use as index_use

from tests.spark.index_bed import Lake, index_on


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake in which 150 small files are worth a sample."""
    monkeypatch.setattr(index_use, "WORTH_A_JOB_BYTES", 32 * 1024 * 1024)
    return Lake(tmp_path)


@pytest.mark.parametrize("are_together", [False, True], ids=["keys in all files", "each key in a file of its own"])
def test_a_few_of_many_keys_show_when_all_of_them_are_everywhere(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, *, are_together: bool
) -> None:
    monkeypatch.setattr(sampling, "MANY_KEYS", 60)
    files, rows, keys = 150, 20, 600
    places = np.arange(files * rows)
    found = places * keys // len(places) if are_together else places * 7 % keys
    # no file is left out by its bounds
    values = np.where(places % rows == 0, -1, np.where(places % rows == 1, 10**6, found))
    data = pa.table({"k": values, "n": places})
    lake.create(data.schema, properties={"write.target-file-size-bytes": str(data.nbytes // files)}).append(data)
    lake.reindex(index_on("k"))
    condition = f"k in ({', '.join(map(str, range(60)))})"
    plan = lake.plan(condition)
    (used,) = plan.indexes
    assert plan.funnel.min_max == plan.funnel.total >= files
    assert used.used is are_together
    assert are_together or "of a sample of its entries" in used.reason
    assert (plan.funnel.read < plan.funnel.total) is are_together
    lake.assert_exact(condition)


@pytest.mark.parametrize("are_together", [False, True], ids=["keys in all files", "keys in the order of the files"])
def test_a_part_of_a_wide_range_shows_when_all_of_it_is_everywhere(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, *, are_together: bool
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 32)
    files, rows = 150, 20
    places = np.arange(files * rows)
    found = places if are_together else places * 7 % len(places)
    values = np.where(places % rows == 0, -1, np.where(places % rows == 1, 10**6, found))
    data = pa.table({"k": values, "n": places})
    lake.create(data.schema, properties={"write.target-file-size-bytes": str(data.nbytes // files)}).append(data)
    lake.reindex(index_on("k"))
    condition = f"k >= 0 and k < {len(places) // 2}"
    plan = lake.plan(condition)
    (used,) = plan.indexes
    assert used.used is are_together
    assert are_together or "of a sample of its entries" in used.reason
    assert (plan.funnel.read < plan.funnel.total) is are_together
    lake.assert_exact(condition)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("k between 200 and 599", 400),
        ("k > 199 and k < 600 and k is not null", 400),
        ("k >= 900", 100),
        ("k < 5000", 1000),
        ("day >= '2020-01-11' and day < '2020-02-10'", 300),
        ("k = 7", None),
        ("k between 200 and 599 and n < 3", None),
        ("k < 200 or k > 600", None),
        ("name > 'n5'", None),
    ],
)
def test_an_index_tells_how_many_rows_a_range_has(lake: Lake, condition: str, expected: int | None) -> None:
    places = np.arange(1000)
    day = pa.array(np.datetime64("2020-01-01") + places // 10)
    data = pa.table({"k": places * 7 % 1000, "n": places, "day": day, "name": [f"n{n}" for n in places]})
    lake.create(data.schema).append(data)
    for column in ("k", "day", "name"):
        lake.reindex(index_on(column, name=f"by_{column}"))
    assert lake.plan(condition).expected == (None if expected is None else pytest.approx(expected, rel=0.02))
