"""Turns the listed files of a source into one typed Spark frame, with what is wrong told per row.

Called by the load run (rows in the table's columns) and the merge run (rows in the source's own columns).
Needs a session made by ``skipstone.session``: UTC, exact column names, ANSI. Only names of Json are read at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from pyiceberg.schema import Schema
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import SourceSpec
from skipstone_core.errors import BadSpec
from skipstone_core.language.paths import split_path
from skipstone_core.merging.unused import MAX_UNUSED, Names
from skipstone_core.reasons import Reason

from skipstone.sources.avro.files import avro_groups
from skipstone.sources.columns import SourceColumn, fed_types, source_columns, table_columns, table_names
from skipstone.sources.groups import ColumnGroup, RawGroup, is_text
from skipstone.sources.listing import SourceListing
from skipstone.sources.nested import Named
from skipstone.sources.projection import (
    ABSENT_COLUMN,
    ERROR_COLUMN,
    FILE_COLUMN,
    RECORD_COLUMN,
    ExtraColumns,
    empty_columns,
    project,
)
from skipstone.sources.text.files import csv_groups, declared_names, json_groups
from skipstone.sources.text.options import TextForms, TextOptions, no_options, text_options
from skipstone.sources.typed.files import typed_groups
from skipstone.sources.typed.nesting import is_nested
from skipstone.sources.unused import UNUSED_COLUMN, are_counted, values_known

__all__ = [
    "ABSENT_COLUMN",
    "ERROR_COLUMN",
    "FILE_COLUMN",
    "RECORD_COLUMN",
    "UNUSED_COLUMN",
    "ReadRules",
    "SourceColumn",
    "SourceRead",
    "read_source",
    "read_table_rows",
]
_NOTHING = Named()


@dataclass(frozen=True, kw_only=True)
class SourceRead:
    """``frame`` has ``columns`` by name, in order, then ERROR, RECORD and FILE, and ABSENT where that was asked for;
    data of rows with an error is void.

    ``groups``: the columns of the files. Of a load: ``names`` on both sides, and behind the other columns UNUSED_COLUMN
    for those ``counted``; ``known``: rows with a value by column, of those of which files say it by themselves.
    """

    frame: DataFrame
    columns: tuple[SourceColumn, ...]
    listing: SourceListing
    groups: tuple[ColumnGroup, ...]
    names: Names | None = None
    counted: tuple[str, ...] = ()
    known: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ReadRules:
    """``named``: which fields within columns of the source become columns, and what files may lack.

    ``records``: all rows come with their text, not bad ones only.
    """

    time_zone: str
    named: Named = _NOTHING
    records: bool = False


def read_source(
    spark: SparkSession, listing: SourceListing, source: SourceSpec, schema: Schema, rules: ReadRules
) -> SourceRead:
    """All source columns under their own names, as a merge needs them.

    A column's type: that of the table column it feeds (by mapping, else by equal name), else ``source.columns``,
    else string (Csv, Json) or the file's own type. Columns of nested types are left out, but for fields that are named.
    Timestamps without offset become instants in the time zone where the type is timestamptz.
    Where files and records may lack columns, the frame tells which.
    Raises BadSpec (INVALID_SPEC, COLUMN_NOT_FOUND, COLUMN_TYPE_UNSUPPORTED) and BadData (SOURCE_UNREADABLE,
    SOURCE_COLUMN_MISSING when files lack a column that they must have: without a choice, one that others have).
    """
    reading = _Reading(spark, listing, source, schema, rules.named)
    text = _rules(spark, source, rules.time_zone)
    groups = reading.groups(text.options)
    columns = source_columns(source, schema, groups, rules.named.needed)
    extras = ExtraColumns(absent=rules.named.needed is not None, records=rules.records)
    return reading.frame(groups, text, columns, extras)


def read_table_rows(
    spark: SparkSession, listing: SourceListing, source: SourceSpec, schema: Schema, time_zone: str
) -> SourceRead:
    """The table's columns that the source feeds, in the table's order; a null in a required one is an error.

    Raises as ``read_source``, and BadData with SOURCE_COLUMN_MISSING for a required column that no source column
    feeds and for a source column that the mapping names and a file lacks.
    """
    reading = _Reading(spark, listing, source, schema)
    rules = _rules(spark, source, time_zone)
    groups = reading.groups(rules.options)
    columns, names = table_columns(source, schema, groups), table_names(source, schema, groups)
    unused = names.unused[:MAX_UNUSED]
    known = values_known(listing, source.format, [name for name in unused if not is_text(groups, name)])
    counted = are_counted(groups, unused, known)
    read = reading.frame(groups, rules, columns, ExtraColumns(counted=counted))
    return replace(read, names=names, counted=counted, known=known)


def _rules(spark: SparkSession, source: SourceSpec, time_zone: str) -> TextForms:
    is_text = source.format in (SourceFormat.CSV, SourceFormat.JSON)
    if not is_text:
        no_options(source)
    rules = TextForms(options=text_options(source) if is_text else TextOptions(), time_zone=time_zone)
    moment = F.lit("2000-01-01 00:00:00").cast("timestamp")
    _probe(spark, F.to_utc_timestamp(moment, time_zone), "spec.timeZone", time_zone, "time zone")
    for name, pattern in (
        ("dateFormat", rules.options.date_format),
        ("timestampFormat", rules.options.timestamp_format),
    ):
        if pattern is not None:
            column = F.try_to_timestamp(F.lit("x"), F.lit(pattern))
            _probe(spark, column, f"source.options.{name}", pattern, "pattern")
    return rules


def _probe(spark: SparkSession, column: Column, field: str, text: str, noun: str) -> None:
    """Let Spark judge a zone or a pattern once, so that a wrong one is told by its field's name."""
    try:
        spark.sql("values 1").select(column).collect()  # one literal row: Spark folds it and runs no job
    except PySparkException as error:
        raise BadSpec(
            Reason.INVALID_SPEC, f"'{text}' is not a {noun} that Spark understands: fix it", field=field
        ) from error


@dataclass(frozen=True)
class _Reading:
    """What is read for a table of ``schema``, fields within columns included that are ``named``."""

    spark: SparkSession
    listing: SourceListing
    source: SourceSpec
    schema: Schema
    named: Named = _NOTHING

    def frame(
        self, groups: Sequence[RawGroup], rules: TextForms, columns: tuple[SourceColumn, ...], extras: ExtraColumns
    ) -> SourceRead:
        """The rows of all files."""
        root = self.listing.storage.address()
        frames = [project(group, columns, rules, root, extras) for group in groups]
        frame = reduce(DataFrame.union, frames) if frames else self.spark.range(0).select(*empty_columns(extras))
        return SourceRead(frame=frame, columns=columns, listing=self.listing, groups=tuple(groups))

    def groups(self, options: TextOptions) -> list[RawGroup]:
        """The files by their columns."""
        match self.source.format:
            case SourceFormat.CSV:
                return csv_groups(self.spark, self.listing, declared_names(self.source, self.schema), options)
            case SourceFormat.JSON:
                wanted = fed_types(self.source, self.schema)
                groups = json_groups(self.spark, self.listing, options, self._named, wanted)
                self._refuse_halves(groups)
                return groups
            case SourceFormat.AVRO:
                return avro_groups(self.spark, self.listing, self._named)
            case _:
                return typed_groups(self.spark, self.listing, self.source.format, self._named)

    @property
    def _named(self) -> Named:
        fed = fed_types(self.source, self.schema)
        return replace(self.named, nested={name: kind for name, kind in fed.items() if is_nested(kind)})

    def _refuse_halves(self, groups: Sequence[RawGroup]) -> None:
        """An object of Json is read as text or by its fields: the table must not need its text as well."""
        fields = {name for group in groups for name, column in group.columns.items() if column.is_field}
        columns = {field.name for field in self.schema.fields}
        for name in sorted(fields):
            if (root := split_path(name)[0]) in columns:
                message = f"{name!r} is a field of {root!r}, a column of the table, and Json is read as one of both"
                raise BadSpec(Reason.INVALID_SPEC, f"{message}: name no field of it", field=self.named.fields[name])
