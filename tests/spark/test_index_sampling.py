"""A look at a part of what an index would be read for tells when its hits are everywhere, and when they are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from skipstone.indexes import tables
from skipstone.indexes.asking import lookup, probes, rowgroups, sampling
from skipstone.indexes.asking.hits import IndexHits
from skipstone.indexes.asking.probes import Probe
from skipstone.query import ReadOptions, plan_read
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


@pytest.mark.parametrize("is_in_store", [False, True], ids=["pages", "row groups"])
@pytest.mark.parametrize("are_together", [False, True], ids=["keys in all files", "keys in the order of the files"])
def test_a_reader_of_whole_files_is_told_by_few_entries_that_hits_are_everywhere(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, *, are_together: bool, is_in_store: bool
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 200)
    monkeypatch.setattr(sampling, "FIRST_LOOK", 100)
    if is_in_store:
        footer = rowgroups.Footer
        monkeypatch.setattr(rowgroups, "Footer", lambda metadata, definition, _: footer(metadata, definition))
    looked_at: list[int] = []

    def read_hits(probe: Probe, are_worth_it: Callable[[IndexHits], bool]) -> tuple[IndexHits, bool]:
        looked_at.append(probe.rows)
        return probes.read_hits(probe, are_worth_it)

    monkeypatch.setattr(lookup, "read_hits", read_hits)
    files, rows = 12, 500
    places = np.arange(files * rows)
    found = places if are_together else np.random.default_rng(1).permutation(places)
    # no file is left out by its bounds
    values = np.where(places % rows == 0, -1, np.where(places % rows == 1, 10**6, found))
    data = pa.table({"k": values, "n": places})
    lake.create(data.schema, properties={"write.target-file-size-bytes": str(data.nbytes // files)}).append(data)
    lake.reindex(index_on("k"))
    half = len(places) // 2
    condition = f"k >= 0 and k < {half}"
    plan = plan_read(lake.table(), condition, ReadOptions(by_position=False, whole_files=True))
    (used,) = plan.indexes
    assert plan.funnel.min_max == plan.funnel.total >= files
    assert used.used is are_together
    if are_together:
        assert plan.funnel.read <= plan.funnel.total // 2 + 1
        assert sum(looked_at[:-1]) < looked_at[-1] / 2
    else:
        assert plan.funnel.read == plan.funnel.total
        assert sum(looked_at) < half / 4
    paths = plan.files.files["path"].take(pa.array(plan.ordinals, pa.int64())).to_pylist()
    left = ds.dataset([path.removeprefix("file://") for path in paths])
    passing = (ds.field("k") >= 0) & (ds.field("k") < half)
    assert left.count_rows(filter=passing) == np.count_nonzero((values >= 0) & (values < half))


def test_hits_in_some_row_groups_of_all_files_are_no_gain_to_who_reads_whole_files(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, rows = 10, 400
    table = lake.create(
        pa.schema([("k", pa.int64()), ("n", pa.int64())]), properties={"write.parquet.row-group-limit": "100"}
    )
    for _ in range(files):
        places = np.arange(rows)
        # one row group of four, and bounds that leave out none
        values = np.where(places % 100 == 0, 10**6, np.where(places % 100 == 1, -1, 50 + places // 100))
        table.append(pa.table({"k": values, "n": places}))
    lake.reindex(index_on("k"))
    by_groups, whole = (
        plan_read(lake.table(), "k > 49 and k < 51", ReadOptions(by_position=False, whole_files=is_whole))
        for is_whole in (False, True)
    )
    assert by_groups.indexes[0].used
    assert {len(groups) for groups in by_groups.row_groups.values()} == {1}
    assert whole.indexes[0].code is index_use.NotUsed.NO_GAIN
    assert by_groups.ordinals == whole.ordinals == tuple(range(files))


@pytest.mark.parametrize(
    ("condition", "rows", "least"),
    [
        ("k between 200 and 599", 400, 300),
        ("k > 199 and k < 600 and k is not null", 400, 300),
        ("k >= 900", 100, 50),
        ("k < 5000", 1000, 1000),
        ("day >= date '2020-01-11' and day < date '2020-02-10'", 300, 200),
        ("k = 7", 1, 0),
        ("k < 200 or k > 600", 599, 0),
        ("name > 'n5'", 554, 454),
        ("until > date '3000-01-01'", 4, 0),
        ("rare between 1 and 9", 2, 0),
        ("k between 200 and 599 and n < 3", 0, 0),
        ("k > 499 and k < 9223372036854775807", 500, 0),
        ("k between 5 and -9223372036854775808", 0, 0),
        ("k > 5 and k < -1e30", 0, 0),
        ("k > 500 and n < k", 356, 0),
        ("k > 5 and not k in (7, 8)", 992, 0),
    ],
)
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "by bounds"])
def test_an_index_never_tells_more_rows_than_a_condition_has(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, condition: str, rows: int, least: int, *, is_read: bool
) -> None:
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 50)
    places = np.arange(1000)
    day = np.datetime64("2020-01-01") + places // 10
    until = np.where(places % 250 == 0, np.datetime64("9999-12-31"), day)
    rare = pa.array([n // 400 if n % 400 == 0 else None for n in places.tolist()], pa.int64())
    data = pa.table({"k": places * 7 % 1000, "n": places, "day": day, "until": until, "rare": rare})
    data = data.append_column("name", pa.array([f"n{n}" for n in places]))
    table = lake.create(data.schema, properties={"write.target-file-size-bytes": str(data.nbytes // 10)})
    table.append(data)
    for column in ("k", "day", "name", "until", "rare"):
        lake.reindex(index_on(column, name=f"by_{column}"))
    if not is_read:
        monkeypatch.setattr(lookup, "is_worthwhile", lambda *_: False)
    assert least <= lake.plan(condition).at_least <= rows
    table.delete("k < 100")
    assert lake.plan(condition).at_least <= rows


@pytest.mark.parametrize("spec", [("k",), ("k", "n")])
def test_another_index_never_makes_a_read_larger(lake: Lake, spec: tuple[str, ...]) -> None:
    """The other one alone leaves out too little to be used, the first covers few files."""
    table = lake.create(pa.schema([("k", pa.int64()), ("n", pa.int64())]))
    for file in range(20):
        table.append(pa.table({"k": [0, 50] * 50 if file == 2 else [0, 7, 50, 7] * 25, "n": [*range(100)]}))
    lake.reindex(index_on(*spec, name="part"), max_segments=6)
    before = lake.plan("k >= 3 and k < 20").funnel.read
    lake.reindex(index_on("k", name="full"))
    assert lake.plan("k >= 3 and k < 20").funnel.read <= before
    lake.assert_exact("k >= 3 and k < 20")


def test_values_far_from_the_others_do_not_make_an_index_useless(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_use, "SMALL_FILES", 0)
    monkeypatch.setattr(index_use, "OPEN_BYTES", 0)
    monkeypatch.setattr(index_use, "ROW_BYTES", 64 * 1024)
    chance = np.random.default_rng(1)
    table = lake.create(pa.schema([("v", pa.int64()), ("bytes", pa.binary())]))
    for file in range(7):
        values = chance.integers(0, 10**6, 600)
        values[:2] = (10**9, 0)
        values[5] = 5 * 10**6 if file == 3 else 1
        table.append(pa.table({"v": values, "bytes": [chance.bytes(100) for _ in values]}))
        lake.reindex(index_on("v"))
    assert lake.plan("v between 2000000 and 900000000").funnel.read == 1
