"""Partial updates through whole runs: what a record or a file does not have stays as it is."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType
from skipstone.runs.merging.merge import run_dry
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.requests import (
    ColumnMapping,
    ColumnSpec,
    MergeAction,
    MergeClause,
    RunKind,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec
from skipstone_core.reasons import Reason

from tests.spark.merge_bed import DELETE, DELETE_D, INSERT, MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "size", IntegerType()),
    NestedField(4, "price", DoubleType()),
)
PRESENT = MergeClause(action=MergeAction.UPDATE, present=True)
INSERT_OTHERS = MergeClause(action=MergeAction.INSERT, when="source.op is null or source.op != 'D'")
OP = (ColumnSpec(name="op", type="string"), ColumnSpec(name="seq", type="long"))
Row = Mapping[str, Any]


@pytest.fixture(params=["copy-on-write", "merge-on-read"])
def bed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MergeBed]:
    """Six rows in one file."""
    made = MergeBed(tmp_path)
    made.create(SCHEMA, **{"write.merge.mode": request.param})
    made.append([{"id": n, "name": f"n{n}", "size": n, "price": n / 2} for n in range(6)])
    yield made
    made.catalog.close()


def start() -> dict[int, Row]:
    return {n: {"name": f"n{n}", "size": n, "price": n / 2} for n in range(6)}


def found(bed: MergeBed) -> dict[int, Row]:
    rows = bed.table().scan().to_arrow().to_pylist()
    assert len({row["id"] for row in rows}) == len(rows)
    return {row.pop("id"): row for row in rows}


def replayed(records: Sequence[Row]) -> dict[int, Row]:
    """What the records make of the table, one after the other by ``seq``."""
    table = start()
    for record in sorted(records, key=lambda one: one["seq"]):
        if record.get("op") == "D":
            table.pop(record["id"], None)
            continue
        blank = dict.fromkeys(("name", "size", "price"))
        table[record["id"]] = table.get(record["id"], blank) | {n: record[n] for n in blank if n in record}
    return table


def test_what_records_of_json_lack_stays_and_several_changes_of_a_key_are_applied_in_turn(
    bed: MergeBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skipstone.runs.merging.slices.slicing.SLICE_BYTES", 200)
    records: list[Row] = [
        {"id": 0, "seq": 1, "name": "a"},
        {"id": 1, "seq": 1, "name": None, "size": 10},
        {"id": 2, "seq": 3, "price": 9.5},
        {"id": 2, "seq": 1, "name": "early", "price": 1},
        {"id": 2, "seq": 2, "name": None},
        {"id": 3, "seq": 1, "op": "D"},
        {"id": 4, "seq": 1, "op": "D"},
        {"id": 4, "seq": 2, "size": 44},
        {"id": 7, "seq": 2, "name": "new"},
        {"id": 7, "seq": 5, "size": 7},
        {"id": 8, "seq": 1, "name": "gone"},
        {"id": 8, "seq": 2, "op": "D"},
        {"id": 9, "seq": 1, "op": "D"},
    ]
    bed.text("r/1.json", "".join(json.dumps(one) + "\n" for one in records[:6]) + json.dumps(records[6:9]) + "\n")
    bed.text("r/2.json", "".join(json.dumps(one) + "\n" for one in records[9:]))
    source = SourceSpec(format=SourceFormat.JSON, paths=("feeds/r",), columns=OP)
    counts = bed.merge(
        task_of(
            "", source=source, sequence_by="seq", when_matched=(DELETE_D, PRESENT), when_not_matched=(INSERT_OTHERS,)
        )
    ).counts
    assert found(bed) == replayed(records)
    told = [counts[f"rows{name}"] for name in ("Source", "Matched", "Updated", "Deleted", "Inserted")]
    assert told == [13, 5, 4, 1, 1]

    bed.text("k/1.json", '{"name": "x", "seq": 1}\n')
    with pytest.raises(BadData, match="a record has no 'id', which is a key: write it in every record") as caught:
        keyless = SourceSpec(format=SourceFormat.JSON, paths=("feeds/k", "feeds/r/2.json"), columns=OP)
        bed.merge(task_of("", source=keyless, sequence_by="seq", when_matched=(PRESENT,)))
    assert caught.value.reason is Reason.BAD_RECORDS


def test_what_files_lack_stays(bed: MergeBed) -> None:
    folder = bed.root / "feeds" / "parts"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": [0, 1], "name": ["a", None]}), folder / "1.parquet")
    pq.write_table(
        pa.table({"id": [2, 9], "size": pa.array([20, 90], pa.int64()), "price": pa.nulls(2)}), folder / "2.parquet"
    )
    bed.merge(task_of("feeds/parts", when_matched=(PRESENT,), when_not_matched=(INSERT,)))
    expected = start()
    expected[0] |= {"name": "a"}
    expected[1] |= {"name": None}
    expected[2] |= {"size": 20, "price": None}
    expected[9] = {"name": None, "size": 90, "price": None}
    assert found(bed) == expected

    bed.text("csv/1.csv", "id,name\n3,c\n")
    bed.text("csv/2.csv", "size,id\n,4\n")
    csv = SourceSpec(format=SourceFormat.CSV, paths=("feeds/csv",), options={"header": "true"})
    bed.merge(task_of("", source=csv, when_matched=(PRESENT,), when_not_matched=()))
    expected[3] |= {"name": "c"}
    expected[4] |= {"size": None}
    assert found(bed) == expected

    pq.write_table(pa.table({"name": ["z"]}), folder / "3.parquet")
    with pytest.raises(BadData, match=r"'feeds/parts/3\.parquet' has no column 'id', which the merge needs"):
        again = SourceSpec(format=SourceFormat.PARQUET, paths=("feeds/parts/3.parquet",))
        bed.merge(task_of("", source=again, when_matched=(PRESENT,)))


def test_keys_that_stand_several_times_are_deleted_once_or_inserted_each_as_delta_lake_does(bed: MergeBed) -> None:
    rows = [{"id": i, "name": name} for i, name in ((1, "x"), (1, "y"), (7, "a"), (7, "b"), (8, "c"))]
    bed.merge(task_of(bed.source(rows, "inserts"), when_matched=(), when_not_matched=(INSERT,)))
    names = sorted(row["name"] for row in bed.table().scan().to_arrow().to_pylist() if row["id"] > 0)
    assert names == ["a", "b", "c", "n1", "n2", "n3", "n4", "n5"]
    counts = bed.merge(task_of(bed.source(rows, "deletes"), when_matched=(DELETE,), when_not_matched=())).counts
    assert sorted(row["id"] for row in bed.table().scan().to_arrow().to_pylist()) == [0, 2, 3, 4, 5]
    assert counts["rowsDeleted"] == 4
    counts = bed.merge(task_of(bed.source(rows[:2], "both"), when_matched=(DELETE,), when_not_matched=(INSERT,))).counts
    assert counts["rowsInserted"] == 2
    with pytest.raises(BadData, match="several source rows have the same key in id") as caught:
        bed.merge(task_of(bed.source(rows, "again"), when_matched=(PRESENT,), when_not_matched=(INSERT,)))
    assert caught.value.reason is Reason.DUPLICATE_SOURCE_KEYS


def test_present_columns_go_by_name(bed: MergeBed) -> None:
    path = bed.source([{"id": 1, "name": "x"}])
    with pytest.raises(BadSpec, match=r"spec\.whenMatched\[0\]\.columns: Present takes columns by their names"):
        chosen = MergeClause(action=MergeAction.UPDATE, present=True, values={"name": "name"})
        bed.merge(task_of(path, when_matched=(chosen,)))


def test_fields_that_records_lack_stay_beside_clauses_with_expressions(bed: MergeBed) -> None:
    records: list[Row] = [
        {"op": "U", "seq": 1, "after": {"id": 1, "n": "a"}},
        {"op": "U", "seq": 2, "after": {"id": 1, "size": None}},
        {"op": "+", "seq": 3, "after": {"id": 1, "size": 5}},
        {"op": "U", "seq": 1, "after": {"id": 2, "n": None}},
        {"op": "+", "seq": 1, "after": {"id": 3, "n": "x"}},
        {"op": "U", "seq": 1, "after": {"id": 9, "size": 9}},
    ]
    bed.text("n/1.json", "".join(json.dumps(one) + "\n" for one in records))
    kinds = (*OP, ColumnSpec(name="after.id", type="long"))
    pairs = (ColumnMapping(column="name", from_="after.n"), ColumnMapping(column="size", from_="after.size"))
    source = SourceSpec(format=SourceFormat.JSON, paths=("feeds/n",), columns=kinds, mapping=pairs)
    adding = {"size": "coalesce(target.size, 0) + source.after.size", "price": "target.price * 2"}
    task = task_of(
        "",
        source=source,
        keys=(("id", "after.id"),),
        sequence_by="seq",
        when_matched=(MergeClause(action=MergeAction.UPDATE, when="source.op = '+'", values=adding), PRESENT),
        when_not_matched=(INSERT,),
    )
    request = bed.request(task)
    planned = run_dry(replace(request, kind=RunKind.DRY_RUN, txn=""), Reporter(request), bed.limits)
    counts = bed.merge(task).counts
    expected = start()
    expected[1] |= {"name": "a", "size": 5, "price": 1.0}
    expected[2] |= {"name": None}
    expected[3] |= {"size": None, "price": 3.0}
    expected[9] = {"name": None, "size": 9, "price": None}
    assert found(bed) == expected
    names = ("rowsMatched", "rowsUpdated", "rowsInserted")
    assert [planned.counts[name] for name in names] == [counts[name] for name in names] == [3, 3, 1]


def test_fields_that_files_lack_or_that_hold_no_value(bed: MergeBed) -> None:
    folder = bed.root / "feeds" / "structs"
    folder.mkdir(parents=True)
    lacking = pa.struct([("id", pa.int64())])
    empty = pa.struct([("id", pa.int64()), ("n", pa.null())])
    pq.write_table(pa.table({"after": pa.array([{"id": 1}], lacking), "size": [10]}), folder / "1.parquet")
    pq.write_table(pa.table({"after": pa.array([{"id": 2, "n": None}], empty)}), folder / "2.parquet")
    pairs = (ColumnMapping(column="name", from_="after.n"),)
    source = SourceSpec(format=SourceFormat.PARQUET, paths=("feeds/structs",), mapping=pairs)
    keys = (("id", "after.id"),)
    bed.merge(task_of("", source=source, keys=keys, when_matched=(PRESENT,), when_not_matched=(INSERT,)))
    expected = start()
    expected[1] |= {"size": 10}
    expected[2] |= {"name": None}
    assert found(bed) == expected


@pytest.mark.parametrize("kind", [SourceFormat.PARQUET, SourceFormat.JSON])
def test_columns_of_the_table_that_no_change_has_stay_and_are_null_in_conditions(
    tmp_path: Path, kind: SourceFormat
) -> None:
    bed = MergeBed(tmp_path)
    needed = NestedField(2, "name", StringType(), required=True)
    bed.create(Schema(SCHEMA.find_field(1), needed, *SCHEMA.fields[2:]))
    bed.append([{"id": n, **row} for n, row in start().items()])
    rows: list[Row] = [{"id": 1, "size": 10}, {"id": 2, "size": None}]

    def merged(rows: Sequence[Row], name: str) -> None:
        if kind is SourceFormat.PARQUET:
            bed.source(pa.Table.from_pylist(list(rows), pa.schema([("id", pa.int64()), ("size", pa.int32())])), name)
        else:
            bed.text(f"{name}/1.json", "".join(json.dumps(one) + "\n" for one in rows))
        adding = {"price": "coalesce(target.price, 0) + coalesce(source.price, 1)"}
        raised = MergeClause(action=MergeAction.UPDATE, when="source.price IS NULL AND source.id = 2", values=adding)
        source = SourceSpec(format=kind, paths=(f"feeds/{name}",))
        bed.merge(task_of("", source=source, when_matched=(raised, PRESENT), when_not_matched=(INSERT,)))

    merged(rows, "known")
    expected = start()
    expected[1] |= {"size": 10}
    expected[2] |= {"price": 2.0}
    assert found(bed) == expected
    with pytest.raises(BadData, match="column 'name' is required and is null in 1 rows"):
        merged([{"id": 9, "size": 1}], "new")
    assert found(bed) == expected
