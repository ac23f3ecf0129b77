"""Keys as a column chunk of a file holds them, hashed: what its bloom filter is asked for.

Used by ``probing``. A key that is equal to no value that the chunk can hold is told apart from one of which the filter
says nothing. -0.0 equals 0.0, so both are looked for; NaNs have many forms, so a filter says nothing of them.
Must not read files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skipstone.files.bloom.hashing import Hashes, hashes_of_bytes, hashes_of_halves, hashes_of_words

Mask = npt.NDArray[np.bool_]
_Int64s = npt.NDArray[np.int64]
_MOST_INT = np.int64(2**31 - 1)
_UNITS = {"us": "microseconds", "ns": "nanoseconds"}
_FLOATS = {"FLOAT": np.float32, "DOUBLE": np.float64}
_TEXTS = ("STRING", "NONE")


@dataclass(frozen=True)
class StoredForm:
    """How a column chunk stores values: Parquet's physical type, the logical one, and what that says besides.

    ``width``: bytes of a value of fixed length. ``scale``: of decimals. ``unit``: of times.
    """

    physical: str
    logical: str
    width: int = 0
    scale: int = 0
    unit: str = ""
    is_signed: bool = True

    @classmethod
    def of(cls, column: pq.ColumnSchema) -> StoredForm:
        """That of a column of a footer."""
        logical = column.logical_type
        described = json.loads(logical.to_json())
        return cls(
            column.physical_type,
            logical.type,
            max(column.length or 0, 0),
            max(column.scale or 0, 0),
            described.get("timeUnit", ""),
            bool(described.get("isSigned", True)),
        )


@dataclass(frozen=True)
class HashedKeys:
    """Keys in the form of a column chunk, one element each.

    ``unsure``: of which a filter says nothing. ``absent``: which the chunk cannot hold. ``twins``: hashes of the other
    values that equal the keys at ``twin_rows``.
    """

    hashes: Hashes
    absent: Mask
    unsure: Mask
    twin_rows: _Int64s
    twins: Hashes

    def take(self, rows: _Int64s) -> HashedKeys:
        """Those at ``rows``, ascending."""
        at = np.searchsorted(rows, self.twin_rows)
        mine = np.append(rows, -1)[at] == self.twin_rows
        chosen = self.hashes[rows], self.absent[rows], self.unsure[rows]
        return HashedKeys(*chosen, at[mine], self.twins[mine])


def hashed(keys: pa.Array, form: StoredForm) -> HashedKeys | None:
    """``keys`` (without nulls, of a simple Arrow type) in a form; None when its filters say nothing of them."""
    if isinstance(keys, pa.ExtensionArray):
        keys = keys.storage
    kind = keys.type
    if pa.types.is_signed_integer(kind):
        is_whole = form.logical == "NONE" or (form.logical == "INT" and form.is_signed)
        return _integers(_int64s(keys), form) if is_whole else None
    if pa.types.is_floating(kind):
        return _floats(keys, form)
    if pa.types.is_decimal(kind):
        return _decimals(keys, form)
    if pa.types.is_temporal(kind):
        return _integers(_int64s(keys), form) if _is_same_time(kind, form) else None
    return _texts(keys, form)


def _is_same_time(kind: pa.DataType, form: StoredForm) -> bool:
    if pa.types.is_date32(kind):
        return form.logical == "DATE"
    logical = "TIME" if pa.types.is_time64(kind) else "TIMESTAMP" if pa.types.is_timestamp(kind) else ""
    return bool(form.logical == logical and form.unit == _UNITS.get(kind.unit))


def _int64s(keys: pa.Array) -> _Int64s:
    numbers = keys.view(pa.int32()) if pa.types.is_date32(keys.type) else keys
    if pa.types.is_temporal(numbers.type):
        numbers = numbers.view(pa.int64())
    return np.asarray(numbers.to_numpy(zero_copy_only=False), np.int64)


def _integers(numbers: _Int64s, form: StoredForm, absent: Mask | None = None) -> HashedKeys | None:
    absent = np.zeros(len(numbers), np.bool_) if absent is None else absent
    if form.physical == "INT64":
        return _plain(hashes_of_words(numbers.view(np.uint64)), absent)
    if form.physical == "INT32":
        absent = absent | (numbers > _MOST_INT) | (numbers < ~_MOST_INT)
        return _plain(hashes_of_halves(numbers.astype(np.uint32)), absent)
    return None


def _plain(hashes: Hashes, absent: Mask) -> HashedKeys:
    return HashedKeys(hashes, absent, np.zeros_like(absent), np.zeros(0, np.int64), np.zeros(0, np.uint64))


def _floats(keys: pa.Array, form: StoredForm) -> HashedKeys | None:
    kind = _FLOATS.get(form.physical)
    if kind is None or form.logical != "NONE":
        return None
    values = np.asarray(keys.to_numpy(zero_copy_only=False), np.float64)
    with np.errstate(over="ignore"):
        stored = (values + 0.0).astype(kind)
    zeros = np.flatnonzero(values == 0.0)
    unsure = np.isnan(values)
    absent = ~unsure & (stored.astype(np.float64) != values)
    twins = hashes_of_floats(np.full(len(zeros), -0.0, kind))
    return HashedKeys(hashes_of_floats(stored), absent, unsure, zeros, twins)


def hashes_of_floats(values: npt.NDArray[np.floating]) -> Hashes:
    """Of floats of four or eight bytes, each by its bits."""
    if values.dtype == np.float32:
        return hashes_of_halves(values.view(np.uint32))
    return hashes_of_words(values.view(np.uint64))


def _decimals(keys: pa.Array, form: StoredForm) -> HashedKeys | None:
    """By the unscaled number at the scale of the file, which is an integer or the end of one of 16 bytes."""
    if form.logical != "DECIMAL" or not pa.types.is_decimal128(keys.type):
        return None
    keys = pc.cast(keys, pa.decimal128(38, keys.type.scale))
    scaled = pc.cast(keys, pa.decimal128(38, form.scale), safe=False)
    exact = pc.equal(pc.cast(scaled, keys.type, safe=False), keys) if form.scale != keys.type.scale else None
    absent = np.zeros(len(keys), np.bool_) if exact is None else ~_mask(exact)
    words = np.frombuffer(scaled.buffers()[1], "<i8").reshape(-1, 2)[scaled.offset : scaled.offset + len(scaled)]
    low, high = np.ascontiguousarray(words[:, 0]), words[:, 1]
    if form.physical == "FIXED_LEN_BYTE_ARRAY":
        return _big_endian(words, form.width, absent)
    return _integers(low, form, absent | (high != low >> 63))


def _big_endian(words: npt.NDArray[np.int64], width: int, absent: Mask) -> HashedKeys | None:
    if not 0 < width <= 16:
        return None
    ordered = np.ascontiguousarray(words[:, ::-1].astype(">i8")).view(np.uint8).reshape(-1, 16)
    cut, kept = ordered[:, : 16 - width], np.ascontiguousarray(ordered[:, 16 - width :])
    sign = np.where(kept[:, :1] >= 128, np.uint8(255), np.uint8(0))
    fixed = pa.Array.from_buffers(pa.binary(width), len(kept), [None, pa.py_buffer(kept)])
    return _plain(hashes_of_bytes(fixed), absent | (cut != sign).any(axis=1))


def _texts(keys: pa.Array, form: StoredForm) -> HashedKeys | None:
    if form.physical == "BYTE_ARRAY" and form.logical in _TEXTS:
        return _plain(hashes_of_bytes(keys), np.zeros(len(keys), np.bool_))
    if form.physical == "FIXED_LEN_BYTE_ARRAY" and form.logical in ("NONE", "UUID"):
        lengths = pc.binary_length(pc.cast(keys, pa.large_binary()) if _is_fixed(keys) else keys)
        return _plain(hashes_of_bytes(keys), _mask(pc.not_equal(lengths, form.width)))
    return None


def _is_fixed(keys: pa.Array) -> bool:
    return bool(pa.types.is_fixed_size_binary(keys.type))


def _mask(values: pa.Array) -> Mask:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.bool_)
