"""Changes as Arrow batches: the columns of rows in kernel types, what happened to each row, and in which order.

Called by ``files``. A column that a change does not have is null in its batch, and a bit says that it is not null.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from propcache.api import cached_property
from skipstone_core.errors import BadData
from skipstone_core.merging.feeds import DELETE, KIND_COLUMN, MISSING_COLUMN, OP_COLUMN, UPSERT
from skipstone_core.merging.merges import KEPT_COLUMN
from skipstone_core.merging.unused import plain_name

from skipstone.kernels.partial import Bits, pack_bits
from skipstone.sources.feeds.rejecting.keytexts import KeyTexts
from skipstone.sources.feeds.rejecting.salvaging import salvaged
from skipstone.sources.feeds.shapes import (
    ABSENT,
    FAULT_COLUMN,
    LOG_COLUMN,
    ORDER_COLUMN,
    ORIGIN_COLUMN,
    OTHER_COLUMN,
    TABLE_COLUMN,
    UNAVAILABLE,
    Change,
    FeedColumn,
    FeedTarget,
    Raw,
    Semantic,
    Semantics,
    UnfitRecord,
    refused,
)
from skipstone.sources.feeds.unknown import UNKNOWN_COLUMN, noted
from skipstone.sources.feeds.values.columns import UnfitValue, column_array
from skipstone.sources.feeds.values.defaults import DEFAULTED_COLUMN, noted_defaults
from skipstone.sources.feeds.values.encodings import ValueRules
from skipstone.sources.feeds.values.generated import Images, Lacks, generate
from skipstone.sources.feeds.values.placeholders import Placeholder
from skipstone.sources.feeds.values.postgres import NO_NUMBER

_CONTROL = (OP_COLUMN, KIND_COLUMN, ORDER_COLUMN, ORIGIN_COLUMN, LOG_COLUMN, TABLE_COLUMN, KEPT_COLUMN, MISSING_COLUMN,
            UNKNOWN_COLUMN, DEFAULTED_COLUMN, FAULT_COLUMN, OTHER_COLUMN)  # fmt: skip
#: Changes that become one batch.
BATCH_ROWS = 8192


def batch_schema(target: FeedTarget) -> pa.Schema:
    """Of the batches of a feed: the columns that feeds can carry, then those of control."""
    binary = (ORDER_COLUMN, KEPT_COLUMN, MISSING_COLUMN)
    control = [pa.field(name, pa.binary() if name in binary else pa.string()) for name in _CONTROL]
    return pa.schema([*(pa.field(column.name, column.arrow) for column in target.carried), *control])


@dataclass(frozen=True)
class Notes:
    """What is told of each change: UNKNOWN_COLUMN and DEFAULTED_COLUMN, which is empty where nothing is told.

    ``fault``: why none of them can be applied.
    """

    unknown: Sequence[str | None]
    defaulted: Sequence[str | None] = ()
    fault: str | None = None


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of one file: ``name``, and its ``number`` in the order of files."""

    target: FeedTarget
    name: str
    number: int

    def batches(self, changes: Sequence[Change], semantics: Semantics = None) -> Iterator[pa.RecordBatch]:
        """Make batches of ``changes``, in their order: those that cannot be applied have a fault if the target says so.

        Raises as ``batch`` does.
        """
        if not self.target.rejects:
            yield self.batch(changes, semantics)
            return
        lines = [change.line for change in changes]
        yield from salvaged(
            lines,
            lambda start, stop: self.batch(changes[start:stop], semantics),
            lambda start, stop, fault: self._faulty(changes[start:stop], semantics, fault),
        )

    def batch(self, changes: Sequence[Change], semantics: Semantics = None) -> pa.RecordBatch:
        """``changes``, which are of one schema. Raises BadData naming the line and the column that does not fit."""
        carried = self.target.carried
        self._refuse_unread(changes)
        self._require_cases(changes)
        shape = (len(changes), len(carried))
        absent, unavailable = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
        arrays = []
        for at, column in enumerate(carried):
            values = [change.values.get(column.name, ABSENT) for change in changes]
            absent[:, at] = [value is ABSENT for value in values]
            unavailable[:, at] = self._unavailable(values, column)
            kept = absent[:, at] | unavailable[:, at]
            if kept.any():
                values = [None if left else value for value, left in zip(values, kept, strict=True)]
            semantic = semantics.get(column.name) if semantics is not None else None
            arrays.append(self.decoded(values, column, [change.line for change in changes], semantic))
            self._require_value(arrays[-1], column, changes, kept)
        left_out = [UNAVAILABLE, NO_NUMBER, *(form for placeholder in self._placeholders for form in placeholder.forms)]
        unknown = noted(changes, self.target, semantics, left_out)
        defaulted = noted_defaults(changes, {column.name for column in carried}, semantics, self.number)
        return self.assembled(arrays, changes, Lacks(absent, unavailable), Notes(unknown, defaulted))

    def _faulty(self, changes: Sequence[Change], semantics: Semantics, fault: str) -> pa.RecordBatch:
        """The changes of one message that cannot be applied: their keys, and which columns they would have set."""
        carried, count = self.target.carried, len(changes)
        absent = np.zeros((count, len(carried)), dtype=bool)
        arrays = []
        for at, column in enumerate(carried):
            values = [change.values.get(column.name, ABSENT) for change in changes]
            absent[:, at] = np.array([value is ABSENT for value in values]) | self._unavailable(values, column)
            if column.is_key:
                semantic = semantics.get(column.name) if semantics is not None else None
                arrays.append(self.decoded(values, column, [change.line for change in changes], semantic))
            else:
                arrays.append(pa.nulls(count, column.arrow))
        none = [None] * count
        return self.assembled(arrays, changes, Lacks(absent, np.zeros_like(absent)), Notes(none, fault=fault))

    def _require_value(self, array: pa.Array, column: FeedColumn, changes: Sequence[Change], kept: Bits) -> None:
        """Raise UnfitRecord for a null that the table does not take, if faults are told one by one."""
        if not (self.target.rejects and column.required and array.null_count):
            return
        nulls = np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=bool) & ~kept
        for at in np.flatnonzero(nulls).tolist():
            if changes[at].op == UPSERT:
                raise self.required_null(column, changes[at].line)

    def required_null(self, column: FeedColumn, line: int) -> UnfitRecord:
        """Return the error for a null in a required ``column``."""
        what = f"column '{column.name}': it is null, and the table requires a value: make the column optional"
        return UnfitRecord(self.name, line, what)

    def assembled(
        self, arrays: Sequence[pa.Array], changes: Sequence[Change], lacks: Lacks, notes: Notes
    ) -> pa.RecordBatch:
        """A batch of the columns ``arrays``; of ``changes`` all but values counts. Raises BadData as ``batch``."""
        if self.target.generated is not None:
            images = Images(self.name, changes, arrays, lacks, is_faulty=notes.fault is not None)
            arrays, lacks = generate(self.target, self.target.generated, images)
        writes = np.array([change.op == UPSERT for change in changes], dtype=bool)[:, None]
        marks = [change.mark for change in changes]
        place = self.number.to_bytes(4, "big")
        orders = [change.mark.order + place + change.place for change in changes]
        control = [
            pa.array([change.op for change in changes], pa.string()),
            pa.array([change.kind for change in changes], pa.string()),
            pa.array(orders, pa.binary()),
            pa.array([mark.origin for mark in marks], pa.string()),
            pa.array([mark.log for mark in marks], pa.string()),
            pa.array([mark.table for mark in marks], pa.string()),
            pack_bits((lacks.absent | lacks.unavailable) & writes),
            pack_bits(lacks.unavailable & writes),
            pa.array(notes.unknown, pa.string()),
            pa.array(notes.defaulted or [None] * len(changes), pa.string()),
            pa.array([notes.fault] * len(changes), pa.string()),
            pa.array(self._others(arrays, changes), pa.string()),
        ]
        return pa.RecordBatch.from_arrays([*arrays, *control], schema=batch_schema(self.target))

    def _others(self, arrays: Sequence[pa.Array], changes: Sequence[Change]) -> list[str | None]:
        """OTHER_COLUMN: a message that changes a key is a delete and a write, one after the other."""
        others: list[str | None] = [None] * len(changes)
        pairs = [
            at
            for at, (first, second) in enumerate(itertools.pairwise(changes))
            if first.place == second.place and (first.op, second.op) == (DELETE, UPSERT)
        ]
        if not pairs:
            return others
        texts = KeyTexts.of_columns(self.target, arrays)
        for at in pairs:
            others[at], others[at + 1] = texts.text(at + 1), texts.text(at)
        return others

    def decoded(
        self, values: Sequence[Raw], column: FeedColumn, lines: Sequence[int], semantic: Semantic | None = None
    ) -> pa.Array:
        """``values``, which stand in ``lines``, in the type of ``column``. Raises BadData."""
        try:
            return column_array(values, column, semantic, self._rules[column.name])
        except UnfitValue as error:
            message, line = f"column '{column.name}': the value is not {error.what}", lines[error.position]
            if column.is_key:
                raise refused(self.name, message, line) from error
            raise UnfitRecord(self.name, line, message) from error

    def unread(self, column: FeedColumn, line: int) -> BadData:
        """The error for a value of ``column``, which feeds cannot carry."""
        message = f"column '{column.name}' is {column.type}, which change feeds cannot carry: leave it out"
        return refused(self.name, message, line)

    def require_case(self, names: Collection[str], line: int) -> None:
        """Raise BadData for a column in ``names`` that the table has in other letters, or without blanks around it.

        Its values would be left out.
        """
        columns = {column.name for column in self.target.columns}
        folded = {plain_name(name): name for name in columns}
        for name in sorted(set(names) - columns):
            meant = folded.get(plain_name(name))
            if meant is not None and meant not in names:
                message = (
                    f"the feed has a column '{name}' and the table '{meant}', and names are exact: rename the column "
                    "of the table once all changes with its old name are merged, or let the tool write it as the table "
                    "has it"
                )
                raise refused(self.name, message, line)

    def _require_cases(self, changes: Sequence[Change]) -> None:
        """The same of each change by itself: a column may be renamed within a feed."""
        shapes: dict[tuple[str, ...], int] = {}
        for change in changes:
            shapes.setdefault(tuple(_names_of(change)), change.line)
        for names, line in shapes.items():
            self.require_case(names, line)

    def _refuse_unread(self, changes: Sequence[Change]) -> None:
        """Raise BadData for a column of the table that the feed has and cannot carry."""
        for column in self.target.columns:
            if column.read:
                continue
            unread = next((change for change in changes if change.values.get(column.name) is not None), None)
            if unread is not None:
                raise self.unread(column, unread.line)

    def _unavailable(self, values: Sequence[Raw], column: FeedColumn) -> Sequence[bool] | bool:
        if not self._placeholders:
            return [value is UNAVAILABLE for value in values]
        plain = [form for placeholder in self._placeholders for form in placeholder.plain(column.type)]
        if not any(isinstance(value, list | Mapping) for value in values) and not any(form in values for form in plain):
            return False
        return [
            any(placeholder.stands_in(value, column.type) for placeholder in self._placeholders) for value in values
        ]

    @cached_property
    def _placeholders(self) -> tuple[Placeholder, ...]:
        if self.target.values.is_text:
            return ()
        declared = self.target.unavailable_value  # messages from before it was set have the default
        return (Placeholder(),) if declared is None else (Placeholder(), Placeholder(declared))

    @cached_property
    def _rules(self) -> Mapping[str, ValueRules]:
        """By column."""
        return {column.name: self._rules_of(column) for column in self.target.carried}

    def _rules_of(self, column: FeedColumn) -> ValueRules:
        target = self.target
        unit = target.column_units.get(column.name)
        return ValueRules(
            zone=target.zone,
            unit=unit or target.unit,
            style=target.values,
            is_column_unit=unit is not None,
            is_key=column.is_key,
            non_finite=None if column.is_key else target.non_finite,
            infinity=None if column.is_key else target.infinity,
        )


def _names_of(change: Change) -> Iterable[str]:
    """Return the names of the columns that ``change`` has."""
    if UNAVAILABLE not in change.values.values():
        return change.values
    return (name for name, value in change.values.items() if value is not UNAVAILABLE)
