"""Reads what a plan says, with deletes applied and the whole condition evaluated on every row read.

Called by notebook users through ``skipstone.query`` and by checks. In the driver, without Spark.
Must not decide what to read: that is the planner's.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.table import Table
from skipstone_core.indexing.use import are_few
from skipstone_core.language.predicates import Predicate

from skipstone.files.projections import Decoding, deleted_positions
from skipstone.files.reader import (
    POSITION_COLUMN,
    DataFileDescription,
    describe_files,
    read_data_file,
)
from skipstone.indexes.asking.answers import IndexAnswer, read_answer
from skipstone.indexes.asking.hits import POSITION_BITS
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone.parallel import CORES
from skipstone.query.planner import ReadOptions, ReadPlan, checked_columns, plan_read
from skipstone.tables.arrow import arrow_schema

logger = logging.getLogger(__name__)

#: What is decoded at once of a file, about, where bytes are counted: a text may be of any length, though a file has
#: it in a dictionary once.
_BATCH_BYTES = 16 << 20
#: Rows of a file that are looked at to tell how many match, and bytes of them as they are in memory.
_LOOKED_ROWS = 256 * 1024
_LOOKED_BYTES = 64 << 20


def read(
    table: Table,
    columns: Sequence[str] | None = None,
    condition: str | Predicate | None = None,
    options: ReadOptions | None = None,
) -> pa.Table:
    """The rows of ``table`` on which ``condition`` is true, ``columns`` of them (None: all).

    The answer never depends on the state of any index. Raises BadSpec for unknown columns and unreadable conditions.
    """
    return read_plan(table, plan_read(table, condition, options, columns), columns)


def explain(
    table: Table,
    condition: str | Predicate | None = None,
    options: ReadOptions | None = None,
    columns: Sequence[str] | None = None,
) -> str:
    """Return a text on the files that ``read`` of the same arguments would read, and the indexes it would use."""
    return plan_read(table, condition, options, columns).text()


def read_plan(table: Table, plan: ReadPlan, columns: Sequence[str] | None = None) -> pa.Table:
    """Carry out a plan; its ``answer`` must have been planned for the same columns."""
    names = checked_columns(plan.files.schema, columns)
    schema = arrow_schema(plan.files.schema)
    wanted = pa.schema([schema.field(name) for name in names])
    return pa.Table.from_batches(_batches(table, plan, names), schema=wanted)


def _batches(table: Table, plan: ReadPlan, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    answered = answered_rows(table, plan, names)
    if answered is None:
        yield from rows_of_files(table, plan, names, plan.ordinals)
        return
    yield from answered
    others = np.setdiff1d(plan.ordinals, plan.answer.ordinals if plan.answer else ())
    yield from rows_of_files(table, plan, names, [int(ordinal) for ordinal in others])


class BudgetSpent(Exception):
    """More rows match, or more bytes have to be decoded, than was allowed."""


class ReadBudget:
    """The budget of a read, for several threads at once: ``rows`` that match, and ``nbytes`` as they are in memory."""

    def __init__(self, rows: int, nbytes: int) -> None:
        """All of it is left."""
        self._rows, self._bytes = rows, nbytes
        self._lock = threading.Lock()

    def spend(self, *, rows: int = 0, nbytes: int = 0) -> None:
        """Take rows that match, or bytes that were decoded. Raises BudgetSpent."""
        with self._lock:
            self._rows -= rows
            self._bytes -= nbytes
            if min(self._rows, self._bytes) < 0:
                raise BudgetSpent


def rows_of_files(
    table: Table, plan: ReadPlan, names: Sequence[str], ordinals: Sequence[int], budget: ReadBudget | None = None
) -> Iterator[pa.RecordBatch]:
    """The matching rows of some files of the plan, in their order; files are read side by side. Raises BudgetSpent."""

    def rows(file: DataFileDescription) -> list[pa.RecordBatch]:
        return _rows_of_file(file, plan, names, budget)

    threads = ThreadPoolExecutor(CORES)
    try:
        for batches in threads.map(rows, describe_files(table, plan.files, ordinals)):
            yield from batches
    finally:  # whoever has enough does not wait for the others
        threads.shutdown(cancel_futures=True)


def _rows_of_file(
    file: DataFileDescription, plan: ReadPlan, names: Sequence[str], budget: ReadBudget | None
) -> list[pa.RecordBatch]:
    tested = sorted(column.name for column in plan.predicate.columns) if plan.predicate else []
    needed = list(dict.fromkeys([*names, *tested]))
    groups, positions = plan.row_groups.get(file.file_id), plan.positions.get(file.file_id)
    decoding = Decoding(_BATCH_BYTES, lambda nbytes: budget.spend(nbytes=nbytes)) if budget else None
    if positions is None and len(tested) < len(needed) and plan.predicate is not None:
        batches = read_data_file(file, [*tested, POSITION_COLUMN], groups, None, decoding)
        positions = _few_matches(file, batches, plan.predicate)
    if positions is not None and not len(positions):
        return []
    matching = []
    for batch in read_data_file(file, needed, groups, positions, decoding):
        matching.append(matching_rows(batch, plan.predicate).select(names))
        if budget is not None:
            budget.spend(rows=matching[-1].num_rows)
    return matching


def _few_matches(
    file: DataFileDescription, batches: Iterator[pa.RecordBatch], predicate: Predicate
) -> npt.NDArray[np.int64] | None:
    """Where the matching rows are, by the tested columns alone; None when they are many, and read with all columns."""
    positions, most = [np.empty(0, np.int64)], file.records
    for batch in batches:
        positions.append(matching_rows(batch, predicate).column(POSITION_COLUMN).to_numpy())
        if not are_few(sum(map(len, positions)), most):
            return None
    return np.concatenate(positions)


def matching_rows(batch: pa.RecordBatch, predicate: Predicate | None) -> pa.RecordBatch:
    """The rows of ``batch`` on which ``predicate`` (None: always) is true; ``batch`` holds its columns."""
    if predicate is None:
        return batch
    columns = {name: batch[name] for name in batch.schema.names}
    return batch.filter(evaluate_predicate(predicate, columns, batch.num_rows))


# --- a look at some rows ---


def probable_rows(table: Table, plan: ReadPlan) -> float | None:
    """About how many rows match, by some of two files, and by one match more; None where that cannot be told.

    Rows that are deleted count too: to leave them out, all deletes of these files would have to be read.
    """
    ordinals, predicate = plan.ordinals, plan.predicate
    looked = sorted({ordinals[len(ordinals) // 3], ordinals[2 * len(ordinals) // 3]}) if ordinals else []
    if predicate is None or not looked or not plan.files.are_parquet[looked].all():
        return None
    tested, seen, matches = sorted(column.name for column in predicate.columns), 0, 1
    for file in describe_files(table, plan.files, looked, with_deletes=False):
        for batch in _looked_at(read_data_file(file, tested, decoding=Decoding(_BATCH_BYTES))):
            seen, matches = seen + len(batch), matches + matching_rows(batch, predicate).num_rows
    return None if not seen else matches / seen * int(plan.files.files["records"].to_numpy()[list(ordinals)].sum())


def _looked_at(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows, nbytes = 0, 0
    for batch in batches:
        yield batch
        rows, nbytes = rows + len(batch), nbytes + batch.nbytes
        if rows >= _LOOKED_ROWS or nbytes >= _LOOKED_BYTES:
            return


# --- from an index alone ---


def answered_rows(
    table: Table, plan: ReadPlan, names: Sequence[str], budget: ReadBudget | None = None
) -> list[pa.RecordBatch] | None:
    """All rows that the plan's answer holds; None when there is none, its index cannot be read, or more match than
    ``budget`` allows, those that are deleted among them.
    """
    if plan.answer is None:
        return None
    try:
        entries = _matching_entries(plan, plan.answer, names, budget)
    except BudgetSpent:
        return None
    except Exception as error:  # noqa: BLE001 - an unreadable index must cost time, never an answer
        logger.warning("index %s cannot be read, its files are read instead: %s", plan.answer.name, error)
        return None
    deleted = _deleted_rows(table, plan, [keys for keys, _ in entries])
    return [rows.filter(pa.array(~np.isin(keys, deleted))) for keys, rows in entries]


def _matching_entries(
    plan: ReadPlan, answer: IndexAnswer, names: Sequence[str], budget: ReadBudget | None
) -> list[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
    """Where matching rows are, and the rows. Raises BudgetSpent."""
    schema, entries = arrow_schema(plan.files.schema), []
    for rows in read_answer(answer):
        fields = [pa.field(POSITION_COLUMN, pa.int64()), *(schema.field(name) for name in rows.columns)]
        columns = [pa.array(rows.keys), *rows.columns.values()]
        matching = matching_rows(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), plan.predicate)
        entries.append((matching[POSITION_COLUMN].to_numpy(), matching.select(names)))
        if budget is not None:
            budget.spend(rows=matching.num_rows, nbytes=matching.nbytes)
    return entries


def _deleted_rows(table: Table, plan: ReadPlan, keys: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Keys of the rows that position deletes name, in the files that have rows in the answer."""
    nothing = np.empty(0, np.int64)
    if not plan.files.delete_files or not keys:
        return nothing
    ordinals = np.unique(np.concatenate(keys) >> POSITION_BITS)
    files = describe_files(table, plan.files, [int(ordinal) for ordinal in ordinals])
    return np.concatenate([nothing, *(file.file_id << POSITION_BITS | deleted_positions(file) for file in files)])
