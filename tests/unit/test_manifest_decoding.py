"""Manifests are decoded to what PyIceberg's own reader gives, whoever wrote them; what is too odd it reads itself."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.manifest import (
    DataFile,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record, TableVersion
from pyiceberg.types import ListType, LongType, MapType, NestedField, StringType, StructType
from skipstone.compat.lineage.reading import file_row_id, read_entries
from skipstone.compat.lineage.writing import LineageManifestWriter
from skipstone.tables.decoding.manifests import read_data_manifests

from tests.manifest_rows import assert_decoded_exactly, expected_rows, rows_of
from tests.unit.manifest_files import (
    BY_EVERYTHING,
    IO,
    PARTITION_TYPES,
    PARTITIONS,
    at,
    data_file,
    entries,
    local_path,
    recoded,
    written_manifest,
)

QUICK = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


def added(file: DataFile) -> ManifestEntry:
    """A new file of this manifest's own commit."""
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=77, data_file=file)


def some_files(count: int, **fields: object) -> list[ManifestEntry]:
    """Entries of many sizes of statistics."""
    return [
        added(
            data_file(
                f"file:/t/{number}.parquet",
                value_counts={column: number * column for column in range(number % 7)},
                lower_bounds=dict.fromkeys(range(number % 3), b"x" * (number % 5)),
                split_offsets=list(range(number % 4)) or None,
                **fields,
            )
        )
        for number in range(count)
    ]


@pytest.fixture(autouse=True)
def decodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept from one test to the next."""
    monkeypatch.setenv("SKIPSTONE_CACHE_DIR", str(tmp_path / "decodes"))


@QUICK
@given(st.lists(entries(), min_size=1, max_size=12), st.lists(st.integers(1, 5), max_size=4))
def test_any_entries_in_any_blocks(tmp_path: Path, found: list[ManifestEntry], sizes: list[int]) -> None:
    manifest = written_manifest(tmp_path, found, codec="null")
    assert_decoded_exactly([manifest, recoded(manifest, sizes)], IO)


@QUICK
@given(st.lists(entries(PARTITIONS), min_size=1, max_size=8))
def test_any_partition_values(tmp_path: Path, found: list[ManifestEntry]) -> None:
    assert_decoded_exactly([written_manifest(tmp_path, found, spec=BY_EVERYTHING)], IO)


@QUICK
@given(st.lists(st.lists(entries(), min_size=1, max_size=5), min_size=2, max_size=4))
def test_manifests_decoded_together_do_not_mix(tmp_path: Path, found: list[list[ManifestEntry]]) -> None:
    assert_decoded_exactly([written_manifest(tmp_path, each) for each in found], IO)


def test_each_distinct_partition_is_kept_once(tmp_path: Path) -> None:
    nothing = [None] * len(PARTITION_TYPES)
    partitions = [(*nothing, 1), (*nothing, 2), (*nothing, 1)]
    partitions += [(*nothing[:4], float("nan"), *nothing[5:], 0)] * 2
    files = [added(data_file(f"{number}", partition)) for number, partition in enumerate(partitions)]
    (decoded,), _ = read_data_manifests([written_manifest(tmp_path, files, spec=BY_EVERYTHING)], IO)
    assert decoded.entries.column("partition").to_pylist() == [0, 1, 0, 2, 2]
    assert len(decoded.partitions) == 3


def test_entries_of_format_v1_have_no_sequence_numbers(tmp_path: Path) -> None:
    manifest = written_manifest(tmp_path, some_files(20), version=1)
    assert_decoded_exactly([manifest], IO)
    (decoded,), _ = read_data_manifests([manifest], IO)
    assert set(decoded.entries.column("segment").to_pylist()) == {0}


@pytest.mark.parametrize("codec", ["gzip", "null", "zstd", "bzip2"])
def test_codecs_that_pyiceberg_writes(tmp_path: Path, codec: str) -> None:
    assert_decoded_exactly([written_manifest(tmp_path, some_files(50), codec=codec)], IO)


def snappy(block: bytes) -> bytes:
    """As Avro writes it."""
    return bytes(pa.Codec("snappy").compress(block)) + zlib.crc32(block).to_bytes(4, "big")


def test_snappy_which_pyiceberg_reads_with_an_extra_package_only(tmp_path: Path) -> None:
    plain = written_manifest(tmp_path, some_files(50), codec="null")
    packed = recoded(plain, [7, 20], "snappy", compress=snappy)
    (decoded,), counters = read_data_manifests([packed], IO)
    assert rows_of(decoded) == expected_rows(plain, IO)
    assert counters.by_pyiceberg == 0


def test_a_manifest_of_deleted_files_only_is_empty(tmp_path: Path) -> None:
    gone = [
        ManifestEntry.from_args(
            status=ManifestEntryStatus.DELETED,
            snapshot_id=1,
            sequence_number=1,
            file_sequence_number=1,
            data_file=data_file(str(number)),
        )
        for number in range(3)
    ]
    assert_decoded_exactly([written_manifest(tmp_path, gone), written_manifest(tmp_path, some_files(2))], IO)


OWN_ID, NO_ID = 500, None


@pytest.mark.parametrize(("first", "expected"), [(1000, [500, 1000, 1050]), (None, [None] * 3)])
def test_files_without_row_ids_get_those_of_their_manifest(
    tmp_path: Path, first: int | None, expected: list[int | None]
) -> None:
    """By both readers. Files that are gone take none; without a first id of the manifest nobody has one."""
    kept, gone, *new = (
        DataFile(*data_file(f"file:/t/{name}.parquet", record_count=50)._data, OWN_ID if name == "kept" else NO_ID)
        for name in ("kept", "gone", "new", "newer")
    )
    numbers = {"snapshot_id": 5, "sequence_number": 1, "file_sequence_number": 1}
    found = [
        ManifestEntry.from_args(status=ManifestEntryStatus.EXISTING, data_file=kept, **numbers),
        ManifestEntry.from_args(status=ManifestEntryStatus.DELETED, data_file=gone, **numbers),
        *map(added, new),
    ]
    written = written_manifest(tmp_path, found, writer=partial(LineageManifestWriter, ManifestContent.DATA))  # type: ignore[arg-type]
    manifest = ManifestFile(*written._data[:15], first)
    (decoded,), _ = read_data_manifests([manifest], IO)
    assert decoded.entries.column("first_row_id").to_pylist() == expected
    assert [file_row_id(entry.data_file) for entry in read_entries(manifest, IO)] == expected


class WriterFromTheFuture(ManifestWriterV2):
    """Writes fields that no version of the format has yet, with values in them."""

    def _with_partition(self, format_version: TableVersion) -> Schema:
        schema = super()._with_partition(format_version)
        file = schema.find_field("data_file").field_type
        assert isinstance(file, StructType)
        place = StructType(NestedField(905, "city", StringType()), NestedField(906, "zip", LongType(), required=True))
        more = (
            NestedField(901, "note", StringType()),
            NestedField(902, "tags", ListType(903, StringType(), element_required=True)),
            NestedField(904, "place", place),
            NestedField(907, "extra", MapType(908, StringType(), 909, LongType())),
        )
        widened = NestedField(2, "data_file", StructType(*file.fields, *more), required=True)
        return Schema(*(widened if field.name == "data_file" else field for field in schema.fields))


FUTURE_VALUES: list[Sequence[object]] = [
    (None, None, None, None),
    ("note", ["a", ""], None, {}),
    (None, [], (None, 5), {"k": 2**60, "l": -1}),
    ("", ["x"] * 70, ("c" * 300, -(2**63)), None),
]


def test_fields_that_are_not_known_are_passed_over(tmp_path: Path) -> None:
    """Lists and maps among them PyIceberg does not pass over; the same entries without them are the reference."""
    found = some_files(40)
    plain = written_manifest(tmp_path, found)
    for number, entry in enumerate(found):
        note, tags, place, extra = FUTURE_VALUES[number % len(FUTURE_VALUES)]
        entry.data_file._data.extend([note, tags, Record(*place) if place else None, extra])  # type: ignore[misc]
    (decoded,), counters = read_data_manifests([written_manifest(tmp_path, found, writer=WriterFromTheFuture)], IO)
    assert rows_of(decoded) == expected_rows(plain, IO)
    assert counters.by_pyiceberg == 0


def test_a_value_that_looks_like_the_middle_of_a_record_leaves_it_to_pyiceberg(tmp_path: Path) -> None:
    bait = {1: b".parquet\x0ePARQUET"}
    odd = written_manifest(tmp_path, [*some_files(5), added(data_file(lower_bounds=bait))])
    plain = written_manifest(tmp_path, some_files(30))
    assert_decoded_exactly([plain, odd], IO, by_pyiceberg=1)


@pytest.mark.parametrize("file_format", [FileFormat.PARQUET, FileFormat.ORC])
def test_paths_without_an_extension(tmp_path: Path, file_format: FileFormat) -> None:
    found = [added(data_file(f"part-{number}", file_format=file_format)) for number in range(9)]
    assert_decoded_exactly([written_manifest(tmp_path, found)], IO)


def test_a_column_of_formats_does_not_confuse(tmp_path: Path) -> None:
    found = some_files(4, upper_bounds={1: b"PARQUET", 2: b"ORC"})
    assert_decoded_exactly([written_manifest(tmp_path, found)], IO)


@pytest.mark.parametrize("place", range(40, 2400, 97))
def test_a_damaged_manifest_is_judged_by_pyiceberg(tmp_path: Path, place: int) -> None:
    """What it refuses is refused; what it reads we read alike."""
    manifest = written_manifest(tmp_path, some_files(40), codec="null")
    raw = bytearray(local_path(manifest).read_bytes())
    raw[-place] ^= 0x55
    path = tmp_path / "damaged.avro"
    path.write_bytes(raw)
    damaged = at(path)
    try:
        expected = expected_rows(damaged, IO)
    except Exception:  # noqa: BLE001 - whatever PyIceberg raises
        with pytest.raises(ValueError, match="is not a whole Avro file"):
            read_data_manifests([damaged], IO)
    else:
        assert rows_of(read_data_manifests([damaged], IO)[0][0]) == expected
