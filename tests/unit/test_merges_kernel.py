"""The merge kernels against a merge of dictionaries: random schemas, keys, clauses, partitions and deletes.

With pruning, without pruning and by the reference, the table is the same row for row.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from skipstone.pruning.bounds import KeyRangeStage
from skipstone.pruning.funnel import run_funnel
from skipstone.pruning.keyranges import FileRanges
from skipstone.rewrite.canonical import canonical
from skipstone.rewrite.changes import ChangeSlice, SortRule, write_slice
from skipstone.rewrite.deletions import DeleteDescription
from skipstone.rewrite.merging import (
    FileWork,
    MergeWork,
    insert_work,
    merge_files,
    unmatched_rows,
    write_inserts,
)
from skipstone.rewrite.reader import DataFileDescription
from skipstone.rewrite.writer import WriteSpec, WrittenFile
from skipstone.tables.arrow import arrow_schema, arrow_type_of
from skipstone_core.jobs import MergeAction, MergeClause, MergeKey, MergeTask, SourceFormat, SourceSpec
from skipstone_core.keys import key_type, normalise
from skipstone_core.merges import Column, MergePlan, plan_merge
from skipstone_core.predicates import evaluate

Row = dict[str, Any]


@dataclass(frozen=True)
class KeyKind:
    """A type of key in table and source and values that both can hold."""

    target: IcebergType
    source: IcebergType
    values: tuple[object, ...]


KINDS = (
    KeyKind(LongType(), IntegerType(), (-1, 0, 1, 2, 3)),
    KeyKind(IntegerType(), LongType(), (-(2**31), 0, 1, 2**31 - 1)),
    KeyKind(StringType(), StringType(), ("", "a", "ab", "\uffff", "\U0001f600", "x" * 4096, "x" * 4096 + "y")),
    KeyKind(DecimalType(9, 2), DecimalType(12, 4), (Decimal("-1.50"), Decimal("0.00"), Decimal("1.50"))),
    KeyKind(DecimalType(38, 2), DecimalType(38, 2), (Decimal("-1e30"), Decimal("0.01"), Decimal("1e30"))),
    KeyKind(DateType(), DateType(), (date(1969, 12, 31), date(2024, 2, 29))),
    KeyKind(TimestampType(), TimestampType(), (datetime(1899, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 1))),  # noqa: DTZ001
    KeyKind(
        TimestamptzType(), TimestamptzType(), (datetime(1969, 12, 31, tzinfo=UTC), datetime(2024, 1, 1, tzinfo=UTC))
    ),
    KeyKind(BooleanType(), BooleanType(), (True, False)),
    KeyKind(DoubleType(), DoubleType(), (-math.inf, -0.0, 0.0, 1.5, math.nan)),
)
MATCHED: tuple[MergeClause, ...] = (
    MergeClause(action=MergeAction.DELETE, when="source.op = 'D'"),
    MergeClause(action=MergeAction.UPDATE, when="source.n > target.n", values={"v": "v", "f": "f"}),
    MergeClause(action=MergeAction.DELETE, when="target.v is null or target.f > 1"),
    MergeClause(action=MergeAction.UPDATE, when="not (source.v like 'a%')", values={"v": "op"}),
    MergeClause(action=MergeAction.UPDATE, when="source.n in (1, 2) and target.n between 0 and 2"),
)
MATCHED_LAST = (MergeClause(action=MergeAction.UPDATE), MergeClause(action=MergeAction.DELETE))
UNMATCHED = (
    MergeClause(action=MergeAction.INSERT, when="source.op != 'D'"),
    MergeClause(action=MergeAction.INSERT, when="source.n is null"),
)
UNMATCHED_LAST = (MergeClause(action=MergeAction.INSERT),)
TARGET_WHERE = (None, None, "target.n >= 1", "target.v is null or target.f != 1")
PAYLOAD: Mapping[str, tuple[IcebergType, tuple[object, ...]]] = {
    "v": (StringType(), (None, "a", "b")),
    "n": (LongType(), (None, 0, 1, 2)),
    "f": (DoubleType(), (None, -0.0, 1.0, 2.5, math.nan)),
}


POSITION_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
    ]
)


@dataclass(frozen=True)
class Case:
    """One merge: schemas, data in files and slices, and what to do."""

    kinds: tuple[KeyKind, ...]
    files: list[list[Row]]
    deleted: list[set[int]]
    source: list[Row]
    task: MergeTask
    partition: str

    @property
    def target_schema(self) -> Schema:
        keys = [NestedField(i + 1, f"k{i}", kind.target) for i, kind in enumerate(self.kinds)]
        rest = [NestedField(i + 11, name, kind) for i, (name, (kind, _)) in enumerate(PAYLOAD.items())]
        return Schema(*keys, *rest)

    @property
    def source_schema(self) -> Schema:
        keys = [NestedField(i + 1, f"s{i}", kind.source) for i, kind in enumerate(self.kinds)]
        rest = [NestedField(i + 11, name, kind) for i, (name, (kind, _)) in enumerate(PAYLOAD.items())]
        more = [NestedField(21, "op", StringType()), NestedField(22, "seq", LongType())]
        return Schema(*keys, *rest, *more)

    @property
    def plan(self) -> MergePlan:
        return plan_merge(self.task, columns(self.target_schema), columns(self.source_schema))

    @property
    def spec(self) -> PartitionSpec:
        match self.partition:
            case "identity":
                return PartitionSpec(PartitionField(12, 1000, IdentityTransform(), "n"))
            case "bucket":
                return PartitionSpec(PartitionField(11, 1000, BucketTransform(3), "v_bucket"))
            case _:
                return UNPARTITIONED_PARTITION_SPEC


def columns(schema: Schema) -> list[Column]:
    return [Column(name=f.name, type=str(f.field_type), required=f.required) for f in schema.fields]


def payload() -> dict[str, st.SearchStrategy[object]]:
    return {name: st.sampled_from(values) for name, (_, values) in PAYLOAD.items()}


@st.composite
def clauses(draw: st.DrawFn, pool: tuple[MergeClause, ...], last: tuple[MergeClause, ...]) -> tuple[MergeClause, ...]:
    found = draw(st.lists(st.sampled_from(pool), max_size=2, unique_by=id))
    return (*found, *draw(st.sampled_from([(), *((one,) for one in last)])))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    kinds = tuple(draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4)))
    targets = {f"k{i}": st.sampled_from((*kind.values, None)) for i, kind in enumerate(kinds)}
    sources = {f"s{i}": st.sampled_from((*kind.values, None)) for i, kind in enumerate(kinds)}
    row = st.fixed_dictionaries({**targets, **payload()})
    files = draw(st.lists(st.lists(row, min_size=1, max_size=5), max_size=3))
    change = st.fixed_dictionaries({**sources, **payload(), "op": st.sampled_from(("I", "U", "D", None))})
    source = [{**one, "seq": number} for number, one in enumerate(draw(st.lists(change, max_size=8)))]
    matched, unmatched = draw(clauses(MATCHED, MATCHED_LAST)), draw(clauses(UNMATCHED, UNMATCHED_LAST))
    task = MergeTask(
        source=SourceSpec(format=SourceFormat.PARQUET, paths=("x",)),
        keys=tuple(MergeKey(target=f"k{i}", source=f"s{i}") for i in range(len(kinds))),
        when_matched=matched,
        when_not_matched=unmatched if matched or unmatched else UNMATCHED_LAST,
        sequence_by="seq",
        target_where=draw(st.sampled_from(TARGET_WHERE)),
    )
    return Case(
        kinds=kinds,
        files=files,
        deleted=[draw(st.sets(st.integers(0, len(one) - 1), max_size=2)) for one in files],
        source=draw(st.permutations(source)),
        task=task,
        partition=draw(st.sampled_from(("none", "identity", "bucket"))),
    )


# --- the reference: dictionaries ---


def row_key(case: Case, row: Row, side: str) -> tuple[object, ...] | None:
    values = [row[f"{side}{i}"] for i in range(len(case.kinds))]
    if None in values:
        return None
    types = [(key_type(str(kind.target)), key_type(str(kind.source))) for kind in case.kinds]
    return tuple(normalise(value, a.common(b)) for value, (a, b) in zip(values, types, strict=True))  # type: ignore[union-attr, arg-type]


def taken(clause_list: tuple[Any, ...], row: Row) -> Any:
    return next((c for c in clause_list if c.when is None or evaluate(c.when, row) is True), None)


def may_match(plan: MergePlan, row: Row) -> bool:
    return plan.target_where is None or evaluate(plan.target_where, {f"target.{n}": v for n, v in row.items()}) is True


def reference(case: Case) -> list[Row]:
    plan = case.plan
    last = {row_key(case, row, "s"): row for row in sorted(case.source, key=lambda row: int(row["seq"]))}
    matched, found = set(), []
    for rows, deleted in zip(case.files, case.deleted, strict=True):
        for row in (row for position, row in enumerate(rows) if position not in deleted):
            key = row_key(case, row, "k")
            change = last.get(key) if key is not None else None
            if change is None or not may_match(plan, row):
                found.append(row)
                continue
            matched.add(key)
            both = {f"target.{n}": v for n, v in row.items()} | {f"source.{n}": v for n, v in change.items()}
            clause = taken(plan.when_matched, both)
            if clause is None or clause.action is MergeAction.UPDATE:
                found.append(row | {t: change[s] for t, s in clause.values.items()} if clause else row)
    keyless = [row for row in case.source if row_key(case, row, "s") is None]
    for change in [*(row for key, row in last.items() if key is not None and key not in matched), *keyless]:
        clause = taken(plan.when_not_matched, {f"source.{n}": v for n, v in change.items()})
        if clause is not None:
            empty = dict.fromkeys(case.target_schema.column_names)
            found.append(empty | {t: change[s] for t, s in clause.values.items()})
    return found


# --- the kernels ---


def write_target(case: Case, folder: Path) -> list[DataFileDescription]:
    schema = arrow_schema(case.target_schema)
    described = []
    for number, (rows, deleted) in enumerate(zip(case.files, case.deleted, strict=True)):
        path = folder / f"target-{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=2)
        deletes: tuple[DeleteDescription, ...] = ()
        if deleted:
            gone = folder / f"deletes-{number}.parquet"
            positions = pa.table([[str(path)] * len(deleted), sorted(deleted)], schema=POSITION_DELETES)
            pq.write_table(positions, gone)
            deletes = (DeleteDescription(str(gone), 1, "PARQUET"),)
        described.append(
            DataFileDescription(
                file_id=number,
                path=str(path),
                size=path.stat().st_size,
                records=len(rows),
                schema_json=case.target_schema.model_dump_json(),
                deletes=deletes,
            )
        )
    return described


def write_source(case: Case, plan: MergePlan, folder: Path) -> tuple[ChangeSlice, ...]:
    """Two slices: all rows of one key in one of them, as Spark's partitions have it."""
    names = plan.source_columns
    fields = [pa.field(f.name, arrow_type_of(f.field_type)) for f in case.source_schema.fields if f.name in names]
    types = {f.name: kind for f in case.source_schema.fields if (kind := key_type(str(f.field_type)))}
    rule = SortRule(plan.keys, plan.sequence_by, types)
    parts: list[list[Row]] = [[], []]
    for row in case.source:
        parts[len(repr(row_key(case, row, "s"))) % 2].append(row)
    slices: list[ChangeSlice] = []
    for number, rows in enumerate(parts):
        table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
        one = write_slice(table, rule, str(folder / f"slice-{number}.parquet"))
        slices.append(replace(one, base=sum(other.rows for other in slices)))
    return tuple(slices)


def ranges(case: Case, plan: MergePlan) -> list[FileRanges]:
    schema = arrow_schema(case.target_schema)
    found = []
    for key in plan.keys:
        columns_ = [
            canonical(pa.array([row[key.target] for row in rows], schema.field(key.target).type), key.type)
            for rows in case.files
        ]
        kind = canonical(pa.array([], schema.field(key.target).type), key.type).type
        edges: list[Callable[[pa.Array], pa.Scalar]] = [least, greatest]
        low, high = (pa.array([edge(column).as_py() for column in columns_], kind) for edge in edges)
        empty = pa.array([column.null_count == len(column) for column in columns_], pa.bool_())
        found.append(FileRanges(low, high, empty.to_numpy(zero_copy_only=False)))
    return found


def least(column: pa.Array) -> pa.Scalar:
    return pc.min(column) if len(column) else pa.scalar(None)


def greatest(column: pa.Array) -> pa.Scalar:
    return pc.max(column) if len(column) else pa.scalar(None)


@dataclass(frozen=True)
class Written:
    """Source and target of a case on disk."""

    case: Case
    folder: Path
    slices: tuple[ChangeSlice, ...]
    described: list[DataFileDescription]


def merged(on_disk: Written, *, prune: bool) -> list[Row]:
    case, folder, slices, described = on_disk.case, on_disk.folder, on_disk.slices, on_disk.described
    plan = case.plan
    stages = [KeyRangeStage(lambda: ranges(case, plan), plan.keys, slices)] if prune else []
    candidates, _ = run_funnel(stages, len(described), slices)
    write = WriteSpec(
        schema_json=case.target_schema.model_dump_json(),
        spec_json=case.spec.model_dump_json(),
        sort_json=UNSORTED_SORT_ORDER.model_dump_json(),
        location=str(folder / "data"),
        run_id=f"run-{prune}",
        target_file_bytes=1 << 20,
        row_group_bytes=1 << 20,
        row_group_rows=1000,
        codec="zstd",
    )
    works = tuple(FileWork(described[number], parts) for number, parts in candidates.parts(slices).items())
    result = merge_files(MergeWork(plan=plan, write=write, slices=slices, files=works), "merge")
    written = list(result.written)
    if plan.when_not_matched:
        rest = unmatched_rows(slices, result.files)
        written += write_inserts(insert_work(plan, write, slices, rest), "insert").written
    rewritten = {one.file_id for one in result.files if one.rewritten}
    found = [row for number in range(len(case.files)) if number not in rewritten for row in live_rows(case, number)]
    for row in written:
        found += pq.ParquetFile(WrittenFile.from_row(row).path).read().to_pylist()
    return found


def live_rows(case: Case, number: int) -> list[Row]:
    return [row for position, row in enumerate(case.files[number]) if position not in case.deleted[number]]


def as_set(case: Case, rows: list[Row]) -> list[str]:
    typed = pa.Table.from_pylist(rows, schema=arrow_schema(case.target_schema)).to_pylist()
    return sorted(repr(row) for row in typed)


@pytest.mark.parametrize("part", range(4))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(case=cases())
def test_pruned_merge_equals_unpruned_merge_equals_reference(part: int, case: Case) -> None:
    """Each part draws cases of its own, so that the parts can run beside one another."""
    expected = as_set(case, reference(case))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        on_disk = Written(case, folder, write_source(case, case.plan, folder), write_target(case, folder))
        for prune in (True, False):
            assert as_set(case, merged(on_disk, prune=prune)) == expected
