"""File sets of tables of very many files: they say what others say, and read manifests again for what they left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table
from skipstone.tables import filesets
from skipstone.tables.filesets import FileSet, known_file_set, read_file_set

from tests.spark.index_bed import Lake

COLUMNS = (1, 2, 3, 4)
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string()), ("x", pa.float64()), ("p", pa.int32())])


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of more than two files is one of many."""
    monkeypatch.setattr(filesets, "MANY_FILES", 2)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """A table with files in several manifests and partitions, with nulls and NaN."""
    found = Lake(tmp_path)
    table = found.create(SCHEMA)
    with table.update_spec() as change:
        change.add_field("p", "identity", "p")
    for number in range(4):
        append(found.table(), number)
    yield found
    found.catalog.close()


def append(table: Table, number: int) -> None:
    """One more manifest, of two files."""
    k = [None if number == 1 else number, number + 100]
    x = [float("nan") if number == 2 else 0.5, -0.0]
    table.append(pa.table({"k": k, "s": [f"a{number}", None], "x": x, "p": [number % 2, 7]}, schema=SCHEMA))


def assert_alike(slim: FileSet, whole: FileSet) -> None:
    """Whatever can be asked of both is answered alike."""
    assert slim.is_slim
    assert not whole.is_slim
    assert slim.files.equals(whole.files)
    for field_id in COLUMNS:
        for name in ("lower", "upper", "null_count", "nan_count", "value_count"):
            ours, theirs = (getattr(files.bounds(field_id), name) for files in (slim, whole))
            assert ours.to_pylist() == pytest.approx(theirs.to_pylist(), nan_ok=True), (field_id, name)
    assert slim.column_bytes(COLUMNS).tolist() == whole.column_bytes(COLUMNS).tolist()
    assert slim.row_group_counts.tolist() == whole.row_group_counts.tolist()
    assert slim.partitions()[0] == whole.partitions()[0]
    ordinals = np.array([len(whole) - 1, 0, 3])
    names = ("path", "lower", "value_counts", "split_offsets")
    assert slim.entries(names, ordinals).equals(whole.entries(names, ordinals))
    for ordinal in range(len(whole)):
        assert repr(slim.data_file(ordinal)) == repr(whole.data_file(ordinal))
        assert slim.facts(ordinal) == whole.facts(ordinal)


def test_a_file_set_of_many_files_says_what_others_say(lake: Lake) -> None:
    assert_alike(known_file_set(lake.table(), columns=COLUMNS[:2]), read_file_set(lake.table()))
    older = lake.table().metadata.snapshots[2].snapshot_id
    assert_alike(known_file_set(lake.table(), older), read_file_set(lake.table(), older))
    few = lake.table().metadata.snapshots[0].snapshot_id
    assert not known_file_set(lake.table(), few).is_slim


def test_only_new_manifests_are_read_after_a_commit(lake: Lake) -> None:
    before = known_file_set(lake.table(), columns=[1])
    bounds = before.bounds(1)
    old = [Path(path.removeprefix("file://")) for path in lake.table().inspect.manifests()["path"].to_pylist()]
    append(lake.table(), 9)
    for path in old:
        path.rename(path.with_suffix(".hidden"))
    after = known_file_set(lake.table(), columns=[1])
    assert len(after) == len(before) + 2
    assert Counter(after.bounds(1).lower.to_pylist()) == Counter([*bounds.lower.to_pylist(), 9, 109])
    with pytest.raises(FileNotFoundError):
        after.bounds(2)
    for path in old:
        path.with_suffix(".hidden").rename(path)
    assert_alike(after, read_file_set(lake.table()))


def test_a_damaged_manifest_is_an_error_and_read_again_later(lake: Lake) -> None:
    files = known_file_set(lake.table())
    path = Path(lake.table().inspect.manifests()["path"][0].as_py().removeprefix("file://"))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match="is not a whole Avro file"):
        files.bounds(2)
    path.write_bytes(content)
    assert_alike(files, read_file_set(lake.table()))
