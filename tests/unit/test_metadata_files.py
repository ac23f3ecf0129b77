"""Metadata files are parsed once, and what is in them is noticed at each read."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import InputFile
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.types import LongType, NestedField
from skipstone.caches import cache_counts
from skipstone.tables.decoding.metadatafiles import (
    DamagedMetadataError,
    OldMetadata,
    read_metadata,
    read_old_metadata,
    read_stored,
)


@pytest.fixture
def told(tmp_path: Path) -> dict[str, Any]:
    """What a metadata file of a table with two snapshots says; its UUID is of this test."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("sales")
    table = catalog.create_table("sales.orders", Schema(NestedField(1, "id", LongType(), required=False)))
    table.append(pa.table({"id": [1]}))
    table.append(pa.table({"id": [2]}))
    found: dict[str, Any] = json.loads(table.metadata.model_dump_json(exclude_none=True))
    return found


def file_of(path: Path, told: object) -> InputFile:
    text = json.dumps(told).encode()
    path.write_bytes(gzip.compress(text) if ".gz." in path.name else text)
    return PyArrowFileIO().new_input(str(path))


def parses() -> int:
    return next(one.misses for one in cache_counts() if one.name == "parsed metadata")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("name", ["v1.metadata.json", "v1.gz.metadata.json"])
def test_equal_content_is_parsed_once_and_shared_in_lists_of_its_own(
    tmp_path: Path, told: dict[str, Any], name: str, version: int
) -> None:
    told |= {"format-version": version, "next-row-id": 10}
    file, before = file_of(tmp_path / name, told), parses()
    expected = TableMetadataUtil.parse_raw(json.dumps(told))
    first = read_metadata(file)
    again = read_metadata(file_of(tmp_path / f"copy-{name}", told))
    assert parses() == before + 1
    assert first == again == expected
    assert type(first) is type(expected)
    assert first.snapshots[0] is again.snapshots[0]

    first.properties["a"] = "1"
    for held in (first.snapshots, first.snapshot_log, first.metadata_log, first.schemas, first.refs):
        held.clear()
    assert again == read_metadata(file) == expected


def test_a_file_with_other_content_under_its_name_is_read_as_it_is_now(tmp_path: Path, told: dict[str, Any]) -> None:
    path = tmp_path / "v1.metadata.json"
    file = file_of(path, told)
    read_metadata(file)
    file_of(path, told | {"properties": {"a": "1"}})
    assert read_metadata(file).properties == {"a": "1"}
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ValidationError):
        read_metadata(file)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(DamagedMetadataError, match="is not text"):
        read_metadata(file)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_metadata(file)


def test_files_that_differ_in_the_middle_only_are_told_apart(tmp_path: Path, told: dict[str, Any]) -> None:
    text = json.dumps(told | {"properties": {"padding": "x" * 2000, "answer": "41", "more": "x" * 2000}})
    files = [tmp_path / name for name in ("one.metadata.json", "other.metadata.json")]
    for path, content in zip(files, (text, text.replace('"41"', '"42"')), strict=True):
        path.write_text(content)
    inputs = [PyArrowFileIO().new_input(str(path)) for path in files]
    assert [read_metadata(one).properties["answer"] for one in (*inputs, *inputs)] == ["41", "42", "41", "42"]


@pytest.mark.parametrize("name", ["v1.metadata.json", "v1.gz.metadata.json"])
def test_old_metadata_is_read_without_its_snapshots(tmp_path: Path, told: dict[str, Any], name: str) -> None:
    told["metadata-log"] = [{"metadata-file": f"{number}.json", "timestamp-ms": number} for number in (1, 2)]
    file = file_of(tmp_path / name, told | {"properties": {"a": "1"}})
    found, whole = read_old_metadata(file), read_metadata(file)
    assert list(found.log) == [one.metadata_file for one in whole.metadata_log] == ["1.json", "2.json"]
    assert found.properties == whole.properties
    bare = {key: value for key, value in told.items() if key not in {"metadata-log", "properties"}}
    assert read_old_metadata(file_of(tmp_path / name, bare)) == OldMetadata((), {})
    for damaged in ([], {"metadata-log": 1}, {"metadata-log": [{}]}, {"properties": []} | {"metadata-log": [1]}):
        with pytest.raises(DamagedMetadataError, match="holds no metadata"):
            read_old_metadata(file_of(tmp_path / name, damaged))


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b'{"metadata-log": [], "properties": {}}',
        b"[" * 100_000,
        b'{"format-version": 2, "location": "a", "properties": {"\\ud800": "1"}}',
        b'{"format-version": 2, "location": "a", "properties": {"a": null}}',
        b'{"format-version": 2, "location": "a", "metadata-log": [{"metadata-file": null, "timestamp-ms": 1}]}',
    ],
)
def test_what_is_no_metadata_is_no_old_metadata_either(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "v1.metadata.json").write_bytes(content)
    file = PyArrowFileIO().new_input(str(tmp_path / "v1.metadata.json"))
    with pytest.raises(ValidationError):
        read_metadata(file)
    with pytest.raises(DamagedMetadataError, match="holds no metadata"):
        read_old_metadata(file)


def test_properties_of_old_metadata_are_texts_as_pyiceberg_makes_them(tmp_path: Path, told: dict[str, Any]) -> None:
    file = file_of(tmp_path / "v1.metadata.json", told | {"properties": {"a": True, "b": 1, "c": 1.5}})
    assert read_old_metadata(file).properties == read_metadata(file).properties == {"a": "true", "b": "1", "c": "1.5"}


def test_a_compressed_file_that_is_damaged_holds_no_metadata(tmp_path: Path, told: dict[str, Any]) -> None:
    path = tmp_path / "v1.gz.metadata.json"
    file = file_of(path, told)
    whole = path.read_bytes()
    assert read_metadata(file).snapshots
    for content in (whole[:-4], whole[: len(whole) // 2], whole[:40] + b"\xff\x00\xff" + whole[43:], b"{}"):
        path.write_bytes(content)
        with pytest.raises(DamagedMetadataError, match="cannot be decompressed"):
            read_metadata(file)
        with pytest.raises(DamagedMetadataError, match="cannot be decompressed"):
            read_stored(file)


def field_of(number: int) -> dict[str, Any]:
    return {"id": number, "name": f"column {number}", "type": "long", "required": False}


@pytest.mark.parametrize(("schemas", "columns", "snapshots"), [(1, 1, 300), (1, 1000, 2), (50, 100, 2)])
def test_parsed_metadata_counts_for_what_it_takes_in_memory(
    tmp_path: Path, told: dict[str, Any], schemas: int, columns: int, snapshots: int
) -> None:
    fields = [field_of(1 + number) for number in range(columns)]
    told["schemas"] = [{"type": "struct", "schema-id": number, "fields": fields} for number in range(schemas)]
    newest = told["snapshots"][-1]
    told["snapshots"] += [{**newest, "snapshot-id": 1000 + number} for number in range(snapshots)]
    files = [file_of(tmp_path / f"{one}.metadata.json", {**told, "last-updated-ms": one}) for one in range(2)]
    read_metadata(files[0])  # what is made once is made

    counted = memory_counted()
    tracemalloc.start()
    read_metadata(files[1])
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 * taken < memory_counted() - counted < 2 * taken


def memory_counted() -> int:
    return next(one.bytes for one in cache_counts() if one.name == "parsed metadata")


def test_metadata_of_format_version_1_shares_nothing(tmp_path: Path, told: dict[str, Any]) -> None:
    told |= {"format-version": 1, "schema": told["schemas"][0], "partition-spec": []}
    file = file_of(tmp_path / "v1.metadata.json", told)
    first, again = read_metadata(file), read_metadata(file)
    assert first == again
    assert first.snapshots[0] is not again.snapshots[0]
