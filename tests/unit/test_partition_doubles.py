"""Partitions by doubles are read to the last bit, and stay so when a commit rewrites a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.expressions import EqualTo
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from skipstone.query import read
from skipstone.tables.committing.swaps import Parts, stage, wall_clock_ms
from skipstone.tables.decoding.manifests import live_entries, read_data_manifests
from skipstone.tables.filesets import read_file_set

from tests.spark.index_bed import Lake
from tests.unit.manifest_files import BY_EVERYTHING, IO, data_file, written_manifest

VALUES = [0.1, 1e300, 5e-324, 2.0]


def partitions(table: Table) -> list[float]:
    files = read_file_set(table)
    return sorted(files.data_file(number).partition[0] for number in range(len(files)))


def manifests_of(table: Table) -> list[ManifestFile]:
    snapshot = table.current_snapshot()
    return snapshot.manifests(table.io) if snapshot else []


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    made = Lake(tmp_path)
    table = made.create(pa.schema([("c", pa.float64())]))
    with table.update_spec() as update:
        update.add_field("c", IdentityTransform(), "p")
    made.table().append(pa.table({"c": VALUES}))
    yield made
    made.catalog.close()


def test_the_two_zeros_are_two_partitions(tmp_path: Path) -> None:
    places = {field.name: place for place, field in enumerate(BY_EVERYTHING.fields)}
    zeros = [0.0, -0.0, 0.0, -0.0]
    found = []
    for value in zeros:
        partition: list[object] = [None] * len(places)
        partition[places["p4"]] = partition[places["p5"]] = value
        file = data_file(partition=partition)
        found.append(ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=77, data_file=file))
    (decoded,), _ = read_data_manifests([written_manifest(tmp_path, found, spec=BY_EVERYTHING)], IO)
    read = [(decoded.partition(row)[places["p4"]], decoded.partition(row)[places["p5"]]) for row in range(4)]
    assert [str(pair) for pair in read] == [str((value, value)) for value in zeros]
    assert len(decoded.partitions) == 2


def test_a_read_is_exact_and_leaves_pyiceberg_as_it_was(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others in the process, as in a notebook, get what PyIceberg gives them; commits of this process change that."""

    def as_shipped(_: DoubleReader, decoder: BinaryDecoder) -> float:
        return float(decoder.read_double())

    monkeypatch.setattr(DoubleReader, "read", as_shipped)
    table = lake.table()
    assert read(table, condition="c = 0.1").num_rows == 1
    assert partitions(table) == sorted(VALUES)
    entries = [entry for manifest in manifests_of(table) for entry in live_entries(manifest, table.io)]
    assert sorted(entry.data_file.partition[0] for entry in entries) == sorted(VALUES)
    assert vars(DoubleReader)["read"] is as_shipped


def test_partitions_by_doubles_are_exact(lake: Lake) -> None:
    assert partitions(lake.table()) == sorted(VALUES)
    table = lake.table()
    (gone,) = (task.file for task in table.scan(EqualTo("c", 2.0)).plan_files())
    # the manifest that names the others too is written again
    stage(table, Parts(removed=(gone,)), wall_clock_ms()).swap(table.catalog)
    assert partitions(lake.table()) == sorted(VALUES[:-1])
