"""Source rows whose long texts lie in a file of this machine: whoever takes some of them holds these only.

Used for rows that take more memory than a task may hold. The file has no name and goes with its last user.
Must not know what becomes of rows.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias
from weakref import finalize

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]


class SpooledTexts:
    """Texts or bytes in a file, one after the other, none of them null."""

    def __init__(self) -> None:
        """None yet."""
        self._file, path = tempfile.mkstemp(prefix="skipstone-")
        Path(path).unlink()
        finalize(self, os.close, self._file)
        self._lengths: list[Numbers] = []
        self._ends: Numbers = np.zeros(1, np.int64)
        self.longest = 0

    def __len__(self) -> int:
        """How many there are."""
        return len(self._ends) - 1 + sum(map(len, self._lengths))

    def add(self, values: pa.Array) -> None:
        """Take strings or binaries."""
        _, ends, content = values.cast(_large(values.type)).buffers()
        if not len(values):
            return
        places = np.frombuffer(ends, np.int64)[values.offset : values.offset + len(values) + 1]
        self._lengths.append(np.diff(places))
        self.longest = max(self.longest, int(self._lengths[-1].max()))
        _write(self._file, memoryview(content or b"")[places[0] : places[-1]])

    def take(self, numbers: Numbers, kind: pa.DataType) -> pa.Array:
        """Those of some ``numbers`` (ascending) as an array of ``kind``: few enough for one array."""
        if self._lengths:
            self._ends = np.cumsum(np.concatenate([self._ends[:1], np.diff(self._ends), *self._lengths]))
            self._lengths = []
        if not len(numbers):
            return pa.array([], kind)
        begins = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
        stops = np.append(begins[1:], len(numbers))
        content = b"".join(
            _read(self._file, int(self._ends[numbers[begin]]), int(self._ends[numbers[stop - 1] + 1]))
            for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True)
        )
        ends = np.cumsum(np.append(0, self._ends[numbers + 1] - self._ends[numbers]))
        buffers = [None, pa.py_buffer(ends.astype(np.int64)), pa.py_buffer(content)]
        return pa.Array.from_buffers(_large(kind), len(numbers), buffers).cast(kind)


@dataclass(frozen=True)
class SpooledRows:
    """``rows``, in which columns of long texts are the numbers of these among ``texts``; ``kinds``: their types."""

    rows: pa.Table
    texts: dict[str, SpooledTexts]
    kinds: dict[str, pa.DataType]

    @property
    def column_names(self) -> list[str]:
        """Of all columns."""
        return list(self.rows.column_names)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self.rows.num_rows)

    @property
    def longest_row(self) -> int:
        """Bytes of the longest spooled texts of each column together."""
        return sum(self.texts[name].longest for name in self.texts.keys() & set(self.column_names))

    def select(self, names: Sequence[str]) -> SpooledRows:
        """Some of the columns."""
        return replace(self, rows=self.rows.select(names))

    def picked(self, numbers: pa.Array) -> SpooledRows:
        """Some of the rows, without their texts."""
        return replace(self, rows=self.rows.take(numbers))

    def take(self, numbers: pa.Array) -> pa.Table:
        """Some of the rows, which are few enough to be held."""
        rows = self.rows.take(numbers)
        for name in self.texts.keys() & set(rows.column_names):
            places = rows.column(name).combine_chunks()
            present, codes = np.unique(places.drop_null().to_numpy(), return_inverse=True)
            indices = np.zeros(len(places), np.int32)
            indices[places.is_valid().to_numpy(zero_copy_only=False)] = codes
            mask = places.is_null().to_numpy(zero_copy_only=False)
            values = self.texts[name].take(present, self.kinds[name])
            column = pa.DictionaryArray.from_arrays(pa.array(indices, mask=mask), values)
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows


#: Rows of the source.
SourceRows: TypeAlias = pa.Table | SpooledRows


@dataclass
class Spool:
    """Where texts of source rows are."""

    _texts: dict[str, SpooledTexts] = field(default_factory=dict)
    _kinds: dict[str, pa.DataType] = field(default_factory=dict)

    def add(self, rows: pa.Table, names: Sequence[str]) -> pa.Table:
        """``rows`` with the numbers of their texts in the columns ``names``, which are in dictionaries or not."""
        for name in names:
            at = rows.column_names.index(name)
            chunks = [self._placed(name, chunk) for chunk in rows.column(at).chunks]
            rows = rows.set_column(at, name, pa.chunked_array(chunks, pa.int64()))
        return rows.combine_chunks()

    def rows(self, parts: Sequence[pa.Table]) -> SpooledRows:
        """Some of what ``add`` gave, all with the same names."""
        return SpooledRows(pa.concat_tables(parts).combine_chunks(), self._texts, self._kinds)

    def _placed(self, name: str, chunk: pa.Array) -> pa.Array:
        """The numbers of texts, which are kept."""
        texts = self._texts.setdefault(name, SpooledTexts())
        encoded = chunk if isinstance(chunk, pa.DictionaryArray) else chunk.dictionary_encode()
        self._kinds[name] = encoded.type.value_type
        base = len(texts)
        texts.add(encoded.dictionary)
        places = np.asarray(encoded.indices.fill_null(0).to_numpy(zero_copy_only=False), np.int64) + base
        return pa.array(places, mask=encoded.indices.is_null().to_numpy(zero_copy_only=False))


def picked(source: SourceRows, numbers: pa.Array) -> SourceRows:
    """Some of the rows; of spooled ones the texts stay where they are."""
    return source.picked(numbers) if isinstance(source, SpooledRows) else source.take(numbers)


def _large(kind: pa.DataType) -> pa.DataType:
    return pa.large_string() if pa.types.is_string(kind) or pa.types.is_large_string(kind) else pa.large_binary()


def _write(number: int, content: memoryview) -> None:
    while content:
        content = content[os.write(number, content[: 1 << 30]) :]


def _read(number: int, begin: int, end: int) -> bytes:
    parts = []
    while begin < end:
        part = os.pread(number, end - begin, begin)
        if not part:
            raise OSError("a file of spooled texts has become shorter")
        parts.append(part)
        begin += len(part)
    return b"".join(parts)
