"""Fields within columns of a source as keys, conditions and values of whole merges, in every format that has them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import DateType, DecimalType, LongType, NestedField, StringType
from skipstone_core.contract.requests import (
    ColumnMapping,
    ColumnSpec,
    MergeAction,
    MergeClause,
    MergeTask,
    SchemaEvolution,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec

from tests.avrofiles import avro_file, record
from tests.spark.merge_bed import INSERT, UPDATE, MergeBed, task_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "price", DecimalType(9, 2)),
    NestedField(3, "name", StringType()),
    NestedField(4, "day", DateType()),
)
AFTER = pa.struct(
    [
        ("id", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("more", pa.struct([("a.b", pa.string()), ("day", pa.date32()), ("tags", pa.list_(pa.string()))])),
    ]
)
DAY = date(2024, 2, 29)
ROWS: list[dict[str, Any]] = [
    {"op": "u", "ts": 2, "key": {"id": 1}, "after": {"id": 1, "price": Decimal("9.90"), "more": None}},
    {"op": "u", "ts": 1, "key": {"id": 1}, "after": {"id": 1, "price": Decimal("1.00"), "more": None}},
    {"op": "d", "ts": 1, "key": {"id": 2}, "after": None},
    {
        "op": "c",
        "ts": 1,
        "key": {"id": 9},
        "after": {"id": 9, "price": None, "more": {"a.b": "new", "day": DAY, "tags": ["x"]}},
    },
]
PARQUET_SCHEMA = pa.schema(
    [("op", pa.string()), ("ts", pa.int64()), ("key", pa.struct([("id", pa.int64())])), ("after", AFTER)]
)
DECLARED = (
    ColumnSpec(name="key.id", type="long"),
    ColumnSpec(name="ts", type="long"),
    ColumnSpec(name="after.price", type="decimal(9,2)"),
    ColumnSpec(name="after.more.day", type="date"),
)
CLAUSES: dict[str, Any] = {
    "sequence_by": "ts",
    "when_matched": (
        MergeClause(action=MergeAction.DELETE, when="source.op = 'd' and source.after.price is null"),
        MergeClause(
            action=MergeAction.UPDATE, values={"price": "source.after.price + target.price", "name": "after.more.`a.b`"}
        ),
    ),
    "when_not_matched": (
        MergeClause(
            action=MergeAction.INSERT,
            values={"id": "key.id", "name": "source.after.more.`a.b` || '!'", "day": "after.more.day"},
        ),
    ),
}
EXPECTED = {1: (Decimal("10.90"), None, None), 3: (Decimal("3.00"), "r3", None), 9: (None, "new!", DAY)}


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[MergeBed]:
    made = MergeBed(tmp_path)
    made.create(SCHEMA)
    made.append([{"id": i, "price": Decimal(i), "name": f"r{i}", "day": None} for i in (1, 2, 3)])
    yield made
    made.catalog.close()


def written(bed: MergeBed, kind: SourceFormat) -> SourceSpec:
    """The rows as files of a format."""
    folder = bed.root / "feeds" / "fields"
    folder.mkdir(parents=True)
    table = pa.Table.from_pylist(ROWS, schema=PARQUET_SCHEMA)
    columns: tuple[ColumnSpec, ...] = ()
    if kind is SourceFormat.PARQUET:
        pq.write_table(table, folder / "a.parquet")
    elif kind is SourceFormat.ORC:
        orc.write_table(table, folder / "a.orc")
    elif kind is SourceFormat.JSON:
        columns = DECLARED
        (folder / "a.json").write_text("".join(json.dumps(plain(row)) + "\n" for row in ROWS))
    else:
        (folder / "a.avro").write_bytes(avro_file(AVRO, [avro_row(row) for row in ROWS]))
    return SourceSpec(format=kind, paths=("feeds/fields",), columns=columns)


def plain(value: Any) -> Any:
    """As Json has it."""
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    return str(value) if isinstance(value, date | Decimal) else value


#: Avro's names have no dots.
MORE = {"type": "record", "name": "More", "fields": [
    {"name": "ab", "type": ["null", "string"]},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
]}  # fmt: skip
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
AFTER_RECORD = {"type": "record", "name": "After", "fields": [
    {"name": "id", "type": "long"},
    {"name": "price", "type": ["null", PRICE]},
    {"name": "more", "type": ["null", MORE]},
]}  # fmt: skip
KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
AVRO = record(op="string", ts="long", key=KEY, after=["null", AFTER_RECORD])


def avro_row(row: dict[str, Any]) -> dict[str, Any]:
    after = row["after"]
    if after is not None and after["more"] is not None:
        after = after | {"more": {"ab": after["more"]["a.b"], "day": after["more"]["day"]}}
    return row | {"after": after}


def clause_for(kind: SourceFormat, clause: MergeClause) -> MergeClause:
    values = {name: text.replace("`a.b`", "ab") for name, text in (clause.values or {}).items()}
    return replace(clause, values=values or None) if kind is SourceFormat.AVRO else clause


def task(bed: MergeBed, kind: SourceFormat) -> MergeTask:
    made = task_of("", [("id", "key.id")], source=written(bed, kind), **CLAUSES)
    matched, inserted = (
        tuple(clause_for(kind, clause) for clause in clauses) for clauses in (made.when_matched, made.when_not_matched)
    )
    return replace(made, when_matched=matched, when_not_matched=inserted)


def found(bed: MergeBed) -> dict[int, tuple[Any, ...]]:
    return {row["id"]: (row["price"], row["name"], row["day"]) for row in bed.table().scan().to_arrow().to_pylist()}


@pytest.mark.parametrize("kind", [SourceFormat.PARQUET, SourceFormat.ORC, SourceFormat.JSON, SourceFormat.AVRO])
def test_fields_are_keys_conditions_and_values(bed: MergeBed, kind: SourceFormat) -> None:
    report = bed.merge(task(bed, kind))
    assert found(bed) == EXPECTED
    counts = report.counts
    assert (counts["rowsUpdated"], counts["rowsDeleted"], counts["rowsInserted"]) == (1, 1, 1)


def test_numbers_in_objects_of_json_are_read_as_they_are_written(bed: MergeBed) -> None:
    path = bed.text("n.json", '{"key": {"id": 3}, "after": {"price": 1234567.10}}\n')
    source = SourceSpec(format=SourceFormat.JSON, paths=(path,), columns=(ColumnSpec(name="key.id", type="long"),))
    values = {"name": "source.after.price", "price": "cast(source.after.price as decimal(9,2))"}
    clause = MergeClause(action=MergeAction.UPDATE, values=values)
    bed.merge(task_of("", [("id", "key.id")], source=source, when_matched=(clause,), when_not_matched=()))
    assert found(bed)[3] == (Decimal("1234567.10"), "1234567.10", None)


def test_objects_that_are_null_throughout_have_null_fields(bed: MergeBed) -> None:
    path = bed.text("n.json", '{"id": 3, "after": null}\n')
    source = SourceSpec(format=SourceFormat.JSON, paths=(path,))
    clause = MergeClause(action=MergeAction.UPDATE, values={"name": "coalesce(source.after.name, 'none')"})
    bed.merge(task_of("", source=source, when_matched=(clause,), when_not_matched=()))
    assert found(bed)[3] == (Decimal("3.00"), "none", None)
    bad = bed.text("bad.json", '{"id": 3, "after": "text"}\n')
    with pytest.raises(BadData, match="1 rows do not fit"):
        bed.merge(
            task_of(
                "",
                source=SourceSpec(format=SourceFormat.JSON, paths=(bad,)),
                when_matched=(clause,),
                when_not_matched=(),
            )
        )


def test_fields_feed_columns_by_the_mapping_and_by_nothing_else(bed: MergeBed) -> None:
    mapping = (ColumnMapping(column="price", from_="after.price"),)
    spec = written(bed, SourceFormat.PARQUET)
    source = SourceSpec(format=spec.format, paths=spec.paths, mapping=mapping)
    fields = {"sequence_by": "ts", "when_matched": (UPDATE,), "when_not_matched": (), "source": source}
    fields["schema_evolution"] = SchemaEvolution.ADD_COLUMNS
    bed.merge(task_of("", [("id", "key.id")], **fields))
    assert found(bed) == {1: (Decimal("9.90"), "r1", None), 2: (None, "r2", None), 3: (Decimal("3.00"), "r3", None)}
    assert bed.table().schema().column_names == ["id", "price", "name", "day", "op"]


@pytest.mark.parametrize(
    ("keys", "values", "message"),
    [
        ("key.ids", {}, r"spec.keys\[0\]: the source has no field 'ids' in 'key': name one of id"),
        ("Key.id", {}, r"spec.keys\[0\]: the source has no column 'Key': write 'key', names are exact"),
        ("key.ID", {}, r"spec.keys\[0\]: the source has no field 'ID' in 'key': write 'id', names are exact"),
        (
            "key.id.x",
            {},
            r"spec.keys\[0\]: 'key.id' is no struct in the source, so it has no field 'x': name the column",
        ),
        (
            "key.id",
            {"name": "source.after.more.tags"},
            "set.name: field 'after.more.tags' of the source is of a type that",
        ),
        (
            "key.id",
            {"name": "source.after.more.tags.x"},
            "'after.more.tags' is no struct in the source, so it has no field",
        ),
        ("key.id", {"name": "coalesce(after.nope, 'x')"}, r"set.name: the source has no field 'nope' in 'after'"),
    ],
)
def test_a_field_that_does_not_exist_is_named(bed: MergeBed, keys: str, values: dict[str, str], message: str) -> None:
    clause = MergeClause(action=MergeAction.UPDATE, values=values or {"name": "op"})
    made = task_of(
        "", [("id", keys)], source=written(bed, SourceFormat.PARQUET), sequence_by="ts", when_matched=(clause,)
    )
    with pytest.raises(BadSpec, match=message):
        bed.merge(made)


def test_an_object_of_json_is_text_or_fields(bed: MergeBed) -> None:
    path = bed.text("n.json", '{"id": 3, "name": {"first": "x"}}\n')
    clause = MergeClause(action=MergeAction.UPDATE, values={"price": "null"}, when="source.name.first = 'x'")
    made = task_of(
        "",
        source=SourceSpec(format=SourceFormat.JSON, paths=(path,)),
        when_matched=(clause,),
        when_not_matched=(INSERT,),
    )
    with pytest.raises(
        BadSpec, match=r"spec.whenMatched\[0\].when: 'name.first' is a field of 'name', a column of the table"
    ):
        bed.merge(made)
