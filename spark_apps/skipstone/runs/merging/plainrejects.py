"""Rows of a source without a change format that do not fit, and those that wait for them, taken out of a slice.

Called in the tasks that write slices, which have all rows of their keys. A row of a key waits if a row that does not
fit may come before it: by sequenceBy, or, without it, if one row of each key is expected. Must not know the target.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.keys import KeyType
from skipstone_core.merging.merges import MergePlan, RepeatedKeys

from skipstone.kernels.canonical import canonical, null_rows
from skipstone.runs.merging.leavingout import RejectedChanges
from skipstone.sources.feeds.rejecting.keytexts import KeyTexts
from skipstone.sources.feeds.rejecting.sifting import Rejected
from skipstone.sources.reading import ERROR_COLUMN, FILE_COLUMN, RECORD_COLUMN
from skipstone.sources.rejects import RejectPart, RejectPlace

Bools = npt.NDArray[np.bool_]
#: Columns that rows have beside those of slices until it is known which of them wait.
NOTED = pa.schema([pa.field(FILE_COLUMN, pa.string()), pa.field(RECORD_COLUMN, pa.string())])
_WAITS = "an earlier row of its key does not fit"


class RejectedRow(NamedTuple):
    """A row that is left out: its file, why, and whether it does not fit itself."""

    file: str
    reason: str
    is_fault: bool


@dataclass(frozen=True, kw_only=True)
class PlainRejects:
    """How tasks leave rows out. ``types``: of columns with an order; ``place``: where the rows are kept."""

    plan: MergePlan
    types: Mapping[str, KeyType]
    place: RejectPlace | None = None

    def parted(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        """Return the rows of ``batch`` that fit, and those that do not."""
        fits = pc.is_null(batch.column(ERROR_COLUMN))
        return batch.filter(fits), batch.filter(pc.invert(fits))

    def waiting(self, rows: pa.Table, bad: pa.Table) -> Bools:
        """Return which of ``rows`` wait for a row of ``bad``. A row whose key cannot be read holds no other one."""
        waits = np.zeros(rows.num_rows, dtype=bool)
        if self.plan.repeated_keys in (RepeatedKeys.EACH, RepeatedKeys.ANY) or not (rows.num_rows and bad.num_rows):
            return waits
        first = self._first(bad)
        sequences = self._sequences(rows)
        for row, text in KeyTexts.of_rows(rows, self.plan.keys).rows_of(frozenset(first)).items():
            since, now = first[text], None if sequences is None else sequences[row].as_py()
            waits[row] = since is None or now is None or now >= since
        return waits

    def keep(self, name: str, bad: pa.Table, waiting: pa.Table) -> str | None:
        """Write rows that are left out; the part, if they are to be kept."""
        if self.place is None:
            return None
        part = RejectPart(self.place, name)
        try:
            for row in _rows(bad):
                part.write({"file": row[FILE_COLUMN], "reason": row[ERROR_COLUMN], "record": row[RECORD_COLUMN]})
            for row in _rows(waiting):
                part.write({"file": row[FILE_COLUMN], "reason": _WAITS, "record": row[RECORD_COLUMN]})
            return part.close()
        except BaseException:
            part.abort()
            raise

    def _first(self, bad: pa.Table) -> dict[str, int | bytes | None]:
        """By key the least sequence of a row that does not fit; None where it is not known."""
        texts, sequences = KeyTexts.of_rows(bad, self.plan.keys), self._sequences(bad)
        known = ~null_rows(list(texts.columns.values()))
        first: dict[str, int | bytes | None] = {}
        for row in np.flatnonzero(known).tolist():
            text, now = texts.text(row), None if sequences is None else sequences[row].as_py()
            before = first.get(text, now)
            first[text] = None if before is None or now is None else min(before, now)
        return first

    def _sequences(self, rows: pa.Table) -> pa.Array | None:
        name = self.plan.sequence_by
        return None if name is None else canonical(rows.column(name), self.types[name])


def _rows(table: pa.Table) -> list[dict[str, str | None]]:
    names = [name for name in (ERROR_COLUMN, FILE_COLUMN, RECORD_COLUMN) if name in table.column_names]
    texts = table.select(names)
    for at, name in enumerate(names):  # the record of a bad row may hold bytes that are not text
        values = [(raw or b"").decode(errors="replace") for raw in texts.column(at).cast(pa.binary()).to_pylist()]
        texts = texts.set_column(at, name, pa.array(values, pa.string()))
    rows: list[dict[str, str | None]] = texts.to_pylist()
    return rows


def rejected_rows(bad: pa.Table, waiting: pa.Table) -> tuple[RejectedRow, ...]:
    """Return what is told of rows that are left out."""
    faults = [RejectedRow(row[FILE_COLUMN] or "", row[ERROR_COLUMN] or "", is_fault=True) for row in _rows(bad)]
    waits = [RejectedRow(file or "", _WAITS, is_fault=False) for file in waiting.column(FILE_COLUMN).to_pylist()]
    return (*faults, *waits)


def left_out(rows: Sequence[RejectedRow], parts: Sequence[str | None]) -> RejectedChanges:
    """Return what a merge leaves out of all its slices."""
    files = sorted({row.file for row in rows})
    numbers = {file: number for number, file in enumerate(files)}
    rejected = [Rejected(numbers[row.file], 0, row.reason, row.is_fault, "", None, b"") for row in rows]
    return RejectedChanges(
        rejected=tuple(sorted(rejected, key=lambda row: (row.file, not row.is_fault))),
        files=tuple(files),
        parts=tuple(part for part in parts if part is not None),
    )
