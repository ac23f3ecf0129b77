"""Statistics of a registered file by its footer, as careful as those of our own writer.

A bound stays away whenever it may be wrong: of texts and bytes by writers that are not known to order them as Parquet's
specification says, of timestamps of the old form, which have none. How many NaNs there are no footer tells. Must not
read rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import MetricModeTypes, StatisticsCollector, compute_statistics_plan
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IcebergType
from skipstone_core.stats import upper_bound

from skipstone.compat.lineage.primitives import ByPrimitive
from skipstone.files.parquet import ForeignColumns, NanCounter, statistics_of
from skipstone.files.registering.columns import FileColumns

#: Writers that order texts and bytes by their unsigned bytes, and leave NaNs out of bounds.
_TRUSTED = re.compile(r"parquet-cpp-arrow version |parquet-mr version 1\.1\d\.|parquet-rs version |DuckDB version ")


class _Bounds(NamedTuple):
    """``are_values``: one value is one bound, as manifests hold it. ``are_doubtful``: unless the writer is trusted."""

    are_values: bool = False
    are_doubtful: bool = False


_CERTAIN, _DOUBTFUL, _UNKNOWN = _Bounds(are_values=True), _Bounds(are_doubtful=True), _Bounds()
_BOUNDS = ByPrimitive(
    boolean=_CERTAIN,
    integer=_CERTAIN,
    long=_CERTAIN,
    float=_DOUBTFUL,
    double=_DOUBTFUL,
    decimal=_CERTAIN,
    date=_CERTAIN,
    time=_UNKNOWN,
    timestamp=_CERTAIN,
    timestamptz=_CERTAIN,
    timestamp_ns=_UNKNOWN,
    timestamptz_ns=_UNKNOWN,
    string=_Bounds(are_values=True, are_doubtful=True),
    uuid=_DOUBTFUL,
    fixed=_DOUBTFUL,
    binary=_DOUBTFUL,
    opaque=_UNKNOWN,
)


def footer_statistics(
    footer: pq.FileMetaData, schema: Schema, columns: FileColumns, modes: Mapping[str, str]
) -> dict[str, Any]:
    """Arguments of a DataFile. ``modes``: the table's properties of metrics modes."""
    doubted = not _TRUSTED.match(footer.created_by or "")
    unbounded, silent = set[int](), set[int]()
    for path, statistics in _statistics(footer):
        leaf = columns.leaves[path]
        if statistics is None:
            silent.add(leaf.field_id)
        elif (_BOUNDS.find(leaf.kind) or _UNKNOWN).are_doubtful and (doubted or _has_nan(leaf.kind, statistics)):
            unbounded.add(leaf.field_id)
    foreign = ForeignColumns({path: leaf.field_id for path, leaf in columns.leaves.items()}, unbounded, silent)
    return statistics_of(footer, schema, NanCounter(), dict(modes), foreign)


def add_constants(
    statistics: dict[str, Any], values: Mapping[int, Any], schema: Schema, modes: Mapping[str, str]
) -> None:
    """Add to ``statistics`` that columns have one value in all rows, whether or not the file holds them.

    ``values``: by field id, as Iceberg keeps partition values.
    """
    plan = compute_statistics_plan(schema, dict(modes))
    for number, value in values.items():
        if _BOUNDS.of(plan[number].iceberg_type).are_values:
            _add_constant(statistics, plan[number], value)


def _add_constant(statistics: dict[str, Any], column: StatisticsCollector, value: Any) -> None:
    mode, number, rows = column.mode, column.field_id, statistics["record_count"]
    if mode.type == MetricModeTypes.NONE:
        return
    statistics["value_counts"][number] = rows
    statistics["null_value_counts"][number] = 0 if value is not None else rows
    if value is None or mode.type == MetricModeTypes.COUNTS:
        return
    upper = upper_bound(value, mode.length) if isinstance(value, str) else value
    lower = value[: mode.length] if isinstance(value, str) else value
    statistics["lower_bounds"][number] = to_bytes(column.iceberg_type, lower)
    if upper is not None:
        statistics["upper_bounds"][number] = to_bytes(column.iceberg_type, upper)


def _statistics(footer: pq.FileMetaData) -> Iterator[tuple[str, pq.Statistics | None]]:
    """Of each column chunk, by the path of its column."""
    for group in map(footer.row_group, range(footer.num_row_groups)):
        for column in map(group.column, range(footer.num_columns)):
            yield column.path_in_schema, column.statistics if column.is_stats_set else None


def _has_nan(kind: IcebergType, statistics: pq.Statistics) -> bool:
    is_float = isinstance(kind, FloatType | DoubleType) and statistics.has_min_max
    return is_float and any(math.isnan(end) for end in (statistics.min_raw, statistics.max_raw))


def null_counts(footer: pq.FileMetaData, columns: FileColumns) -> Mapping[int, int | None]:
    """How many nulls there are by field id, as far as the footer tells."""
    counts: dict[int, int | None] = dict.fromkeys((leaf.field_id for leaf in columns.leaves.values()), 0)
    for path, statistics in _statistics(footer):
        number = columns.leaves[path].field_id
        before, known = counts[number], statistics if statistics and statistics.has_null_count else None
        counts[number] = None if before is None or known is None else before + known.null_count
    return counts
