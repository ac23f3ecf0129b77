"""Columns that the source database generates: computed from the other columns of each change, as the spec says.

Called by ``batches`` for each batch, whichever tool wrote it. Debezium's changes of PostgreSQL do not have them, and
its snapshots do: where a message has a value, it is the database's, and must be the computed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.errors import BadData
from skipstone_core.merging.clauses import BoundClause
from skipstone_core.merging.feeds import UPSERT
from skipstone_core.merging.generated import inputs_of, left_out

from skipstone.kernels.canonical import Int64s
from skipstone.kernels.clauses import inserted_rows
from skipstone.kernels.partial import Bits
from skipstone.sources.feeds.shapes import Change, FeedTarget, UnfitRecord

#: By how much a float may differ, in parts of its value: databases add in another order.
_TOLERANCE = {pa.float32(): 1e-6, pa.float64(): 1e-12}


class Lacks(NamedTuple):
    """Which columns changes do not have: rows by columns. ``unavailable``: they have one, and leave its value out."""

    absent: Bits
    unavailable: Bits


@dataclass(frozen=True)
class Images:
    """What ``changes`` of the file ``name`` have: ``arrays`` and ``lacks`` by column that feeds can carry.

    ``is_faulty``: they cannot be applied, and only which columns they would have set counts.
    """

    name: str
    changes: Sequence[Change]
    arrays: Sequence[pa.Array]
    lacks: Lacks
    is_faulty: bool = False


def generate(target: FeedTarget, bound: BoundClause, images: Images) -> tuple[Sequence[pa.Array], Lacks]:
    """Return the columns of ``images`` with those that are generated, and what they lack then.

    Raises BadData naming file, line and column for a change without a value that it takes, and for a value of the
    database that is not the computed one.
    """
    places = {column.name: at for at, column in enumerate(target.carried)}
    arrays, lacks = list(images.arrays), Lacks(images.lacks.absent.copy(), images.lacks.unavailable.copy())
    for name in inputs_of(bound):
        lacks.absent[:, places[name]] = lacks.unavailable[:, places[name]] = False
    if images.is_faulty:
        return arrays, lacks
    rows = np.flatnonzero([change.op == UPSERT for change in images.changes])
    _require_inputs(bound, places, images, rows)
    schema = pa.schema([pa.field(name, images.arrays[places[name]].type) for name in inputs_of(bound)])
    given = pa.Table.from_arrays(list(images.arrays), names=list(places)).take(pa.array(rows))
    try:
        computed = inserted_rows(given, bound, schema)
    except BadData as error:
        raise BadData(error.reason, f"'{images.name}': {error}", field=error.field) from error
    spread = _spread(rows, len(images.changes))
    for name, values in zip(schema.names, computed.columns, strict=True):
        at = places[name]
        if name not in left_out(bound):
            is_given = ~(images.lacks.absent[:, at] | images.lacks.unavailable[:, at])[rows]
            _require_equal(name, images, rows[is_given & ~_same(given.column(name), values)])
        arrays[at] = values.take(spread)
    return arrays, lacks


def _require_inputs(bound: BoundClause, places: dict[str, int], images: Images, rows: Int64s) -> None:
    lacking = images.lacks.absent | images.lacks.unavailable
    for name, inputs in inputs_of(bound).items():
        for column in inputs:
            lacking_rows = rows[lacking[rows, places[column]]]
            if len(lacking_rows):
                line = images.changes[int(lacking_rows[0])].line
                raise UnfitRecord(
                    images.name,
                    line,
                    f"it has no value for '{column}', from which source.generated computes '{name}': run ALTER TABLE "
                    "... REPLICA IDENTITY FULL on the source table if the change leaves it out as unchanged, and merge "
                    "a new snapshot, or set the expression to null",
                )


def _require_equal(name: str, images: Images, rows: Int64s) -> None:
    if len(rows):
        raise UnfitRecord(
            images.name,
            images.changes[int(rows[0])].line,
            f"column '{name}': the value is not the one that source.generated computes: correct its expression, or set "
            "it to null",
        )


def _same(given: pa.ChunkedArray, computed: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values are equal; null equals null, and NaN equals NaN."""
    values = given.combine_chunks()
    both_null = pc.and_(pc.is_null(values), pc.is_null(computed))
    if (tolerance := _TOLERANCE.get(values.type)) is not None:
        left, right = (np.asarray(side.to_numpy(zero_copy_only=False), dtype=float) for side in (values, computed))
        close = np.isclose(left, right, rtol=tolerance, atol=0, equal_nan=True)
        equal = pa.array(close & ~np.asarray(pc.xor(pc.is_null(values), pc.is_null(computed))))
    else:
        equal = pc.fill_null(pc.equal(values, computed), fill_value=False)
    return np.asarray(pc.or_(equal, both_null).to_numpy(zero_copy_only=False), dtype=bool)


def _spread(rows: Int64s, count: int) -> pa.Array:
    """For each of ``count`` rows its number among ``rows``; null of others."""
    numbers = np.full(count, -1, dtype=np.int64)
    numbers[rows] = np.arange(len(rows))
    return pa.array(numbers, mask=numbers < 0)
