"""Canonical keys in Arrow and NumPy: the array form of the core's one rule of equality and order.

Merges and key-range pruning compare keys only in this form: int64, or bytes that order as the values do.
Must not read files. No float is ever compared as a float.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.keys import KeyFamily, KeyType

Int64s = npt.NDArray[np.int64]

_NAN_ORDER = np.int64(0x7FF8000000000000)
_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
_SIGN = np.uint64(1 << 63)
_WHOLE_DAYS = pa.int32()


def canonical(values: pa.Array | pa.ChunkedArray, kind: KeyType) -> pa.Array:
    """Values as int64 or large_binary, one contiguous array; nulls stay null.

    Decimals must fit ``kind``; raises pa.ArrowInvalid when they do not.
    """
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    array = _plain(array)
    match kind.family:
        case KeyFamily.STRING | KeyFamily.BINARY:
            return _cast(array, pa.large_binary())
        case KeyFamily.FLOAT:
            return ordered_floats(array)
        case KeyFamily.DECIMAL:
            return _unscaled(array, kind)
        case KeyFamily.DATE:
            return _cast(_cast(array, _WHOLE_DAYS), pa.int64())
        case KeyFamily.TIMESTAMP | KeyFamily.TIMESTAMPTZ:
            return _cast(_cast(array, pa.timestamp("us", tz=array.type.tz)), pa.int64())
        case KeyFamily.TIME:
            return _cast(_cast(array, pa.time64("us")), pa.int64())
        case _:
            return _cast(array, pa.int64())


def ordered_floats(values: pa.Array) -> pa.Array:
    """Floats as int64 in Spark's order: -0.0 equals 0.0, NaN equals NaN and is greatest."""
    doubles = pc.fill_null(as_doubles(values), 0.0).to_numpy(zero_copy_only=False)
    bits = (doubles + 0.0).view(np.int64)
    bits = np.where(np.isnan(doubles), _NAN_ORDER, bits)
    return _with_nulls(np.where(bits < 0, bits ^ _MAGNITUDE, bits), values)


def as_doubles(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Numbers as the nearest doubles. Arrow's own way from decimals to floats is off by one bit now and then."""
    plain = pc.cast(values, pa.string()) if pa.types.is_decimal(values.type) else values
    return pc.cast(plain, pa.float64(), safe=False)


def float_bits(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Floats as int64, each by its own bits: tells zeros of both signs apart, in no useful order."""
    doubles = pc.cast(values, pa.float64())
    return pa.chunked_array([chunk.view(pa.int64()) for chunk in doubles.chunks], pa.int64())


def floats_in_order(orders: pa.Array) -> pa.Array:
    """The doubles that ``ordered_floats`` mapped to ``orders``: zeros come back as 0.0, NaNs as one NaN."""
    bits = int64s(orders)
    values = np.where(bits < 0, bits ^ _MAGNITUDE, bits).view(np.float64)
    mask = pc.is_null(orders).to_numpy(zero_copy_only=False) if orders.null_count else None
    return pa.array(values, type=pa.float64(), mask=mask)


def null_rows(columns: Sequence[pa.Array]) -> npt.NDArray[np.bool_]:
    """Which rows have a null in any of the key columns."""
    nulls = np.zeros(len(columns[0]), dtype=bool)
    for column in columns:
        if column.null_count:
            nulls |= pc.is_null(column).to_numpy(zero_copy_only=False)
    return nulls


def int64s(values: pa.Array) -> Int64s:
    """The numbers of a canonical int64 array; nulls come out as 0: mask them."""
    filled = pc.fill_null(values, 0) if values.null_count else values
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.int64)


def _plain(values: pa.Array) -> pa.Array:
    if isinstance(values, pa.ExtensionArray):
        return values.storage
    return values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values if values.type == kind else pc.cast(values, kind)


def _with_nulls(numbers: npt.NDArray[np.int64], like: pa.Array) -> pa.Array:
    mask = pc.is_null(like).to_numpy(zero_copy_only=False) if like.null_count else None
    return pa.array(numbers, type=pa.int64(), mask=mask)


def _unscaled(values: pa.Array, kind: KeyType) -> pa.Array:
    """Unscaled decimals at the common scale: int64 when they fit, else 16 big-endian bytes with the sign turned."""
    scaled = _cast(values, pa.decimal128(38, kind.scale))
    words = np.frombuffer(scaled.buffers()[1], dtype="<u8").reshape(-1, 2)
    words = words[scaled.offset : scaled.offset + len(scaled)]
    if not kind.is_wide:
        return _with_nulls(words[:, 0].view(np.int64), scaled)
    ordered = np.empty((len(scaled), 2), dtype=">u8")
    ordered[:, 0] = words[:, 1] ^ _SIGN
    ordered[:, 1] = words[:, 0]
    fixed = pa.Array.from_buffers(pa.binary(16), len(scaled), [None, pa.py_buffer(ordered.tobytes())])
    keys = _cast(fixed, pa.large_binary())
    return pc.if_else(pc.is_valid(scaled), keys, None) if scaled.null_count else keys
