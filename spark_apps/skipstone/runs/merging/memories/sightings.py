"""Which columns of the table the writes of a feed have: found by each task, judged with what the table remembers.

Called by ``feed``. What tasks found adds up whichever rows each of them had.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from skipstone_core.merging.feeds import KIND_COLUMN, MISSING_COLUMN, READ
from skipstone_core.merging.merges import KEPT_COLUMN
from skipstone_core.merging.sightings import (
    ColumnSightings,
    decode_gone,
    decode_seen,
    encode_seen,
    feed_property,
    judge_columns,
    merged_sightings,
    undeclared,
)

from skipstone.kernels.partial import Bits, unpack_bits
from skipstone.sources.feeds.positions import is_first
from skipstone.sources.feeds.shapes import ORDER_COLUMN, ORIGIN_COLUMN

#: Later than any order: of a change whose place before or after a snapshot its own order does not say.
_LAST_ORDER = b"\xff"
Sightings = Mapping[str, ColumnSightings]


@dataclass(frozen=True)
class FeedMemory:
    """The memory of a feed's columns. ``gone``: earlier jobs had them. ``properties``: to be set."""

    gone: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


def sight(writes: pa.Table, columns: Sequence[str]) -> Sightings:
    """Which of ``columns`` some ``writes`` have and lack, and where the last of each kind is."""
    names = [KEPT_COLUMN, MISSING_COLUMN, KIND_COLUMN]
    first = is_first(writes.column(ORDER_COLUMN), writes.column(ORIGIN_COLUMN))
    table = pa.table({**{name: writes.column(name) for name in names}, "first": first,
                      "order": writes.column(ORDER_COLUMN)})  # fmt: skip
    alike = table.group_by([*names, "first"]).aggregate([("order", "max")]).sort_by("order_max")
    kept, missing = (unpack_bits(alike.column(name), len(columns)) for name in (KEPT_COLUMN, MISSING_COLUMN))
    absent = kept & ~missing
    is_read = np.array([kind == READ for kind in alike.column(KIND_COLUMN).to_pylist()], dtype=bool)
    is_early = np.asarray(alike.column("first").to_numpy(), dtype=bool)
    orders: list[bytes] = alike.column("order_max").to_pylist()
    undated = (absent & (~is_read & is_early)[:, None]).any(axis=0)
    read, changed = is_read[:, None], ~is_read[:, None]
    lasts = [_lasts(which, orders) for which in (read & ~absent, read & absent, changed & ~absent, changed & absent)]
    return {
        name: ColumnSightings(
            read=lasts[0][at],
            read_without=lasts[1][at],
            changed=lasts[2][at],
            changed_without=_LAST_ORDER if undated[at] else lasts[3][at],
        )
        for at, name in enumerate(columns if orders else ())
    }


def _lasts(which: Bits, orders: Sequence[bytes]) -> list[bytes | None]:
    """For each column the order of the last row that is so; None where none is. ``orders`` ascend."""
    if not orders:
        return []
    last = (len(orders) - 1 - np.argmax(which[::-1], axis=0)).tolist()
    flags = np.asarray(which.any(axis=0)).tolist()
    return [orders[at] if is_found else None for at, is_found in zip(last, flags, strict=True)]


def judge_feed(
    table: Table, schema: Schema, feeds: Collection[str], parts: Sequence[Sightings], declared: Collection[str]
) -> FeedMemory:
    """Judge a job's sightings of the source table of ``feeds`` (at most one) with the memory of ``table``.

    ``schema``: with the columns that the job adds. ``declared``: those that the spec says are generated. Raises BadData
    (SOURCE_COLUMN_MISSING) for columns that changes lack although snapshots have them.
    """
    sightings = merged_sightings(parts)
    feed = next(iter(feeds), None)
    if feed is None:
        return FeedMemory()
    name, ids = feed_property(feed), {column.field_id: column.name for column in schema.fields}
    text = table.properties.get(name)
    if not sightings:  # deletes do not tell columns
        return FeedMemory(tuple(ids[number] for number in sorted(decode_gone(text)) if number in ids))
    known = {ids[number]: seen for number, seen in decode_seen(text).items() if number in ids}
    columns = judge_columns(known, sightings, declared)
    if columns.snapshot_only:
        raise undeclared(columns.snapshot_only)
    seen = {number: columns.seen[column] for number, column in ids.items() if column in columns.seen}
    encoded = encode_seen(feed, seen, [number for number, column in ids.items() if column in columns.gone])
    return FeedMemory(columns.gone, {} if encoded == text else {name: encoded})
