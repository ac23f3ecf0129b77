"""Merges of change feeds as tools write them: whole runs, the same in the driver and in Spark's tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType, TimestampType, TimestamptzType
from pyspark.sql import SparkSession
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone.runs.reporting.sinks import FileSink
from skipstone.tables.committing.commits import CommitPorts, NoHooks
from skipstone.tasks.share import USUAL_SHARE, DriverShare
from skipstone_core.contract.columns import UnknownColumns
from skipstone_core.contract.feeds import Infinity, NonFinite, TimePrecision
from skipstone_core.contract.reports import JobReport, UnusedColumn
from skipstone_core.contract.requests import (
    ChangeFormat,
    DuplicatesPolicy,
    MergeAction,
    MergeClause,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec

from tests.examples import cases
from tests.spark.merge_bed import ALL_IN_SPARK, MergeBed, task_of
from tests.unit.feed_bed import EVERY, ORDERS, Row
from tests.unit.feed_histories import SCHEMA, TOOLS, History

PLACEHOLDER = "__debezium_unavailable_value"
NOON = datetime.fromisoformat("2024-05-01T12:00:00")
#: The source is read in Spark's tasks, the rest is done in the driver.
READ_IN_SPARK = replace(USUAL_SHARE, source_bytes=0)
HERE_AND_IN_SPARK = pytest.mark.parametrize("limits", [USUAL_SHARE, READ_IN_SPARK], ids=["driver", "spark"])


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def orders(bed: MergeBed, **properties: str) -> None:
    bed.create(ORDERS, **properties)
    bed.append(*([{"id": n + at, "name": f"n{n + at}", "price": Decimal(1)} for at in range(10)] for n in (0, 10)))


def apply(bed: MergeBed, tool: ChangeFormat, kind: SourceFormat, path: str, **source: Any) -> dict[str, int]:
    """Merge the feed at ``path``; the counts."""
    spec = SourceSpec(format=kind, paths=(path,), change_format=tool, **source)
    return dict(bed.merge(task_of("", source=spec, when_matched=(), when_not_matched=())).counts)


def lines(bed: MergeBed, name: str, *messages: object) -> str:
    bed.text(f"{name}", "\n".join(json.dumps(one) for one in messages) + "\n")
    return f"feeds/{name}"


def found(bed: MergeBed) -> dict[int, str | None]:
    return {row["id"]: row["name"] for row in bed.table().scan().to_arrow().to_pylist()}


def event(op: str, lsn: int, before: Row | None = None, after: Row | None = None, **source: Any) -> Row:
    told = {"connector": "postgresql", "name": "s", "db": "d", "schema": "public", "table": "orders", "ts_ms": 1,
            "snapshot": "false", "sequence": json.dumps([None, str(lsn)]), "lsn": lsn}  # fmt: skip
    return {"op": op, "before": before, "after": after, "source": told | source, "ts_ms": 1}


def flat(op: str, pos: int, row: Row) -> Row:
    source = {"connector": "mysql", "name": "s", "db": "d", "table": "orders", "snapshot": "false", "ts_ms": 5,
              "server_id": 1, "file": "bin.000001", "pos": pos, "row": 0}  # fmt: skip
    told = {f"__source_{name}": value for name, value in source.items()}
    return {**row, **told, "__deleted": "true" if op == "d" else "false", "__op": op}


def maxwell(kind: str, data: Row, **more: Any) -> Row:
    return {"database": "d", "table": "orders", "type": kind, "ts": 1, "xid": 1, "data": data, **more}


def wal2json(action: str, at: int, new: Row | None = None, old: Row | None = None, **more: Any) -> Row:
    kinds = {"id": "bigint", "name": "text"}
    parts = {"columns": new, "identity": old}
    told = {
        part: [{"name": name, "type": kinds.get(name, "integer"), "value": row[name]} for name in row]
        for part, row in parts.items()
        if row is not None
    }
    place = {"lsn": f"0/{at}", "schema": "public", "table": "orders"}
    return {"action": action, **place, **told, "pk": [{"name": "id", "type": "bigint"}], **more}


@HERE_AND_IN_SPARK
def test_feeds_of_every_tool_change_the_table_as_they_say(
    bed: MergeBed, limits: DriverShare, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.limits = limits
    monkeypatch.setattr(
        "skipstone.runs.merging.slices.slicing.SLICE_BYTES", 300
    )  # in Spark, one feed is of several slices
    orders(bed)
    expected: dict[int, str | None] = {n: f"n{n}" for n in range(20)}

    lines(bed, "dbz/1.json", event("u", 8, after={"id": 1, "name": "late"}), event("d", 4, before={"id": 2}), None)
    lines(bed, "dbz/heartbeats.json", {"ts_ms": 1}, {"ts_ms": 2})
    lines(
        bed, "dbz/2.json", event("u", 7, after={"id": 1, "name": "early"}), event("c", 9, after={"id": 30, "name": "c"})
    )
    lines(bed, "dbz/3.json", event("u", 9, before={"id": 3}, after={"id": 31, "name": "moved"}))
    counts = apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, "feeds/dbz")
    monkeypatch.undo()
    expected |= {1: "late", 30: "c", 31: "moved"}
    del expected[2], expected[3]
    assert found(bed) == expected
    assert (counts["rowsSource"], counts["rowsDeleted"], counts["rowsUpdated"], counts["rowsInserted"]) == (6, 2, 1, 2)

    path = lines(bed, "flat.json", flat("u", 1, {"id": 4, "name": "flat"}), flat("d", 2, {"id": 5, "name": None}))
    apply(bed, ChangeFormat.DEBEZIUM_FLAT, SourceFormat.JSON, path)
    expected |= {4: "flat"}
    del expected[5]

    path = lines(bed, "maxwell.json", maxwell("insert", {"id": 32, "name": "m"}), maxwell("delete", {"id": 6}),
                 maxwell("update", {"id": 33, "name": "key"}, old={"id": 7}))  # fmt: skip
    apply(bed, ChangeFormat.MAXWELL, SourceFormat.JSON, path)
    expected |= {32: "m", 33: "key"}
    del expected[6], expected[7]

    path = lines(bed, "wal2json.json", {"action": "B"}, wal2json("I", 1, {"id": 35, "name": "w"}),
                 wal2json("D", 2, old={"id": 14}), wal2json("U", 4, {"id": 36, "name": "key"}, {"id": 15}),
                 wal2json("U", 3, {"id": 16}, {"id": 16}), wal2json("I", 5, {"no": 1}, table="other"))  # fmt: skip
    apply(bed, ChangeFormat.WAL2JSON, SourceFormat.JSON, path, tables=("public.orders",))
    expected |= {35: "w", 36: "key"}
    del expected[14], expected[15]

    bed.text("dms/LOAD1.csv", "id,name\n34,load\n8,load\n")
    bed.text("dms/20240501.csv", "Op,id,name\nU,34,changed\nD,9,\n")
    apply(bed, ChangeFormat.DMS, SourceFormat.CSV, "feeds/dms")
    expected |= {34: "changed", 8: "load"}
    del expected[9]

    (bed.root / "feeds" / "parquet").mkdir()
    changes = pa.table({"Op": ["D", "U"], "id": [10, 11], "name": ["x", "parquet"]})
    pq.write_table(changes, bed.root / "feeds" / "parquet" / "1.parquet")
    apply(bed, ChangeFormat.DMS, SourceFormat.PARQUET, "feeds/parquet")
    expected |= {11: "parquet"}
    del expected[10]
    assert found(bed) == expected
    prices = {row["id"]: row["price"] for row in bed.table().scan().to_arrow().to_pylist()}
    assert {n for n, price in prices.items() if price is None} == {*range(30, 37)}, "an update keeps what it lacks"


FULL = {
    "id": 1, "flag": True, "small": 7, "ratio": 0.5, "wide": "NaN", "price": "-1.25", "day": 19844,
    "clock": 43_200_000_000, "local": 1_714_564_800_000_000, "instant": "2024-05-01T14:00:00+02:00", "text": "ä",
    "code": "00000000-0000-0000-0000-00000000000a", "raw": "AP8=", "tags": ["x", None], "counts": [1],
    "pairs": {"k": "v"}, "codes": ["00000000-0000-0000-0000-00000000000a", None],
}  # fmt: skip


@pytest.mark.parametrize(
    ("limits", "mode"),
    [(USUAL_SHARE, "copy-on-write"), (USUAL_SHARE, "merge-on-read"), (ALL_IN_SPARK, "merge-on-read")],
)
def test_values_of_every_type_arrive_and_unchanged_ones_stay(bed: MergeBed, limits: DriverShare, mode: str) -> None:
    bed.limits = limits
    bed.create(EVERY, **{"write.merge.mode": mode})
    others = [event("c", 1, after={"id": n, "text": f"t{n}"}) for n in range(10, 20)]
    path = lines(bed, "1.json", event("c", 1, after=FULL), *others)
    micros = {"time_precision": TimePrecision.MICROS}
    apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, path, **micros)
    (row,) = (one for one in bed.table().scan().to_arrow().to_pylist() if one["id"] == 1)
    assert row.pop("wide") != row.get("wide")
    expected = {
        "id": 1, "flag": True, "small": 7, "ratio": 0.5, "price": Decimal("-1.25"), "day": date(2024, 5, 1),
        "clock": time(12), "local": NOON, "instant": NOON.replace(tzinfo=UTC), "text": "ä", "raw": b"\x00\xff",
        "tags": ["x", None], "counts": [1], "pairs": [("k", "v")], "shape": None,
    }  # fmt: skip
    codes = [row.pop("code"), *row.pop("codes")]
    assert row == expected
    assert [getattr(code, "bytes", code) for code in codes] == [bytes(15) + b"\n", bytes(15) + b"\n", None]

    left = {"id": 1, "flag": False, "text": PLACEHOLDER, "tags": [PLACEHOLDER], "raw": None}
    path = lines(bed, "2.json", event("u", 2, after=left))
    apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, path, **micros)
    (row,) = (one for one in bed.table().scan().to_arrow().to_pylist() if one["id"] == 1)
    del row["wide"], row["code"], row["codes"]
    assert row == expected | {"flag": False, "raw": None}


INFINITE = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "price", DecimalType(9, 2)),
    NestedField(3, "day", DateType()),
    NestedField(4, "local", TimestampType()),
    NestedField(5, "instant", TimestamptzType()),
    NestedField(6, "text", StringType()),
    NestedField(7, "needed", DecimalType(9, 2), required=True),
)


@HERE_AND_IN_SPARK
def test_what_iceberg_lacks_is_stored_as_the_source_says(
    bed: MergeBed, limits: DriverShare, spark: SparkSession
) -> None:
    bed.limits = limits
    bed.create(INFINITE)
    ends = [
        {"day": -2147472692, "local": 9223372036825200000, "instant": "infinity"},
        {"day": -2147472691, "local": -9223372036832400000, "instant": "-infinity"},
    ]
    rows = [{"id": n, "price": "NAN", "text": "t", "needed": "1", **end} for n, end in enumerate(ends)]
    settings = {
        "time_precision": TimePrecision.MICROS,
        "non_finite": NonFinite.NULL,
        "infinity": Infinity.MAX,
        "unavailable_value": "?",
    }
    apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, lines(bed, "1.json", *_created(rows)), **settings)
    path = lines(bed, "2.json", *(event("u", 9, after={"id": row["id"], "text": "?"}) for row in rows))
    apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, path, **settings)
    last, first = datetime.max, datetime.min  # noqa: DTZ901
    expected = [
        (0, None, date.max, last, last.replace(tzinfo=UTC), "t", Decimal(1)),
        (1, None, date.min, first, first.replace(tzinfo=UTC), "t", Decimal(1)),
    ]
    read = bed.table().scan().to_arrow().sort_by("id")
    assert [tuple(row.values()) for row in read.to_pylist()] == expected
    files = spark.read.parquet(*(str(bed.root / path.removeprefix(f"{bed.root}/")) for path in bed.paths()))
    in_spark = files.orderBy("id").toArrow().select(read.column_names).cast(read.schema)
    assert in_spark.to_pylist() == read.to_pylist()

    path = lines(bed, "3.json", *_created([{"id": 3, "needed": "NAN"}]))
    with pytest.raises(BadData, match="'needed'"):
        apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, path, **settings)


def _created(rows: Iterable[Row]) -> Iterator[Row]:
    return (event("c", lsn, after=row) for lsn, row in enumerate(rows, 1))


@HERE_AND_IN_SPARK
def test_a_truncate_leaves_what_came_after_it(bed: MergeBed, limits: DriverShare) -> None:
    bed.limits = limits
    orders(bed)
    lines(bed, "t/1.json", event("u", 1, after={"id": 1, "name": "gone"}), event("t", 5))
    lines(
        bed, "t/2.json", event("c", 6, after={"id": 2, "name": "back"}), event("u", 2, after={"id": 3, "name": "gone"})
    )
    with pytest.raises(BadData, match=r"'feeds/t/1.json', line 2: it is a truncate"):
        apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, "feeds/t")
    assert len(found(bed)) == 20
    apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, "feeds/t", allow_truncate=True)
    assert [dict(row) for row in bed.table().scan().to_arrow().to_pylist()] == [
        {"id": 2, "name": "back", "price": None, "placed": None}
    ]
    bed.limits = USUAL_SHARE
    path = lines(bed, "only.json", event("t", 9))
    apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, path, allow_truncate=True)
    assert found(bed) == {}


def test_what_cannot_be_applied_is_refused_and_changes_nothing(bed: MergeBed) -> None:
    orders(bed)
    before = bed.rows(), bed.on_disk()
    lines(bed, "two/1.json", event("c", 1, after={"id": 1}))
    lines(bed, "two/2.json", event("c", 2, after={"id": 2}, table="lines"))
    lines(bed, "lacking.json", event("u", 1, after={"id": 99, "name": PLACEHOLDER}))
    lines(bed, "bad.json", event("c", 1, after={"id": 1, "price": "1.005"}))
    for path, says in (
        ("two", "changes of 'd.public.lines' and of 'd.public.orders'"),
        ("lacking.json", "column 'name': a change leaves its value out as unchanged"),
        ("bad.json", "'feeds/bad.json', line 1: column 'price'"),
    ):
        with pytest.raises(BadData) as caught:
            apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, f"feeds/{path}")
        assert says in str(caught.value)
    assert (bed.rows(), bed.on_disk()) == before


def test_a_feed_without_changes_changes_nothing(bed: MergeBed) -> None:
    orders(bed)
    before = bed.rows(), bed.paths()
    counts = apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, lines(bed, "1.json", None, event("m", 1)))
    assert (bed.rows(), bed.paths(), counts["rowsSource"]) == (*before, 0)


@HERE_AND_IN_SPARK
@pytest.mark.usefixtures("spark")
def test_messages_of_no_row_are_told(bed: MergeBed, limits: DriverShare, tmp_path: Path) -> None:
    orders(bed)
    bed.limits = limits
    path = lines(bed, "1.json", {"ts_ms": 1}, event("u", 1, after={"id": 1, "name": "new"}), {"ts_ms": 2})
    source = SourceSpec(format=SourceFormat.JSON, paths=(path,), change_format=ChangeFormat.DEBEZIUM)
    request = bed.request(task_of("", source=source, when_matched=(), when_not_matched=()), "")
    reporter = Reporter(request, FileSink(tmp_path / "report.json"))
    reporter.finish(run_merge(request, reporter, share=limits))
    told = JobReport.from_json((tmp_path / "report.json").read_text())
    assert "The feed has 2 messages that tell of no row" in told.message
    assert told.counts["rowsSource"] == 1


def test_a_feed_takes_no_clauses(bed: MergeBed) -> None:
    orders(bed)
    path = lines(bed, "1.json", event("c", 1, after={"id": 1}))
    source = SourceSpec(format=SourceFormat.JSON, paths=(path,), change_format=ChangeFormat.DEBEZIUM)
    with pytest.raises(BadSpec, match="remove sequenceBy"):
        bed.merge(task_of("", source=source, when_matched=(MergeClause(action=MergeAction.UPDATE),)))


@pytest.mark.parametrize("seed", range(cases(4, 60)))
def test_a_random_history_is_replayed_into_tables_of_every_kind(bed: MergeBed, seed: int) -> None:
    """Rows keep values that their changes lack, in files that are copied, rewritten and marked."""
    random = Random(seed)
    tool, tell, _ = TOOLS[random.choice(["postgresql", "mysql"])]
    by_value = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
    spec = by_value if random.random() < 0.5 else UNPARTITIONED_PARTITION_SPEC
    properties = {
        "write.merge.mode": ("copy-on-write", "merge-on-read")[seed % 2],
        "format-version": random.choice("23"),
        "write.parquet.row-group-limit": "4",
    }
    bed.create(SCHEMA, spec, **properties)
    history = History(random)
    history.state = {number: history.row(number) for number in range(8)}
    bed.append(list(history.state.values()))
    for number in range(3):
        before, history.events = dict(history.state), []
        for _ in range(random.randint(1, 3)):
            history.transaction()
        path = bed.text(f"{number}.json", "\n".join(tell(history.events, before, random)) + "\n")
        apply(bed, tool, SourceFormat.JSON, path, allow_truncate=True)
        rows = bed.table().scan().to_arrow().select(SCHEMA.column_names).to_pylist()
        assert sorted(rows, key=lambda row: row["id"]) == [history.state[key] for key in sorted(history.state)]


@HERE_AND_IN_SPARK
@pytest.mark.usefixtures("spark")
def test_columns_that_the_table_lacks_are_told_refused_or_added_as_the_source_asks(
    bed: MergeBed, limits: DriverShare
) -> None:
    bed.limits = limits
    orders(bed)
    rows = [{"id": 1, "name": "a", "size": 7, "note": None}, {"id": 2, "name": "b", "size": None, "note": None}]
    path = lines(
        bed, "f.json", *(event("c", lsn, after=row) for lsn, row in enumerate(rows, 1)), event("d", 3, rows[1])
    )
    task = task_of(
        "",
        source=SourceSpec(format=SourceFormat.JSON, paths=(path,), change_format=ChangeFormat.DEBEZIUM),
        when_matched=(),
        when_not_matched=(),
    )
    refused = replace(task, source=replace(task.source, unknown_columns=UnknownColumns.REFUSE))
    with pytest.raises(BadData, match=r"does not have 2 columns \('size', 'note'\)"):
        bed.merge(refused)
    report = bed.merge(task)
    assert report.unused_columns == (UnusedColumn(name="size", rows=1), UnusedColumn(name="note", rows=0))
    added = replace(task.source, unknown_columns=UnknownColumns.ADD, duplicates=DuplicatesPolicy.ALLOW)
    report = bed.merge(replace(task, source=added))
    assert report.unused_columns == (UnusedColumn(name="note", rows=0),)
    assert {row["id"]: row["size"] for row in bed.table().scan().to_arrow().to_pylist()}[1] == 7
    assert str(bed.table().schema().find_type("size")) == "long"


@HERE_AND_IN_SPARK
@pytest.mark.usefixtures("spark")
def test_defaults_that_may_stand_for_nulls_are_told_and_kept_in_the_snapshot(
    bed: MergeBed, limits: DriverShare
) -> None:
    bed.limits = limits
    orders(bed)
    columns = [{"field": "id", "type": "int64"}, {"field": "name", "type": "string", "optional": True, "default": "n"}]
    schema = {"fields": [{"field": "after", "fields": columns}, {"field": "op", "type": "string"}]}
    messages = [
        {"schema": schema, "payload": event("c", number, after={"id": number, "name": name})}
        for number, name in ((1, "n"), (2, "n"), (3, "other"))
    ]
    spec = SourceSpec(
        format=SourceFormat.JSON, paths=(lines(bed, "f.json", *messages),), change_format=ChangeFormat.DEBEZIUM
    )
    report = bed.merge(task_of("", source=spec, when_matched=(), when_not_matched=()))
    assert report.defaulted_columns == (UnusedColumn(name="name", rows=2),)
    snapshot = bed.table().current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert json.loads(str(snapshot.summary["skipstone.defaulted-columns"])) == [["name", 2]]


@pytest.mark.parametrize("after", [False, True], ids=["before-the-swap", "after-the-swap"])
def test_a_feed_that_adds_a_column_is_applied_once_wherever_its_run_ends(bed: MergeBed, after: bool) -> None:
    class Killed(BaseException):
        pass

    class Hooks(NoHooks):
        def before_swap(self, table: Table) -> None:
            if not after:
                raise Killed

        def after_swap(self, table: Table) -> None:
            raise Killed

    orders(bed)
    path = lines(bed, "f.json", event("c", 1, after={"id": 1, "name": "a", "size": 7}))
    source = SourceSpec(
        format=SourceFormat.JSON,
        paths=(path,),
        change_format=ChangeFormat.DEBEZIUM,
        unknown_columns=UnknownColumns.ADD,
    )
    task, uid = task_of("", source=source, when_matched=(), when_not_matched=()), "00000000-0000-0000-0000-0000000000ad"
    with pytest.raises(Killed):
        bed.merge(task, uid, CommitPorts(hooks=Hooks()))
    assert ("size" in bed.table().schema().column_names) is after
    bed.merge(task, uid)
    assert len(bed.table().history()) == 2
    assert next(row for row in bed.table().scan().to_arrow().to_pylist() if row["id"] == 1)["size"] == 7


def test_a_feed_whose_columns_are_all_of_another_table_is_refused(bed: MergeBed) -> None:
    orders(bed)
    path = lines(bed, "f.json", event("c", 1, after={"id": 1, "label": "a"}))
    with pytest.raises(BadData, match=r"the changes have 1 column \('label'\) beside their keys"):
        apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, path)


def test_schemas_of_messages_tell_the_types_of_columns_that_are_added(bed: MergeBed) -> None:
    orders(bed)
    columns = [
        {"field": "id", "type": "int64"},
        {"field": "made", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
        {"field": "small", "type": "int16"},
        {
            "field": "sum",
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2"},
        },
        {"field": "clock", "type": "int64", "name": "io.debezium.time.MicroTime"},
        {"field": "span", "type": "int64", "name": "io.debezium.time.MicroDuration"},
        {"field": "bits", "type": "bytes", "name": "io.debezium.data.Bits"},
        {"field": "single", "type": "float"},
        {"field": "ratio", "type": "double"},
        *(
            {**decimal, "field": name, "parameters": {"scale": scale}}
            for decimal in [{"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}]
            for name, scale in (("rounded", "-2"), ("deep", "40"))
        ),
    ]
    row = {"id": 1, "name": "x", "made": 1, "day": 1, "small": 5, "sum": "Bdw=", "clock": 1, "span": 1, "bits": "AYA=",
           "single": 0.5, "ratio": 0.1, "rounded": "AQ==", "deep": "AQ=="}  # fmt: skip
    fields = [{"field": "after", "fields": columns}, {"field": "op", "type": "string"}]
    path = lines(bed, "f.json", {"schema": {"fields": fields}, "payload": event("c", 1, after=row)})
    source = SourceSpec(
        format=SourceFormat.JSON,
        paths=(path,),
        change_format=ChangeFormat.DEBEZIUM,
        unknown_columns=UnknownColumns.ADD,
    )
    report = bed.merge(task_of("", source=source, when_matched=(), when_not_matched=()))
    assert set(report.unused_columns) == {
        UnusedColumn(name=name, rows=1) for name in ("span", "bits", "rounded", "deep")
    }
    kinds = {field.name: str(field.field_type) for field in bed.table().schema().fields[4:]}
    assert kinds == {"clock": "string", "day": "date", "made": "timestamp", "small": "int", "sum": "decimal(38, 2)",
                     "single": "float", "ratio": "double"}  # fmt: skip
    found = next(row for row in bed.table().scan().to_arrow().to_pylist() if row["id"] == 1)
    assert (found["small"], found["sum"], found["day"]) == (5, Decimal("15.00"), date(1970, 1, 2))
    assert (found["single"], found["ratio"]) == (0.5, 0.1)


@pytest.mark.parametrize("tool", [ChangeFormat.DMS, ChangeFormat.MAXWELL, ChangeFormat.WAL2JSON])
def test_other_tools_tell_and_add_unknown_columns_too(bed: MergeBed, tool: ChangeFormat) -> None:
    orders(bed)
    if tool is ChangeFormat.DMS:
        table = pa.table({"Op": ["I"], "id": [1], "name": ["n"], "size": [7], "tags": [["a"]], "at": [{"x": 1}]})
        folder = bed.root / "feeds" / "dms"
        folder.mkdir(parents=True)
        pq.write_table(table, folder / "20240501-000000001.parquet")
        path, kind = "feeds/dms", SourceFormat.PARQUET
    elif tool is ChangeFormat.WAL2JSON:
        message = wal2json("I", 1, {"id": 1, "name": "n", "size": 7})
        path, kind = lines(bed, "w.json", message), SourceFormat.JSON
    else:
        row = {"id": 1, "name": "n", "size": 7}
        message = {"database": "d", "table": "orders", "type": "insert", "ts": 1, "xid": 1, "commit": True, "data": row,
                   "position": "bin.000001:4"}  # fmt: skip
        path, kind = lines(bed, "m.json", message), SourceFormat.JSON
    source = SourceSpec(format=kind, paths=(path,), change_format=tool, unknown_columns=UnknownColumns.ADD)
    told = replace(source, unknown_columns=None, duplicates=DuplicatesPolicy.ALLOW)
    nested = {UnusedColumn(name=name, rows=1) for name in ("tags", "at")} if tool is ChangeFormat.DMS else set()
    report = bed.merge(task_of("", source=told, when_matched=(), when_not_matched=()))
    assert set(report.unused_columns) == {UnusedColumn(name="size", rows=1)} | nested
    report = bed.merge(
        task_of("", source=replace(source, duplicates=DuplicatesPolicy.ALLOW), when_matched=(), when_not_matched=())
    )
    assert set(report.unused_columns) == nested
    assert next(row for row in bed.table().scan().to_arrow().to_pylist() if row["id"] == 1)["size"] == 7
