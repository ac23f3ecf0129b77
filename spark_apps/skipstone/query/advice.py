"""What the indexes of a table say about one read: hits, an answer, and of each index whether it was used or why not.

Called by the planner. Whatever goes wrong with an index makes its files missing and is said, with a warning. Must not
decide what is read: the planner does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from pyiceberg.table import Table
from skipstone_core.indexing.use import NotUsed, ReadCost

from skipstone.indexes.asking.answers import IndexAnswer, Wanted, plan_answer
from skipstone.indexes.asking.candidates import WeighedFiles
from skipstone.indexes.asking.estimates import entries_at_least
from skipstone.indexes.asking.hits import IndexHits
from skipstone.indexes.asking.lookup import look_up
from skipstone.indexes.found import FoundIndex, IndexProblem, IndexRefusal, find_indexes
from skipstone.indexes.keytests import Maybe, Test, not_null
from skipstone.query.readplan import IndexUse, ReadOptions
from skipstone.tables.filesets import FileSet

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Question:
    """A read as indexes see it. ``wanted`` None: the reader takes no answers, or nobody knows its columns.

    ``is_whole``: whether the test says all that the condition does.
    """

    test: Test
    files: FileSet
    candidates: WeighedFiles
    wanted: Wanted | None = None
    is_whole: bool = False


@dataclass(frozen=True)
class Advice:
    """``hits`` and ``answer`` are about different files. ``no_index``: why no index was considered at all.

    ``at_least``: so many rows match, or more, as far as an index tells. ``unknown``: names of a hint that no index has.
    ``is_forced``: whether a hint names an index that there is.
    """

    hits: IndexHits | None = None
    answer: IndexAnswer | None = None
    uses: tuple[IndexUse, ...] = ()
    no_index: NotUsed | None = None
    at_least: int = 0
    unknown: tuple[str, ...] = ()
    is_forced: bool = False


def ask_indexes(table: Table, question: Question, options: ReadOptions) -> Advice:
    """Return the advice of the indexes of ``table``."""
    if not options.use_indexes or options.hint.is_none:
        return Advice(no_index=NotUsed.DISABLED)
    if isinstance(question.test, Maybe):
        return Advice(no_index=NotUsed.NO_CONDITION)
    try:
        indexes, problems = find_indexes(
            table.catalog, table.name(), question.files, options.index_namespace, options.heads
        )
    except Exception as error:  # noqa: BLE001 - a catalog that cannot list tables must not stop a read
        name = ".".join(table.name())
        logger.warning("the indexes of %s cannot be listed, reading without them: %s", name, error)
        return Advice(no_index=NotUsed.CATALOG_UNAVAILABLE)
    advice = _hinted(table, question, options, indexes, problems)
    for use in advice.uses:
        if use.is_broken:
            logger.warning("%s; its segments are read by min/max", use.text())
    return advice


def leading_columns(table: Table, files: FileSet, options: ReadOptions) -> tuple[frozenset[str], npt.NDArray[np.bool_]]:
    """The columns that lead an index of ``table``, and which of ``files`` such an index covers."""
    if options.hint.is_none:
        return frozenset(), np.zeros(len(files), np.bool_)
    indexes, _ = find_indexes(table.catalog, table.name(), files, options.index_namespace)
    chosen = options.hint.chosen(table.name()[-1], (index.name for index in indexes))
    names = {field.field_id: field.name for field in files.schema.fields}
    useful = [
        index
        for index in indexes
        if not index.replaced and index.covered.any() and (index.name in chosen or not chosen)
    ]
    covered = reduce(np.logical_or, (index.covered for index in useful), np.zeros(len(files), np.bool_))
    return frozenset(names[index.index.definition.field_ids[0]] for index in useful), covered


def _hinted(
    table: Table,
    question: Question,
    options: ReadOptions,
    indexes: Sequence[FoundIndex],
    problems: Sequence[IndexProblem],
) -> Advice:
    """The advice of the indexes that a hint names, whatever they cost; of all if the table has none of them."""
    names = [index.name for index in indexes]
    chosen = options.hint.chosen(table.name()[-1], names)
    unknown = options.hint.unknown(table.name()[-1], [*names, *(problem.name for problem in problems)])
    if not chosen:
        return replace(_advice(question, indexes, problems), unknown=unknown)
    forced = replace(question.candidates, limits=question.candidates.limits.forced())
    advice = _advice(
        replace(question, candidates=forced), [index for index in indexes if index.name in chosen], problems
    )
    refusal = IndexRefusal(NotUsed.HINTED, f"the hint names {', '.join(sorted(chosen))}")
    others = (_use(index, refusal, None, forced) for index in indexes if index.name not in chosen)
    return replace(advice, uses=(*advice.uses, *others), unknown=unknown, is_forced=True)


def _advice(question: Question, indexes: Sequence[FoundIndex], problems: Sequence[IndexProblem]) -> Advice:
    answer = None
    if question.wanted is not None:
        answer = plan_answer(question.test, question.wanted, indexes, question.files, question.candidates)
    candidates = question.candidates if answer is None else question.candidates.without(answer.ordinals)
    lookup = look_up(question.test, indexes, candidates)
    refusals = {name: refusal for name, refusal in lookup.refusals.items() if answer is None or name != answer.name}
    costs = dict(lookup.costs)
    if answer is not None:
        costs[answer.name] = costs.get(answer.name, ReadCost()) + answer.probe.cost
    used = (_use(index, refusals.get(index.name), costs.get(index.name), question.candidates) for index in indexes)
    uses = (*used, *(_unusable(problem) for problem in problems))
    return Advice(lookup.hits, answer, uses, at_least=_at_least(indexes, question, lookup.rows))


def _at_least(indexes: Sequence[FoundIndex], question: Question, hits: int) -> int:
    """The most that an index tells, or its ``hits``; nothing of a table with deletes, whose rows have entries too."""
    files, test = question.files, question.test
    if not question.is_whole or files.delete_files or any(_may_be_null(files, number) for number in not_null(test)):
        return 0
    counts, records = [hits], files.files["records"].to_numpy()
    for index in indexes:
        if index.serves(test) and not index.replaced:
            of_files_gone = sum(file.records for file in index.index.entries) - int(records[index.covered].sum())
            with suppress(Exception):  # an index must cost time, never an answer; why it is not read is said elsewhere
                counts.append(entries_at_least(index, test) - max(0, of_files_gone))
    return max(counts)


def _may_be_null(files: FileSet, field_id: int) -> bool:
    try:
        counts = files.bounds(field_id).null_count
    except KeyError:
        return True
    return bool(counts.null_count) or bool(pc.any(pc.greater(counts, 0)).as_py())


def _use(index: FoundIndex, refusal: IndexRefusal | None, cost: ReadCost | None, candidates: WeighedFiles) -> IndexUse:
    segments, missing = index.files.segments, index.files.missing_segments
    weighed = cost if refusal is None else refusal.cost
    alone = None if weighed is None else weighed + candidates.cost(~index.covered)
    if refusal is None:
        return IndexUse(index.name, segments, missing, used=True, reason="", cost=cost, alone=alone)
    is_broken = refusal.code is NotUsed.UNREADABLE
    return IndexUse(
        index.name,
        segments,
        missing,
        used=False,
        reason=refusal.message,
        is_broken=is_broken,
        code=refusal.code,
        alone=alone,
    )


def _unusable(problem: IndexProblem) -> IndexUse:
    refusal = problem.refusal
    is_broken = refusal.code is not NotUsed.TOO_LITTLE_COVERED
    return IndexUse(problem.name, 0, (), False, refusal.message, is_broken, refusal.code)  # noqa: FBT003
