"""Reads what a plan says, with deletes applied and the whole condition evaluated on every row read.

Called by notebook users through ``skipstone.query`` and by checks. In the driver, without Spark.
Must not decide what to read: that is the planner's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyiceberg.table import Table
from skipstone_core.errors import BadSpec
from skipstone_core.predicates import Predicate
from skipstone_core.reasons import Reason

from skipstone.query.planner import ReadOptions, ReadPlan, plan_read
from skipstone.rewrite.predicates import evaluate_predicate
from skipstone.rewrite.reader import describe_files, read_data_file
from skipstone.tables.arrow import arrow_schema


def read(
    table: Table,
    columns: Sequence[str] | None = None,
    condition: str | Predicate | None = None,
    options: ReadOptions | None = None,
) -> pa.Table:
    """The rows of ``table`` on which ``condition`` is true, ``columns`` of them (None: all).

    The answer never depends on the state of any index. Raises BadSpec for unknown columns and unreadable conditions.
    """
    plan = plan_read(table, condition, options)
    return read_plan(table, plan, columns)


def explain(table: Table, condition: str | Predicate | None = None, options: ReadOptions | None = None) -> str:
    """What ``read`` would read, and which indexes it would use, as text."""
    return plan_read(table, condition, options).text()


def read_plan(table: Table, plan: ReadPlan, columns: Sequence[str] | None = None) -> pa.Table:
    """Carry out a plan."""
    names = _checked_columns(plan, columns)
    schema = arrow_schema(plan.files.schema)
    wanted = pa.schema([schema.field(name) for name in names])
    return pa.Table.from_batches(_batches(table, plan, names), schema=wanted)


def _checked_columns(plan: ReadPlan, columns: Sequence[str] | None) -> list[str]:
    known = [field.name for field in plan.files.schema.fields]
    if columns is None:
        return known
    for name in columns:
        if name not in known:
            raise BadSpec(Reason.COLUMN_NOT_FOUND, f"there is no column {name!r}", field="columns")
    return list(columns)


def _batches(table: Table, plan: ReadPlan, names: list[str]) -> Iterator[pa.RecordBatch]:
    tested = sorted(column.name for column in plan.predicate.columns) if plan.predicate else []
    needed = list(dict.fromkeys([*names, *tested]))
    for file in describe_files(table, plan.files, plan.ordinals):
        for batch in read_data_file(file, needed, plan.row_groups.get(file.file_id)):
            yield matching_rows(batch, plan.predicate).select(names)


def matching_rows(batch: pa.RecordBatch, predicate: Predicate | None) -> pa.RecordBatch:
    """The rows of ``batch`` on which ``predicate`` (None: always) is true; ``batch`` holds its columns."""
    if predicate is None:
        return batch
    columns = {name: batch[name] for name in batch.schema.names}
    return batch.filter(evaluate_predicate(predicate, columns, batch.num_rows))
