"""Delta tables as sources: the rows of a version, once, and what is refused because its rows would be others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)
from skipstone.compat.pyiceberg import summary_of
from skipstone.runs.intake import NO_NEW_VERSIONS
from skipstone.sources.plain import PlainLimits
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.deltatables import SourceDeltaRef
from skipstone_core.contract.places import SourceLocationRef
from skipstone_core.contract.requests import ConsumePolicy, SourceFormat, SourceSpec
from skipstone_core.errors import BadData, BadSpec, UserError
from skipstone_core.reasons import Reason

from tests.s3client import S3Client
from tests.s3server import OWNER
from tests.spark.load_bed import Bed, run
from tests.spark.merge_bed import AtSwap, MergeBed, task_of
from tests.storages import credentials, s3_ref

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "day", DateType()), NestedField(3, "v", StringType()))
IN_SPARK = PlainLimits(0, 0)
NEW, ALL = ConsumePolicy.NEW, ConsumePolicy.ALL
START = datetime(2026, 1, 1, 1, 2, 3, 456789, UTC)
UID = "dddddddd-0000-0000-0000-000000000000"


class Killed(BaseException):
    """Stands for a driver that dies."""


def die() -> None:
    raise Killed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    made = Bed(tmp_path)
    made.create(SCHEMA)
    yield made
    made.catalog.close()


def add(bed: Bed | MergeBed, *ids: int, day: date | None = date(2026, 1, 1), **options: Any) -> DeltaTable:
    """Append rows to the Delta table; as it is then."""
    rows = {"id": pa.array(ids, pa.int64()), "day": pa.array([day] * len(ids), pa.date32()), "v": ["x"] * len(ids)}
    folder = str(bed.root / "lake" / "events")
    write_deltalake(folder, pa.table(rows), mode=options.pop("mode", "append"), partition_by=["day"], **options)
    return DeltaTable(folder)


def spec(consume: ConsumePolicy = ALL, **fields: Any) -> SourceSpec:
    return SourceSpec(
        format=SourceFormat.PARQUET, paths=(), consume=consume, consumer="jobs" if consume is NEW else "",
        delta=SourceDeltaRef(path="lake/events", **fields),
    )  # fmt: skip


def ids(bed: Bed) -> list[int]:
    return sorted(row["id"] for row in bed.rows())


def log(bed: Bed, version: int) -> Path:
    return bed.root / "lake" / "events" / "_delta_log" / f"{version:020d}.json"


def edit(bed: Bed, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of a commit, as another writer would have written them."""
    actions = [json.loads(line) for line in log(bed, version).read_text().splitlines()]
    for action in actions:
        change(action)
    log(bed, version).write_text("\n".join(map(json.dumps, actions)))


# --- which rows ---


def test_a_version_is_read_as_deltalake_reads_it(bed: Bed) -> None:
    add(bed, 1, 2)
    add(bed, 3, day=None)
    add(bed, 4, day=date(1969, 12, 31))
    add(bed, 5, day=date(1969, 12, 31))
    table = DeltaTable(str(bed.root / "lake" / "events"))
    table.delete("id = 2")
    table.optimize.compact()
    table.create_checkpoint()
    add(bed, 6)
    for version in range(table.version() + 2):
        bed.create(SCHEMA, f"t{version}")
        bed.load(spec(version=str(version)), f"t{version}")
        expected = DeltaTable(str(bed.root / "lake" / "events"), version=version).to_pyarrow_table()
        assert bed.arrow(f"t{version}").select(["id", "day", "v"]).sort_by("id") == expected.select(
            ["id", "day", "v"]
        ).cast(bed.arrow(f"t{version}").schema).sort_by("id")
    bed.load(spec(where="day is null or day < date '2000-01-01'"))
    assert ids(bed) == [3, 4, 5]
    snapshot = bed.table().current_snapshot()
    assert snapshot is not None
    assert summary_of(snapshot)["skipstone.source.delta-version"] == str(table.version() + 1)


def test_partition_values_of_all_types_are_those_that_were_written(tmp_path: Path) -> None:
    """In the driver and in Spark; Delta has them as text in its log."""
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "s": (pa.string(), ["a b/=%", "é+'", None]),
        "n": (pa.int32(), [-7, 2**31 - 1, None]),
        "d": (pa.decimal128(9, 2), [Decimal("-2.00"), Decimal("1.05"), None]),
        "f": (pa.float64(), [-0.5, 2.25, None]),
        "b": (pa.bool_(), [True, False, None]),
        "at": (pa.timestamp("us", "UTC"), [START, datetime(1969, 1, 1, tzinfo=UTC), None]),
    }
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), **{n: pa.array(v, t) for n, (t, v) in columns.items()}})
    bed = Bed(tmp_path)
    write_deltalake(str(tmp_path / "lake" / "events"), rows, partition_by=list(columns))
    kinds = [StringType(), IntegerType(), DecimalType(9, 2), DoubleType(), BooleanType(), TimestamptzType()]
    schema = Schema(
        NestedField(1, "id", LongType()),
        *(NestedField(at, name, kind) for at, (name, kind) in enumerate(zip(columns, kinds, strict=True), start=2)),
    )
    for name, limits in (("usual", None), ("spark", IN_SPARK)):
        bed.create(schema, name)
        bed.load(spec(), name, limits=limits)
        assert bed.rows(name) == rows.to_pylist()
    bed.create(schema, "some")
    bed.load(spec(where="d < -1.5 and s = 'a b/=%'"), "some")
    assert [row["id"] for row in bed.rows("some")] == [1]
    bed.catalog.close()


@pytest.mark.parametrize("kind", [BinaryType(), StringType()])
def test_binary_partition_values_are_refused_and_the_way_out_works(tmp_path: Path, kind: PrimitiveType) -> None:
    """The log has an escape for each byte, which must not become the value of a text column."""
    bed = Bed(tmp_path)
    bed.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "tenant", kind)))
    rows = pa.table({"id": pa.array([1], pa.int64()), "tenant": pa.array([b"ab"])})
    write_deltalake(str(tmp_path / "lake" / "events"), rows, partition_by=["tenant"])
    with pytest.raises(BadSpec, match="column 'tenant' of the Delta table is binary") as caught:
        bed.load(spec())
    assert caught.value.reason is Reason.COLUMN_TYPE_UNSUPPORTED
    shutil.rmtree(tmp_path / "lake")
    write_deltalake(str(tmp_path / "lake" / "events"), rows)
    if isinstance(kind, BinaryType):
        bed.load(spec())
        assert bed.rows() == rows.to_pylist()
    bed.catalog.close()


@pytest.mark.parametrize("suffix", ["json", "parquet"])
def test_a_checkpoint_may_have_files_beside_it(bed: Bed, suffix: str) -> None:
    """Checkpoints of version 2 name them, and have names of their own."""
    for number in range(4):
        add(bed, number)
    table = DeltaTable(str(bed.root / "lake" / "events"))
    table.delete("id = 1")
    table.create_checkpoint()
    whole, name = log(bed, 4).with_name(f"{4:020d}.checkpoint.parquet"), f"{4:020d}.checkpoint.{UUID(int=7)}.{suffix}"
    rows = pq.read_table(whole)
    side = whole.with_name("_sidecars") / "a b.parquet"
    side.parent.mkdir()
    pq.write_table(rows.select(["add"]).filter(pc.is_valid(rows["add"])), side)
    protocol, described = (
        next(filter(None, rows[name].to_pylist(maps_as_pydicts="strict"))) for name in ("protocol", "metaData")
    )
    actions = [
        {"protocol": {"minReaderVersion": protocol["minReaderVersion"]}},
        {"metaData": {part: described[part] for part in ("id", "schemaString", "partitionColumns")}},
        {"sidecar": {"path": "a%20b.parquet", "sizeInBytes": side.stat().st_size, "modificationTime": 0}},
    ]
    if suffix == "json":
        whole.with_name(name).write_text("\n".join(map(json.dumps, actions)))
    else:
        names = ("protocol", "metaData", "sidecar")
        pq.write_table(pa.table({part: [row.get(part) for row in actions] for part in names}), whole.with_name(name))
    whole.unlink()
    for version in range(4):
        log(bed, version).unlink()
    bed.load(spec())
    assert ids(bed) == [0, 2, 3]
    side.unlink()
    assert "a b.parquet' is gone, which the checkpoint" in refused(bed)


def test_values_are_those_of_the_log_whatever_the_folders_are_called(bed: Bed) -> None:
    add(bed, 1)
    add(bed, 2, day=date(2026, 1, 2))
    folder = bed.root / "lake" / "events"
    (folder / "day=2026-01-01").rename(folder / "day=1999-01-01")
    (folder / "day=2026-01-02").rename(folder / "q")

    def moved(action: dict[str, Any]) -> None:
        if "add" in action:
            path = action["add"]["path"]
            action["add"]["path"] = path.replace("day=2026-01-01", "day=1999-01-01").replace("day=2026-01-02", "q")

    edit(bed, 0, moved)
    edit(bed, 1, moved)
    bed.create(SCHEMA, "spark")
    for name, limits in (("t", None), ("spark", IN_SPARK)):
        bed.load(spec(), name, limits=limits)
        assert [(row["id"], str(row["day"])) for row in bed.rows(name)] == [(1, "2026-01-01"), (2, "2026-01-02")]


def test_values_are_those_of_the_log_if_files_hold_the_column_too(bed: Bed) -> None:
    """As those of delta-spark 4.4.0 do."""
    add(bed, 1)
    add(bed, 2, day=None)
    folder = bed.root / "lake" / "events"

    def with_day(action: dict[str, Any]) -> None:
        if "add" in action:
            path = folder / unquote(action["add"]["path"])
            rows = pq.read_table(path, partitioning=None)
            pq.write_table(rows.append_column("Day", pa.array([date(1999, 1, 1)] * len(rows))), path)
            action["add"]["size"] = path.stat().st_size

    edit(bed, 0, with_day)
    edit(bed, 1, with_day)
    bed.create(SCHEMA, "spark")
    for name, limits in (("t", None), ("spark", IN_SPARK)):
        bed.load(spec(), name, limits=limits)
        days = [(row["id"], row["day"] and str(row["day"])) for row in bed.rows(name)]
        assert days == [(1, "2026-01-01"), (2, None)]
    bed.load(spec(where="day is null", version="1"))
    assert ids(bed) == [1, 2, 2]


def test_columns_that_were_added_later_are_null_before(bed: Bed) -> None:
    add(bed, 1)
    rows = pa.table({"id": pa.array([2], pa.int64()), "day": pa.array([date(2026, 1, 1)]), "v": ["y"], "more": [7]})
    write_deltalake(str(bed.root / "lake/events"), rows, mode="append", schema_mode="merge", partition_by=["day"])
    bed.create(Schema(*SCHEMA.fields, NestedField(4, "more", LongType())), "wide")
    bed.load(spec(), "wide")
    assert [(row["id"], row["more"]) for row in bed.rows("wide")] == [(1, None), (2, 7)]


def test_a_merge_reads_it(tmp_path: Path) -> None:
    bed = MergeBed(tmp_path)
    bed.create(SCHEMA)
    bed.append([{"id": 1, "day": date(2026, 1, 1), "v": "old"}])
    add(bed, 1, 2)
    counts = bed.merge(task_of("", source=spec())).counts
    assert (counts["rowsUpdated"], counts["rowsInserted"]) == (1, 1)
    bed.catalog.close()


def test_a_table_in_a_bucket_is_read_from_a_source_location(bed: Bed, bucket: S3Client) -> None:
    add(bed, 1, 2)
    add(bed, 3, day=None)
    DeltaTable(str(bed.root / "lake" / "events")).create_checkpoint()
    add(bed, 4, day=date(2026, 1, 2))
    folder = bed.root / "lake" / "events"
    for path in folder.rglob("*"):
        if path.is_file():
            assert bucket.send("PUT", f"export/events/{path.relative_to(folder)}", path.read_bytes()).ok
    shutil.rmtree(folder)
    export = SourceLocationRef(name="export", s3=s3_ref(bucket, "export"))
    source = replace(spec(), location="export", delta=SourceDeltaRef(path="events", where="day is not null"))
    request = bed.request(source)
    with credentials(OWNER):
        run(replace(request, warehouse=replace(request.warehouse, locations=(export,))))
    assert [(row["id"], row["day"].day) for row in bed.rows()] == [(1, 1), (2, 1), (4, 2)]


# --- once ---


def test_new_reads_each_appended_row_once_through_kills_and_compactions(bed: Bed) -> None:
    add(bed, 1, 2)
    add(bed, 3)
    bed.load(spec(NEW))
    assert ids(bed) == [1, 2, 3]
    add(bed, 4)
    DeltaTable(str(bed.root / "lake" / "events")).optimize.compact()
    for number, hooks in enumerate((AtSwap(before=die), AtSwap(after=die))):
        uid = UID.replace("d", str(number))
        with pytest.raises(Killed):
            bed.load(spec(NEW), uid=uid, ports=CommitPorts(hooks=hooks))
        add(bed, 10 + number)
        bed.load(spec(NEW), uid=uid, attempt=2)
        assert ids(bed) == [[1, 2, 3, 4], [1, 2, 3, 4, 10]][number]
    bed.load(spec(NEW))
    assert ids(bed) == [1, 2, 3, 4, 10, 11]
    nothing = bed.load(spec(NEW))
    assert (nothing.counts, nothing.message) == ({}, NO_NEW_VERSIONS)


def test_attempts_read_one_version_and_a_version_is_not_loaded_twice(bed: Bed) -> None:
    add(bed, 1)
    with pytest.raises(Killed):
        bed.load(spec(), uid=UID, ports=CommitPorts(hooks=AtSwap(before=die)))
    add(bed, 2)
    bed.load(spec(), uid=UID, attempt=2)
    assert ids(bed) == [1]
    assert bed.load(spec(version="0")).reason is Reason.SOURCE_ALREADY_APPLIED
    bed.load(spec(starting_version="1"))
    assert ids(bed) == [1, 2]


# --- what is refused ---


def refused(bed: Bed, consume: ConsumePolicy = ALL, **fields: Any) -> str:
    before = ids(bed)
    with pytest.raises(UserError) as error:
        bed.load(spec(consume, **fields))
    assert isinstance(error.value, BadData | BadSpec)
    assert ids(bed) == before
    return str(error.value)


def test_rows_that_changed_are_a_refusal_and_the_way_out_works(bed: Bed) -> None:
    add(bed, 1, 2)
    bed.load(spec(NEW))
    DeltaTable(str(bed.root / "lake" / "events")).delete("id = 2")
    add(bed, 3)
    assert "version 1 of lake/events changed or removed rows" in refused(bed, NEW)
    bed.load(spec(NEW, starting_version="2"))
    assert ids(bed) == [1, 2, 3]


def test_files_that_vacuum_removed_are_a_refusal(bed: Bed) -> None:
    add(bed, 1)
    add(bed, 2)
    table = DeltaTable(str(bed.root / "lake" / "events"))
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert "is gone, which its log names for the version that is read: VACUUM removes" in refused(bed, version="1")
    bed.load(spec())
    assert ids(bed) == [1, 2]


def test_another_table_in_the_folder_is_a_refusal(bed: Bed) -> None:
    add(bed, 1)
    bed.load(spec(NEW))
    (bed.root / "lake" / "events").rename(bed.root / "lake" / "old")
    add(bed, 7)
    assert "is not the table that was read before" in refused(bed, NEW)
    bed.load(spec(NEW, starting_version="0"))
    assert ids(bed) == [1, 7]


def test_commits_that_are_gone_are_a_refusal(bed: Bed) -> None:
    for number in range(3):
        add(bed, number)
    log(bed, 1).unlink()
    assert "version 1 is not in the log of the Delta table" in refused(bed)


def protocol(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Another protocol in the first commit; ``mode``: of column mapping."""

    def change(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"].update({name: value for name, value in fields.items() if name != "mode"})
        if "metaData" in action and "mode" in fields:
            action["metaData"]["configuration"] = {"delta.columnMapping.mode": fields["mode"]}

    return change


def with_vector(action: dict[str, Any]) -> None:
    if "add" in action:
        action["add"]["deletionVector"] = {"storageType": "u", "pathOrInlineDv": "ab", "sizeInBytes": 1}


def outside(action: dict[str, Any]) -> None:
    if "add" in action:
        action["add"]["path"] = "file:///elsewhere/part-0.parquet"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (protocol(minReaderVersion=2, mode="name"), "maps names of columns (delta.columnMapping.mode = name)"),
        (protocol(minReaderVersion=3, readerFeatures=["typeWidening"]), "a reader that knows typeWidening"),
        (protocol(minReaderVersion=4), "a reader that knows reader version 4"),
        (with_vector, "deleted by deletion vectors"),
        (outside, "is outside of its folder"),
    ],
)
def test_tables_of_other_readers_are_refused(bed: Bed, change: Callable[[dict[str, Any]], None], says: str) -> None:
    add(bed, 1)
    edit(bed, 0, change)
    assert says in refused(bed)


def test_features_that_change_no_row_are_read(bed: Bed) -> None:
    add(bed, 1)
    edit(bed, 0, protocol(minReaderVersion=3, readerFeatures=["deletionVectors", "timestampNtz"], mode="none"))
    bed.load(spec())
    assert ids(bed) == [1]


def test_its_folder_is_no_folder_of_plain_files(bed: Bed) -> None:
    """Among the files are those of deleted rows."""
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    write_deltalake(str(bed.root / "lake" / "plain"), rows)
    DeltaTable(str(bed.root / "lake" / "plain")).delete("id = 1")
    for paths in (("lake/plain",), ("lake/plain/*.parquet",)):
        with pytest.raises(
            BadData, match=r"'lake/plain' holds a Delta table, and only its log .*: read a Delta table by"
        ):
            bed.load(SourceSpec(format=SourceFormat.PARQUET, paths=paths))
    bed.load(SourceSpec(format=SourceFormat.PARQUET, paths=(), delta=SourceDeltaRef(path="lake/plain")))
    assert ids(bed) == [2]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"path": "nowhere"}, "there is no Delta table in 'nowhere'"),
        ({"path": "../x"}, "leads out of the Warehouse"),
        ({"version": "9"}, "has no version 9, its newest is 0"),
        ({"starting_version": "9"}, "has no version 9 yet, its newest is 0"),
        ({"where": "id > 3"}, "where: there is no column id: name one of day"),
    ],
)
def test_wrong_input_is_one_sentence(bed: Bed, fields: dict[str, str], says: str) -> None:
    add(bed, 1)
    given = spec()
    assert given.delta is not None
    with pytest.raises(UserError) as error:
        bed.load(replace(given, delta=replace(given.delta, **fields)))
    assert says in str(error.value)
    assert error.value.field.startswith("spec.source.delta")
