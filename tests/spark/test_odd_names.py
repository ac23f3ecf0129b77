"""Every kind of run on columns whose names mean something to Spark: the same in the driver and in Spark."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.sources.plain import PlainLimits
from skipstone.tasks.share import NO_SHARE, USUAL_SHARE, DriverShare
from skipstone_core.contract.requests import ChangeFormat, SourceFormat, SourceSpec
from skipstone_core.errors import BadSpec
from skipstone_core.indexing import use as index_use

from tests.avrofiles import block, header, records
from tests.spark.index_bed import index_on
from tests.spark.load_bed import Bed
from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import DELETE_D, INSERT, UPDATE, MergeBed, task_of
from tests.spark.plans_bed import open_bed
from tests.spark.test_merge_feeds import event, flat, lines, maxwell

KEY = "sepal.length"
NAMES = (KEY, "a", "a.b", "a..b", "back`tick", " lead", "trail ", 'x y,"z"', "`q`", "_metadata")
SCHEMA = Schema(
    NestedField(1, KEY, LongType(), required=True),
    *(NestedField(at, n, StringType()) for at, n in enumerate(NAMES[1:], 2)),
)
IN_SPARK = replace(USUAL_SHARE, source_bytes=0)
HERE_AND_IN_SPARK = pytest.mark.parametrize("share", [USUAL_SHARE, NO_SHARE], ids=["driver", "spark"])
Row = Mapping[str, object]


def row(number: int) -> dict[str, object]:
    return {KEY: number, **{name: f"{name}{number}" for name in NAMES[1:]}}


ROWS = [row(number) for number in range(6)]


def as_csv(path: Path, rows: list[dict[str, object]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())


def as_json(path: Path, rows: list[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))


def as_parquet(path: Path, rows: list[dict[str, object]]) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path)


def as_orc(path: Path, rows: list[dict[str, object]]) -> None:
    orc.write_table(pa.Table.from_pylist(rows), path)


def as_avro(path: Path, rows: list[dict[str, object]]) -> None:
    """Its own names do not allow it, but files of other writers do."""
    safe = {name: f"f{at}" for at, name in enumerate(rows[0])}
    kinds = {name: "long" if name == KEY else "string" for name in safe}
    schemas = [
        {"type": "record", "name": "r", "fields": [{"name": named(name), "type": kinds[name]} for name in safe]}
        for named in (str, safe.__getitem__)
    ]
    content = records(schemas[1], [{safe[name]: value for name, value in one.items()} for one in rows])
    path.write_bytes(header(schemas[0]) + block(content, len(rows)))


WRITERS: dict[SourceFormat, Callable[[Path, list[dict[str, object]]], None]] = {
    SourceFormat.CSV: as_csv,
    SourceFormat.JSON: as_json,
    SourceFormat.PARQUET: as_parquet,
    SourceFormat.ORC: as_orc,
    SourceFormat.AVRO: as_avro,
}
OPTIONS = {SourceFormat.CSV: {"header": "true"}}


@pytest.mark.parametrize("kind", WRITERS)
def test_loads(tmp_path: Path, kind: SourceFormat) -> None:
    bed = Bed(tmp_path)
    bed.create(SCHEMA)
    (tmp_path / "landing").mkdir()
    rows = [
        {name: value for name, value in one.items() if kind is not SourceFormat.ORC or "`" not in name} for one in ROWS
    ]
    for number, share in enumerate([PlainLimits(100, 1 << 20), PlainLimits(0, 0)]):
        path = tmp_path / "landing" / f"{number}.{kind.lower()}"
        WRITERS[kind](path, rows)
        source = SourceSpec(format=kind, paths=(f"landing/{path.name}",), options=OPTIONS.get(kind, {}))
        assert bed.load(source, limits=share).counts["rowsLoaded"] == len(ROWS)
    lacking = dict.fromkeys(NAMES)
    assert sorted(bed.rows(), key=repr) == sorted([lacking | one for one in rows * 2], key=repr)
    bed.catalog.close()


def test_a_backtick_in_a_name_of_orc_is_refused_since_spark_reads_null(tmp_path: Path) -> None:
    bed = Bed(tmp_path)
    bed.create(SCHEMA)
    nested = pa.array([{"o`dd": 1}], pa.struct([("o`dd", pa.int64())]))
    for table in (pa.table({KEY: [1], "back`tick": ["x"]}), pa.table({KEY: [1], "more": nested})):
        orc.write_table(table, tmp_path / "one.orc")
        with pytest.raises(
            BadSpec, match="has a backtick, for which Spark reads null from ORC: rename it, or use Parquet"
        ):
            bed.load(SourceSpec(format=SourceFormat.ORC, paths=("one.orc",)))
    bed.catalog.close()


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    yield made
    made.catalog.close()


def left(bed: MergeBed) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = bed.table().scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda one: (one[KEY], str(one["a"])))


@HERE_AND_IN_SPARK
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_merges(bed: MergeBed, share: DriverShare, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "skipstone.runs.merging.slices.slicing.SLICE_BYTES", 500
    )  # in Spark, the source is of several slices
    bed.limits = share
    bed.create(SCHEMA, **{"write.merge.mode": mode})
    bed.append(ROWS[:3], ROWS[3:])
    path = bed.source([row(1) | {"a.b": "new", "op": "U"}, row(4) | {"op": "D"}, row(9) | {"op": "I"}])
    bed.merge(task_of(path, [KEY, "back`tick"], when_matched=(DELETE_D, UPDATE), when_not_matched=(INSERT,)))
    assert left(bed) == [*(row(n) | ({"a.b": "new"} if n == 1 else {}) for n in (0, 1, 2, 3, 5)), row(9)]


def apply(bed: MergeBed, tool: ChangeFormat, kind: SourceFormat, path: str) -> None:
    source = SourceSpec(format=kind, paths=(path,), change_format=tool)
    bed.merge(task_of("", [KEY], source=source, when_matched=(), when_not_matched=()))


@pytest.mark.parametrize("share", [USUAL_SHARE, IN_SPARK], ids=["driver", "spark"])
def test_feeds(bed: MergeBed, share: DriverShare, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skipstone.runs.merging.slices.slicing.SLICE_BYTES", 300)
    bed.limits = share
    bed.create(SCHEMA)
    bed.append(ROWS)
    path = lines(bed, "dbz.json", event("u", 8, after=row(1) | {"a.b": "dbz"}), event("d", 9, before=row(2)))
    apply(bed, ChangeFormat.DEBEZIUM, SourceFormat.JSON, path)
    apply(
        bed,
        ChangeFormat.DEBEZIUM_FLAT,
        SourceFormat.JSON,
        lines(bed, "flat.json", flat("u", 1, row(3) | {"a": "flat"})),
    )
    apply(bed, ChangeFormat.MAXWELL, SourceFormat.JSON, lines(bed, "m.json", maxwell("insert", row(7))))
    as_csv(bed.root / "feeds" / "dms.csv", [{"Op": "U", **row(4), " lead": "dms"}])
    apply(bed, ChangeFormat.DMS, SourceFormat.CSV, "feeds/dms.csv")
    as_parquet(bed.root / "feeds" / "dms.parquet", [{"Op": "D", **row(5)}])
    apply(bed, ChangeFormat.DMS, SourceFormat.PARQUET, "feeds/dms.parquet")
    assert left(bed) == [
        row(0), row(1) | {"a.b": "dbz"}, row(3) | {"a": "flat"}, row(4) | {" lead": "dms"}, row(7)
    ]  # fmt: skip


@HERE_AND_IN_SPARK
def test_compactions(tmp_path: Path, share: DriverShare) -> None:
    bed = MaintainBed(tmp_path)
    bed.create(SCHEMA)
    for one in ROWS:
        bed.append([one])
    assert bed.compact(limits=share).counts["filesWritten"] == 1
    assert left(bed) == ROWS
    bed.catalog.close()


@HERE_AND_IN_SPARK
def test_indexes_and_queries(
    spark: SparkSession, tmp_path: Path, share: DriverShare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_use, "WORTHWHILE_PART", 1e9)
    monkeypatch.setattr(index_use, "SCAN_ROWS_PART", 1e9)
    bed = open_bed(spark, tmp_path)
    bed.lake.share = share
    table = bed.lake.create(SCHEMA)
    for first in range(3):
        rows = [row(number) for number in range(first, 30, 3)]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    bed.reindex(index_on("a.b", "a", include=["back`tick", " lead", KEY]), index_on('x y,"z"', name="other"))
    quoted = [f"`{name.replace('`', '``')}`" for name in NAMES]
    for wanted, condition in [
        ("*", "`a.b` = 'a.b13'"),
        ("`back``tick`, ` lead`, `sepal.length`", "`a.b` = 'a.b13'"),
        (", ".join(reversed(quoted)), '`x y,"z"` = \'x y,"z"4\''),
        ("count(`a..b`), max(```q```)", "`a.b` in ('a.b12', 'a.b15') and `a` > 'a0'"),
    ]:
        found = bed.query(f"select {wanted} from {bed.lake.warehouse.catalog.name}.ns.t where {condition}")
        assert found.answer, condition
        assert found.only.is_rewritten, str(found.explanation)
        assert sum(found.files_read) < 3
    bed.lake.catalog.close()
