"""Column bounds of many files at once: Iceberg's binary single values to typed Arrow arrays.

Used by FileSet only. What cannot be trusted becomes null, and null makes a file a candidate.
Must not know files or manifests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import FixedType, IcebergType, PrimitiveType

from skipstone.compat.lineage.primitives import ByPrimitive

Bytes = npt.NDArray[np.uint8]
#: Decodes single values of a type as an Arrow type.
_Decode = Callable[[pa.Array, PrimitiveType, pa.DataType], pa.Array]
_UUID_BYTES = 16


def decode_bounds(raw: pa.Array, kind: IcebergType, arrow_type: pa.DataType) -> pa.Array:
    """Iceberg single-value bytes of type ``kind`` (or one it was promoted from) as ``arrow_type``; bad ones null."""
    raw = raw.cast(pa.binary())
    if not isinstance(kind, PrimitiveType):
        return pa.nulls(len(raw), arrow_type)
    return _DECODERS.of(kind)(raw, kind, arrow_type)


def trusted(lower: pa.Array, upper: pa.Array, nan_count: pa.Array | None) -> tuple[pa.Array, pa.Array]:
    """Drop bounds that may not hold: inverted ones, NaN ones, an upper one where NaN (greatest) was or may be seen.

    ``nan_count`` None: the column's type has no NaN.
    """
    if nan_count is not None:
        no_nan = pc.fill_null(pc.equal(nan_count, 0), fill_value=False)
        upper = pc.if_else(no_nan, upper, pa.scalar(None, upper.type))
        lower, upper = (_without_nan(bound) for bound in (lower, upper))
    inverted = pc.fill_null(pc.greater(lower, upper), fill_value=False)
    nothing = pa.scalar(None, lower.type)
    return pc.if_else(inverted, nothing, lower), pc.if_else(inverted, nothing, upper)


def _without_nan(values: pa.Array) -> pa.Array:
    return pc.if_else(pc.fill_null(pc.is_nan(values), fill_value=False), pa.scalar(None, values.type), values)


def _of_four_bytes(raw: pa.Array, _kind: PrimitiveType, arrow_type: pa.DataType) -> pa.Array:
    return _fixed(raw, 4, "<i4").cast(arrow_type)


def _of_eight_bytes(raw: pa.Array, _kind: PrimitiveType, arrow_type: pa.DataType) -> pa.Array:
    return pc.coalesce(_fixed(raw, 8, "<i8"), _fixed(raw, 4, "<i4").cast(pa.int64())).cast(arrow_type)


def _lengths(raw: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.binary_length(raw), -1).to_numpy(zero_copy_only=False), dtype=np.int64)


def _bytes_of(raw: pa.Array, rows: npt.NDArray[np.int64], width: int) -> Bytes:
    """The bytes of ``rows`` (all ``width`` long) as a matrix."""
    if not len(rows):
        return np.zeros((0, width), np.uint8)
    picked = raw.take(pa.array(rows))
    _, offsets, data = picked.buffers()
    first = np.frombuffer(offsets, np.int32)[picked.offset]
    return np.frombuffer(data, np.uint8, len(rows) * width, first).reshape(len(rows), width)


def _fixed(raw: pa.Array, width: int, dtype: str) -> pa.Array:
    lengths = _lengths(raw)
    rows = np.flatnonzero(lengths == width)
    values = np.zeros(len(raw), dtype=dtype)
    values[rows] = _bytes_of(raw, rows, width).copy().view(dtype).reshape(-1)
    return pa.array(values, mask=lengths != width)


def _of_length(raw: pa.Array, width: int) -> pa.Array:
    return pc.if_else(pa.array(_lengths(raw) == width), raw, pa.scalar(None, pa.binary()))


def _strings(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in raw.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return None


def _decimals(raw: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    lengths = _lengths(raw)
    wide = np.zeros((len(raw), 16), dtype=np.uint8)
    for width in np.unique(lengths[(lengths > 0) & (lengths <= 16)]):
        rows = np.flatnonzero(lengths == width)
        given = _bytes_of(raw, rows, int(width))
        wide[rows] = np.where(given[:, :1] >= 128, 255, 0)
        wide[rows, 16 - width :] = given
    valid = pa.array((lengths > 0) & (lengths <= 16))
    little = np.ascontiguousarray(wide[:, ::-1])
    mask = pc.if_else(valid, True, pa.scalar(None, pa.bool_()))  # noqa: FBT003
    values = pa.Array.from_buffers(arrow_type, len(raw), [None, pa.py_buffer(little.tobytes())])
    return pc.if_else(mask, values, pa.scalar(None, arrow_type))


_DECODERS: ByPrimitive[_Decode] = ByPrimitive(
    boolean=lambda raw, _kind, _arrow: _fixed(raw, 1, "<u1").cast(pa.bool_()),
    integer=_of_four_bytes,
    long=_of_eight_bytes,
    float=lambda raw, _kind, _arrow: _fixed(raw, 4, "<f4"),
    double=lambda raw, _kind, _arrow: pc.coalesce(_fixed(raw, 8, "<f8"), _fixed(raw, 4, "<f4").cast(pa.float64())),
    decimal=lambda raw, _kind, arrow: _decimals(raw, arrow),
    date=_of_four_bytes,
    time=_of_eight_bytes,
    timestamp=_of_eight_bytes,
    timestamptz=_of_eight_bytes,
    timestamp_ns=_of_eight_bytes,
    timestamptz_ns=_of_eight_bytes,
    string=lambda raw, _kind, _arrow: _strings(raw),
    uuid=lambda raw, _kind, arrow: _of_length(raw, _UUID_BYTES).cast(arrow),
    fixed=lambda raw, kind, arrow: _of_length(raw, len(cast(FixedType, kind))).cast(arrow),
    binary=lambda raw, _kind, _arrow: raw,
    opaque=lambda raw, _kind, arrow: pa.nulls(len(raw), arrow),
)
