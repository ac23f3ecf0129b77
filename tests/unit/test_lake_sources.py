"""Sources of loads and merges: which files and which rows a program may name, and where a job finds them."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from skipstone_core.errors import LakeError
from skipstone_local.lake import sources
from skipstone_local.lake.frames import open_reader, write_parquet
from skipstone_local.lake.sources import MAX_PATHS, UPLOADS, LakeDelta, LakeFolders, Uploads

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": ["a", None, "c"]})


def iceberg(folder: Path) -> Any:
    catalog = SqlCatalog("other", uri=f"sqlite:///{folder}/other.db", warehouse=f"file://{folder}")
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", ROWS.schema)
    table.append(ROWS)
    return table


SOURCES: dict[str, Callable[[Path], Any]] = {
    "table": lambda folder: ROWS,
    "batch": lambda folder: ROWS.to_batches()[0],
    "reader": lambda folder: ROWS.to_reader(),
    "dataset": lambda folder: ds.dataset(ROWS),
    "rows": lambda folder: ROWS.to_pylist(),
    "pandas": lambda folder: ROWS.to_pandas(),
    "pandas with an index": lambda folder: ROWS.to_pandas().set_index("id"),
    "duckdb": lambda folder: duckdb.from_arrow(ROWS),
    "iceberg": iceberg,
    "scan": lambda folder: iceberg(folder).scan(),
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_rows_of_a_program_become_a_file(make: Callable[[Path], Any], tmp_path: Path) -> None:
    source = Uploads(tmp_path).bring(make(tmp_path), "job")
    assert source == {"format": "Parquet", "paths": ["uploads/job"]}
    found = pq.read_table(tmp_path / UPLOADS / "job" / "rows.parquet").select(["id", "name"])
    assert found.sort_by("id").cast(ROWS.schema) == ROWS
    Uploads(tmp_path).forget("job")
    assert Uploads(tmp_path).jobs() == []


def test_a_stream_of_many_batches_becomes_few_row_groups(tmp_path: Path) -> None:
    batches = [pa.record_batch({"id": list(range(start, start + 1000))}) for start in range(0, 600_000, 1000)]
    write_parquet(pa.RecordBatchReader.from_batches(batches[0].schema, batches), tmp_path / "rows.parquet")
    footer = pq.read_metadata(tmp_path / "rows.parquet")
    assert (footer.num_rows, footer.num_row_groups) == (600_000, 3)


def test_no_row_at_all_is_a_source(tmp_path: Path) -> None:
    write_parquet(ROWS.slice(0, 0), tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet") == ROWS.slice(0, 0)


def test_every_name_of_every_row_is_a_column(tmp_path: Path) -> None:
    rows = [{"id": 1}, {"price": 5, "id": 2}, {"note": "n", "id": 3}]
    write_parquet(rows, tmp_path / "rows.parquet")
    found = pq.read_table(tmp_path / "rows.parquet")
    assert found.to_pylist() == [{"id": None, "price": None, "note": None, **row} for row in rows]
    assert found.schema == open_reader(rows).schema


def test_floats_of_16_bits_get_32(tmp_path: Path) -> None:
    write_parquet(pa.table({"f": pa.array([1.5, -0.0, None], pa.float16())}), tmp_path / "rows.parquet")
    found = pq.read_table(tmp_path / "rows.parquet")
    assert str(found["f"].to_pylist()) == "[1.5, -0.0, None]"
    assert found.schema.field("f").type == pa.float32()


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    for source, says in (
        (5, "an object of the type int is not a source of rows: give paths"),
        (pd.Timestamp("2026-01-01"), "an object of the type Timestamp is not a source of rows"),
        (pd.DataFrame({"v": [1, "a"]}), "cannot be read as rows of Arrow: Could not convert 'a'"),
        (pd.DataFrame([[1, 2]], columns=["v", "v"]), "Duplicate column names found"),
        ([{"v": 1}, {"v": "a"}], "cannot be read as rows of Arrow"),
        (pa.table({"at": pa.array([1], pa.timestamp("ns"))}), "cannot be written as Parquet"),
    ):
        with pytest.raises(LakeError, match=says):
            Uploads(tmp_path).bring(source, f"job-{says[:3]}-{len(says)}")


def test_a_source_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64())])

    def full() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([[1]], schema)
        raise OSError(errno.ENOSPC, "No space left on device")

    uploads = Uploads(tmp_path)
    with pytest.raises(LakeError, match="No space left on device: make room there") as refused:
        uploads.bring(pa.RecordBatchReader.from_batches(schema, full()), "job")
    assert refused.value.reason == "DiskFull"
    with pytest.raises(LakeError, match="cannot be written as Parquet"):
        uploads.bring(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), "job")
    assert uploads.jobs() == []


def test_files_outside_are_linked_and_files_inside_stay(tmp_path: Path) -> None:
    root, outside = tmp_path / "root [1]", tmp_path / "landing"
    (root / "landing").mkdir(parents=True)
    outside.mkdir()
    for name in ("b.csv", "a.csv", ".hidden.csv", "_SUCCESS"):
        (outside / name).write_text("id\n1\n")
    (root / "landing" / "c[x].parquet").write_text("")
    (root / "landing" / "d.csv").write_text("id\n1\n")
    uploads = Uploads(root)
    assert uploads.bring(str(outside), "one") == {
        "format": "Csv", "paths": ["uploads/one"], "options": {"header": "true"}
    }  # fmt: skip
    assert sorted(path.name for path in (root / "uploads/one").iterdir()) == ["00000-a.csv", "00001-b.csv"]
    pattern = uploads.bring(f"{outside}/*.csv", "two", format="csv", options={"delimiter": ";"})
    assert pattern == {"format": "Csv", "paths": ["uploads/two"], "options": {"delimiter": ";"}}
    inside = uploads.bring([root / "landing" / "c[x].parquet"], "three")
    assert inside == {"format": "Parquet", "paths": ["landing/c[[]x].parquet"]}
    twice = uploads.bring([outside, outside / "a.csv", outside / ".." / "landing" / "b.csv"], "twice")
    assert len(list((root / twice["paths"][0]).iterdir())) == 2
    for source, says in (
        (outside / "x.csv", "names no file"),
        ([outside / "a.csv", root / "landing"], "one format"),
        ([outside / "a.csv", root / "landing" / "d.csv"], "name the two kinds in two calls"),
    ):
        with pytest.raises(LakeError, match=says):
            uploads.bring(source, "four")


def test_files_inside_keep_their_names_however_many_they_are_and_whatever_link_leads_there(tmp_path: Path) -> None:
    """By these names a job knows what another one has loaded."""
    root = tmp_path / "root"
    for folder in ("many", "rest"):
        (root / folder).mkdir(parents=True)
        for number in range(MAX_PATHS + 1):
            (root / folder / f"{number}.csv").write_text("id\n1\n")
    (tmp_path / "link").symlink_to(root)
    uploads = Uploads(tmp_path / "link")
    for name in (root, tmp_path / "link"):
        assert uploads.bring(name / "rest" / "7.csv", "one")["paths"] == ["rest/7.csv"]
        assert uploads.bring(name / "many", "two")["paths"] == ["many"]
        some = [name / "many" / "*.csv", name / "rest" / "1?.csv"]
        assert uploads.bring(some, "three")["paths"] == ["many", *(f"rest/{number}.csv" for number in range(10, 20))]
        with pytest.raises(LakeError, match="name whole folders, or name the files in several calls"):
            uploads.bring(
                [*[name / "rest" / f"{number}.csv" for number in range(MAX_PATHS + 1)][:-1], name / "many/1.csv"],
                "four",
            )
    assert uploads.jobs() == []


def test_a_folder_is_read_where_it_is_or_linked_with_its_log_first(tmp_path: Path) -> None:
    root, linked = tmp_path / "root", list[str]()
    for folder in (root / "in [1]", tmp_path / "out"):
        for name in ("day=2026-01-01/x=1/a.parquet", "_delta_log/00.json", "b.parquet"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)
    uploads = Uploads(root)
    inside = LakeDelta(path=root / "in [1]", version=3, starting_version=0, where="day is null")
    fields = {"path": "in [1]", "version": "3", "startingVersion": "0", "where": "day is null"}
    assert uploads.bring(inside, "job") == {"delta": fields}
    folders = LakeFolders(paths=[root / "in [1]", tmp_path / "out"], where="x > 0", types={"x": "int"})
    assert uploads.bring(folders, "job") == {
        "format": "Parquet",
        "paths": ["in [[]1]", "uploads/job/1"],
        "hivePartitions": {"columns": [{"name": "x", "type": "int"}], "where": "x > 0"},
    }
    assert (root / "uploads/job/1/day=2026-01-01/x=1/a.parquet").read_text().endswith("a.parquet")
    uploads.forget("job")

    def link(file: Path, place: Path) -> None:
        linked.append(place.name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "_link", link)
        assert uploads.bring(LakeDelta(path=tmp_path / "out"), "job") == {"delta": {"path": "uploads/job/0"}}
    assert (linked[0], sorted(linked)) == ("00.json", ["00.json", "a.parquet", "b.parquet"])


@pytest.mark.parametrize(
    ("source", "given", "words"),
    [
        (LakeDelta(path="nowhere"), {}, "nowhere is not a folder: correct the path"),
        (LakeDelta(path="."), {}, "holds no Delta table: it has no _delta_log: correct the path"),
        (LakeFolders(paths=["nowhere"]), {}, "nowhere is not a folder"),
        (LakeDelta(path="."), {"format": "Parquet"}, "format and options are for plain files"),
        (LakeFolders(paths=["."]), {"options": {"header": "true"}}, "leave them out"),
    ],
)
def test_wrong_folders_are_named(
    source: Any, given: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LakeError) as error:
        Uploads(tmp_path / "root").bring(source, "job", **given)
    assert words in str(error.value)
    assert not (tmp_path / "root").exists()
