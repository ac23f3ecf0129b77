"""Divides rows into parts that fit into memory: rows with equal keys come to the same part.

Called by what reads changes. Must not compare rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from skipstone.files.bloom.hashing import hashes_of_bytes, hashes_of_words

Parts = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
#: Rows are divided by hashes below it.
HASHES = 1 << 32
_FACTOR = np.uint64(31)
#: Of rows whose value is null, in place of a hash.
_NULL = np.uint64(0x5851F42D4C957F2D)


def part_of_rows(rows: pa.Table, keys: Sequence[str], count: int, divisor: int = 1) -> Parts:
    """The part of each row, from 0 to ``count``, by the values of its keys only; without keys, by all that can be.

    ``divisor``: the product of the counts by which these rows were divided before, below HASHES.
    """
    hashes = hashes_of_keys(rows, keys)
    # The lowest bits alone would depend on the last key most.
    folded = (hashes ^ (hashes >> np.uint64(32))) % np.uint64(HASHES)
    return np.asarray(folded // np.uint64(divisor) % np.uint64(count), np.int64)


def hashes_of_keys(rows: pa.Table, keys: Sequence[str]) -> Hashes:
    """A hash of each row, the same for rows with equal ``keys``; without keys, of all columns that can be hashed."""
    hashes = np.zeros(len(rows), np.uint64)
    for key in keys or _plain_columns(rows.schema):
        with np.errstate(over="ignore"):
            hashes = hashes * _FACTOR + _hashes(rows.column(key).combine_chunks())
    return hashes


def _plain_columns(schema: pa.Schema) -> list[str]:
    """Columns by which rows are divided that have no keys. Of floats, NaN is written in several ways."""
    return [
        column.name
        for column in schema
        if not (pa.types.is_nested(column.type) or pa.types.is_floating(column.type) or pa.types.is_null(column.type))
    ]


def _hashes(values: pa.Array) -> Hashes:
    absent = pc.is_null(values).to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(values.type):
        values = values.view(pa.binary(values.type.bit_width // 8))
    if pa.types.is_binary(values.type) or pa.types.is_string(values.type) or pa.types.is_fixed_size_binary(values.type):
        given = values.drop_null()
        hashes = np.full(len(values), _NULL, np.uint64)
        hashes[~absent] = hashes_of_bytes(given)
        return hashes
    whole = pa.int32() if pa.types.is_date32(values.type) or pa.types.is_time32(values.type) else pa.int64()
    words = np.asarray(pc.fill_null(values.cast(whole), 0).to_numpy(zero_copy_only=False), np.int64)
    return np.where(absent, _NULL, hashes_of_words(words.view(np.uint64)))
