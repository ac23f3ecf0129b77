"""Changes by keys that have several rows: a key with a row left is not deleted, wherever that row is."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from skipstone import query
from skipstone.query.changing import leftrows, reading
from skipstone.query.planner import ReadOptions
from skipstone.tables.filesets import read_file_set
from skipstone_core.errors import UserError
from skipstone_core.history.tablereads import CHANGE_COLUMN
from skipstone_core.indexing.use import USUAL_LIMITS

from tests.examples import cases
from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append
from tests.spark.rawdeletes import add_position_delete, add_vectors
from tests.spark.table_bed import TableBed
from tests.spark.test_table_changes import copying

Row = tuple[int, str, str]
#: The first of the seeds of histories.
SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", "0"))


@pytest.fixture(params=[2, 3])
def bed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[TableBed]:
    made = TableBed(tmp_path, version=request.param)
    yield made
    made.close()


def add(bed: TableBed, *rows: Row) -> int:
    """Append a file of each partition."""
    names = ("id", "v", "day")
    append(bed.src(), pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]))
    return bed.head()


def delete_at(table: Table, deleted: dict[str, list[int]], path: str, position: int) -> None:
    """Delete a row on read. ``deleted``: by path, which rows are deleted already."""
    files = read_file_set(table)
    number = files.files["path"].to_pylist().index(path)
    deleted[path] = sorted({*deleted.get(path, []), position})
    if table.metadata.format_version > 2:
        add_vectors(table, {number: deleted[path]})
    else:
        add_position_delete(table, files.data_file(number), [position])


def delete_last(bed: TableBed, count: int, position: int) -> None:
    """Delete a row on read, of the one file that has so many rows."""
    files = read_file_set(bed.src()).files
    counts = files["records"].to_pylist()
    assert counts.count(count) == 1
    delete_at(bed.src(), {}, files["path"].to_pylist()[counts.index(count)], position)


def changes(bed: TableBed, since: int, until: int | None = None, where: str | None = None) -> list[tuple[str, Row]]:
    rows = query.changes(bed.src(), since, until, ["id"], where).to_pylist()
    return sorted((row[CHANGE_COLUMN], (row["id"], row["v"], row["day"])) for row in rows)


def test_a_row_that_is_left_in_a_file_of_both_snapshots_stays_in_a_copy(bed: TableBed) -> None:
    add(bed, (1, "a", "mon"), (2, "b", "mon"), (3, "c", "mon"))
    bed.merge(copying(bed))
    add(bed, (1, "a", "mon"), (4, "d", "mon"))
    bed.merge(copying(bed))
    first = bed.head()
    delete_last(bed, 2, 0)
    assert changes(bed, first) == []
    bed.merge(copying(bed))
    assert bed.ids() == [1, 2, 3, 4]
    delete_last(bed, 3, 0)
    bed.merge(copying(bed))
    assert bed.ids() == [2, 3, 4]


def test_a_row_that_is_left_in_the_same_file_becomes_that_of_its_key(bed: TableBed) -> None:
    first = add(bed, (1, "a", "mon"), (1, "b", "mon"), (2, "c", "mon"))
    delete_last(bed, 3, 0)
    assert changes(bed, first) == [("UPDATE_AFTER", (1, "b", "mon")), ("UPDATE_BEFORE", (1, "a", "mon"))]
    assert changes(bed, first, where="v = 'a' or id = 2") == [("DELETE", (1, "a", "mon"))]
    assert changes(bed, bed.head(), first) == [("INSERT", (1, "a", "mon"))]


def test_several_rows_that_are_left_of_a_key_are_refused(bed: TableBed) -> None:
    add(bed, (1, "a", "mon"), (2, "b", "mon"), (1, "c", "mon"))
    first = add(bed, (1, "d", "tue"))
    delete_last(bed, 1, 0)
    with pytest.raises(UserError, match=r"2 changed rows of ns.src have the key id = 1"):
        changes(bed, first)


def read_by(
    monkeypatch: pytest.MonkeyPatch, table: Table, since: int, options: ReadOptions, keys: Sequence[str]
) -> tuple[list[dict[str, Any]], set[str]]:
    """The changes, and the files in which rows that are left were looked for."""
    opened: set[str] = set()
    unwatched = leftrows.read_data_file

    def watched(*arguments: Any) -> Iterator[pa.RecordBatch]:
        opened.add(arguments[0].path)
        return unwatched(*arguments)

    with monkeypatch.context() as watching:
        watching.setattr(leftrows, "read_data_file", watched)
        plan = reading.plan_changes(table, since, options, keys)
        return pa.concat_tables(reading.read_changes(plan)).to_pylist(), opened


@pytest.mark.parametrize("has_index", [False, True])
def test_rows_that_are_left_are_looked_for_in_files_that_may_have_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_index: bool
) -> None:
    """By bounds, and within these by an index; and in none when no key is deleted."""
    lake = Lake(tmp_path)
    schema = pa.schema([("k", pa.int64()), ("g", pa.string()), ("n", pa.int32())])
    lake.create(schema)
    for start in (0, 1, 2, 1000):
        keys = [start + 10 * at for at in range(50)]
        append(lake.table(), pa.table({"k": keys, "g": ["x"] * 50, "n": [start] * 50}, schema=schema))
    append(lake.table(), pa.table({"k": [21, 5], "g": ["x", "y"], "n": [1, 5]}, schema=schema))
    if has_index:
        lake.reindex(index_on("k", "g"))
    first = lake.table().current_snapshot()
    assert first is not None
    options = ReadOptions(limits=USUAL_LIMITS.forced())
    lake.table().delete("n = 1 and k > 400 or k = 5 or n = 0 and k = 0")
    keys = ["k", "g"]
    rows, opened = read_by(monkeypatch, lake.table(), first.snapshot_id, options, keys)
    assert {row[CHANGE_COLUMN] for row in rows} == {"DELETE"}
    assert sorted(row["k"] for row in rows) == [0, 5, *range(401, 500, 10)]
    assert len(opened) == (0 if has_index else 1)
    second = lake.table().current_snapshot()
    assert second is not None
    append(lake.table(), pa.table({"k": [7], "g": ["x"], "n": [7]}, schema=schema))
    rows, opened = read_by(monkeypatch, lake.table(), second.snapshot_id, options, keys)
    assert ([row["k"] for row in rows], opened) == ([7], set())
    lake.catalog.close()


class Doubles:
    """A source table in which keys have several rows, changed by random commits; the rows are those PyIceberg reads."""

    def __init__(self, bed: TableBed, seed: int) -> None:
        """Two files."""
        self.bed = bed
        self.chance = random.Random(seed)
        self.deleted: dict[str, list[int]] = {}
        self.states: list[tuple[int, Counter[Row]]] = []
        self._append()
        self._append()

    def step(self) -> None:
        """One commit."""
        self.chance.choice([self._append, self._delete, self._delete, self._delete, self.bed.compact])()
        rows = self.bed.src().scan().to_arrow().to_pylist()
        self.states.append((self.bed.head(), Counter((row["id"], row["v"], row["day"]) for row in rows)))

    def _append(self) -> None:
        draw = self.chance.choice
        add(self.bed, *((draw(range(9)), draw("aab"), draw(["mon", "tue"])) for _ in range(4)))

    def _delete(self) -> None:
        table = self.bed.src()
        files = read_file_set(table).files
        places = [
            (path, position)
            for path, count in zip(files["path"].to_pylist(), files["records"].to_pylist(), strict=True)
            for position in range(count)
            if position not in self.deleted.get(path, [])
        ]
        if places:
            delete_at(table, self.deleted, *self.chance.choice(places))


def expected(before: Counter[Row], after: Counter[Row]) -> list[tuple[str, Row]] | None:
    """The changes by key; None if a key of changed rows does not name one."""
    changed: list[tuple[str, Row]] = []
    for key in {row[0] for row in (*before, *after)}:
        old, new = (Counter({row: n for row, n in rows.items() if row[0] == key}) for rows in (before, after))
        gone, come, stay = [*(old - new).elements()], [*(new - old).elements()], [*(old & new).elements()]
        if not come:
            gone = [row for row in gone if row not in stay]
            come = stay if gone else []
        if max(len(gone), len(come)) > 1:
            return None
        is_update = bool(gone and come)
        changed += [("UPDATE_BEFORE" if is_update else "DELETE", row) for row in gone]
        changed += [("UPDATE_AFTER" if is_update else "INSERT", row) for row in come]
    return sorted(changed)


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(2, 60)))
def test_changes_of_keys_with_several_rows_are_those_of_full_scans(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed = TableBed(tmp_path, version=2 + seed % 2)
    history = Doubles(bed, seed)
    for _ in range(6):
        history.step()
    for part_bytes, lineage_bytes, most in ((64, 1 << 60, 1), (1 << 26, 0, 1 << 20)):
        monkeypatch.setattr(reading, "PART_BYTES", part_bytes)
        monkeypatch.setattr(reading, "LINEAGE_BYTES", lineage_bytes)
        monkeypatch.setattr(leftrows, "MOST_KEYS", most)
        for (since, before), (until, after) in itertools.permutations(history.states, 2):
            rows = expected(before, after)
            if rows is not None:
                assert changes(bed, since, until) == rows, (since, until)
                continue
            with pytest.raises(UserError, match="have the key id = "):
                changes(bed, since, until)
    bed.close()
