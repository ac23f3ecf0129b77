"""Turns the listed files of a source into one typed Spark frame, with what is wrong told per row.

Called by the load run (rows in the table's columns) and the merge run (rows in the source's own columns).
Needs a session made by ``skipstone.session``: UTC, exact column names, ANSI. Reads nothing before an action.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType
from pyspark.sql import DataFrame, SparkSession
from skipstone_core.jobs import SourceSpec

from skipstone.sources.listing import SourceListing

#: Columns that every frame carries after its data columns. ERROR: string, null for a good row, else one sentence
#: that names column and value. RECORD: the row as text, for bad rows only. FILE: path relative to the root.
ERROR_COLUMN = "_skipstone_error"
RECORD_COLUMN = "_skipstone_record"
FILE_COLUMN = "_skipstone_file"


@dataclass(frozen=True, kw_only=True)
class SourceColumn:
    """A data column of the frame: its Iceberg type, and the source column it came from (None: null everywhere).

    In the frame uuid is string and time is bigint (microseconds of the day), because Spark has no such types;
    ``sources.arrow.table_batch`` turns them into what the table's Arrow schema wants.
    """

    name: str
    type: IcebergType
    source: str | None
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class SourceRead:
    """``frame`` has ``columns`` by name, in order, then ERROR, RECORD and FILE. Rows with an error hold nulls."""

    frame: DataFrame
    columns: tuple[SourceColumn, ...]
    listing: SourceListing


def read_source(
    spark: SparkSession, listing: SourceListing, source: SourceSpec, schema: Schema, time_zone: str
) -> SourceRead:
    """All source columns under their own names, as a merge needs them.

    A column's type: that of the table column it feeds (by mapping, else by equal name), else ``source.columns``,
    else string (Csv, Json: only declared columns and those the table or the mapping names) or the file's own type.
    Timestamps without offset become instants in ``time_zone`` where the type is timestamptz.
    Raises BadSpec (INVALID_SPEC, COLUMN_NOT_FOUND, COLUMN_TYPE_UNSUPPORTED) and BadData (SOURCE_UNREADABLE).
    """
    raise NotImplementedError(spark, listing, source, schema, time_zone)


def read_table_rows(
    spark: SparkSession, listing: SourceListing, source: SourceSpec, schema: Schema, time_zone: str
) -> SourceRead:
    """The table's columns in the table's order, as a load needs them; a null in a required column is an error.

    Raises as ``read_source``, and BadData with SOURCE_COLUMN_MISSING for a required column that no source column
    feeds.
    """
    raise NotImplementedError(spark, listing, source, schema, time_zone)
