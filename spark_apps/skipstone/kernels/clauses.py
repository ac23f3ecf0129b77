"""Applies the clauses of a merge to Arrow batches: which clause takes a row, and what the row becomes.

Called by the merge kernel per batch and by the insert step. Must not read or write files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.contract.requests import MergeAction
from skipstone_core.errors import BadData
from skipstone_core.language.expressions import ValueExpression
from skipstone_core.language.paths import split_path
from skipstone_core.language.predicates import ColumnRef, Predicate
from skipstone_core.merging.feeds import DELETE, UPDATE
from skipstone_core.merging.merges import COMPOSED_UPDATE, SEVERAL_COLUMN, BoundClause, MergePlan, PartialRows
from skipstone_core.reasons import Reason

from skipstone.kernels.canonical import Int64s, canonical
from skipstone.kernels.computing.expressions import compute
from skipstone.kernels.computing.structs import column_at, field_at, put, with_field, with_kept
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone.kernels.holding.spooling import SourceRows, SpooledRows
from skipstone.kernels.partial import kept_columns
from skipstone.tables.arrow import LAST_UPDATED, cast_decimals, default_scalar, field_id, nulls
from skipstone.tables.parquetfiles import BATCH_BYTES

Columns = Mapping[str, pa.Array]
#: Per row, the number of the clause (of ``MergePlan.target_clauses``) that takes it, or one of the two below.
Choice = npt.NDArray[np.int16]
#: No clause takes the row: it stays as it is.
NO_CLAUSE = -1
#: The row's change is older than the row itself, which stays as it is.
TOO_LATE = -2


@dataclass(frozen=True)
class ComposedRows:
    """The rows that several changes make: row ``numbers[i]`` of ``rows`` has the new values of row i if it is >= 0."""

    rows: pa.Table
    numbers: Int64s

    def part(self, which: slice | npt.NDArray[np.bool_]) -> ComposedRows:
        """The same for some rows."""
        return ComposedRows(self.rows, self.numbers[which])


@dataclass(frozen=True)
class MatchedBatch:
    """Target rows with their source rows: row ``match[i]`` of ``source`` belongs to row i when it is >= 0.

    ``partial``: which columns rows of ``source`` may lack. ``composed``: rows that COMPOSED_UPDATE takes.
    """

    target: pa.RecordBatch
    source: pa.Table
    match: Int64s
    choice: Choice
    partial: PartialRows | None = None
    composed: ComposedRows | None = None


class Matched(NamedTuple):
    """Source rows in memory, and which of them belongs to each of some target rows when it is >= 0."""

    source: pa.Table
    match: Int64s


def held_rows(source: SourceRows, match: Int64s) -> Matched:
    """The source rows of a few target rows; of rows that are not spooled all, which are in memory anyway."""
    if not isinstance(source, SpooledRows):
        return Matched(source, match)
    hits = match >= 0
    places = np.full(len(match), -1, dtype=np.int64)
    places[hits] = np.arange(np.count_nonzero(hits))
    return Matched(source.take(pa.array(match[hits])), places)


def choose_clauses(clauses: Sequence[BoundClause], columns: Columns, rows: int) -> Choice:
    """The first clause whose ``when`` is true for each row, NO_CLAUSE when none is."""
    choice = np.full(rows, NO_CLAUSE, dtype=np.int16)
    for number, clause in enumerate(clauses):
        open_rows = choice == NO_CLAUSE
        if clause.when is not None:
            open_rows = _holding(clause.when, columns, open_rows)
        choice[open_rows] = number
    return choice


def _holding(when: Predicate, columns: Columns, among: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which rows of ``among`` satisfy a condition. What can fail is evaluated in these rows only, as SQL does."""
    if not when.computes or among.all():
        return holds(when, columns, len(among)) & among
    picked = np.flatnonzero(among)
    held = among.copy()
    some = {name: columns[name].take(pa.array(picked)) for name in map(str, when.columns)}
    held[picked] = holds(when, some, len(picked))
    return held


def holds(predicate: Predicate, columns: Columns, rows: int) -> npt.NDArray[np.bool_]:
    """For each row, whether the predicate is true, not false or null."""
    is_true = pc.fill_null(evaluate_predicate(predicate, columns, rows), fill_value=False)
    return np.asarray(is_true.to_numpy(zero_copy_only=False), dtype=bool)


@dataclass(frozen=True)
class Unmatched:
    """How many ``deletes`` and ``updates`` found no row."""

    deletes: int = 0
    updates: int = 0

    def plus(self, other: Unmatched) -> Unmatched:
        """Both together."""
        return Unmatched(self.deletes + other.deletes, self.updates + other.updates)


def count_unmatched(plan: MergePlan, source: pa.Table) -> Unmatched:
    """What the rows of ``source``, of which each has a key of its own and none matches, were to do.

    A change feed says it. Otherwise a row is a delete if nothing inserts it and the clauses that ask the source only
    delete it; one that stands for others of its key is none, as these may have made what it deletes.
    """
    if plan.kinds is not None:
        kinds = source.column(plan.kinds)
        return Unmatched(*(pc.sum(pc.equal(kinds, kind)).as_py() or 0 for kind in (DELETE, UPDATE)))
    if not plan.tells_deletes:
        return Unmatched()
    columns = source_columns(source)
    chosen = choose_clauses(plan.sure_clauses, columns, source.num_rows)
    deletes = [n for n, clause in enumerate(plan.sure_clauses) if clause.action is MergeAction.DELETE]
    is_delete = np.isin(chosen, deletes)
    is_delete &= choose_clauses(plan.when_not_matched, columns, source.num_rows) == NO_CLAUSE
    if plan.marks_several:
        is_delete &= ~source.column(SEVERAL_COLUMN).to_numpy(zero_copy_only=False)
    return Unmatched(deletes=int(is_delete.sum()))


def choose_rows(plan: MergePlan, match: Int64s, source: SourceRows, target: Columns) -> Choice:
    """Return the clauses of target rows: ``match`` is the row of ``source`` that each matches, negative for none.

    ``target``: the columns of these rows that ``chosen_by`` names, keyed ``target.x``. Of long texts of the source few
    are held at once.
    """
    steering = source.select([name for name in _steering(plan) if name in source.column_names])
    most = rows_at_once(steering)
    choices = [np.zeros(0, dtype=np.int16)]
    for start in range(0, len(match), most):
        columns = {name: column.slice(start, most) for name, column in target.items()}
        held = held_rows(steering, match[start : start + most])
        choices.append(_choose_some(plan, held.match, held.source, columns))
    return np.concatenate(choices)


def _choose_some(plan: MergePlan, match: Int64s, source: pa.Table, target: Columns) -> Choice:
    choice = np.full(len(match), NO_CLAUSE, dtype=np.int16)
    hits, misses = np.flatnonzero(match >= 0), np.flatnonzero(match < 0)
    if len(hits):
        both = source_columns(source.select(_steering(plan)), match[hits]) | _taken(target, hits)
        chosen = choose_clauses(plan.when_matched, both, len(hits))
        choice[hits] = np.where(_too_late(plan, both, len(hits)), TOO_LATE, chosen)
    if len(misses) and plan.when_not_matched_by_source:
        chosen = choose_clauses(plan.when_not_matched_by_source, _taken(target, misses), len(misses))
        choice[misses] = np.where(chosen >= 0, chosen + len(plan.when_matched), chosen)
    return choice


def chosen_by(plan: MergePlan, *, matched: bool) -> list[str]:
    """The target columns that choosing needs, in a file that has matched rows or (not ``matched``) none."""
    clauses = plan.target_clauses if matched else plan.when_not_matched_by_source
    names = {plan.held_in(column.name) for column in _named(clauses) if column.side == "target"}
    if matched and plan.stored_sequence is not None:
        names.add(plan.stored_sequence.target)
    return sorted(names)


def _steering(plan: MergePlan) -> list[str]:
    """The source columns that choosing needs."""
    names = {column.name for column in _named(plan.when_matched) if column.side == "source"}
    if plan.stored_sequence is not None:
        names.add(plan.stored_sequence.source)
    return sorted(names)


def _named(clauses: Sequence[BoundClause]) -> set[ColumnRef]:
    return {column for clause in clauses if clause.when for column in clause.when.columns}


def _too_late(plan: MergePlan, columns: Columns, rows: int) -> npt.NDArray[np.bool_]:
    """Which changes are older than the row that they match; null is least."""
    if plan.stored_sequence is None:
        return np.zeros(rows, dtype=bool)
    stored = plan.stored_sequence
    given = canonical(columns[f"source.{stored.source}"], stored.type)
    kept = canonical(columns[f"target.{stored.target}"], stored.type)
    less = pc.fill_null(pc.less(given, kept), fill_value=False)
    unknown = pc.and_(pc.is_null(given), pc.is_valid(kept))
    return np.asarray(pc.or_(less, unknown).to_numpy(zero_copy_only=False), dtype=bool)


def _taken(columns: Columns, rows: Int64s) -> dict[str, pa.Array]:
    picked = pa.array(rows)
    return {name: column.take(picked) for name, column in columns.items()}


def source_columns(source: pa.Table, rows: Int64s | None = None) -> dict[str, pa.Array]:
    """Columns for predicates, keyed ``source.x``; ``rows`` picks rows, None takes all."""
    picked = source if rows is None else source.take(pa.array(rows))
    return {f"source.{name}": _chunk(picked.column(name)) for name in picked.column_names}


def longest_row(source: SourceRows) -> int:
    """Bytes of the longest texts of each column together: what a row that takes values of ``source`` holds at most."""
    if isinstance(source, SpooledRows):
        return source.longest_row + longest_row(source.rows)
    texts = [column for column in source.columns if _is_of_texts(column.type)]
    return sum(pc.max(pc.binary_length(column)).as_py() or 0 for column in map(_values, texts))


def rows_at_once(source: SourceRows) -> int:
    """How many rows may take values of ``source`` at once."""
    return max(1, BATCH_BYTES // max(longest_row(source), 1))


def _is_of_texts(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return any(is_one(value) for is_one in tests)


def _values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values of a column; of a dictionary each once."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pa.chunked_array([chunk.dictionary for chunk in column.chunks], column.type.value_type)


def target_columns(plan: MergePlan, target: pa.RecordBatch | pa.Table) -> dict[str, pa.Array]:
    """Columns for the predicates of ``plan``, keyed ``target.x``, and fields within them that these name."""
    columns = {f"target.{name}": _chunk(target.column(name)) for name in target.schema.names}
    for column in plan.judged:
        if str(column) not in columns and plan.held_in(column.name) in target.schema.names:
            columns[str(column)] = _chunk(column_at(target, column.name))
    return columns


def apply_clauses(batch: MatchedBatch, clauses: Sequence[BoundClause]) -> pa.RecordBatch:
    """The batch after updates and deletes. Raises BadData when a source value does not fit the target column."""
    return with_changes(batch, changed_columns(batch, clauses), clauses)


def with_changes(batch: MatchedBatch, changed: Columns, clauses: Sequence[BoundClause]) -> pa.RecordBatch:
    """The batch with its ``changed`` columns and without the rows that ``clauses`` delete."""
    names = batch.target.schema.names
    columns = [changed.get(name, batch.target.column(at)) for at, name in enumerate(names)]
    updated = pa.RecordBatch.from_arrays(columns, schema=nullable(batch.target.schema))
    gone = [n for n, clause in enumerate(clauses) if clause.action is MergeAction.DELETE]
    deleted = np.isin(batch.choice, gone)
    return updated.filter(pa.array(~deleted)) if deleted.any() else updated


def changed_columns(batch: MatchedBatch, clauses: Sequence[BoundClause]) -> dict[str, pa.Array]:
    """The columns of the batch in which updates change a value, after them. Raises BadData as ``apply_clauses``."""
    changed: dict[str, pa.Array] = {}
    for number, clause in enumerate(clauses):
        rows = np.flatnonzero(batch.choice == number)
        if clause.action is MergeAction.UPDATE and len(rows):
            _update(changed, clause, batch, rows)
            if clause is COMPOSED_UPDATE and batch.composed is not None:
                _take_composed(changed, batch, batch.composed, rows)
            _note_update(changed, batch, rows)
    return changed


def _take_composed(changed: dict[str, pa.Array], batch: MatchedBatch, composed: ComposedRows, rows: Int64s) -> None:
    numbers = pa.array(composed.numbers[rows])
    for at, name in enumerate(batch.target.schema.names):
        before, values = batch.target.column(at), _chunk(composed.rows.column(name).take(numbers))
        if not _is_same(_chunk(before.take(pa.array(rows))), values):
            changed[name] = put(changed.get(name, before), rows, values)


def _note_update(changed: dict[str, pa.Array], batch: MatchedBatch, rows: Int64s) -> None:
    """Let updated rows inherit which commit changed them, where the batch holds the lineage of rows."""
    for field in batch.target.schema:
        if field_id(field) == LAST_UPDATED:
            before = changed.get(field.name, batch.target.column(field.name))
            changed[field.name] = put(before, rows, pa.nulls(len(rows), field.type))


def inserted_rows(source: pa.Table, clause: BoundClause, schema: pa.Schema) -> pa.RecordBatch:
    """Source rows as target rows under ``schema``; columns that nothing feeds are null."""
    arrays = [_inserted_column(source, clause, field) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=nullable(schema))


def _inserted_column(source: pa.Table, clause: BoundClause, field: pa.Field) -> pa.Array:
    if field.name in clause.values:
        return fitted(source.column(clause.values[field.name]), field)
    if expression := clause.expressions.get(field.name):
        columns = {f"source.{name}": _chunk(source.column(name)) for name in _read_by(expression, "source")}
        return fitted(compute(expression, columns, source.num_rows), field)
    return _repeated(clause.literals.get(field.name), field, source.num_rows)


def _read_by(expression: ValueExpression, side: str) -> list[str]:
    """The columns of ``side`` that an expression reads."""
    return sorted(column.name for column in expression.columns if column.side == side)


def fitted(values: pa.Array | pa.ChunkedArray, field: pa.Field) -> pa.Array:
    """Values in the type of ``field``. Raises BadData naming the column when one does not fit."""
    array = _chunk(values)
    if array.type == field.type:
        return array
    if array.null_count == len(array):
        return nulls(len(array), field.type)
    try:
        made = _cast(array, field.type)
        _require_exact(array, made)
    except pa.ArrowInvalid as error:
        message = f"a source value does not fit column {field.name!r} ({field.type})"
        raise BadData(Reason.BAD_RECORDS, message, field="spec.source") from error
    return made


def _require_exact(given: pa.Array, made: pa.Array) -> None:
    """Raise pa.ArrowInvalid for floats that Arrow rounds, or takes for the greatest integer."""
    if not pa.types.is_floating(given.type):
        return
    exact = pc.less(given, float(1 << 63)) if pa.types.is_integer(made.type) else None
    if pa.types.is_floating(made.type):
        exact = pc.or_(pc.is_nan(given), pc.equal(pc.cast(made, given.type), given))
    if exact is not None and not pc.all(exact, min_count=0).as_py():
        raise pa.ArrowInvalid("a number would be rounded")


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind) and (pa.types.is_integer(values.type) or pa.types.is_decimal(values.type)):
        return cast_decimals(values, kind)
    return pc.cast(values, kind)


def _update(changed: dict[str, pa.Array], clause: BoundClause, batch: MatchedBatch, rows: Int64s) -> None:
    for assigned in _assigned(clause, batch, rows):
        name, *path = split_path(assigned.name) if assigned.name in clause.fields else [assigned.name]
        before = changed.get(name, batch.target.column(name))
        if path and len(assigned.rows):
            changed[name] = with_field(_chunk(before), path, assigned.rows, assigned.values)
        elif len(assigned.rows) and not _is_same(_chunk(before.take(pa.array(assigned.rows))), assigned.values):
            changed[name] = put(before, assigned.rows, assigned.values)


class _Assigned(NamedTuple):
    """The ``values`` that ``rows`` get in column ``name``."""

    name: str
    rows: Int64s
    values: pa.Array


def _assigned(clause: BoundClause, batch: MatchedBatch, rows: Int64s) -> Iterator[_Assigned]:
    """Yield the values that a clause gives ``rows``, for the columns of the batch."""
    schema = batch.target.schema
    fields = {
        name: _of_values(field_at(schema, name))
        for name in (*clause.values, *clause.expressions, *clause.literals)
        if (split_path(name)[0] if name in clause.fields else name) in schema.names
    }
    kept = kept_columns(batch.source, batch.partial) if batch.partial and clause.present else {}
    for name, origin in clause.values.items():
        if name in fields:
            given = rows[~kept[origin][batch.match[rows]]] if origin in kept else rows
            taken = pa.array(batch.match[given])
            values = fitted(batch.source.column(origin).take(taken), fields[name])
            if lacking := clause.kept.get(name):
                before = _chunk(batch.target.column(name)).take(pa.array(given))
                values = with_kept(values, before, sorted(map(split_path, lacking)))
            yield _Assigned(name, given, values)
    for name, expression in clause.expressions.items():
        if name in fields:
            yield _Assigned(name, rows, _computed(expression, batch, rows, fields[name]))
    for name, value in clause.literals.items():
        if name in fields:
            yield _Assigned(name, rows, _repeated(value, fields[name], len(rows)))


def _computed(expression: ValueExpression, batch: MatchedBatch, rows: Int64s, field: pa.Field) -> pa.Array:
    """An expression in ``rows``, of the values that target columns had before the merge."""
    read = {f"target.{name}": _chunk(column_at(batch.target, name)) for name in _read_by(expression, "target")}
    columns = _taken(read, rows)
    if names := _read_by(expression, "source"):
        columns |= source_columns(batch.source.select(names), batch.match[rows])
    return fitted(compute(expression, columns, len(rows)), field)


def _repeated(value: object, field: pa.Field, rows: int) -> pa.Array:
    """A literal, or null, in every row."""
    return nulls(rows, field.type) if value is None else pa.repeat(default_scalar(value, field.type), rows)


def _is_same(before: pa.Array, after: pa.Array) -> bool:
    """Return whether all values are surely the same. Arrow takes 0.0 and -0.0 for equal: floats are not compared."""
    kind = before.type
    return not (pa.types.is_nested(kind) or pa.types.is_floating(kind)) and bool(before.equals(after))


def _chunk(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Values in one array, out of a dictionary."""
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values


def _of_values(field: pa.Field) -> pa.Field:
    """``field`` without a dictionary."""
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def nullable(schema: pa.Schema) -> pa.Schema:
    """``schema`` for any row: nulls are judged by the writer, which names the required column."""
    return pa.schema([field.with_nullable(nullable=True) for field in schema], metadata=schema.metadata)
