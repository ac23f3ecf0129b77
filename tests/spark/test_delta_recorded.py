"""Delta tables that Spark wrote with delta-spark: rows as Spark reads them, and what is refused, with its way out.

`tests/writers/delta.py` has recorded them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from skipstone_core.contract.deltatables import SourceDeltaRef
from skipstone_core.contract.requests import SourceFormat, SourceSpec
from skipstone_core.errors import BadData

from tests.spark.load_bed import Bed
from tests.writers.delta import RecordedTable, laid_out


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    """A warehouse."""
    made = Bed(tmp_path)
    yield made
    made.catalog.close()


def spec(version: int | None = None, where: str | None = None) -> SourceSpec:
    """The table as a source."""
    delta = SourceDeltaRef(path="lake/t", version=None if version is None else str(version), where=where)
    return SourceSpec(format=SourceFormat.PARQUET, paths=(), delta=delta)


def opened(bed: Bed, name: str) -> RecordedTable:
    """A recorded table in the warehouse."""
    return laid_out(name, bed.root / "lake" / "t")


def in_order(rows: pa.Table) -> list[str]:
    """Rows in one order, with the bits of floats but for kinds of NaN."""
    return sorted(map(repr, rows.select(sorted(rows.column_names)).to_pylist()))


def target_of(bed: Bed, name: str, rows: pa.Table) -> None:
    """A table with the columns of ``rows``."""
    small = {pa.int8(), pa.int16()}
    fields = [field.with_type(pa.int32()) if field.type in small else field for field in rows.schema]
    bed.catalog.create_table(("ns", name), pa.schema([field.with_nullable(True) for field in fields]))


@pytest.mark.parametrize(
    "name",
    ["changes", "clustered", *(pytest.param(name, marks=pytest.mark.soak) for name in ("typed", "sidecars"))],
)
def test_rows_are_those_that_spark_reads(bed: Bed, name: str) -> None:
    table = opened(bed, name)
    for version, expected in table.rows.items():
        target_of(bed, f"t{version}", expected)
        bed.load(spec(version), f"t{version}")
        assert in_order(bed.arrow(f"t{version}")) == in_order(expected)


@pytest.mark.soak
def test_rows_of_some_partitions(bed: Bed) -> None:
    rows = opened(bed, "typed").rows
    newest = rows[max(rows)]
    target_of(bed, "some", newest)
    bed.load(spec(where="p_day is null or p_amount = -2 and not p_flag"), "some")
    kept = [row["p_day"] is None or (row["p_amount"] == -2 and row["p_flag"] is False) for row in newest.to_pylist()]
    assert in_order(bed.arrow("some")) == in_order(newest.filter(pa.array(kept)))
    assert 0 < bed.arrow("some").num_rows < newest.num_rows


@pytest.mark.parametrize("name", ["typed", "sidecars"])
def test_a_checkpoint_stands_for_the_commits_before_it(bed: Bed, name: str) -> None:
    """Spark removes them after a while. Files of the first table hold their partition columns, too."""
    table = opened(bed, name)
    log = table.folder / "_delta_log"
    kept = max(int(path.name.partition(".")[0]) for path in log.glob("*.checkpoint.*"))
    for path in log.glob("*.json"):
        if path.suffixes == [".json"] and int(path.stem) < kept:
            path.unlink()
    expected = table.rows[max(table.rows)]
    target_of(bed, "t", expected)
    bed.load(spec(), "t")
    assert in_order(bed.arrow("t")) == in_order(expected)
    side = log / "_sidecars"
    if side.exists():
        shutil.rmtree(side)
        target_of(bed, "again", expected)
        with pytest.raises(BadData, match=r"_sidecars/.* is gone, which the checkpoint .* names: restore it"):
            bed.load(spec(), "again")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mapped", "maps names of columns (delta.columnMapping.mode = name)"),
        ("widened", "a reader that knows typeWidening"),
        ("cloned", "is outside of its folder, as files of shallow clones are: write its rows to a table of their own"),
    ],
)
def test_tables_that_need_another_reader_are_refused(bed: Bed, name: str, says: str) -> None:
    opened(bed, name)
    target_of(bed, "t", pa.table({"id": pa.array([], pa.int64())}))
    with pytest.raises(BadData) as error:
        bed.load(spec(), "t")
    assert says in str(error.value)
    assert bed.rows("t") == []


def test_deletion_vectors_are_refused_and_purging_them_is_a_way_out(bed: Bed) -> None:
    table = opened(bed, "vectors")
    deleted, purged = sorted(table.rows)
    target_of(bed, "t", table.rows[purged])
    with pytest.raises(
        BadData, match=r"deletion vectors, .* REORG TABLE … APPLY \(PURGE\), and read the version after"
    ):
        bed.load(spec(deleted), "t")
    assert bed.rows("t") == []
    bed.load(spec(), "t")
    assert in_order(bed.arrow("t")) == in_order(table.rows[purged]) == in_order(table.rows[deleted])
