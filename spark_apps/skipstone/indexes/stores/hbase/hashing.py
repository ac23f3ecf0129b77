"""Hashes of keys: a value has the same one when it is entered, looked up, and compared by a merge.

Keys are hashed in canonical form, 64-bit integers or bytes, whatever type they are compared in. Hashes of all columns
are mixed one after the other. Must not do I/O.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.keys import KeyFamily, KeyType

from skipstone.files.bloom.hashing import hashes_of_bytes, hashes_of_words
from skipstone.indexes.stores.hbase.pages import HASH_BITS, Hashes
from skipstone.kernels.canonical import canonical, int64s, null_rows

_DECIMAL = re.compile(r"decimal\((?:\d+,)?(\d+)\)")
_MAX_DIGITS = 38
_SIGN = 1 << 63
_FAMILIES = {
    "boolean": KeyFamily.BOOLEAN,
    "long": KeyFamily.INTEGER,
    "double": KeyFamily.FLOAT,
    "date": KeyFamily.DATE,
    "time": KeyFamily.TIME,
    "timestamp": KeyFamily.TIMESTAMP,
    "timestamptz": KeyFamily.TIMESTAMPTZ,
    "string": KeyFamily.STRING,
    "binary": KeyFamily.BINARY,
}
#: Between the hashes of two columns: odd, so that no column is lost.
_MIX = np.uint64(0x9E3779B97F4A7C15)


def hashed_type(storage: str) -> KeyType:
    """The type in which keys of a storage type are hashed: decimals with all digits that the storage has."""
    decimal = _DECIMAL.fullmatch(storage)
    if decimal is None:
        return KeyType(_FAMILIES[storage])
    scale = int(decimal[1])
    return KeyType(KeyFamily.DECIMAL, scale, _MAX_DIGITS - scale)


def is_hashed_alike(storage: str, kind: KeyType) -> bool:
    """Return whether canonical keys of ``kind`` can be brought into the form in which those of ``storage`` are hashed.

    Decimals with more digits after the point cannot: the index would have to be of that scale.
    """
    hashed = hashed_type(storage)
    return kind.family is hashed.family and kind.scale == hashed.scale


def stored_hashes(keys: Sequence[pa.Array], storages: Sequence[str]) -> tuple[Hashes, npt.NDArray[np.bool_]]:
    """Hashes of rows of stored keys, a column each; and which rows have no null: a null is no key to look up."""
    columns = [_stored(key, storage) for key, storage in zip(keys, storages, strict=True)]
    return _mixed(columns), ~null_rows(columns)


def _stored(key: pa.Array, storage: str) -> pa.Array:
    # stored floats are integers in order already, which is their canonical form
    return key if storage == "double" else canonical(key, hashed_type(storage))


def canonical_hashes(keys: Sequence[pa.Array], kinds: Sequence[KeyType]) -> Hashes:
    """Hashes of rows of canonical keys without nulls, as ``stored_hashes``; each kind ``is_hashed_alike``."""
    return _mixed([_widened(key, kind) for key, kind in zip(keys, kinds, strict=True)])


def _widened(key: pa.Array, kind: KeyType) -> pa.Array:
    """Unscaled decimals of 64 bits as those of more digits are compared: 16 bytes with the sign turned."""
    if kind.family is not KeyFamily.DECIMAL or kind.is_wide:
        return key
    low = int64s(key)
    words = np.empty((len(low), 2), ">u8")
    words[:, 0] = (low >> 63).view(np.uint64) ^ np.uint64(_SIGN)
    words[:, 1] = low.view(np.uint64)
    return pa.Array.from_buffers(pa.binary(16), len(low), [None, pa.py_buffer(words.tobytes())])


def _mixed(columns: Sequence[pa.Array]) -> Hashes:
    mixed: Hashes | None = None
    with np.errstate(over="ignore"):
        for column in columns:
            hashes = _hashes(column)
            mixed = hashes if mixed is None else hashes_of_words(mixed * _MIX + hashes)
    if mixed is None:
        raise ValueError("an index has a key")
    return mixed >> np.uint64(64 - HASH_BITS)


def _hashes(column: pa.Array) -> Hashes:
    if pa.types.is_int64(column.type):
        return hashes_of_words(int64s(column).view(np.uint64))
    return hashes_of_bytes(column.fill_null(b"") if column.null_count else column)
