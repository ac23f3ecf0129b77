"""A manifest or a manifest list that is not all there is never taken for one that names less."""

from __future__ import annotations

import tracemalloc
from binascii import crc32
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from skipstone.caches import cache_counts
from skipstone.compat.avro.whole import read_blocks
from skipstone.compat.lineage.reading import read_entries, read_manifest_list
from skipstone.tables.committing.swaps import Parts, stage, wall_clock_ms
from skipstone.tables.decoding.decodes import FOLDER_VARIABLE
from skipstone.tables.decoding.manifests import read_data_manifests
from skipstone.tables.filesets import read_file_set
from skipstone.tables.sharing.reach import read_reach

from tests.spark.index_bed import Lake, local
from tests.unit.manifest_files import IO, at, data_file, local_path, written_manifest

#: Enough entries that most cuts are within the blocks.
_FILES = 6
_REFUSED = r"is not a whole Avro file|live entries where"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "decodes"))
    lake = Lake(tmp_path)
    made = lake.create(pa.schema([("id", pa.int64())]))
    for number in range(3):
        made.append(pa.table({"id": [number]}))
    table = lake.table()
    whole = list_of(table).read_bytes()
    yield table
    list_of(table).write_bytes(whole)
    lake.catalog.close()


def list_of(table: Table) -> Path:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return local(snapshot.manifest_list)


def without_blocks(content: bytes) -> int:
    """Bytes of the header, which ends with the first of the sync markers."""
    return content.index(content[-16:]) + 16


def test_a_list_that_is_cut_off_anywhere_is_refused(table: Table) -> None:
    path = list_of(table)
    whole = path.read_bytes()
    assert len(read_manifest_list(PyArrowFileIO().new_input(str(path)))) == 3
    for end in set(range(len(whole))) - {without_blocks(whole)}:  # the header alone is the list of an empty table
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match="is not a whole Avro file"):
            read_manifest_list(PyArrowFileIO().new_input(str(path)))


def test_a_list_without_manifests_is_refused_where_its_snapshot_has_files(table: Table) -> None:
    """One that is cut off after its header is a whole file; an empty table has such a list, too."""
    path = list_of(table)
    whole = path.read_bytes()
    path.write_bytes(whole[: without_blocks(whole)])
    refused = "names no manifest where its snapshot tells of 3 data files"
    for read in (lambda: read_file_set(table), lambda: read_reach(table), lambda: stage(table, Parts(), 1)):
        with pytest.raises(ValueError, match=refused):
            read()
    path.write_bytes(whole)
    table.delete("id >= 0")
    table.append(pa.table({"id": pa.array([], pa.int64())}))
    assert len(read_file_set(table)) == 0
    assert read_reach(table).files


def test_a_list_is_decoded_once_and_nobody_sees_what_others_do_with_its_manifests(table: Table) -> None:
    file = PyArrowFileIO().new_input(str(list_of(table)))
    first = read_manifest_list(file)
    expected = [vars_of(one) for one in first]
    before = lists_cached()
    for one in first:
        one.sequence_number = 7  # as writers of lists do
    assert [vars_of(one) for one in read_manifest_list(file)] == expected
    assert lists_cached() == (before[0] + 1, before[1])


def lists_cached() -> tuple[int, int]:
    """How often a list was known, and how often not."""
    return next((one.hits, one.misses) for one in cache_counts() if one.name == "decoded manifest lists")


@pytest.mark.parametrize("manifests", [10, 500])
def test_decoded_lists_count_for_what_they_take_in_memory(table: Table, tmp_path: Path, manifests: int) -> None:
    schema, blocks = read_blocks(list_of(table).read_bytes())
    paths = [tmp_path / f"list-{number}.avro" for number in range(2)]
    for number, path in enumerate(paths):
        write_blocks(path, schema, blocks * -(-manifests // 3), sync=bytes([number]) * 16)
    read_manifest_list(PyArrowFileIO().new_input(str(paths[0])))  # what is made once is made
    counted = bytes_cached()
    tracemalloc.start()
    read_manifest_list(PyArrowFileIO().new_input(str(paths[1])))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.5 * taken < bytes_cached() - counted < 2 * taken


def bytes_cached() -> int:
    return next(one.bytes for one in cache_counts() if one.name == "decoded manifest lists")


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_a_manifest_that_is_cut_off_anywhere_is_refused(
    tmp_path: Path, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a block ends too: the list tells how many entries there are."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "decodes"))
    found = [
        ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=data_file(f"part-{number}.parquet"))
        for number in range(_FILES)
    ]
    path = local_path(written_manifest(tmp_path, found, codec=codec))
    manifest = at(path, added=_FILES)
    whole = path.read_bytes()
    ends = {end for end in range(len(whole)) if whole[:end].endswith(whole[-16:])}
    assert len(ends) == _FILES  # each entry is a block
    for end in ends | set(range(0, len(whole), 7)):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=_REFUSED):
            read_data_manifests([manifest], IO)
        with pytest.raises(ValueError, match=_REFUSED):
            read_entries(manifest, IO)


def test_nothing_is_unreached_and_no_commit_lands_while_a_list_is_cut_off(table: Table) -> None:
    path = list_of(table)
    whole = path.read_bytes()
    path.write_bytes(whole[: without_blocks(whole) + 1])
    with pytest.raises(ValueError, match="is not a whole Avro file"):
        read_reach(table)
    with pytest.raises(ValueError, match="is not a whole Avro file"):
        stage(table, Parts(), wall_clock_ms())
    path.write_bytes(whole)
    assert len(read_reach(table).files) == 3


@pytest.mark.parametrize("codec", [None, "snappy"])
def test_lists_are_read_in_the_codecs_of_other_writers(table: Table, codec: str | None) -> None:
    """One that names no codec has none, and Snappy is not a part of PyIceberg."""
    path = list_of(table)
    schema, blocks = read_blocks(path.read_bytes())
    expected = read_manifest_list(PyArrowFileIO().new_input(str(path)))
    write_blocks(path, schema, blocks, codec=codec)
    found = read_manifest_list(PyArrowFileIO().new_input(str(path)))
    assert [vars_of(one) for one in found] == [vars_of(one) for one in expected]


def write_blocks(
    path: Path, schema: str, blocks: list[tuple[int, bytes]], *, codec: str | None = None, sync: bytes = b"s" * 16
) -> None:
    """An Avro file of blocks that are not compressed yet."""
    meta = {"avro.schema": schema, **({"avro.codec": codec} if codec else {})}
    with path.open("wb") as file:
        encoder = BinaryEncoder(file)
        construct_writer(META_SCHEMA).write(encoder, AvroFileHeader(MAGIC, meta, sync))
        for count, block in blocks:
            stored = block if codec is None else pa.compress(block, codec, asbytes=True) + crc32(block).to_bytes(4)
            encoder.write_int(count)
            encoder.write_bytes(stored)
            encoder.write(sync)


def vars_of(manifest: ManifestFile) -> tuple[object, ...]:
    """What a list tells of it."""
    return tuple(manifest[position] for position in range(len(manifest)))
