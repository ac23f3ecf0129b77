"""Plans an exact read of one snapshot: min/max for all files, the indexes for the files that they cover, and bloom
filters for the others.

Called by ``read`` and by whatever shows a plan. A file is left out only when its bounds, an index that covers it or its
bloom filters prove that no row matches. Must not read rows of data files; whatever goes wrong with an index makes its
files missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, tzinfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone_core.errors import BadSpec
from skipstone_core.indexing.use import ReadCost, are_few
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import Predicate, check_types
from skipstone_core.reasons import Reason

from skipstone.caches import cache_counts
from skipstone.indexes.asking.answers import Wanted
from skipstone.indexes.asking.candidates import WeighedFiles
from skipstone.indexes.asking.hits import POSITION_BITS, ROW_GROUP_BITS, IndexHits, split_by_file
from skipstone.indexes.keytests import Maybe, Test, all_of, is_tested_whole, plan_test, points_of
from skipstone.indexes.ranges import bounds_columns, files_that_may_match
from skipstone.query.advice import Advice, Question, ask_indexes
from skipstone.query.filtering import narrow_by_filters
from skipstone.query.readplan import FileCosts, Funnel, IndexUse, ReadOptions, ReadPlan
from skipstone.tables.filesets import FileSet, known_file_set
from skipstone.tables.shaping.writeproperties import page_rows_of

__all__ = [
    "Funnel",
    "IndexUse",
    "ReadOptions",
    "ReadPlan",
    "checked_columns",
    "checked_predicate",
    "plan_lookup",
    "plan_read",
]

Mask = npt.NDArray[np.bool_]


def plan_read(
    table: Table,
    condition: str | Predicate | None = None,
    options: ReadOptions | None = None,
    columns: Sequence[str] | None = None,
    among: Mask | None = None,
) -> ReadPlan:
    """Plan a read of the rows of ``table`` on which ``condition`` is true.

    ``columns``: what will be selected, for readers that can take the plan's ``answer``; None: nobody knows.
    ``among``: one boolean per file, whether it can hold such rows by what the caller knows; None: all can.
    Raises BadSpec when the condition cannot be read, or it or ``columns`` do not fit the table's columns.
    """
    chosen = options or ReadOptions()
    files = known_file_set(table, chosen.snapshot_id)
    predicate = checked_predicate(condition, files.schema)
    selected = None if columns is None else checked_columns(files.schema, columns)
    test = plan_test(predicate.root, files.schema) if predicate else Maybe()
    candidates = _candidates(test, files, chosen, page_rows_of(table), among)
    is_whole = predicate is not None and is_tested_whole(predicate.root, files.schema)
    question = Question(test, files, candidates, _wanted(selected, predicate), is_whole)
    advice = ask_indexes(table, question, chosen)
    plan = _plan(Question(test, files, candidates), predicate, advice)
    return narrow_by_filters(table, test, plan) if chosen.use_indexes else plan


def plan_lookup(table: Table, keys: pa.Table, options: ReadOptions, among: Mask) -> ReadPlan:
    """Plan a read of the rows of ``table`` that may have, in each column of ``keys``, one of its values.

    ``keys``: columns of the table in their types, without nulls. ``among``: as of ``plan_read``. Of rows that are read,
    the caller has to look which ones have a key.
    """
    files = known_file_set(table, options.snapshot_id)
    columns = {column.name: column for column in files.schema.fields}
    test = all_of(tuple(points_of(columns[name], keys.column(name)) for name in keys.column_names))
    question = Question(test, files, _candidates(test, files, options, page_rows_of(table), among))
    plan = _plan(question, None, ask_indexes(table, question, options))
    return narrow_by_filters(table, test, plan) if options.use_indexes else plan


def checked_predicate(condition: str | Predicate | None, schema: Schema, zone: tzinfo = UTC) -> Predicate | None:
    """The condition parsed and checked against the columns of ``schema``. ``zone``: of times without offset."""
    if condition is None:
        return None
    parsed = parse_predicate(condition, field="filter") if isinstance(condition, str) else condition
    types = {field.name: str(field.field_type) for field in schema.fields}
    return check_types(parsed, types, field="filter", zone=zone)


def checked_columns(schema: Schema, columns: Sequence[str] | None) -> tuple[str, ...]:
    """``columns``, None for all of ``schema``. Raises BadSpec for one that is not there."""
    known = [field.name for field in schema.fields]
    for name in columns or ():
        if name not in known:
            raise BadSpec(Reason.COLUMN_NOT_FOUND, f"there is no column {name!r}", field="columns")
    return tuple(known if columns is None else columns)


def _wanted(selected: tuple[str, ...] | None, predicate: Predicate | None) -> Wanted | None:
    if selected is None or predicate is None:
        return None
    return Wanted(selected, tuple(sorted(column.name for column in predicate.columns)))


def _candidates(test: Test, files: FileSet, options: ReadOptions, page_rows: int, among: Mask | None) -> WeighedFiles:
    may_match = files_that_may_match(test, files, bounds_columns(files.schema))
    return WeighedFiles(
        may_match if among is None else may_match & among,
        _sizes(files, options.reads),
        files.files["records"].to_numpy(),
        np.ones(len(files), np.int64) if options.whole_files else files.row_group_counts,
        options.by_position,
        options.most_rows,
        page_rows,
        options.whole_files,
        options.limits,
    )


def _sizes(files: FileSet, columns: Sequence[str] | None) -> npt.NDArray[np.int64]:
    """Bytes of the columns in each file."""
    read = frozenset(columns or ())
    numbers = [field.field_id for field in files.schema.fields if field.name in read]
    is_part = 0 < len(numbers) < len(files.schema.fields)
    return files.column_bytes(numbers) if is_part else files.files["size"].to_numpy()


def _plan(question: Question, predicate: Predicate | None, advice: Advice) -> ReadPlan:
    files, candidates, hits = question.files, question.candidates, advice.hits
    answered = np.zeros(len(files), np.bool_)
    if advice.answer is not None:
        answered[advice.answer.ordinals] = True
    kept = candidates.mask & ~answered
    if hits is not None:
        kept &= hits.left
    whole = ReadCost(len(files), int(candidates.sizes.sum()))
    return ReadPlan(
        files=files,
        predicate=predicate,
        ordinals=tuple(np.flatnonzero(kept | answered).tolist()),
        row_groups={} if hits is None else _row_groups(hits, kept),
        funnel=Funnel(len(files), int(candidates.mask.sum()), int(kept.sum())),
        indexes=advice.uses,
        positions={} if hits is None else _positions(hits, kept, files, by_position=candidates.by_position),
        answer=advice.answer,
        no_index=advice.no_index,
        at_least=advice.at_least,
        unknown=advice.unknown,
        costs=FileCosts(candidates.sizes, whole, candidates.cost(candidates.mask), is_forced=advice.is_forced),
        caches=cache_counts(),
    )


def _row_groups(hits: IndexHits, kept: Mask) -> dict[int, tuple[int, ...]]:
    """Row groups to read of the files that an index covers."""
    by_file = split_by_file(hits.locations, ROW_GROUP_BITS)
    return {ordinal: tuple(groups.tolist()) for ordinal, groups in by_file if kept[ordinal]}


def _positions(hits: IndexHits, kept: Mask, files: FileSet, *, by_position: bool) -> dict[int, npt.NDArray[np.int64]]:
    """Rows to read of the files in which they are few."""
    if not by_position:
        return {}
    records = files.files["records"].to_numpy()
    by_file = split_by_file(hits.rows.keys, POSITION_BITS)
    return {ordinal: rows for ordinal, rows in by_file if kept[ordinal] and are_few(len(rows), int(records[ordinal]))}
