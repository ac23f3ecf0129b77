"""Random histories of a table and its index: whatever order things happen in, every answer is that of a full scan.

A model in plain Python keeps the rows; after each step reads through the index are compared with it and what the index
says of its coverage is compared with the table's own files.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pyiceberg.manifest import DataFile
from pyiceberg.types import LongType
from skipstone.indexes.upkeep import compaction
from skipstone.query import read
from skipstone_core.reasons import Reason

from tests.spark.index_bed import Lake, index_on, local
from tests.spark.rawdeletes import add_equality_delete, add_position_delete

pytestmark = pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
INDEX = index_on("k")
KEYS = st.one_of(st.none(), st.integers(0, 30))
ROWS = st.lists(st.tuples(KEYS, st.integers(0, 3)), min_size=1, max_size=8)
NUMBERS = st.integers(0, 10_000)  # taken modulo what there is: draws must not depend on random file names
Row = tuple[int | None, int]
DAMAGES: tuple[Callable[[Path], object], ...] = (
    lambda path: path.unlink(),
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-9]),
    lambda path: path.write_bytes(path.read_bytes()[:-40] + bytes(40)),
)


def content(file: DataFile) -> str:
    """What orders files the same way in each run of a history."""
    return repr(pq.read_table(local(file.file_path)).to_pylist())


class History(RuleBasedStateMachine):
    """One table ``(k long, v long)``, one index on ``k``."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="history-"))
        self.lake = Lake(self.root)
        self.rows: list[Row] = []
        self.names = ["k", "v"]
        self.snapshots: dict[int, list[Row]] = {}

    def teardown(self) -> None:
        self.lake.catalog.close()
        shutil.rmtree(self.root)

    # What the model and the table have in common

    def schema(self) -> pa.Schema:
        return pa.schema([(name, pa.int64()) for name in self.names])

    def to_arrow(self, rows: list[Row]) -> pa.Table:
        padded = [dict(zip(self.names, (*row, *([None] * (len(self.names) - 2))), strict=True)) for row in rows]
        return pa.Table.from_pylist(padded, schema=self.schema())

    def took_place(self) -> None:
        """Remember what the head holds, for rollbacks."""
        head = self.lake.table().metadata.current_snapshot_id
        if head is not None:
            self.snapshots[head] = list(self.rows)

    # What writers do

    @initialize(rows=ROWS)
    def create(self, rows: list[Row]) -> None:
        self.lake.create(self.schema(), properties={"format-version": "2"})
        self.append(rows)

    @rule(rows=ROWS)
    def append(self, rows: list[Row]) -> None:
        self.lake.table().append(self.to_arrow(rows))
        self.rows += rows
        self.took_place()

    @rule(rows=ROWS)
    def overwrite(self, rows: list[Row]) -> None:
        self.lake.table().overwrite(self.to_arrow(rows))
        self.rows = list(rows)
        self.took_place()

    @precondition(lambda self: not self.has_equality_deletes())
    @rule(value=st.integers(0, 3))
    def delete(self, value: int) -> None:
        self.lake.table().delete(f"v = {value}")
        self.rows = [row for row in self.rows if row[1] != value]
        self.took_place()

    @rule(key=st.integers(0, 30))
    def delete_by_equality(self, key: int) -> None:
        add_equality_delete(self.lake.table(), {self.names[0]: [key]})
        self.rows = [row for row in self.rows if row[0] != key]
        self.took_place()

    @precondition(lambda self: not self.has_equality_deletes())
    @rule(chosen=NUMBERS, number=NUMBERS)
    def delete_by_position(self, chosen: int, number: int) -> None:
        table = self.lake.table()
        files = sorted((task.file for task in table.scan().plan_files()), key=content)
        if not files:
            return
        file = files[chosen % len(files)]
        before = table.scan().to_arrow()
        add_position_delete(table, file, [number % file.record_count])
        after = self.lake.table().scan().to_arrow()
        assert after.num_rows in (before.num_rows, before.num_rows - 1)
        self.rows = [(row[self.names[0]], row["v"]) for row in after.to_pylist()]
        self.took_place()

    @rule(number=NUMBERS)
    def roll_back(self, number: int) -> None:
        table = self.lake.table()
        known = [entry.snapshot_id for entry in table.metadata.snapshot_log if entry.snapshot_id in self.snapshots]
        chosen = known[number % len(known)]
        table.manage_snapshots().set_current_snapshot(chosen).commit()
        self.rows = list(self.snapshots[chosen])

    @rule()
    def expire(self) -> None:
        table = self.lake.table()
        kept = {ref.snapshot_id for ref in table.metadata.refs.values()}
        old = [one.snapshot_id for one in table.metadata.snapshots if one.snapshot_id not in kept]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()
        self.snapshots = {one: rows for one, rows in self.snapshots.items() if one not in old}

    @rule(name=st.sampled_from(["kept", "other"]))
    def tag(self, name: str) -> None:
        table = self.lake.table()
        if name not in table.metadata.refs:
            table.manage_snapshots().create_tag(table.metadata.current_snapshot_id or 0, name).commit()

    # What becomes of the schema

    @precondition(lambda self: self.lake.state(INDEX).exists)  # a new index needs the column by its name
    @rule()
    def rename(self) -> None:
        new = "key" if self.names[0] == "k" else "k"
        with self.lake.table().update_schema() as change:
            change.rename_column(self.names[0], new)
        self.names[0] = new

    @precondition(lambda self: len(self.names) == 2)
    @rule()
    def add_column(self) -> None:
        with self.lake.table().update_schema() as change:
            change.add_column("late", LongType())
        self.names.append("late")

    # What becomes of the index

    @rule(most=st.sampled_from([1, 2, None, None]))
    def reindex(self, most: int | None) -> None:
        missing = self.lake.state(INDEX).segments_missing
        report = self.lake.reindex(INDEX, max_segments=most)
        assert report.reason is Reason.COMMITTED, report.message
        assert report.counts["segments"] >= min(missing, most or missing)
        if most is None:
            state = self.lake.state(INDEX)
            assert (state.segments_missing, state.degraded) == (0, None)
            self.lake.assert_every_row_once(INDEX)

    @precondition(lambda self: self.lake.state(INDEX).exists)
    @rule(number=NUMBERS, damage=st.sampled_from(DAMAGES))
    def damage(self, number: int, damage: Callable[[Path], object]) -> None:
        entries = self.lake.index_table(INDEX).entries
        if not entries:
            return
        path = local(entries[number % len(entries)].path)
        if path.exists():
            damage(path)

    @precondition(lambda self: self.names[0] == "k" and self.lake.state(INDEX).exists)
    @rule()
    def drop_index(self) -> None:
        self.lake.catalog.drop_table(self.lake.index_table(INDEX).identifier)

    # What always holds

    def has_equality_deletes(self) -> bool:
        """PyIceberg's own scan refuses those."""
        head = self.lake.table().current_snapshot()
        summary: Any = head.summary if head else {}
        return bool(int(summary.get("total-equality-deletes") or 0)) if summary else False

    @invariant()
    def reads_are_exact(self) -> None:
        key = self.names[0]
        tests: dict[str, Callable[[int | None], bool]] = {
            f"{key} = 7": lambda k: k == 7,
            f"{key} in (1, 12, 29)": lambda k: k in (1, 12, 29),
            f"{key} between 10 and 14": lambda k: k is not None and 10 <= k <= 14,
            f"{key} is null": lambda k: k is None,
        }
        for condition, test in tests.items():
            found = read(self.lake.table(), [key, "v"], condition).to_pylist()
            expected = [row for row in self.rows if test(row[0])]
            assert sorted((str(row[key]), row["v"]) for row in found) == sorted((str(k), v) for k, v in expected)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged runs of several files."""
    monkeypatch.setattr(compaction, "ROWS_PER_RANGE", 10)


def histories(count: int) -> settings:
    """So many of them."""
    return settings(
        max_examples=count,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),  # a step takes too long for shrinking
        stateful_step_count=20,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )


TestHistory = History.TestCase
TestHistory.settings = histories(4)


@pytest.mark.soak
@pytest.mark.timeout(0)
class TestManyHistories(History.TestCase):  # type: ignore[misc,name-defined]
    """As many as a soak has time for."""

    settings = histories(500)
