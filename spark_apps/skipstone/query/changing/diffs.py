"""What changed between two sets of rows: equal rows cancel each other, and those that are left belong to keys.

Called with parts of a table that hold all rows of their keys. Rows are equal if all their values are: null and null,
NaN and NaN, but not 0.0 and -0.0. Must not read files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.errors import BadData
from skipstone_core.history.tablereads import CHANGE_COLUMN, ChangeType
from skipstone_core.reasons import Reason

Codes = npt.NDArray[np.int64]


def diff_rows(before: pa.Table, after: pa.Table, keys: Sequence[str], name: str) -> pa.Table:
    """The changes that make ``after`` of ``before``, which have the same columns, with CHANGE_COLUMN as the last one.

    An update is two rows, the one before it and the one after it, in this order; without ``keys`` there are no updates.
    ``name``: of the table, for messages.
    A key that has a row left is not deleted: of equal rows that become fewer, nothing has changed.
    Raises BadData (DUPLICATE_SOURCE_KEYS) when a key does not tell one row from others, or is null in a changed row.
    """
    rows = pa.concat_tables([before, after])
    codes = _codes([rows.column(at) for at in range(rows.num_columns)], rows.num_rows)
    gone, new = _left(codes[: len(before)], codes[len(before) :])
    new += len(before)
    if keys:
        stay = np.setdiff1d(np.arange(len(before), len(rows)), new)
        gone, new = _without_kept(_Changed(gone, new, stay), codes, rows, keys)
    left = np.concatenate([gone, new])
    if not keys:
        deleted = np.repeat([ChangeType.DELETE.value, ChangeType.INSERT.value], [len(gone), len(new)])
        return rows.take(pa.array(left)).append_column(CHANGE_COLUMN, pa.array(deleted.tolist(), pa.string()))
    key_columns = [rows.column(key).take(pa.array(left)) for key in keys]
    _require_keys(key_columns, keys, name)
    key_codes = _codes(key_columns, len(left))
    gone_keys, new_keys = key_codes[: len(gone)], key_codes[len(gone) :]
    for side in (gone_keys, new_keys):
        _require_one_row(side, rows.take(pa.array(left)), key_codes, keys, name)
    is_updated, is_update = np.isin(gone_keys, new_keys), np.isin(new_keys, gone_keys)
    kinds = np.concatenate(
        [
            np.where(is_updated, ChangeType.UPDATE_BEFORE.value, ChangeType.DELETE.value),
            np.where(is_update, ChangeType.UPDATE_AFTER.value, ChangeType.INSERT.value),
        ]
    )
    order = np.lexsort((np.arange(len(left)), key_codes))
    changed = rows.take(pa.array(left[order]))
    return changed.append_column(CHANGE_COLUMN, pa.array(kinds[order].tolist(), pa.string()))


def _left(before: Codes, after: Codes) -> tuple[Codes, Codes]:
    """The places of rows on each side that no equal row on the other side cancels."""
    known = np.union1d(before, after)
    counts = [np.bincount(np.searchsorted(known, side), minlength=len(known)) for side in (before, after)]
    return tuple(  # type: ignore[return-value]
        _first(np.searchsorted(known, side), np.maximum(counts[at] - counts[1 - at], 0))
        for at, side in enumerate((before, after))
    )


@dataclass(frozen=True)
class _Changed:
    """Places of rows: those that are ``gone``, those that are ``new``, and those that ``stay`` beside the new ones."""

    gone: Codes
    new: Codes
    stay: Codes


def _without_kept(places: _Changed, codes: Codes, rows: pa.Table, keys: Sequence[str]) -> tuple[Codes, Codes]:
    """The places of rows that are gone and of new ones, where a row that stays takes the place of the others of its
    key: those that are equal to it have not changed, and others have become it.
    """
    gone, new, stay = places.gone, places.new, places.stay
    if not (len(gone) and len(stay)):
        return gone, new
    at = pa.array(np.concatenate([gone, new, stay]))
    key_codes = _codes([rows.column(key).take(at) for key in keys], len(at))
    gone_keys, new_keys, stay_keys = np.split(key_codes, [len(gone), len(gone) + len(new)])
    is_kept = np.isin(gone_keys, stay_keys) & ~np.isin(gone_keys, new_keys)
    is_equal = np.isin(codes[gone], codes[stay])
    others = stay[np.isin(stay_keys, gone_keys[is_kept & ~is_equal])]
    return gone[~(is_kept & is_equal)], np.concatenate([new, others])


def _first(codes: Codes, wanted: Codes) -> Codes:
    """Of each code as many places as are ``wanted``."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.searchsorted(ordered, ordered)
    return np.sort(order[np.arange(len(codes)) - starts < wanted[ordered]])


def plain_values(values: pa.Array) -> list[object]:
    """The values as Python's, the same for the same values: far years as numbers, texts as bytes."""
    return list(values.cast(_plain(values.type)).to_pylist())


def _shown(value: pa.Scalar) -> str:
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):  # a far year, or a text that is not UTF-8
        return repr(plain_values(pa.array([value], value.type))[0])


def _require_keys(columns: Sequence[pa.ChunkedArray], keys: Sequence[str], name: str) -> None:
    for key, values in zip(keys, columns, strict=True):
        if values.null_count:
            raise BadData(
                Reason.DUPLICATE_SOURCE_KEYS,
                f"{values.null_count} changed rows of {name} have null in the key {key!r}, which names no row: choose "
                "keys without nulls",
                field="spec.keys",
            )


def _require_one_row(side: Codes, left: pa.Table, key_codes: Codes, keys: Sequence[str], name: str) -> None:
    values, counts = np.unique(side, return_counts=True)
    if not len(values) or counts.max() == 1:
        return
    row = int(np.flatnonzero(key_codes == values[counts > 1][0])[0])
    shown = ", ".join(f"{key} = {_shown(left.column(key)[row])}" for key in keys)
    raise BadData(
        Reason.DUPLICATE_SOURCE_KEYS,
        f"{int(counts.max())} changed rows of {name} have the key {shown}: choose keys that name one row each",
        field="spec.keys",
    )


# --- equal rows have equal codes ---


def _codes(columns: Sequence[pa.ChunkedArray], count: int) -> Codes:
    """A number for each row, the same for rows that are equal in all ``columns``."""
    codes = np.zeros(count, np.int64)
    for column in columns:
        own = _column_codes(column)
        # Both are below the number of rows, so that the product does not overflow.
        codes = np.unique(codes * (int(own.max(initial=0)) + 1) + own, return_inverse=True)[1].astype(np.int64)
    return codes


def _column_codes(column: pa.ChunkedArray) -> Codes:
    values = column.combine_chunks()
    if pa.types.is_null(values.type):
        return np.zeros(len(values), np.int64)
    encoded = _comparable(values).dictionary_encode(null_encoding="encode")
    indices = encoded.indices if isinstance(encoded, pa.DictionaryArray) else encoded.combine_chunks().indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)


def _comparable(values: pa.Array) -> pa.Array:
    """As values that Arrow compares as this module does."""
    if pa.types.is_floating(values.type):
        bits = pa.int64() if values.type == pa.float64() else pa.int32()
        canonical = pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)
        return canonical.view(bits)
    if pa.types.is_nested(values.type):
        texts = [None if value is None else repr(value) for value in plain_values(values)]
        return pa.array(texts, pa.large_string())
    return values


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the same values that Python can always hold: far years as numbers, texts as bytes."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    return pa.binary() if pa.types.is_string(kind) else kind
