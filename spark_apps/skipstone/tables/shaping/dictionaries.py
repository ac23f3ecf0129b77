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

#: The sample: so many blocks of rows, evenly spread. A block shows runs of a value, all of them repeats far apart.
_BLOCKS, _BLOCK_ROWS = 64, 64
#: Fewer values tell nothing, and their dictionary costs nothing.
_ENOUGH = 2_048
#: When n values are d distinct ones, drawn alike, m of them hold about m^2 / 2d repeats. Two thirds of n values are
#: distinct when d is 1.14 n.
_REPEATS = 1 / (2 * 1.14)


def dictionary_columns(rows: pa.Table, *, allowed: Sequence[str] | bool = True) -> Sequence[str] | bool:
    """What ``use_dictionary`` of ``pyarrow.parquet.ParquetWriter`` is for ``rows``, the first of a file.

    ``allowed``: the paths of columns that may have one; True: all.
    """
    plain = _mostly_distinct(rows) if allowed else ()
    if not plain:
        return allowed
    return [path for path in (_paths(rows.schema) if isinstance(allowed, bool) else allowed) if path not in plain]


def _mostly_distinct(rows: pa.Table) -> set[str]:
    """The columns, at the top of the schema, of which more than about two thirds of the values are distinct."""
    if rows.num_rows < _ENOUGH:
        return set()
    starts = np.linspace(0, max(0, rows.num_rows - _BLOCK_ROWS), _BLOCKS).astype(np.int64)
    sampled = pa.array(np.unique(starts[:, None] + np.arange(_BLOCK_ROWS)))
    return {
        field.name
        for field, column in zip(rows.schema, rows.columns, strict=True)
        if _has_dictionary(field.type) and _is_distinct(column.take(sampled), rows.num_rows)
    }


def _has_dictionary(kind: pa.DataType) -> bool:
    nested, boolean = pa.types.is_nested(kind), pa.types.is_boolean(kind)
    return not (nested or boolean or pa.types.is_null(kind) or pa.types.is_dictionary(kind))


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
