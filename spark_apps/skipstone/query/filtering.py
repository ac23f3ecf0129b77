"""Leaves files and row groups out of a read by their bloom filters, where no index says which rows match.

Called by the planner at the end. A condition is judged by its ``=`` and ``in``: a file goes when, in each of its row
groups, filters refuse all values that it could match by. Must not read rows of data files; whatever goes wrong with a
filter costs time, never rows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone_core.indexing.filters import may_pay, pass_rate
from skipstone_core.indexing.use import NotUsed, ReadCost
from skipstone_core.keys import KeyType, key_type

from skipstone.files.bloom.probing import AskedKeys, FileFilters
from skipstone.files.bloom.rounds import Asking, FileVerdict, FilterOutcome, Rounds
from skipstone.files.reader import DataFileDescription, describe_files, open_data_file
from skipstone.indexes.keys import storage_type
from skipstone.indexes.keytests import AllTests, AnyTest, Points, Test
from skipstone.kernels.canonical import canonical, floats_in_order
from skipstone.parallel import at_once
from skipstone.query.readplan import FilterUse, ReadPlan
from skipstone.tables.shaping.writeproperties import bloom_filters_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Values:
    """The column is one of some values."""

    keys: AskedKeys

    def may_match(self, filters: FileFilters, group: int) -> bool:
        """Return whether a row group may hold one of them."""
        rows = filters.within(self.keys, group, np.arange(len(self.keys)))
        return len(filters.may_hold(self.keys, group, rows)) > 0

    def passes(self, rates: Mapping[str, float]) -> float:
        """How often a row group without any of them passes."""
        return pass_rate(rates.get(self.keys.column, 0.0), len(self.keys))


@dataclass(frozen=True)
class _All:
    """Each part refuses by itself."""

    parts: tuple[_Judge, ...]

    def may_match(self, filters: FileFilters, group: int) -> bool:
        """Return whether no part refuses a row group."""
        return all(part.may_match(filters, group) for part in self.parts)

    def passes(self, rates: Mapping[str, float]) -> float:
        """How often a row group without a match passes."""
        return float(np.prod([part.passes(rates) for part in self.parts]))


@dataclass(frozen=True)
class _Any:
    """All parts have to refuse."""

    parts: tuple[_Judge, ...]

    def may_match(self, filters: FileFilters, group: int) -> bool:
        """Return whether some part does not refuse a row group."""
        return any(part.may_match(filters, group) for part in self.parts)

    def passes(self, rates: Mapping[str, float]) -> float:
        """How often a row group without a match passes."""
        return 1 - float(np.prod([1 - part.passes(rates) for part in self.parts]))


_Judge = _Values | _All | _Any


def narrow_by_filters(table: Table, test: Test, plan: ReadPlan) -> ReadPlan:
    """``plan`` without the files, and the row groups of files, in which bloom filters leave nothing to match.

    Only files of which no index says anything are asked, and only for columns of which the table asks for filters.
    """
    judge = _judge(test, plan.files.schema, _filtered_fields(table))
    if judge is None:
        return plan
    known = plan.row_groups.keys() | plan.positions.keys() | plan.answered
    mine = [number for number in plan.ordinals if number not in known and plan.files.are_parquet[number]]
    if not mine:
        return plan
    question = _Question(judge)
    savings = _savings(plan, judge, mine)
    described = describe_files(table, plan.files, mine, with_deletes=False)
    files = [_File(*pair) for pair in zip(described, savings, strict=True)]
    rounds = Asking(files, savings, question.ask).run()
    return _narrowed(plan, rounds, question.groups)


def _filtered_fields(table: Table) -> frozenset[int]:
    """Columns of which the table's files have filters, or will have."""
    return frozenset(table.schema().find_field(name).field_id for name in bloom_filters_of(table))


def _judge(test: Test, schema: Schema, fields: frozenset[int]) -> _Judge | None:
    """Return the judge of a test by filters; None when filters cannot judge it."""
    match test:
        case Points() if test.field_id in fields:
            return _Values(_asked(test, schema))
        case AllTests():
            parts = [judge for part in test.parts if (judge := _judge(part, schema, fields))]
            return _All(tuple(parts)) if parts else None
        case AnyTest():
            arms = [judge for part in test.parts if (judge := _judge(part, schema, fields))]
            return _Any(tuple(arms)) if len(arms) == len(test.parts) else None
        case _:
            return None


def _asked(test: Points, schema: Schema) -> AskedKeys:
    column = schema.find_field(test.field_id)
    is_float, kind = storage_type(column.field_type) == "double", key_type(str(column.field_type))
    values = floats_in_order(test.values) if is_float else test.values
    return AskedKeys(column.name, values, test.values if is_float or kind is None else _canonical(values, kind))


def _canonical(values: pa.Array, kind: KeyType) -> pa.Array:
    return canonical(values, replace(kind, digits=38 - kind.scale) if kind.digits else kind)


def _columns(judge: _Judge) -> list[AskedKeys]:
    """All keys that are asked for."""
    if isinstance(judge, _Values):
        return [judge.keys]
    return [keys for part in judge.parts for keys in _columns(part)]


def _savings(plan: ReadPlan, judge: _Judge, files: Sequence[int]) -> list[ReadCost]:
    """Return the savings of leaving out each of ``files``: at least its tested columns, which readers read first."""
    names = dict.fromkeys(keys.column for keys in _columns(judge))
    sizes = plan.files.column_bytes([plan.files.schema.find_field(name).field_id for name in names])
    return [ReadCost(1, int(size)) for size in sizes[list(files)]]


@dataclass(frozen=True)
class _File:
    """A file that may be left out, and what that saves."""

    file: DataFileDescription
    saves: ReadCost


@dataclass(frozen=True)
class _Question:
    """Asks the filters of files. ``groups``: of those that were asked, the row groups that are left."""

    judge: _Judge
    groups: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def ask(self, files: Sequence[_File]) -> list[FileVerdict]:
        """One verdict for each file."""
        return at_once(self._verdict, files)

    def _verdict(self, candidate: _File) -> FileVerdict:
        verdict = FileVerdict(candidate.file.file_id, FilterOutcome.NO_FILTER)
        try:
            with open_data_file(candidate.file) as opened:
                return self._asked(FileFilters(opened), candidate.saves, verdict)
        except Exception as error:  # noqa: BLE001 - whoever reads the file says what is wrong with it
            logger.info("the bloom filters of %s cannot be read: %s", candidate.file.path, error)
            return verdict

    def _asked(self, filters: FileFilters, saves: ReadCost, verdict: FileVerdict) -> FileVerdict:
        cost = filters.cost(_columns(self.judge))
        if cost is None:
            return verdict
        if not may_pay(cost, saves):
            return replace(verdict, outcome=FilterOutcome.TOO_COSTLY, cost=cost)
        left = tuple(group for group in filters.groups if self.judge.may_match(filters, group))
        self.groups[verdict.file_id] = left
        return replace(
            verdict,
            outcome=FilterOutcome.KEPT if left else FilterOutcome.DROPPED,
            cost=replace(cost, bytes=filters.read),
            passes=self.judge.passes(filters.rates),
        )


def _narrowed(plan: ReadPlan, rounds: Rounds, groups: Mapping[int, tuple[int, ...]]) -> ReadPlan:
    asked, dropped = rounds.of(FilterOutcome.DROPPED, FilterOutcome.KEPT), rounds.of(FilterOutcome.DROPPED)
    if not rounds.has_filters and rounds.verdicts:
        use = FilterUse(0, 0, rounds.cost, NotUsed.NO_FILTERS, f"none of {len(rounds.verdicts)} files has one")
    elif not dropped and rounds.stopped:
        use = FilterUse(len(asked), 0, rounds.cost, NotUsed.NO_GAIN, rounds.stopped)
    else:
        use = FilterUse(len(asked), len(dropped), rounds.cost)
    gone = {verdict.file_id for verdict in dropped}
    kept = {number: left for number, left in groups.items() if left}
    return replace(
        plan,
        ordinals=tuple(number for number in plan.ordinals if number not in gone),
        row_groups=plan.row_groups | kept,
        filtered=frozenset(kept),
        funnel=replace(plan.funnel, read=plan.funnel.read - len(gone)),
        filters=use,
    )
