"""Scan tasks built column by column say of each file what its manifest entry says, whatever values it has."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from skipstone.tables.decoding.manifests import read_data_manifests
from skipstone.tables.deletes import DeleteIndex
from skipstone.tables.describing.tasks import describe_tasks
from skipstone.tables.filesets import FileSet, SnapshotContent
from skipstone_core.errors import BadData
from skipstone_core.indexing.snapshots import Pinned

from tests.unit.manifest_files import BY_EVERYTHING, IO, PARTITIONS, SCHEMA, UNPARTITIONED, entries, written_manifest

RESIDUAL = {"type": "eq", "term": "c3", "value": 5}
RANDOM = settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def table_of() -> Table:
    """A table with the schema and specs of the random manifests."""
    metadata = TableMetadataV2(
        location="file:/t",
        last_column_id=len(SCHEMA.fields),
        schemas=[SCHEMA],
        current_schema_id=SCHEMA.schema_id,
        partition_specs=[UNPARTITIONED, BY_EVERYTHING],
        default_spec_id=BY_EVERYTHING.spec_id,
        sort_orders=[UNSORTED_SORT_ORDER],
    )
    return Table(("ns", "t"), metadata, "file:/t/metadata.json", IO, NoopCatalog("none"))


def file_set(manifests: Sequence[ManifestFile]) -> FileSet:
    """The live files of ``manifests``."""
    decoded, counters = read_data_manifests(manifests, IO)
    pinned = Pinned(table_uuid="t", snapshot_id=1, schema_id=0, spec_id=3, format_version=2)
    return FileSet(pinned, None, SCHEMA, SnapshotContent(decoded, DeleteIndex(), counters))


def described(files: FileSet, ordinals: Sequence[int], with_bounds: Sequence[int] = ()) -> Any:
    """The answer as an engine parses it."""
    parts = describe_tasks(table_of(), files, ordinals, RESIDUAL, with_bounds=with_bounds)
    return json.loads(b"{" + b"".join(parts) + b"}")


def expected(file: DataFile, with_bounds: Sequence[int]) -> dict[str, Any]:
    """A task of ``file``, but for its partition."""
    maps = {
        "value-counts": file.value_counts,
        "null-value-counts": file.null_value_counts,
        "nan-value-counts": file.nan_value_counts,
        "lower-bounds": file.lower_bounds,
        "upper-bounds": file.upper_bounds,
    }
    kept = {name: {key: found[key] for key in found if key in with_bounds} for name, found in maps.items() if found}
    key = file.key_metadata
    content = {
        "spec-id": file.spec_id,
        "content": "data",
        "file-path": file.file_path,
        "file-format": file.file_format.value.lower(),
        "file-size-in-bytes": file.file_size_in_bytes,
        "record-count": file.record_count,
        "key-metadata": None if key is None else key.hex().upper(),
        "split-offsets": file.split_offsets,
        "sort-order-id": file.sort_order_id,
        **{name: [*zip(*_plain(found), strict=True)] for name, found in kept.items() if found},
    }
    known = {name: value for name, value in content.items() if value is not None}
    return {"data-file": known, "delete-file-references": [], "residual-filter": RESIDUAL}


def _plain(found: dict[int, Any]) -> list[tuple[int, Any]]:
    return [(key, value.hex().upper() if isinstance(value, bytes) else value) for key, value in found.items()]


def without_partition(task: Any) -> Any:
    """A task in the form of ``expected``."""
    file = {name: value for name, value in task["data-file"].items() if name != "partition"}
    maps = {name: value for name, value in file.items() if isinstance(value, dict)}
    lists = {name: [tuple(value["keys"]), tuple(value["values"])] for name, value in maps.items()}
    return {**task, "data-file": {**file, **lists}}


@RANDOM
@given(st.data())
def test_tasks_say_what_the_entries_say(tmp_path: Path, data: st.DataObject) -> None:
    manifests = []
    for _ in range(data.draw(st.integers(0, 3))):
        found: list[ManifestEntry] = data.draw(st.lists(entries(), min_size=1, max_size=5))
        manifests.append(written_manifest(tmp_path, found))
    files = file_set(manifests)
    ordinals = data.draw(st.lists(st.integers(0, len(files) - 1), max_size=8)) if len(files) else []
    with_bounds = data.draw(st.lists(st.integers(1, 20), unique=True))
    answer = described(files, ordinals, with_bounds)
    assert "delete-files" not in answer
    assert [without_partition(task) for task in answer["file-scan-tasks"]] == [
        expected(files.data_file(ordinal), with_bounds) for ordinal in ordinals
    ]


@RANDOM
@given(st.lists(entries(PARTITIONS), min_size=1, max_size=5))
def test_partitions_are_written_as_iceberg_writes_single_values(tmp_path: Path, found: list[ManifestEntry]) -> None:
    files = file_set([written_manifest(tmp_path, found, spec=BY_EVERYTHING)])
    ordinals = range(len(files))
    if any(value is math.nan for ordinal in ordinals for value in files.partition(ordinal)):
        with pytest.raises(BadData, match="a partition is NaN"):
            described(files, ordinals)
        return
    tasks = described(files, ordinals)["file-scan-tasks"]
    for ordinal, task in enumerate(tasks):
        told = task["data-file"]["partition"]
        for value, text, field in itertools.zip_longest(files.partition(ordinal), told, BY_EVERYTHING.fields):
            assert_told(value, text, field.name)


def assert_told(value: Any, text: Any, name: str) -> None:
    """A value of one of PARTITION_TYPES is told as the table specification has it."""
    match name, value:
        case _, None | bool():
            assert text is value
        case (("p4" | "p5"), float()):
            assert repr(text) == repr(value)
        case (("p6" | "p7"), _):
            assert text == format(value, "f")
        case "p8", int():
            assert days_of(text) == value
        case "p9", int():
            assert timedelta_of(text) == timedelta(microseconds=value)
        case (("p10" | "p11"), int()):
            assert text.endswith("+00:00") == (name == "p11")
            assert micros_of(text.removesuffix("+00:00")) == value
        case _, bytes():
            assert bytes.fromhex(text) == value
        case _:
            assert text == (value if isinstance(value, int) else str(value))


def micros_of(text: str) -> int:
    """The microseconds since 1970."""
    day, time = text.split("T")
    return days_of(day) * 86_400_000_000 + timedelta_of(time) // timedelta(microseconds=1)


def days_of(text: str) -> int:
    """The day number of a day of any year: 400 years always have the same number of days."""
    year, rest = int(text[:-6]), text[-6:]
    assert text.startswith(("+", "-")) == (not 0 <= year <= 9999)
    assert len(text[:-6].lstrip("+-")) >= 4
    cycles, in_cycle = divmod(year, 400)
    day = datetime.fromisoformat(f"{in_cycle + 2000:04}{rest}").replace(tzinfo=UTC)
    return (day - datetime(1970, 1, 1, tzinfo=UTC)).days + (cycles - 5) * 146_097


def timedelta_of(text: str) -> timedelta:
    """The time of day."""
    hours, minutes, seconds = text.split(":")
    whole, fraction = seconds.split(".")
    return timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=int(fraction))
