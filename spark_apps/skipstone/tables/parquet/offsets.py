"""Offset indexes of Parquet files: where the pages of a column chunk are.

Used by ``files.pages``. Source of the format: parquet.thrift of apache/parquet-format. Must not read files.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from skipstone.tables.parquet.thrift import CompactReader

Rows = npt.NDArray[np.int64]
#: An offset index begins with the list of its pages, each a struct of three numbers, with these bytes between them.
_FIRST_LIST, _STRUCTS, _LONG_LIST, _LONGEST_HEAD = 0x19, 12, 15, 4
_TOKENS, _BETWEEN, _LONGEST_VARINT = 7, (0x16, 0x15, 0x16, 0x00), 8
#: Up to so many pages, a loop over their index is faster than calls of numpy.
_FEW_PAGES = 24


def locations(index: bytes) -> Rows:
    """Offset, length and first row of each page in an offset index, a row each.

    Raises one of ``files.footers.UNREADABLE`` for bytes that are not one.
    """
    head, kind = index[0], index[1] & 15
    count, at = index[1] >> 4, 2
    if count == _LONG_LIST:
        count, at = index[2] & 127, 3
        if index[2] > 127:
            count, at = count | index[3] << 7, 4
    if head == _FIRST_LIST and kind == _STRUCTS and count and not (at == _LONGEST_HEAD and index[3] > 127):
        # no byte of what is between the numbers is one that goes on, so all are numbers of that encoding
        tokens = (_few_varints if count <= _FEW_PAGES else _many_varints)(index, at, _TOKENS * count)
        if tokens is not None and bool((tokens.reshape(count, _TOKENS)[:, ::2] == _BETWEEN).all()):
            numbers = tokens.reshape(count, _TOKENS)[:, 1::2]
            return (numbers >> 1) ^ -(numbers & 1)
    pages = CompactReader(index).struct()[1]
    return np.array([[page[1], page[2], page.get(3, 0)] for page in pages], np.int64)


def _few_varints(index: bytes, at: int, count: int) -> Rows:
    """The ``count`` numbers of variable length that begin there. Raises IndexError when there are not so many."""
    numbers = []
    for _ in range(count):
        number = index[at]
        at += 1
        if number > 127:
            number, shift = number & 127, 7
            while (byte := index[at]) > 127:
                number |= (byte & 127) << shift
                shift += 7
                at += 1
            number |= byte << shift
            at += 1
        numbers.append(number)
    return np.array(numbers, np.int64)


def _many_varints(index: bytes, at: int, count: int) -> Rows | None:
    """As ``_few_varints``, faster for many; None when there are not so many, or one is too long."""
    data = np.frombuffer(index, np.uint8, offset=at)
    ends = np.flatnonzero(data < 128)[:count]
    if len(ends) < count:
        return None
    starts = np.append(0, ends[:-1] + 1)
    within = np.arange(ends[-1] + 1) - np.repeat(starts, ends - starts + 1)
    if within.max() > _LONGEST_VARINT:
        return None
    parts = (data[: ends[-1] + 1] & 127).astype(np.int64) << (7 * within)
    numbers: Rows = np.add.reduceat(parts, starts)
    return numbers
