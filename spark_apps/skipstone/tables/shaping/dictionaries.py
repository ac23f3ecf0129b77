"""Chooses the columns of a Parquet file that are written without a dictionary.

Used for data files and for the changes of merges. Arrow gives up a dictionary only when it is too large. Of values that
hardly repeat it takes as many bytes as they do, and who wants a few rows of a row group decodes all of it: plain pages
of such values are smaller, and are written and read faster. Must not know tables or files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: The sample: so many rows, wherever chance takes them, each with the row behind it. Rows at even distances would miss
#: what repeats at another distance, and rows alone what repeats side by side.
_PAIRS = 2_048
#: Of fewer rows a dictionary costs less than a sample.
_MANY_ROWS = 16_384
#: Fewer values tell nothing.
_ENOUGH = 2_048
#: When n values are d distinct ones, drawn alike, m of them hold about m^2 / 2d repeats. Two thirds of n values are
#: distinct when d is 1.14 n.
_REPEATS = 1 / (2 * 1.14)


def dictionary_columns(rows: pa.Table, *, allowed: Sequence[str] | bool = True) -> Sequence[str] | bool:
    """Return ``use_dictionary`` of ``pyarrow.parquet.ParquetWriter`` for ``rows``, the first of a file.

    ``allowed``: the paths of columns that may have one; True: all.
    """
    plain = _mostly_distinct(rows) if allowed else ()
    if not plain:
        return allowed
    return [path for path in (_paths(rows.schema) if isinstance(allowed, bool) else allowed) if path not in plain]


def _mostly_distinct(rows: pa.Table) -> set[str]:
    """The columns, at the top of the schema, of which more than about two thirds of the values are distinct."""
    names = [field.name for field in rows.schema if _is_judged(field.type)]
    if rows.num_rows < _MANY_ROWS or not names:
        return set()
    sample = _sampled(rows.select(names))
    columns = zip(names, sample.columns, strict=True)
    return {name for name, column in columns if _is_distinct(column, rows.num_rows)}


def _sampled(rows: pa.Table) -> pa.Table:
    """The rows of the sample, which is the same for the same number of rows."""
    first = np.random.default_rng(rows.num_rows).integers(0, rows.num_rows - 1, _PAIRS)
    chosen, begin, batches = np.unique([first, first + 1]), 0, []
    for batch in rows.to_batches():  # to take from a whole column of texts, Arrow would copy all of it
        mine = chosen[slice(*np.searchsorted(chosen, [begin, begin + batch.num_rows]))] - begin
        batches.append(batch.take(pa.array(mine)))
        begin += batch.num_rows
    return pa.Table.from_batches(batches, rows.schema)


def _is_judged(kind: pa.DataType) -> bool:
    texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    raw = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    numbers = pa.types.is_primitive(kind) and not pa.types.is_boolean(kind)
    return bool(texts or raw or numbers or pa.types.is_decimal(kind))


def _is_distinct(sample: pa.ChunkedArray, rows: int) -> bool:
    values = len(sample) - sample.null_count
    if values < _ENOUGH:
        return False
    repeats = values - pc.count_distinct(sample, mode="only_valid").as_py()
    return bool(repeats * rows * values / len(sample) <= _REPEATS * values**2)


def _paths(schema: pa.Schema) -> list[str]:
    """The paths of the columns of a file of ``schema``, those in structs and lists as Arrow names them in Parquet."""
    return [path for field in schema for path in _below(field.name, field.type)]


def _below(path: str, kind: pa.DataType) -> Iterator[str]:
    if not pa.types.is_nested(kind):
        yield path
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _below(f"{path}.{field.name}", field.type)
    elif pa.types.is_map(kind):
        yield from _below(f"{path}.key_value.key", kind.key_type)
        yield from _below(f"{path}.key_value.value", kind.item_type)
    else:
        yield from _below(f"{path}.list.element", kind.value_type)
