"""Changes as Arrow batches: the columns of rows in kernel types, what happened to each row, and in which order.

Called by ``files``. A column that a change does not have is null in its batch, and a bit says that it is no null.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from propcache.api import cached_property
from skipstone_core.contract.requests import ChangeFormat
from skipstone_core.errors import BadData
from skipstone_core.merging.feeds import MISSING_COLUMN, OP_COLUMN, UPSERT
from skipstone_core.merging.merges import KEPT_COLUMN
from skipstone_core.merging.unused import plain_name

from skipstone.kernels.partial import Bits, pack_bits
from skipstone.sources.feeds.shapes import (
    ABSENT,
    LOG_COLUMN,
    ORDER_COLUMN,
    ORIGIN_COLUMN,
    TABLE_COLUMN,
    UNAVAILABLE,
    Change,
    FeedColumn,
    FeedTarget,
    Raw,
    Semantic,
    Semantics,
    refused,
)
from skipstone.sources.feeds.unknown import UNKNOWN_COLUMN, noted
from skipstone.sources.feeds.values.columns import UnfitValue, column_array
from skipstone.sources.feeds.values.defaults import DEFAULTED_COLUMN, noted_defaults
from skipstone.sources.feeds.values.encodings import ValueRules
from skipstone.sources.feeds.values.placeholders import Placeholder
from skipstone.sources.feeds.values.postgres import NO_NUMBER

_CONTROL = (OP_COLUMN, ORDER_COLUMN, ORIGIN_COLUMN, LOG_COLUMN, TABLE_COLUMN, KEPT_COLUMN, MISSING_COLUMN,
            UNKNOWN_COLUMN, DEFAULTED_COLUMN)  # fmt: skip
_TEXT_FORMATS = (ChangeFormat.DMS, ChangeFormat.MAXWELL, ChangeFormat.WAL2JSON)


def batch_schema(target: FeedTarget) -> pa.Schema:
    """Of the batches of a feed: the columns that feeds can carry, then those of control."""
    binary = (ORDER_COLUMN, KEPT_COLUMN, MISSING_COLUMN)
    control = [pa.field(name, pa.binary() if name in binary else pa.string()) for name in _CONTROL]
    return pa.schema([*(pa.field(column.name, column.arrow) for column in target.carried), *control])


@dataclass(frozen=True)
class Lacks:
    """Which columns changes do not have: rows by columns. ``unavailable``: they have one, and leave its value out."""

    absent: Bits
    unavailable: Bits


@dataclass(frozen=True)
class Notes:
    """What is told of each change: UNKNOWN_COLUMN and DEFAULTED_COLUMN, which is empty where nothing is told."""

    unknown: Sequence[str | None]
    defaulted: Sequence[str | None] = ()


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of one file: ``name``, and its ``number`` in the order of files."""

    target: FeedTarget
    name: str
    number: int

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
        left_out = [UNAVAILABLE, NO_NUMBER, *(form for one in self._placeholders for form in one.forms)]
        unknown = noted(changes, self.target, semantics, left_out)
        defaulted = noted_defaults(changes, {column.name for column in carried}, semantics, self.number)
        return self.assembled(arrays, changes, Lacks(absent, unavailable), Notes(unknown, defaulted))

    def assembled(
        self, arrays: Sequence[pa.Array], changes: Sequence[Change], lacks: Lacks, notes: Notes
    ) -> pa.RecordBatch:
        """A batch of the columns ``arrays``; of ``changes`` all but their values counts."""
        writes = np.array([change.op == UPSERT for change in changes], dtype=bool)[:, None]
        marks = [change.mark for change in changes]
        place = self.number.to_bytes(4, "big")
        orders = [change.mark.order + place + change.line.to_bytes(8, "big") for change in changes]
        control = [
            pa.array([change.op for change in changes], pa.string()),
            pa.array(orders, pa.binary()),
            pa.array([mark.origin for mark in marks], pa.string()),
            pa.array([mark.log for mark in marks], pa.string()),
            pa.array([mark.table for mark in marks], pa.string()),
            pack_bits((lacks.absent | lacks.unavailable) & writes),
            pack_bits(lacks.unavailable & writes),
            pa.array(notes.unknown, pa.string()),
            pa.array(notes.defaulted or [None] * len(changes), pa.string()),
        ]
        return pa.RecordBatch.from_arrays([*arrays, *control], schema=batch_schema(self.target))

    def decoded(
        self, values: Sequence[Raw], column: FeedColumn, lines: Sequence[int], semantic: Semantic | None = None
    ) -> pa.Array:
        """``values``, which stand in ``lines``, in the type of ``column``. Raises BadData."""
        try:
            return column_array(values, column, semantic, self._rules[column.name])
        except UnfitValue as error:
            message = f"column '{column.name}': the value is not {error.what}"
            raise refused(self.name, message, lines[error.position]) from error

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
            shapes.setdefault(tuple(_told(change)), change.line)
        for names, line in shapes.items():
            self.require_case(names, line)

    def _refuse_unread(self, changes: Sequence[Change]) -> None:
        """Raise BadData for a column of the table that the feed has and cannot carry."""
        for column in self.target.columns:
            if column.read:
                continue
            found = next((change for change in changes if change.values.get(column.name) is not None), None)
            if found is not None:
                raise self.unread(column, found.line)

    def _unavailable(self, values: Sequence[Raw], column: FeedColumn) -> Sequence[bool] | bool:
        if not self._placeholders:
            return [value is UNAVAILABLE for value in values]
        plain = [form for one in self._placeholders for form in one.plain(column.type)]
        if not any(isinstance(value, list | Mapping) for value in values) and not any(form in values for form in plain):
            return False
        return [any(one.stands_in(value, column.type) for one in self._placeholders) for value in values]

    @cached_property
    def _placeholders(self) -> tuple[Placeholder, ...]:
        if self.target.tool in _TEXT_FORMATS:
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
            text=target.tool in _TEXT_FORMATS,
            base64=target.tool is ChangeFormat.MAXWELL,
            is_column_unit=unit is not None,
            is_key=column.is_key,
            non_finite=None if column.is_key else target.non_finite,
            infinity=None if column.is_key else target.infinity,
        )


def _told(change: Change) -> Iterable[str]:
    """The columns that ``change`` has."""
    if UNAVAILABLE not in change.values.values():
        return change.values
    return (name for name, value in change.values.items() if value is not UNAVAILABLE)
