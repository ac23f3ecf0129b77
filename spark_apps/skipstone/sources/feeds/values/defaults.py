"""Columns with a default in the source database, whose nulls Kafka Connect may have replaced.

Called by ``batches`` for each change, and by the merge run to add up what changes said. The schema of a message tells
the default of a column, and not whether its converter replaces nulls. A null in such a column proves that it does not,
from that file on. Source: KIP-581, and Debezium's documentation of ExtractNewRecordState.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from skipstone_core.merging.feeds import UPSERT

from skipstone.sources.feeds.shapes import ABSENT, Change, Semantics

#: A column of batches: JSON of the number of the file and of the columns in which a change has their default (true) or
#: null (false); null where it has neither.
DEFAULTED_COLUMN = "_skipstone_defaulted"


@dataclass(frozen=True)
class Defaults:
    """What changes have in nullable columns with a default.

    ``rows``: how many have the default, by number of the file and column. ``first_null``: the number of the first file
    that has a null; None where no file has one.
    """

    rows: Mapping[tuple[int, str], int] = field(default_factory=dict)
    first_null: int | None = None

    @property
    def doubtful(self) -> Mapping[str, int]:
        """The number of changes whose default may stand for null, by column."""
        counts: dict[str, int] = {}
        for (number, name), count in sorted(self.rows.items()):
            if self.first_null is None or number < self.first_null:
                counts[name] = counts.get(name, 0) + count
        return counts


def noted_defaults(
    changes: Sequence[Change], known: Collection[str], semantics: Semantics, number: int
) -> list[str | None]:
    """Return DEFAULTED_COLUMN of ``changes`` of the file ``number``. ``known``: the columns of the table."""
    watched = {
        name: semantic
        for name, semantic in (semantics or {}).items()
        if name in known and semantic.optional and semantic.default not in (ABSENT, None)
    }
    if not watched:
        return [None] * len(changes)
    notes: list[str | None] = []
    for change in changes:
        values = {name: change.values.get(name, ABSENT) for name in watched} if change.op == UPSERT else {}
        noted = {
            name: value is not None
            for name, value in values.items()
            if value is None or watched[name].is_default(value)
        }
        notes.append(json.dumps([number, noted]) if noted else None)
    return notes


def tally_defaults(column: pa.ChunkedArray) -> Defaults:
    """Return what the changes of some batches have, from their DEFAULTED_COLUMN."""
    return merged_defaults(
        Defaults(
            {(number, name): entry["counts"] for name, is_default in noted.items() if is_default},
            None if all(noted.values()) else number,
        )
        for entry in column.value_counts().to_pylist()
        if entry["values"] is not None
        for number, noted in (json.loads(entry["values"]),)
    )


def merged_defaults(parts: Iterable[Defaults]) -> Defaults:
    """Return the sum of ``parts``."""
    rows: dict[tuple[int, str], int] = {}
    nulls: list[int] = []
    for part in parts:
        for place, count in part.rows.items():
            rows[place] = rows.get(place, 0) + count
        nulls += [] if part.first_null is None else [part.first_null]
    return Defaults(rows, min(nulls, default=None))
