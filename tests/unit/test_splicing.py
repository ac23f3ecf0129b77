"""Files put together from copied and fresh column chunks hold what files written in whole hold, for every reader."""

from __future__ import annotations

import io
import itertools
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO, pyarrow_to_schema
from pyiceberg.schema import Schema
from skipstone.files import pages
from skipstone.files.pages import PageReader
from skipstone.files.parquet import FORMAT, ParquetFile
from skipstone.files.splicing import ChunkSource, SplicedFile, SplicedLayout
from skipstone.tables.arrow import arrow_schema

from tests.examples import cases
from tests.spark.duck import connection
from tests.unit.test_reader_pages import COLUMNS

NESTED = {
    "list": (pa.list_(pa.int32()), st.lists(st.none() | st.integers(0, 9), max_size=3)),
    "struct": (
        pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))]),
        st.fixed_dictionaries({"a": st.none() | st.integers(0, 9), "b": st.none() | st.lists(st.text(max_size=3))}),
    ),
    "double": (pa.float64(), st.floats()),
}
KINDS = {**COLUMNS, **NESTED}
OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "zstd", "snappy", "gzip"]),
        "max_rows_per_page": st.integers(1, 40),
        "data_page_size": st.just(1024),
    }
)
FOREIGN = st.fixed_dictionaries(
    {},
    optional={
        "compression": st.sampled_from(["zstd", "snappy"]),
        "use_dictionary": st.just(False),
        "data_page_version": st.just("2.0"),
        "store_decimal_as_integer": st.just(False),
        "write_statistics": st.just(False),
        "write_page_index": st.just(False),
        "coerce_timestamps": st.just("ms"),
        "allow_truncated_timestamps": st.just(True),
    },
)
_NAMES = itertools.count()


@dataclass(frozen=True)
class Given:
    """Rows and their Iceberg schema."""

    rows: pa.Table
    schema: Schema

    def shuffled(self, names: list[str]) -> pa.Table:
        """Other values of the same kinds in the columns ``names``."""
        return self.rows.select(names).take(pa.array(np.arange(self.rows.num_rows)[::-1]))


@st.composite
def tables(draw: st.DrawFn) -> Given:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5, unique=True))
    count, found = draw(st.integers(1, 300)), {}
    for name in names:
        kind, values = KINDS[name]
        pool = draw(st.lists(st.none() | values, min_size=1, max_size=12))
        order = np.random.default_rng(draw(st.integers(0, 99))).integers(0, len(pool), count)
        found[name] = pa.array([pool[number] for number in order], kind)
    return given_of(pa.table(found))


def given_of(rows: pa.Table) -> Given:
    schema = pyarrow_to_schema(with_ids(rows.schema))
    columns = arrow_schema(schema)
    return Given(pa.Table.from_arrays([rows[f.name].cast(f.type) for f in columns], schema=columns), schema)


def with_ids(schema: pa.Schema) -> pa.Schema:
    """Field ids as Iceberg's tables have them."""
    numbers = itertools.count(1)

    def numbered(field: pa.Field) -> pa.Field:
        metadata, kind = {"PARQUET:field_id": str(next(numbers))}, field.type
        if pa.types.is_struct(kind):
            kind = pa.struct([numbered(kind.field(at)) for at in range(kind.num_fields)])
        elif pa.types.is_list(kind):
            kind = pa.list_(numbered(kind.value_field))
        return pa.field(field.name, kind, field.nullable, metadata)

    return pa.schema([numbered(field) for field in schema])


def written(rows: pa.Table, group: int, options: Mapping[str, Any]) -> ChunkSource:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=group, write_batch_size=1, **{**FORMAT, **options})
    return ChunkSource(pa.BufferReader(sink.getvalue()))


def spliced(
    made: Given, source: ChunkSource, options: dict[str, Any], path: Path, random: Random
) -> tuple[pa.Table, dict[str, Any]]:
    """A file of every row group of ``source``, some columns of each with other values: its rows and statistics."""
    layout = SplicedLayout(made.schema, options)
    file = SplicedFile(load_file_io({}, str(path)), str(path), layout)
    groups, start = [], 0
    for group, said in enumerate(source.groups):
        part = Given(made.rows.slice(start, said[3]), made.schema)
        start += said[3]
        chosen = random.choice([0.0, 0.5, 1.0])
        fresh = [
            name
            for name in made.rows.column_names
            if name not in layout.copyable(source, group) or random.random() < chosen
        ]
        replaced = part.shuffled(fresh)
        rows = pa.table({name: (replaced if name in fresh else part.rows)[name] for name in part.rows.column_names})
        groups.append(rows.cast(made.rows.schema))
        if len(fresh) == rows.num_columns and random.random() < 0.5:
            file.append(file.encode(groups[-1]))
        else:
            file.copy(source, group, file.encode(replaced) if fresh else None)
    return pa.concat_tables(groups), file.close({})


def reference(rows: pa.Table, sizes: list[int], made: Given, options: dict[str, Any], path: Path) -> dict[str, Any]:
    """The statistics of the same row groups written in whole."""
    file, start = ParquetFile(load_file_io({}, str(path)), str(path), made.schema, options), 0
    for size in sizes:
        file.append(rows.slice(start, size), size)
        start += size
    return file.close({})


def check(made: Given, source: ChunkSource, options: dict[str, Any], root: Path, random: Random) -> None:
    path, plain = (root / f"{next(_NAMES)}.parquet" for _ in range(2))
    rows, statistics = spliced(made, source, options, path, random)
    assert same(pq.ParquetFile(path, page_checksum_verification=True).read(), rows)
    assert same_in_duckdb(path, rows)
    expected = reference(rows, [said[3] for said in source.groups], made, options, plain)
    for kind in ("record_count", "value_counts", "null_value_counts", "nan_value_counts"):
        assert statistics[kind] == expected[kind], kind
    assert statistics["lower_bounds"] == expected["lower_bounds"]
    assert statistics["upper_bounds"] == expected["upper_bounds"]
    assert len(statistics["split_offsets"]) == len(source.groups)
    check_pages(path, rows, random)


def check_pages(path: Path, rows: pa.Table, random: Random) -> None:
    """Rows found by the page index."""
    parquet, flat = pq.ParquetFile(path), [f.name for f in rows.schema if not pa.types.is_nested(f.type)]
    size, start = path.stat().st_size, 0
    counts = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
    for group, count in enumerate(counts):
        wanted = np.array(sorted(random.sample(range(count), min(3, count))))
        with path.open("rb") as source:
            found = PageReader(source, uuid.uuid4().hex, size, counts).read(group, flat, wanted) if flat else None
        if found is not None:
            part = rows.select(flat).slice(start, count).take(pa.array(wanted))
            assert same(pa.Table.from_batches([found]), part)
        start += count


def same(found: pa.Table, expected: pa.Table) -> bool:
    """Equal row for row, NaN to NaN."""
    plain = pa.schema([field.remove_metadata() for field in expected.schema])
    return repr(found.cast(expected.schema).cast(plain).to_pylist()) == repr(expected.cast(plain).to_pylist())


def same_in_duckdb(path: Path, expected: pa.Table) -> bool:
    with connection() as duckdb:
        return same(duckdb.from_parquet(str(path)).to_arrow_table(), expected)


@pytest.fixture(autouse=True)
def always_worth_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read by their pages, too."""
    monkeypatch.setattr(pages, "_WORTH_ROWS", 0)
    monkeypatch.setattr(pages, "_WORTH_FOOTER", 0)


@settings(
    max_examples=cases(25, 80),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(made=tables(), options=OPTIONS, seed=st.integers(0, 2**32))
def test_a_spliced_file_is_one_written_in_whole(
    tmp_path: Path, made: Given, options: dict[str, Any], seed: int
) -> None:
    random = Random(seed)
    check(made, written(made.rows, random.randint(20, 200), options), options, tmp_path, random)


@settings(
    max_examples=cases(25, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(made=tables(), options=OPTIONS, foreign=FOREIGN, seed=st.integers(0, 2**32))
def test_chunks_of_other_writers_are_copied_only_when_they_mean_the_same(
    tmp_path: Path, made: Given, options: dict[str, Any], foreign: dict[str, Any], seed: int
) -> None:
    if "ms" in foreign.values():
        made = given_of(pa.table({"n": pa.array(range(made.rows.num_rows), pa.int64())}))
    random = Random(seed)
    source = written(made.rows, random.randint(20, 200), {**options, **foreign})
    check(made, source, options, tmp_path, random)


@pytest.mark.parametrize(
    ("foreign", "copied"),
    [
        ({}, 2),
        ({"use_dictionary": False, "data_page_version": "2.0", "compression_level": 9}, 2),
        ({"compression": "snappy"}, 0),
        ({"write_statistics": False}, 0),
        ({"store_decimal_as_integer": False}, 1),
    ],
)
def test_what_is_copied(tmp_path: Path, foreign: dict[str, Any], copied: int) -> None:
    money = pa.array([Decimal(number) for number in range(10)], pa.decimal128(9, 2))
    made = given_of(pa.table({"k": pa.array(range(10)), "money": money}))
    layout = SplicedLayout(made.schema, {"compression": "zstd"})
    source = written(made.rows, 10, {"compression": "zstd", **foreign})
    assert len(layout.copyable(source, 0)) == copied


def test_a_renamed_or_replaced_column_is_not_copied() -> None:
    made = given_of(pa.table({"k": pa.array([1]), "v": pa.array(["x"])}))
    layout = SplicedLayout(made.schema, {"compression": "zstd"})
    fields = list(made.rows.schema)
    renamed = made.rows.rename_columns(["k", "w"])
    assert layout.copyable(written(renamed, 1, {"compression": "zstd"}), 0) == {"k"}
    replaced = pa.schema([fields[0], fields[1].with_metadata({"PARQUET:field_id": "9"})])
    assert layout.copyable(written(made.rows.cast(replaced), 1, {"compression": "zstd"}), 0) == {"k"}


def test_a_copied_chunk_has_the_bytes_it_had(tmp_path: Path) -> None:
    made = given_of(pa.table({"k": pa.array(range(1000)), "v": pa.array(["x"] * 1000)}))
    source = written(made.rows, 1000, {"compression": "zstd", "compression_level": 19})
    file = SplicedFile(
        load_file_io({}, str(tmp_path)), str(tmp_path / "f"), SplicedLayout(made.schema, {"compression": "zstd"})
    )
    file.copy(source, 0, file.encode(made.shuffled(["v"])))
    file.close({})
    (chunk,) = source.chunks(0)["k"]
    begin = chunk[3].get(11) or chunk[3][9]
    source.source.seek(begin)
    assert source.source.read(chunk[3][7]) in (tmp_path / "f").read_bytes()


@pytest.mark.parametrize("damage", [b"\x00", b"\xff"])
def test_a_page_index_that_makes_no_sense_is_left_behind(tmp_path: Path, damage: bytes) -> None:
    made = given_of(pa.table({"k": pa.array(range(1000))}))
    whole = written(made.rows, 1000, {"compression": "zstd"})
    (chunk,) = whole.chunks(0)["k"]
    whole.source.seek(0)
    content = bytearray(whole.source.read())
    content[chunk[4] : chunk[4] + chunk[5]] = damage * chunk[5]
    source = ChunkSource(pa.BufferReader(bytes(content)))
    layout = SplicedLayout(made.schema, {"compression": "zstd"})
    file = SplicedFile(load_file_io({}, str(tmp_path)), str(tmp_path / "f"), layout)
    file.copy(source, 0)
    file.close({})
    assert same(pq.ParquetFile(tmp_path / "f").read(), made.rows)
    assert not pq.read_metadata(tmp_path / "f").row_group(0).column(0).has_offset_index


class _LosingIO(PyArrowFileIO):
    """A storage that loses the last bytes of a file once it is closed."""

    lost = 0

    def new_input(self, location: str) -> Any:
        os.truncate(location, Path(location).stat().st_size - self.lost)
        return super().new_input(location)


@pytest.mark.parametrize("lost", [1, 100])
def test_a_file_that_the_storage_did_not_keep_is_not_handed_on(tmp_path: Path, lost: int) -> None:
    made, io_ = given_of(pa.table({"k": pa.array(range(1000))})), _LosingIO()
    io_.lost = lost
    file = SplicedFile(io_, str(tmp_path / "f"), SplicedLayout(made.schema, {"compression": "zstd"}))
    file.append(file.encode(made.rows))
    with pytest.raises(OSError, match=r"bytes in the storage, \d+ were written"):
        file.close({})
