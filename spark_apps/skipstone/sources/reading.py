"""Turns the listed files of a source into one typed Spark frame, with what is wrong told per row.

Called by the load run (rows in the table's columns) and the merge run (rows in the source's own columns).
Needs a session made by ``skipstone.session``: UTC, exact column names, ANSI. Only names of Json are read at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from skipstone_core.errors import BadSpec
from skipstone_core.jobs import SourceFormat, SourceSpec
from skipstone_core.reasons import Reason

from skipstone.sources.columns import SourceColumn, source_columns, table_columns
from skipstone.sources.filetypes import feed
from skipstone.sources.groups import CORRUPT, URL, RawColumn, RawGroup
from skipstone.sources.listing import SourceListing
from skipstone.sources.options import TextOptions, no_options, text_options
from skipstone.sources.text import Conversion, TextRules, from_text
from skipstone.sources.text_files import csv_groups, declared_names, json_groups
from skipstone.sources.typed_files import typed_groups

__all__ = ["ERROR_COLUMN", "FILE_COLUMN", "RECORD_COLUMN", "SourceColumn", "SourceRead", "read_source",
           "read_table_rows"]  # fmt: skip

#: Columns that every frame carries after its data columns. ERROR: string, null for a good row, else one sentence
#: that names column and value. RECORD and FILE: the row as text and the file's path relative to the root, for bad rows
#: only.
ERROR_COLUMN = "_skipstone_error"
RECORD_COLUMN = "_skipstone_record"
FILE_COLUMN = "_skipstone_file"
MAX_RECORD_CHARACTERS = 1 << 20
_SHOWN_CHARACTERS = 80


@dataclass(frozen=True, kw_only=True)
class SourceRead:
    """``frame`` has ``columns`` by name, in order, then ERROR, RECORD and FILE; data of rows with an error is void."""

    frame: DataFrame
    columns: tuple[SourceColumn, ...]
    listing: SourceListing


def read_source(
    spark: SparkSession, listing: SourceListing, source: SourceSpec, schema: Schema, time_zone: str
) -> SourceRead:
    """All source columns under their own names, as a merge needs them.

    A column's type: that of the table column it feeds (by mapping, else by equal name), else ``source.columns``,
    else string (Csv, Json) or the file's own type. Columns of nested types are left out.
    Timestamps without offset become instants in ``time_zone`` where the type is timestamptz.
    Raises BadSpec (INVALID_SPEC, COLUMN_NOT_FOUND, COLUMN_TYPE_UNSUPPORTED) and BadData (SOURCE_UNREADABLE,
    SOURCE_COLUMN_MISSING when files differ in their columns).
    """
    rules = _rules(spark, source, time_zone)
    groups = _groups(spark, (listing, source, schema), rules.options)
    columns = source_columns(source, schema, groups)
    return SourceRead(frame=_joined((spark, listing.root), groups, columns, rules), columns=columns, listing=listing)


def read_table_rows(
    spark: SparkSession, listing: SourceListing, source: SourceSpec, schema: Schema, time_zone: str
) -> SourceRead:
    """The table's columns that the source feeds, in the table's order; a null in a required one is an error.

    Raises as ``read_source``, and BadData with SOURCE_COLUMN_MISSING for a required column that no source column
    feeds and for a source column that the mapping names and a file lacks.
    """
    rules = _rules(spark, source, time_zone)
    groups = _groups(spark, (listing, source, schema), rules.options)
    columns = table_columns(source, schema, groups)
    return SourceRead(frame=_joined((spark, listing.root), groups, columns, rules), columns=columns, listing=listing)


def _rules(spark: SparkSession, source: SourceSpec, time_zone: str) -> TextRules:
    is_text = source.format in (SourceFormat.CSV, SourceFormat.JSON)
    if not is_text:
        no_options(source)
    rules = TextRules(options=text_options(source) if is_text else TextOptions(), time_zone=time_zone)
    moment = F.lit("2000-01-01 00:00:00").cast("timestamp")
    _probe(spark, F.to_utc_timestamp(moment, time_zone), ("spec.timeZone", time_zone, "time zone"))
    for name, pattern in (
        ("dateFormat", rules.options.date_format),
        ("timestampFormat", rules.options.timestamp_format),
    ):
        if pattern is not None:
            _probe(
                spark, F.try_to_timestamp(F.lit("x"), F.lit(pattern)), (f"source.options.{name}", pattern, "pattern")
            )
    return rules


def _probe(spark: SparkSession, column: Column, what: tuple[str, str, str]) -> None:
    """Let Spark judge a zone or a pattern once, so that a wrong one is told by its field's name."""
    field, text, noun = what
    try:
        spark.range(1).select(column).collect()
    except PySparkException as error:
        raise BadSpec(
            Reason.INVALID_SPEC, f"'{text}' is no {noun} that Spark understands: mend it", field=field
        ) from error


def _groups(
    spark: SparkSession, what: tuple[SourceListing, SourceSpec, Schema], options: TextOptions
) -> list[RawGroup]:
    listing, source, schema = what
    if source.format is SourceFormat.CSV:
        return csv_groups(spark, listing, declared_names(source, schema), options)
    if source.format is SourceFormat.JSON:
        return json_groups(spark, listing, options)
    return typed_groups(spark, listing, source.format)


def _joined(
    site: tuple[SparkSession, str], groups: Sequence[RawGroup], columns: Sequence[SourceColumn], rules: TextRules
) -> DataFrame:
    spark, root = site
    if not groups:
        nothing = [F.lit(None).cast("string").alias(name) for name in (ERROR_COLUMN, RECORD_COLUMN, FILE_COLUMN)]
        return spark.range(0).select(*nothing)
    return reduce(DataFrame.union, [_project(group, columns, rules, root) for group in groups])


def _project(group: RawGroup, columns: Sequence[SourceColumn], rules: TextRules, root: str) -> DataFrame:
    values: list[Column] = []
    problems: list[Column] = []
    for column in columns:
        value, problem = _convert(group, column, rules)
        values.append(value.alias(column.name))
        problems.append(problem)
    corrupt = F.col(CORRUPT)
    nothing = F.lit(None).cast("string")
    problem = F.coalesce(*problems) if problems else nothing
    error = F.when(corrupt.isNotNull(), F.lit(group.corrupt)).otherwise(problem)
    record = F.substring(F.coalesce(corrupt, group.record), 1, MAX_RECORD_CHARACTERS)
    return group.frame.select(
        *values,
        error.alias(ERROR_COLUMN),
        F.when(error.isNotNull(), record).alias(RECORD_COLUMN),
        F.when(error.isNotNull(), _file(root)).alias(FILE_COLUMN),
    )


def _file(root: str) -> Column:
    """The path relative to ``root`` out of a file's URL, in which a plus sign means itself."""
    path = F.try_url_decode(F.regexp_replace(F.col(URL), r"\+", "%2B"))
    return F.regexp_replace(path, rf"^file:/*\Q{root.lstrip('/')}\E/", "")


def _convert(group: RawGroup, column: SourceColumn, rules: TextRules) -> tuple[Column, Column]:
    """The typed value and, where it does not fit, why."""
    raw_column = group.columns.get(column.source)
    shown = column.name if column.name == column.source else f"{column.source}' (for '{column.name}"
    if raw_column is None:
        return F.lit(None).cast(frame_type(column.type)), F.lit(None).cast("string")
    raw = F.col(raw_column.ref)
    if raw_column.is_text and rules.options.null_value is not None:
        raw = F.when(raw != rules.options.null_value, raw)
    found = _conversion(raw_column, raw, column.type, rules)
    if found is None:
        raise _unsupported(group, column, raw_column)
    text = F.substring(raw.cast("string"), 1, _SHOWN_CHARACTERS)
    misfit = F.concat(F.lit(f"column '{shown}': '"), text, F.lit(f"' is not {found.what}"))
    problem = F.when(raw.isNotNull() & found.value.isNull(), misfit)
    if column.required:
        problem = problem.when(raw.isNull(), F.lit(f"column '{shown}' is required and holds null"))
    return found.value, problem


def _conversion(column: RawColumn, raw: Column, kind: IcebergType, rules: TextRules) -> Conversion | None:
    if column.is_text:
        return from_text(raw, kind, rules)
    return None if column.file_type is None else feed(column.file_type, raw, kind, rules.time_zone)


def _unsupported(group: RawGroup, column: SourceColumn, raw: RawColumn) -> BadSpec:
    if raw.is_text:
        message = f"column '{column.name}' is {column.type}, which text cannot carry: load it from Parquet or Orc"
    else:
        found = raw.file_type.natural if raw.file_type else "of a type that is not loaded"
        message = (
            f"column '{column.source}' of '{group.example}' is {found} and cannot feed '{column.name}' ({column.type}) "
            "without loss: change the file's type or the table's"
        )
    return BadSpec(Reason.COLUMN_TYPE_UNSUPPORTED, message, field="source")


def frame_type(kind: IcebergType) -> str:
    """The Spark type in which a frame holds ``kind``."""
    named = {"int": "int", "long": "bigint", "time": "bigint", "uuid": "string", "timestamp": "timestamp_ntz",
             "timestamptz": "timestamp"}  # fmt: skip
    text = str(kind)
    return "binary" if text.startswith("fixed[") else named.get(text, text)
