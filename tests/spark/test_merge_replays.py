"""Files that are merged once more, all together: what was left out comes in, and nothing older replaces newer rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.sinks import FileSink
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.reports import JobReport
from skipstone_core.contract.requests import (
    ChangeFormat,
    ColumnMapping,
    ColumnSpec,
    ConsumePolicy,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.examples import cases
from tests.spark.merge_bed import AtSwap, MergeBed, task_of
from tests.spark.test_merge_feeds import event
from tests.unit.feed_bed import Row

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
ADD = {"unknown_columns": UnknownColumns.ADD}


class Schedule:
    """A feed of one schedule: files come into its folder, and jobs merge those that are new."""

    def __init__(self, root: Path) -> None:
        self.bed = MergeBed(root)
        self.bed.create(SCHEMA)
        self.lsn = 0

    def file(self, name: str, *changes: tuple[str, Row]) -> None:
        """A file of changes that follow all before."""
        messages = []
        for op, row in changes:
            self.lsn += 1
            image = {"before": {"id": row["id"]}} if op == "d" else {"after": row}
            sequence = json.dumps([str(self.lsn - 1), str(self.lsn)])
            messages.append(event(op, self.lsn, **image, sequence=sequence))
        self.bed.text(f"orders/{name}.json", "".join(f"{json.dumps(one)}\n" for one in messages))

    def source(self, **fields: Any) -> SourceSpec:
        return SourceSpec(
            **{
                "format": SourceFormat.JSON,
                "change_format": ChangeFormat.DEBEZIUM,
                "paths": ("feeds/orders",),
                "consume": ConsumePolicy.NEW,
                "consumer": "MergeSchedule ns/orders",
                **fields,
            }
        )

    def merge(self, ports: CommitPorts | None = None, **fields: Any) -> JobReport:
        """The next job of the schedule."""
        task = task_of("", source=self.source(**fields), when_matched=(), when_not_matched=())
        request, told = self.bed.request(task), self.bed.root / "report.json"
        reporter = Reporter(request, FileSink(told))
        reporter.finish(run_merge(request, reporter, ports, self.bed.limits))
        return JobReport.from_json(told.read_text())

    def rows(self) -> dict[int, tuple[Any, ...]]:
        rows = self.bed.table().scan().to_arrow().to_pylist()
        return {row["id"]: tuple(row.values())[1:] for row in rows}


@pytest.fixture
def schedule(tmp_path: Path) -> Iterator[Schedule]:
    made = Schedule(tmp_path)
    yield made
    made.bed.catalog.close()


def row(number: int, name: str, **more: Any) -> Row:
    return {"id": number, "name": name, **more}


def test_values_from_before_a_column_was_added_come_in_by_a_replay(schedule: Schedule) -> None:
    """The example of the guide."""
    schedule.file("2026-05-01", ("c", row(1, "ada")), ("c", row(2, "bob")), ("c", row(3, "eve")))
    assert schedule.merge().counts["rowsInserted"] == 3
    schedule.file("2026-05-02", ("u", row(1, "ada", size=10)), ("u", row(2, "bob", size=20)), ("d", row(3, "eve")))
    report = schedule.merge()
    assert [(one.name, one.rows) for one in report.unused_columns] == [("size", 2)]
    schedule.file("2026-05-03", ("u", row(2, "bobby", size=21)), ("c", row(4, "dan", size=40)))
    schedule.merge()
    assert schedule.rows() == {1: ("ada",), 2: ("bobby",), 4: ("dan",)}

    schedule.file("2026-05-04", ("u", row(4, "dana", size=41)))
    replay = {**ADD, "replay_from": "feeds/orders/2026-05-02"}
    report = schedule.merge(**replay)
    assert schedule.rows() == {1: ("ada", 10), 2: ("bobby", 21), 4: ("dana", 41)}
    assert (
        "'feeds/orders/2026-05-02' on are merged, as source.replayFrom says: 2 once more, and 1 new" in report.message
    )
    assert (report.counts["rowsSource"], report.counts["rowsUnmatchedDeletes"]) == (6, 1)

    assert "no new files" in schedule.merge(**replay).message, "once for each value of the field"
    schedule.file("2026-05-05", ("u", row(1, "adam", size=11)))
    assert schedule.merge(**replay).counts["rowsSource"] == 1
    assert schedule.rows()[1] == ("adam", 11)
    schedule.merge()
    schedule.file("2026-05-06", ("u", row(1, "adam", size=12)))
    schedule.merge(**ADD)
    assert schedule.merge(**replay).counts["rowsSource"] == 8, "it was removed, a job ran, and it was set again"


def test_without_a_later_file_nothing_is_replayed(schedule: Schedule) -> None:
    """Older values would take the place of newer ones."""
    for number in range(1, 5):
        schedule.file(f"{number}", ("u", row(1, f"n{number}", size=number)))
        schedule.merge()
    path = schedule.bed.root / "feeds" / "orders"
    (path / "3.json").rename(schedule.bed.root / "3.json")
    with pytest.raises(BadData, match=r"1 files that were consumed .* are gone") as caught:
        schedule.merge(replay_from="feeds/orders/2", **ADD)
    assert (caught.value.reason, schedule.rows()) == (Reason.SOURCE_CHANGED, {1: ("n4",)})
    (path / "1.json").unlink()  # what went before it does not count
    (schedule.bed.root / "3.json").rename(path / "3.json")
    schedule.merge(replay_from="feeds/orders/2", **ADD)
    assert schedule.rows() == {1: ("n4", 4)}


def test_a_start_after_all_files_is_named(schedule: Schedule) -> None:
    schedule.file("1", ("c", row(1, "a")))
    with pytest.raises(BadSpec, match=r"no file of source.paths comes at or after 'feeds/x'"):
        schedule.merge(replay_from="feeds/x")
    with pytest.raises(BadSpec, match="it needs consume New"):
        schedule.merge(replay_from="feeds/orders", consume=ConsumePolicy.ALL)
    assert schedule.merge(replay_from="feeds/orders").counts["rowsInserted"] == 1, "nothing was consumed before"


def test_a_replay_that_newer_files_overtake_applies_nothing(schedule: Schedule) -> None:
    schedule.file("1", ("c", row(1, "old", size=1)))
    schedule.merge()

    def overtake() -> None:
        schedule.file("2", ("u", row(1, "new", size=2)))
        schedule.merge()

    report = schedule.merge(CommitPorts(hooks=AtSwap(before=overtake)), replay_from="feeds/orders/1", **ADD)
    assert (report.reason, schedule.rows()) == (Reason.SOURCE_ALREADY_APPLIED, {1: ("new",)})
    schedule.merge(replay_from="feeds/orders/1", **ADD)
    assert schedule.rows() == {1: ("new", 2)}


def test_files_of_a_merge_by_clauses_come_again_by_their_sequence(schedule: Schedule) -> None:
    schedule.bed.text("rows/1.json", '{"id": 1, "title": "old", "ts": 1}\n')
    schedule.bed.text("rows/2.json", '{"id": 1, "title": "new", "ts": 2}\n{"id": 2, "title": "x", "ts": 2}\n')
    rows: dict[str, Any] = {"change_format": None, "paths": ("feeds/rows",)}

    def merge(**fields: Any) -> None:
        columns = (ColumnSpec(name="ts", type="long"),)
        source = schedule.source(**rows, columns=columns, **fields)
        schedule.bed.merge(task_of("", source=source, sequence_by="ts"))

    for name in ("title", "ts"):  # a mapping that is corrected later
        merge(mapping=(ColumnMapping(column="name", from_=name),), replay_from=f"feeds/rows/{2 if name == 'ts' else 1}")
    assert schedule.rows() == {1: ("2",), 2: ("2",)}
    merge(mapping=(ColumnMapping(column="name", from_="title"),), replay_from="feeds/rows/")
    assert schedule.rows() == {1: ("new",), 2: ("x",)}


def test_a_replay_that_was_rolled_back_comes_again(schedule: Schedule) -> None:
    schedule.file("1", ("c", row(1, "a", size=1)))
    schedule.merge()
    before = schedule.bed.table().current_snapshot()
    assert before is not None
    for _ in range(2):
        schedule.merge(replay_from="feeds/orders/1", **ADD)
        assert schedule.rows() == {1: ("a", 1)}
        schedule.bed.table().manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        assert schedule.rows()[1][:1] == ("a",)
        assert schedule.rows() != {1: ("a", 1)}


def test_a_full_load_that_came_after_changes_is_refused(schedule: Schedule) -> None:
    dms: dict[str, Any] = {"format": SourceFormat.CSV, "change_format": ChangeFormat.DMS, "paths": ("feeds/dms",)}
    names = ["20260501-100000000", "LOAD1", "20260503-100000000"]
    for at, name in enumerate(names):
        schedule.bed.text(f"dms/{name}.csv", f"Op,id,name\n{'I' if at else 'U'},1,n{at}\n")
        schedule.merge(**dms)
    assert schedule.rows() == {1: ("n2",)}
    for start in ("feeds/dms/LOAD1", "feeds/dms/20260501"):
        with pytest.raises(BadData, match="a full load was consumed after files of changes"):
            schedule.merge(replay_from=start, **dms)
    (schedule.bed.root / "feeds" / "dms" / f"{names[0]}.csv").unlink()
    schedule.merge(replay_from="feeds/dms/LOAD", **dms)
    assert schedule.rows() == {1: ("n2",)}


@pytest.mark.parametrize("seed", range(cases(3, 40)))
def test_a_replay_from_any_file_leaves_the_newest_rows(tmp_path: Path, seed: int) -> None:
    """Rows that changed since are as if the column had been there, and all others are as they were."""
    random, made = Random(seed), Schedule(tmp_path)
    newest: dict[int, Row] = {}
    touched: list[set[int]] = []
    for number in range(8):
        changes, keys = [], set()
        for _ in range(random.randint(1, 4)):
            key = random.randrange(1, 7)
            keys.add(key)
            if key in newest and random.random() < 0.3:
                del newest[key]
                changes.append(("d", {"id": key}))
            else:
                op = "u" if key in newest else "c"
                newest[key] = row(key, f"n{number}", size=random.randrange(100))
                changes.append((op, newest[key]))
        made.file(f"{number}", *changes)
        touched.append(keys)
        if random.random() < 0.6:
            made.merge()
    made.merge()
    first = random.randrange(8)
    made.merge(replay_from=f"feeds/orders/{first}", **ADD)
    since = set().union(*touched[first:])
    expected = {key: (one["name"], one["size"] if key in since else None) for key, one in newest.items()}
    found = made.rows()
    assert {key: (*values, None)[:2] for key, values in found.items()} == expected
    made.bed.catalog.close()
