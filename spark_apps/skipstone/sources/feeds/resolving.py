"""The last change of each row, whole: what a feed leaves of each key after all its changes.

Called by the merge run with all changes of some keys. Rows are ordered by key and by when they happened; the last one
counts, and a column that it does not have comes from the change before it that has one, back to the row's last delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.errors import BadData
from skipstone_core.merging.feeds import DELETE, KIND_COLUMN, MISSING_COLUMN, NO_ROW, OP_COLUMN, TRUNCATE, UPSERT
from skipstone_core.merging.merges import KEPT_COLUMN, BoundKey
from skipstone_core.reasons import Reason

from skipstone.kernels.canonical import Int64s
from skipstone.kernels.changes import source_keys
from skipstone.kernels.partial import Bits, pack_bits, unpack_bits
from skipstone.sources.feeds.positions import behind_snapshots, is_first, one_binlog
from skipstone.sources.feeds.rejecting.keytexts import KeyTexts
from skipstone.sources.feeds.rejecting.sifting import PLACE_COLUMN, Holding, Sifted, Stop, sift_changes
from skipstone.sources.feeds.shapes import LOG_COLUMN, ORDER_COLUMN, ORIGIN_COLUMN

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Truncation:
    """The last truncate of a feed: what came before it is gone. ``origin``, ``log``: of which its ``order`` is."""

    order: bytes
    origin: str
    log: str | None


@dataclass(frozen=True, kw_only=True)
class Resolution:
    """How changes become one row a key. ``columns``: those of rows, in the order of their bits.

    ``holding``: changes may be left out; None: each of them must be applied.
    """

    keys: tuple[BoundKey, ...]
    columns: tuple[str, ...]
    truncation: Truncation | None = None
    holding: Holding | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the result."""
        return (*self.columns, OP_COLUMN, KEPT_COLUMN, MISSING_COLUMN, KIND_COLUMN)


@dataclass(frozen=True)
class _Runs:
    """Sorted rows by key: where the rows of each one's key begin, where its life begins, and which are the last.

    ``reborn``: the key's row was deleted before, in this feed.
    """

    starts: Int64s
    lives: Int64s
    last: Int64s
    reborn: Bools


def find_truncation(changes: pa.Table) -> Truncation | None:
    """The last truncate among ``changes``, if there is one. Raises BadData when several logs have one."""
    truncates = changes.filter(pc.equal(changes.column(OP_COLUMN), TRUNCATE))
    if not truncates.num_rows:
        return None
    rows = truncates.select([ORDER_COLUMN, ORIGIN_COLUMN, LOG_COLUMN]).to_pylist()
    if len({(row[ORIGIN_COLUMN], row[LOG_COLUMN]) for row in rows}) > 1:
        raise _two_logs("truncates")
    last = max(rows, key=lambda row: row[ORDER_COLUMN])
    return Truncation(order=last[ORDER_COLUMN], origin=last[ORIGIN_COLUMN], log=last[LOG_COLUMN])


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """One row a key, and what became of the changes that are in none of them."""

    rows: pa.Table
    sifted: Sifted | None = None


def resolve_changes(changes: pa.Table, how: Resolution) -> pa.Table:
    """One row for each key of ``changes``, under ``how.names``. Raises as ``resolve`` does."""
    return resolve(changes, how).rows


def resolve(changes: pa.Table, how: Resolution) -> Resolved:
    """One row for each key of ``changes``, under ``how.names``, and what was left out.

    Raises BadData for changes of one row that come from several logs, whose order nothing tells, and, where none may be
    left out, for a row that is left without a value.
    """
    others = pc.is_in(changes.column(OP_COLUMN), pa.array([TRUNCATE, NO_ROW]))
    changes = _after(changes.filter(pc.invert(others)), how.truncation)
    if not changes.num_rows:
        return Resolved(rows=changes.select(how.names))
    changes, starts = _in_order(changes, how)
    if how.holding is None:
        runs = _runs(changes, starts, has_truncation=how.truncation is not None)
        return Resolved(rows=_last_rows(changes, runs, how))
    return _sifted(changes, starts, how, how.holding)


def _in_order(changes: pa.Table, how: Resolution) -> tuple[pa.Table, Int64s]:
    """``changes`` by key and order, and for each the first one of its key."""
    if how.holding is not None:
        changes = changes.append_column(PLACE_COLUMN, changes.column(ORDER_COLUMN))
    changes, starts = _sorted(changes, how)
    require_one_log(changes, starts)
    ordered = _behind_snapshots(changes, starts)
    if ordered is not None:
        changes, starts = _sorted(ordered, how)
    return _without_rewrites(changes, starts)


def _sifted(changes: pa.Table, starts: Int64s, how: Resolution, holding: Holding) -> Resolved:
    """The last rows of what may be applied. A row that is left without a value stops where its value is missing."""
    while True:
        sifted = sift_changes(changes, starts, how.keys, holding)
        if not sifted.changes.num_rows:
            return Resolved(rows=sifted.changes.select(how.names), sifted=sifted)
        has_truncation = how.truncation is not None
        runs = _runs(sifted.changes, sifted.starts, has_truncation=has_truncation, recreates=sifted.recreates)
        if sifted.absent is not None:
            runs = replace(runs, reborn=runs.reborn | sifted.absent)
        try:
            return Resolved(rows=_last_rows(sifted.changes, runs, how), sifted=sifted)
        except ValueMissing as error:
            texts = KeyTexts.of_rows(sifted.changes, how.keys)
            orders = sifted.changes.column(ORDER_COLUMN)
            stops = {texts.text(row): Stop(orders[row].as_py(), error.what, is_fault=True) for row in error.rows}
            holding = replace(holding, stops={**holding.stops, **stops})


def _sorted(changes: pa.Table, how: Resolution) -> tuple[pa.Table, Int64s]:
    """``changes`` by key and order, and for each the first one of its key."""
    keys = source_keys(changes, how.keys)
    named = {f"key{at}": key for at, key in enumerate(keys)} | {"order": changes.column(ORDER_COLUMN)}
    table = pa.table(named)
    picked = pc.sort_indices(table, sort_keys=[(name, "ascending") for name in table.column_names])
    return changes.take(picked), _starts([key.take(picked) for key in keys])


def _behind_snapshots(changes: pa.Table, starts: Int64s) -> pa.Table | None:
    """``changes`` with the orders that a snapshot corrects; None when it corrects none."""
    column = changes.column(ORDER_COLUMN)
    is_read = np.asarray(is_first(column, changes.column(ORIGIN_COLUMN)).to_numpy(), dtype=bool)
    if not is_read.any():
        return None
    orders = column.to_pylist()
    for start in np.unique(starts[is_read]).tolist():
        end = int(np.searchsorted(starts, start, side="right"))
        orders[start:end] = behind_snapshots(orders[start:end])
    at = changes.schema.get_field_index(ORDER_COLUMN)
    return changes.set_column(at, changes.schema.field(at), pa.array(orders, column.type))


def require_one_log(changes: pa.Table, starts: Int64s) -> None:
    """Raise BadData when changes of one row come from several logs. ``starts``: of the rows of each one's key."""
    for name in (ORIGIN_COLUMN, LOG_COLUMN):
        values = pc.fill_null(changes.column(name).combine_chunks().dictionary_encode().indices, -1)
        codes = np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.int64)
        has_log = codes >= 0  # rows of snapshots are of no log
        highest, lowest = np.full(len(codes), -1), np.full(len(codes), np.iinfo(np.int64).max)
        np.maximum.at(highest, starts[has_log], codes[has_log])
        np.minimum.at(lowest, starts[has_log], codes[has_log])
        for start in np.flatnonzero(highest > lowest).tolist():
            end = int(np.searchsorted(starts, start, side="right"))
            rows = changes.slice(start, end - start)
            logs, orders = rows.column(LOG_COLUMN).to_pylist(), rows.column(ORDER_COLUMN).to_pylist()
            if name == ORIGIN_COLUMN or not one_binlog(logs, orders):
                raise _two_logs("changes of one row")


def _two_logs(what: str) -> BadData:
    return BadData(
        Reason.BAD_RECORDS,
        f"{what} come from two logs (another server, connector or form of position), and nothing tells which was last: "
        "merge the files of each log by a job of its own, in their order",
        field="spec.source",
    )


def _after(changes: pa.Table, truncation: Truncation | None) -> pa.Table:
    """The changes after a truncate."""
    if truncation is None:
        return changes
    origins = set(pc.unique(changes.column(ORIGIN_COLUMN)).to_pylist())
    logs = set(pc.unique(changes.column(LOG_COLUMN)).to_pylist())
    if origins - {truncation.origin} or logs - {truncation.log, None}:
        raise _two_logs("a truncate and changes")
    return changes.filter(pc.greater(changes.column(ORDER_COLUMN), truncation.order))


def _starts(keys: Sequence[pa.Array]) -> Int64s:
    """For each sorted row the first row of its key."""
    rows = len(keys[0])
    begins = np.zeros(rows, dtype=bool)
    begins[0] = True
    for key in keys:
        equal = pc.equal(key.slice(0, rows - 1), key.slice(1))
        begins[1:] |= ~np.asarray(equal.to_numpy(zero_copy_only=False), dtype=bool)
    return np.asarray(np.maximum.accumulate(np.where(begins, np.arange(rows), 0)), dtype=np.int64)


def _without_rewrites(changes: pa.Table, starts: Int64s) -> tuple[pa.Table, Int64s]:
    """Without deletes of a key by the message that writes it: it has one key in two ways, such as 1.0 and 1.00."""
    orders = changes.column(ORDER_COLUMN)
    equal = pc.equal(orders.slice(0, len(starts) - 1), orders.slice(1))
    pairs = np.asarray(equal.to_numpy(), dtype=bool) & (starts[1:] == starts[:-1])
    paired = np.append(pairs, False) | np.append(False, pairs)
    left = ~(paired & np.asarray(pc.equal(changes.column(OP_COLUMN), DELETE).to_numpy(), dtype=bool))
    if left.all():
        return changes, starts
    before = np.cumsum(left) - left
    return changes.filter(pa.array(left)), before[starts][left]


def _runs(changes: pa.Table, starts: Int64s, *, has_truncation: bool, recreates: Bools | None = None) -> _Runs:
    """``recreates``: changes with which a life begins, as if the row was deleted before."""
    rows = len(starts)
    numbers = np.arange(rows, dtype=np.int64)
    deleted = np.asarray(pc.equal(changes.column(OP_COLUMN), DELETE).to_numpy(), dtype=bool)
    deaths = np.maximum.accumulate(np.where(deleted, numbers, -1))
    lives = np.where(deaths >= starts, deaths + 1, starts)
    reborn = (lives > starts) | has_truncation
    if recreates is not None and recreates.any():
        births = np.maximum.accumulate(np.where(recreates, numbers, -1))
        reborn |= births >= starts
        lives = np.where(births >= starts, np.maximum(lives, births), lives)
    last = np.append(np.flatnonzero(starts[1:] != starts[:-1]), rows - 1)
    return _Runs(starts, lives, last, reborn)


def _last_rows(changes: pa.Table, runs: _Runs, how: Resolution) -> pa.Table:
    kept = unpack_bits(changes.column(KEPT_COLUMN), len(how.columns))
    missing = unpack_bits(changes.column(MISSING_COLUMN), len(how.columns))
    writes = np.asarray(pc.equal(changes.column(OP_COLUMN), UPSERT).to_numpy(), dtype=bool)
    last = runs.last
    picked = changes.take(pa.array(last))
    columns, left, lacking = {}, kept[last], np.zeros((len(last), len(how.columns)), dtype=bool)
    for at, name in enumerate(how.columns):
        if left[:, at].any():
            columns[name] = _filled(changes.column(name), kept[:, at], runs)
            has_value = _sources(kept[:, at], runs)[last] >= 0
            left[:, at] &= ~has_value
            # A life that begins without the column, and does not leave its value out: the source does not have it
            begins = (kept[:, at] & ~missing[:, at] & writes)[np.minimum(runs.lives[last], last)]
            lacking[:, at] = left[:, at] & _any_in_life(missing[:, at], runs) & ~begins
        else:
            columns[name] = picked.column(name)
    reborn = runs.reborn[last]
    _require_values(lacking & reborn[:, None], how, missing, runs)
    left &= ~reborn[:, None]
    return pa.table(
        {
            **columns,
            OP_COLUMN: picked.column(OP_COLUMN),
            KEPT_COLUMN: pack_bits(left),
            MISSING_COLUMN: pack_bits(lacking),
            KIND_COLUMN: changes.column(KIND_COLUMN).take(pa.array(runs.starts[last])),
        }
    )


def _sources(kept: Bools, runs: _Runs) -> Int64s:
    """For each row the last one, itself included, of its key's life that has the column; -1 when none has."""
    numbers = np.arange(len(kept), dtype=np.int64)
    latest = np.maximum.accumulate(np.where(kept, -1, numbers))
    return np.where(latest >= runs.lives, latest, -1)


def _any_in_life(bits: Bools, runs: _Runs) -> Bools:
    """For each last row: whether one of its key's life has the bit."""
    counts = np.append(0, np.cumsum(bits))
    return np.asarray(counts[runs.last + 1] > counts[runs.lives[runs.last]], dtype=bool)


def _filled(column: pa.ChunkedArray, kept: Bools, runs: _Runs) -> pa.ChunkedArray:
    sources = _sources(kept, runs)[runs.last]
    return column.take(pa.array(sources, mask=sources < 0))


class ValueMissing(BadData):
    """Rows are left without a value. ``rows``: for each the number of the first change that leaves the value out."""

    def __init__(self, what: str, rows: Sequence[int]) -> None:
        super().__init__(Reason.BAD_RECORDS, what, field="spec.source")
        self.what = what
        self.rows = rows


def _require_values(lacking: Bits, how: Resolution, missing: Bits, runs: _Runs) -> None:
    """Raise ValueMissing. ``lacking``: by last row and column; ``missing``: by row and column."""
    if not lacking.any():
        return
    name = how.columns[int(np.argmax(lacking.any(axis=0)))]
    rows = []
    for at in np.flatnonzero(lacking.any(axis=1)).tolist():
        last = int(runs.last[at])
        life = int(runs.lives[last])
        rows.append(life + int(np.argmax((missing[life : last + 1] & lacking[at]).any(axis=1))))
    raise ValueMissing(
        f"column '{name}': a change leaves its value out as unchanged, and the row was inserted without it: merge a "
        "snapshot of the row, and run ALTER TABLE ... REPLICA IDENTITY FULL on the table in the source database if "
        "keys of its rows change; drop the column from the table if the source does not have it any more",
        rows,
    )
