"""Several changes of one key, applied one after the other: what they make of a row of the table, or of none.

Called by the merge kernels for keys with several changes in the source. Works in rounds, the first change of every key
before the second one of any, by the same clauses as single changes. Must not read files of the table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.contract.requests import MergeAction
from skipstone_core.errors import BadData
from skipstone_core.merging.merges import MergePlan
from skipstone_core.reasons import Reason

from skipstone.kernels.canonical import Int64s, canonical
from skipstone.kernels.clauses import (
    NO_CLAUSE,
    TOO_LATE,
    Choice,
    MatchedBatch,
    changed_columns,
    choose_clauses,
    choose_rows,
    holds,
    inserted_rows,
    nullable,
    source_columns,
    target_columns,
    with_changes,
)
from skipstone.kernels.computing.structs import put
from skipstone.kernels.histories.finding import Histories
from skipstone.kernels.matching import UNMATCHED
from skipstone.tables.arrow import ROW_ID, field_id

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Composed:
    """The composed row of each key. ``rows``: its values, void where it is not ``alive``.

    ``changed``: whether some change applied; ``late``: whether some was older than the row.
    """

    rows: pa.RecordBatch
    alive: Bools
    changed: Bools
    late: Bools


def compose(plan: MergePlan, histories: Histories, rows: pa.RecordBatch, *, exist: bool) -> Composed:
    """Apply ``histories`` to ``rows``, one for each key, which ``exist`` in the table or are void.

    Raises BadData as clauses do, and for a change that nothing says where it applies: one before it has given the row
    another key, or has moved it out of ``targetWhere``.
    """
    lengths = histories.stops - histories.starts
    rows = pa.RecordBatch.from_arrays(rows.columns, schema=nullable(rows.schema))
    order = np.argsort(-lengths, kind="stable")
    state = _State(replace(plan, when_not_matched_by_source=()), rows.take(pa.array(order)), np.full(len(order), exist))
    done: list[_State] = []
    for number in range(int(lengths.max(initial=0))):
        left = int(np.count_nonzero(lengths > number))
        done.append(state.part(left, len(state.alive)))
        state = state.part(0, left)
        changes = histories.changes.take(pa.array(histories.starts[order[:left]] + number))
        state.apply(changes)
    parts = [state, *reversed(done)]
    back = np.argsort(order, kind="stable")
    batch = pa.Table.from_batches([part.rows for part in parts]).combine_chunks().take(pa.array(back))
    return Composed(
        one_batch(batch, rows.schema),
        *(np.concatenate([getattr(part, name) for part in parts])[back] for name in ("alive", "changed", "late")),
    )


def one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """``table``, which has the columns of ``schema``, as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


class _State:
    """Rows between two changes."""

    def __init__(self, plan: MergePlan, rows: pa.RecordBatch, alive: Bools) -> None:
        self.plan = plan
        self.rows = rows
        self.alive = alive
        self.changed = np.zeros(len(alive), dtype=bool)
        self.late = np.zeros(len(alive), dtype=bool)

    def part(self, start: int, stop: int) -> _State:
        """Some of the rows."""
        part = _State(self.plan, self.rows.slice(start, stop - start), self.alive[start:stop].copy())
        part.changed, part.late = self.changed[start:stop].copy(), self.late[start:stop].copy()
        return part

    def apply(self, changes: pa.Table) -> None:
        """Apply one change to each row."""
        self._require_match(changes)
        missing = np.flatnonzero(~self.alive)
        self._update(changes)
        self._insert(changes, missing)

    def _update(self, changes: pa.Table) -> None:
        match = np.where(self.alive, np.arange(len(self.alive)), UNMATCHED)
        choice = choose_rows(self.plan, match, changes, target_columns(self.plan, self.rows))
        batch = MatchedBatch(self.rows, changes, match, choice, self.plan.partial)
        clauses = self.plan.when_matched
        self.rows = with_changes(batch, changed_columns(batch, clauses), ())
        self.alive[np.isin(choice, [n for n, clause in enumerate(clauses) if clause.action is MergeAction.DELETE])] = (
            False
        )
        self.changed |= choice >= 0
        self.late |= choice == TOO_LATE

    def _insert(self, changes: pa.Table, missing: Int64s) -> None:
        source = changes.take(pa.array(missing))
        choice = choose_clauses(self.plan.when_not_matched, source_columns(source), len(missing))
        for number, clause in enumerate(self.plan.when_not_matched):
            taken = np.flatnonzero(choice == number)
            if len(taken):
                values = inserted_rows(source.take(pa.array(taken)), clause, self.rows.schema)
                self._fill(missing[taken], values)

    def _fill(self, rows: Int64s, values: pa.RecordBatch) -> None:
        """Rows that begin again keep the id that they have in the table."""
        columns = [
            self.rows.column(at) if field_id(field) == ROW_ID else put(self.rows.column(at), rows, values.column(at))
            for at, field in enumerate(self.rows.schema)
        ]
        self.rows = pa.RecordBatch.from_arrays(columns, schema=values.schema)
        self.alive[rows] = True
        self.changed[rows] = True

    def _require_match(self, changes: pa.Table) -> None:
        """Raise BadData unless rows that are alive match their next change."""
        matches = np.ones(len(self.alive), dtype=bool)
        for key in self.plan.keys:
            given, kept = (
                canonical(changes.column(key.source), key.type),
                canonical(self.rows.column(key.target), key.type),
            )
            matches &= _holds(pc.equal(given, kept))
        if self.plan.target_where is not None:
            matches &= holds(self.plan.target_where, target_columns(self.plan, self.rows), len(self.alive))
        if (self.alive & ~matches).any():
            raise BadData(
                Reason.BAD_RECORDS,
                "a change gives its row another key or moves it out of spec.targetWhere, and the source has a later "
                "change of the same key: merge the two by jobs of their own",
                field="spec.source",
            )


def _holds(condition: pa.Array) -> Bools:
    return np.asarray(pc.fill_null(condition, fill_value=False).to_numpy(zero_copy_only=False), dtype=bool)


def composed_choice(plan: MergePlan, composed: Composed) -> Choice:
    """Return the choice for rows of the table, as numbers of ``target_clauses``."""
    update, delete = len(plan.target_clauses) - 2, len(plan.target_clauses) - 1
    unchanged = np.where(composed.late, TOO_LATE, NO_CLAUSE)
    ends = np.where(composed.alive, update, delete)
    return np.where(composed.changed, ends, unchanged).astype(np.int16)
