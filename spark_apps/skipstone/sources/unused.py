"""How many rows of a source have a value in columns that nothing uses.

Called by loads and merges once they know which these are. Footers of Parquet tell without reading the columns; in other
formats each row says it by a character for each column, which tasks add up: an answer of a task counts once, however
often it is tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.reports import UnusedColumn

from skipstone.sources.avro.files import avro_batches, avro_columns
from skipstone.sources.groups import ColumnGroup
from skipstone.sources.listing import SourceListing
from skipstone.storage.port import StoredFile
from skipstone.tables.parquetfiles import read_metadata

#: A column of frames: string with a character for each column that is counted: 1 where the row has a value, else 0.
UNUSED_COLUMN = "_skipstone_unused"
_HAS_VALUE = ord("1")


def values_known(listing: SourceListing, kind: SourceFormat, names: Collection[str]) -> Mapping[str, int]:
    """Rows with a value by column, of those ``names`` of which the files of ``listing`` say it by themselves."""
    if not names or kind is not SourceFormat.PARQUET:
        return {}
    return _total([_footer_values(file, names) for file in listing.stored], names)


def values_read(files: Sequence[StoredFile], names: Collection[str]) -> Mapping[str, int]:
    """The same of small files of Avro, by reading them once more: of columns that are loaded."""
    if not names:
        return {}
    counts: Counter[str] = Counter()
    not_loaded: set[str] = set()
    for file in files:
        not_loaded.update(name for name, column in avro_columns(file).items() if column.file_type is None)
        for batch in avro_batches(file):
            for name in set(names).intersection(batch.schema.names):
                counts[name] += batch.num_rows - batch.column(name).null_count
    return {name: counts[name] for name in names if name not in not_loaded}


def counted_text(conditions: Iterable[str]) -> str:
    """UNUSED_COLUMN as SQL, of conditions that hold where a row has no value."""
    return f"concat({', '.join([chr(39) * 2, *(f'''if({condition}, '0', '1')''' for condition in conditions)])})"


def null_conditions(group: ColumnGroup, names: Sequence[str]) -> Iterator[str]:
    """A condition for each of ``names`` that holds where a row of ``group`` has no value."""
    for name in names:
        column = group.columns.get(name)
        is_read = column is not None and (column.is_text or column.file_type is not None)
        yield f"{column.ref} is null" if column is not None and is_read else "true"


def are_counted(groups: Sequence[ColumnGroup], names: Sequence[str], known: Collection[str]) -> tuple[str, ...]:
    """Those of ``names`` whose values rows have to tell: not ``known``, and read in all files that have them."""
    return tuple(
        name
        for name in names
        if name not in known
        and all(
            column.is_text or column.is_empty or column.file_type is not None
            for group in groups
            if (column := group.columns.get(name)) is not None
        )
    )


def add_up(texts: pa.Array, names: Sequence[str]) -> Mapping[str, int]:
    """Rows with a value by name, out of UNUSED_COLUMN."""
    if not (len(texts) and names):
        return dict.fromkeys(names, 0)
    fixed = texts.cast(pa.binary()).cast(pa.binary(len(names)))
    start = fixed.offset * len(names)
    content = np.frombuffer(fixed.buffers()[1], dtype=np.uint8)[start : start + len(fixed) * len(names)]
    counts = (content.reshape(len(fixed), len(names)) == _HAS_VALUE).sum(axis=0)
    return dict(zip(names, counts.tolist(), strict=True))


def merged_counts(parts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    """The sums of counts by name."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def unused_columns(names: Sequence[str], counts: Mapping[str, int]) -> tuple[UnusedColumn, ...]:
    """``names`` with their ``counts``."""
    return tuple(UnusedColumn(name=name, rows=counts.get(name)) for name in names)


def _total(parts: Sequence[Mapping[str, int | None]], names: Collection[str]) -> Mapping[str, int]:
    """Sums of names of which every part says it."""
    sums = {name: [part.get(name, 0) for part in parts] for name in names}
    return {name: sum(count or 0 for count in counts) for name, counts in sums.items() if None not in counts}


def _footer_values(stored: StoredFile, names: Collection[str]) -> Mapping[str, int | None]:
    """Values of columns that the file has; None for one of which its footer does not say it."""
    with stored.open(buffering=0) as opened:
        footer = read_metadata(opened)
    leaves = [footer.schema.column(at) for at in range(len(footer.schema))]
    paths = Counter(leaf.path for leaf in leaves)
    values: dict[str, int | None] = {}
    for at, leaf in enumerate(leaves):
        is_one = paths[leaf.path] == 1 and leaf.path in names  # a.b may be a column, and a field within one
        count = _values_of(footer, at) if is_one and not leaf.max_repetition_level else None
        values |= dict.fromkeys(_columns_of(leaf.path, names, is_one=is_one), count)
    return values


def _columns_of(path: str, names: Collection[str], *, is_one: bool) -> Iterator[str]:
    """Those of ``names`` that a leaf with this path may belong to."""
    return iter((path,)) if is_one else (name for name in names if path == name or path.startswith(f"{name}."))


def _values_of(footer: pq.FileMetaData, at: int) -> int | None:
    if footer.schema.column(at).logical_type.type == "NULL":
        return 0
    chunks = [footer.row_group(group).column(at).statistics for group in range(footer.num_row_groups)]
    nulls = [statistics.null_count if statistics and statistics.has_null_count else None for statistics in chunks]
    return None if None in nulls else footer.num_rows - sum(count or 0 for count in nulls)
