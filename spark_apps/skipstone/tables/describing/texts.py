"""Columns as columns of JSON: numbers, texts, lists, bytes and maps, without a Python object per row.

Used by the description of scan tasks. All texts are large strings, so that no answer is too long for their offsets.
Must not know files.
"""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TEXT = pa.large_string()
#: What JSON does not allow in a text as it is.
_SPECIAL = r'["\\\x00-\x1f]'
_HEX = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), "<u2")
Offsets = npt.NDArray[np.int64]


def joined(*parts: pa.Array | str) -> pa.Array:
    """The parts of each row as one text; a literal stands in every row, and a row with a null part is null."""
    columns = [pa.scalar(part, TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, pa.scalar("", TEXT))


def member(name: str, values: pa.Array) -> pa.Array | str:
    """Texts of JSON as a further member of an object, ``,"name":value``; nothing in rows that are null."""
    if values.null_count == len(values):
        return ""
    return pc.fill_null(joined(f',"{name}":', values), "")


def quoted(values: pa.Array) -> pa.Array:
    """Strings as JSON."""
    values = values.cast(TEXT)
    special = np.flatnonzero(_filled(pc.match_substring_regex(values, _SPECIAL)))
    if len(special):
        escaped = [json.dumps(text, ensure_ascii=False)[1:-1] for text in values.take(pa.array(special)).to_pylist()]
        mask = np.zeros(len(values), np.bool_)
        mask[special] = True
        values = pc.replace_with_mask(values, pa.array(mask), pa.array(escaped, TEXT))
    return joined('"', values, '"')


def numbers(values: pa.Array) -> pa.Array:
    """Integers as JSON."""
    return values.cast(TEXT)


def quoted_hex(values: pa.Array) -> pa.Array:
    """Bytes as JSON: hexadecimal digits in upper case, as Iceberg writes them."""
    values = values.cast(pa.large_binary())
    _, ends, data = values.buffers()
    offsets = np.frombuffer(ends, np.int64)[values.offset : values.offset + len(values) + 1]
    raw = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]] if data is not None else np.empty(0, np.uint8)
    digits = [None, pa.py_buffer(2 * (offsets - offsets[0])), pa.py_buffer(_HEX[raw])]
    texts = joined('"', pa.Array.from_buffers(TEXT, len(values), digits), '"')
    return pc.if_else(values.is_valid(), texts, pa.scalar(None, TEXT)) if values.null_count else texts


def number_lists(values: pa.Array) -> pa.Array:
    """Lists of integers as JSON."""
    ends = values.offsets.to_numpy().astype(np.int64)
    lists = _lists(ends - ends[0], numbers(values.values.slice(ends[0], ends[-1] - ends[0])))
    return pc.if_else(values.is_valid(), lists, pa.scalar(None, TEXT)) if values.null_count else lists


def maps(column: pa.Array, keys: npt.NDArray[np.int32]) -> pa.Array:
    """Maps from numbers to numbers or bytes as Iceberg writes them, of ``keys`` only; an empty map is null.

    Iceberg has the keys and the values in two lists.
    """
    ends = column.offsets.to_numpy().astype(np.int64)
    has = np.isin(column.keys.to_numpy(zero_copy_only=False)[ends[0] : ends[-1]], keys)
    rows = pa.array(np.flatnonzero(has) + ends[0])
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(has)])[ends - ends[0]]
    items = column.items.take(rows)
    values = numbers(items) if pa.types.is_integer(items.type) else quoted_hex(items)
    texts = joined(
        '{"keys":', _lists(offsets, numbers(column.keys.take(rows))), ',"values":', _lists(offsets, values), "}"
    )
    return pc.if_else(pa.array(np.diff(offsets) > 0), texts, pa.scalar(None, TEXT))


def concatenated(rows: pa.Array) -> bytes:
    """The texts of all rows, none of which is null, one after the other."""
    _, ends, data = rows.buffers()
    offsets = np.frombuffer(ends, np.int64)[rows.offset : rows.offset + len(rows) + 1]
    return bytes(memoryview(data)[offsets[0] : offsets[-1]]) if len(rows) else b""


def _lists(offsets: Offsets, items: pa.Array) -> pa.Array:
    """Texts of JSON as lists; each row has the items between two offsets."""
    return joined(
        "[",
        pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets).cast(pa.int32()), items), pa.scalar(",", TEXT)),
        "]",
    )


def _filled(mask: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(pc.fill_null(mask, False).to_numpy(zero_copy_only=False), np.bool_)  # noqa: FBT003
