"""The source of a LoadJob or MergeJob and the run fields that both share.

Imported by the two job kinds. Must not read a source: that is the data plane's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from skipstone_core.codec import camel
from skipstone_core.contract.badrecords import BadRecordPolicy
from skipstone_core.contract.columns import MatchNames, UnknownColumns
from skipstone_core.contract.feeds import EqualRows, Infinity, NonFinite, TimePrecision
from skipstone_core.contract.formats import ChangeFormat, SourceFormat
from skipstone_core.contract.requests import ConsumePolicy, DuplicatesPolicy
from skipstone_core.merging.feeds import file_formats, in_words, tool_fields, with_table_names

from skipstone_operator.resources.rules import limits
from skipstone_operator.resources.rules.markers import Doc, Rule, allowed_keys, name_text
from skipstone_operator.resources.sourcing.columns import ColumnSource, SourceColumn
from skipstone_operator.resources.sourcing.delta import NEWEST_VERSION, PLAIN_DELTA, SETTLED, DeltaFolder
from skipstone_operator.resources.sourcing.partitions import PARQUET_FOLDERS, PLAIN_FOLDERS, ValueFolders
from skipstone_operator.resources.sourcing.paths import PATH_RULES
from skipstone_operator.resources.sourcing.tables import FILES_ONLY, NEWEST_SNAPSHOT, SourceTable
from skipstone_operator.resources.storage import LOCATION_NAME

UNTYPED = (SourceFormat.CSV, SourceFormat.JSON)

TIME_ZONE = Doc(
    "Time zone of timestamps without offset, such as Europe/Berlin. Never changes.",
    min_length=1,
    max_length=64,
    pattern="^[A-Za-z0-9_+:/-]+$",
    help="timeZone must be the name of a time zone, such as UTC or Europe/Berlin",
)


def _is_of_files(source: Source) -> bool:
    return source.format is not None and source.paths is not None


@dataclass(frozen=True, kw_only=True)
class Source:
    """Files to read, all of one format, or a table."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda source: (
                _is_of_files(source)
                if source.table is None and source.delta is None
                else not (source.format or source.paths is not None) and (source.table is None or source.delta is None)
            ),
            rule="has(self.table) || has(self.delta) ? !has(self.format) && !has(self.paths) && !(has(self.table) && "
            "has(self.delta)) : has(self.format) && has(self.paths)",
            message="source takes either files or a table: set format and paths, or only table, or only delta",
        ),
        FILES_ONLY,
        NEWEST_SNAPSHOT,
        Rule(
            holds=lambda source: not source.columns or source.format in UNTYPED,
            rule="!has(self.columns) || self.columns.size() == 0 || (has(self.format) && self.format in ['Csv', "
            "'Json'])",
            message="source.columns is for the formats Csv and Json only: tables and Parquet, Orc and Avro files "
            "carry their own types",
            field_path=".columns",
        ),
        Rule(
            holds=lambda source: not source.options or source.format in UNTYPED,
            rule="!has(self.options) || self.options.size() == 0 || (has(self.format) && self.format in ['Csv', "
            "'Json'])",
            message="source.options is for the formats Csv and Json only: remove it for tables, Parquet, Orc and Avro",
            field_path=".options",
        ),
        PARQUET_FOLDERS,
        NEWEST_VERSION,
        SETTLED,
    )

    format: Annotated[
        SourceFormat | None, Doc("Format of the files: Csv, Json (one object a line), Parquet, Orc or Avro.")
    ] = None
    paths: Annotated[
        tuple[str, ...] | None,
        Doc(
            "Files, folders or glob patterns, relative to the root of the Warehouse or of source.location.",
            min_items=1,
            max_items=limits.MAX_PATHS,
            item=Doc("One path.", min_length=1, max_length=limits.MAX_PATH),
            rules=PATH_RULES,
        ),
    ] = None
    table: Annotated[SourceTable | None, Doc("A Table whose rows are the source, in place of files.")] = None
    delta: Annotated[DeltaFolder | None, Doc("A Delta table whose rows are the source, in place of files.")] = None
    location: Annotated[
        str | None,
        Doc(
            "Name of an entry of spec.sourceLocations of the Warehouse, to which paths are relative; when absent, they "
            "are relative to the root of the Warehouse.",
            min_length=1,
            max_length=40,
            pattern=LOCATION_NAME,
            help="source.location must be the name of a source location of the Warehouse: lower-case letters, digits "
            "and '-'",
        ),
    ] = None
    hive_partitions: Annotated[
        ValueFolders | None,
        Doc(
            "Reads values of columns from names of folders, such as day=2026-01-31, and all files below those of paths."
        ),
    ] = None
    options: Annotated[
        Mapping[str, str],
        Doc(
            "How to read Csv and Json: " + ", ".join(limits.SOURCE_OPTIONS) + ".",
            max_properties=16,
            item=Doc("Value of the option, as text.", max_length=256),
            rules=(allowed_keys("source.options", limits.SOURCE_OPTIONS),),
        ),
    ] = field(default_factory=dict)
    columns: Annotated[
        tuple[SourceColumn, ...],
        Doc(
            "Types of Csv and Json columns that the table does not declare; others are read as string.",
            max_items=limits.MAX_COLUMNS,
            list_key="name",
            item=Doc("One source column."),
        ),
    ] = ()
    mapping: Annotated[
        tuple[ColumnSource, ...],
        Doc(
            "Source columns of table columns; columns that are not listed are matched by equal name.",
            max_items=limits.MAX_COLUMNS,
            list_key="column",
            item=Doc("One pair."),
        ),
    ] = ()
    duplicates: Annotated[
        DuplicatesPolicy,
        Doc(
            "Refuse fails a job if another job already applied the same set of files to the table; Allow applies them "
            "again."
        ),
    ] = DuplicatesPolicy.REFUSE
    consume: Annotated[
        ConsumePolicy,
        Doc(
            "All reads every file. New reads files that no earlier commit of the same MergeSchedule took (without a "
            "schedule: of any job with the same paths and table); duplicates has no effect then. Of a source table, "
            "New reads the rows that were appended since the snapshot which the last such commit read."
        ),
    ] = ConsumePolicy.ALL
    unknown_columns: Annotated[
        UnknownColumns | None,
        Doc(
            "How the job treats source columns that the table does not have and the job does not use. Ignore (the "
            "default) leaves them out and names them in the status with the number of rows that have a value in them, "
            "Refuse fails the job, Add adds them to a Managed table as optional columns, in the same commit as their "
            "values."
        ),
    ] = None
    settle_seconds: Annotated[
        int,
        Doc(
            "Files that changed less than this number of seconds ago may still be written: New leaves them to the "
            "next job; All fails the attempt, and the next one checks again. 0 reads every file.",
            minimum=0,
            maximum=86_400,
        ),
    ] = 0


def _is_set(value: object) -> bool:
    return value is not None and value != ()


def _unset(name: str, *, is_list: bool) -> str:
    empty = f" || self.{name}.size() == 0" if is_list else ""
    return f"(!has(self.{name}){empty})"


_LISTS = ("column_time_precisions", "replica_identity", "tables")
#: The setting unavailable.value.placeholder of Debezium.
_OCTETS = "^hex:([0-9A-Fa-f][0-9A-Fa-f])+$"
_PLACEHOLDER_RULE = Rule(
    rule=f"!self.startsWith('hex:') || self.matches('{_OCTETS}')",
    holds=lambda text: not text.startswith("hex:") or re.fullmatch(_OCTETS, text) is not None,
    message="source.unavailableValue has 'hex:' without octets: write two hexadecimal digits for each",
)


def _tool_rule(tools: tuple[ChangeFormat, ...], fields: tuple[str, ...]) -> Rule:
    """That ``fields`` are set only for the feeds of ``tools``."""
    unset = " && ".join(_unset(camel(name), is_list=name in _LISTS) for name in fields)
    named = [f"source.{camel(name)}" for name in fields]
    are = "are" if len(named) > 1 else "is"
    return Rule(
        holds=lambda source: (
            source.change_format in tools or all(not _is_set(getattr(source, name)) for name in fields)
        ),
        rule=f"({unset}) || (has(self.changeFormat) && self.changeFormat in {_cel(tools)})",
        message=f"{in_words(named)} {are} for the change format{'s' if len(tools) > 1 else ''} {in_words(tools)} only: "
        f"remove {'them' if len(named) > 1 else 'it'}",
        field_path=".changeFormat",
    )


def _files_rule() -> Rule:
    """That files have a format in which the tool writes."""
    groups = file_formats()
    read = [f"self.changeFormat in {_cel(tools)} && self.format in {_cel(files)}" for files, tools in groups.items()]
    parts = [f"{in_words(tools)}{{}} as {in_words(files, 'or')}" for files, tools in groups.items()]
    parts[0] = parts[0].format(" are read" if len(next(iter(groups.values()))) > 1 else " is read")
    return Rule(
        holds=lambda source: (
            source.change_format is None or source.format is None or source.format in source.change_format.feed.files
        ),
        rule=f"!has(self.changeFormat) || !has(self.format) || {' || '.join(f'({test})' for test in read)}",
        message=f"source.changeFormat does not fit source.format: {', '.join(parts).replace('{}', '')}",
        field_path=".changeFormat",
    )


def _cel(names: Sequence[str]) -> str:
    """A list of texts in CEL."""
    return f"[{', '.join(repr(str(name)) for name in names)}]"


_FILES_RULE = _files_rule()
_WRITERS = in_words([tool.feed.title for tool in ChangeFormat], "or")
_NAMED_TABLES = in_words([f"{tool.feed.title} ({tool.feed.table_names})" for tool in with_table_names()])
_TABLE_NAME = Doc("One name, such as shop.orders or public.orders_*.", min_length=1, max_length=256)


@dataclass(frozen=True, kw_only=True)
class TimeColumn:
    """The unit of times in one column."""

    column: Annotated[str, name_text("Column of the table.")]
    precision: Annotated[TimePrecision, Doc("Unit of its numbers.")]


@dataclass(frozen=True, kw_only=True)
class MergeSource(Source):
    """Files with changes: rows with columns of their own, or the change feed of a tool."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        *Source.RULES,
        _FILES_RULE,
        PLAIN_FOLDERS,
        PLAIN_DELTA,
        Rule(
            holds=lambda source: source.table is None or (source.change_format is None and source.replay_from is None),
            rule="!has(self.table) || (!has(self.changeFormat) && !has(self.replayFrom))",
            message="source.changeFormat and source.replayFrom are for files of changes only: remove them beside "
            "source.table",
            field_path=".table",
        ),
        Rule(
            holds=lambda source: source.change_format is None or not (source.columns or source.mapping),
            rule="!has(self.changeFormat) || ((!has(self.columns) || self.columns.size() == 0) && "
            "(!has(self.mapping) || self.mapping.size() == 0))",
            message="source.changeFormat takes names and types of columns from the table: remove source.columns and "
            "source.mapping",
            field_path=".changeFormat",
        ),
        Rule(
            holds=lambda source: (
                source.change_format is None or not source.options or source.format == SourceFormat.CSV
            ),
            rule="!has(self.changeFormat) || !has(self.options) || self.options.size() == 0 || "
            "(has(self.format) && self.format == 'Csv')",
            message="source.options has no meaning for a change feed in Json: remove it",
            field_path=".options",
        ),
        *(_tool_rule(tools, fields) for tools, fields in tool_fields().items()),
        Rule(
            holds=lambda source: source.change_format is None or source.match_names is None,
            rule="!has(self.changeFormat) || !has(self.matchNames)",
            message="source.matchNames is not for change feeds, whose columns have the names of the table: remove it",
            field_path=".matchNames",
        ),
        Rule(
            holds=lambda source: source.replay_from is None or source.consume == ConsumePolicy.NEW,
            rule="!has(self.replayFrom) || (has(self.consume) && self.consume == 'New')",
            message="source.replayFrom is for files that were consumed before: set source.consume to New",
            field_path=".replayFrom",
        ),
        Rule(
            holds=lambda source: source.change_format is not None or source.equal_rows is None,
            rule="!has(self.equalRows) || has(self.changeFormat)",
            message="source.equalRows is for change feeds only: remove it, or set source.changeFormat",
            field_path=".equalRows",
        ),
        Rule(
            holds=lambda source: not source.only_rejected or source.change_format is not None,
            rule="!has(self.onlyRejected) || !self.onlyRejected || has(self.changeFormat)",
            message="source.onlyRejected is for change feeds only: remove it, or set source.changeFormat",
            field_path=".onlyRejected",
        ),
        Rule(
            holds=lambda source: not source.only_rejected or source.consume is ConsumePolicy.ALL,
            rule="!has(self.onlyRejected) || !self.onlyRejected || !has(self.consume) || self.consume == 'All'",
            message="source.onlyRejected takes files that were consumed before: remove source.consume",
            field_path=".consume",
        ),
        Rule(
            holds=lambda source: source.change_format is not None or not source.generated,
            rule="!has(self.generated) || self.generated.size() == 0 || has(self.changeFormat)",
            message="source.generated is for change feeds only: remove it, or set source.changeFormat",
            field_path=".generated",
        ),
    )

    change_format: Annotated[
        ChangeFormat | None,
        Doc(
            f"The files are a change feed that {_WRITERS} wrote: what each change does, to which row and in which "
            "order is read from them."
        ),
    ] = None
    match_names: Annotated[
        MatchNames | None,
        Doc(
            "Whether names of columns have to be Exact (the default), or IgnoreCase also finds the column whose name "
            "differs in case only, for keys, clauses, conditions and columns of equal name."
        ),
    ] = None
    allow_truncate: Annotated[
        bool | None,
        Doc(
            "Whether a truncate in a feed deletes all rows of the table; when absent or false, a truncate fails the "
            "job."
        ),
    ] = None
    time_precision: Annotated[
        TimePrecision | None,
        Doc(
            "Unit of the numbers for times and timestamps in messages of Debezium without a schema; when absent, such "
            "numbers fail the job."
        ),
    ] = None
    column_time_precisions: Annotated[
        tuple[TimeColumn, ...] | None,
        Doc(
            "The same for single columns with another unit than timePrecision. In a column of type string, such "
            "numbers are times of day, and become text such as 10:00:00.500000.",
            min_items=1,
            max_items=limits.MAX_COLUMNS,
            list_key="column",
            item=Doc("One column."),
        ),
    ] = None
    replica_identity: Annotated[
        tuple[str, ...] | None,
        Doc(
            "Columns of the source table's replica identity, which the database logs for deleted rows; all keys must "
            "be among them. Name them when a job refuses a delete whose key holds 0, an empty text or a default: "
            "Debezium writes these instead of columns that are not logged.",
            min_items=1,
            max_items=limits.MAX_COLUMNS,
            item=name_text("One column of the source table."),
        ),
    ] = None
    unavailable_value: Annotated[
        str | None,
        Doc(
            "The text that Debezium writes instead of a value that the database did not log, if its setting "
            "unavailable.value.placeholder is not the default: text, or hex: and octets. The table keeps its value.",
            min_length=1,
            max_length=256,
            rules=(_PLACEHOLDER_RULE,),
        ),
    ] = None
    tables: Annotated[
        tuple[str, ...] | None,
        Doc(
            f"Tables of the source database whose changes are merged, as {_NAMED_TABLES} name them, with * for any "
            "text: name all partitions of a table. Messages of other tables are skipped and counted. When absent, a "
            "feed with changes of two tables fails the job.",
            min_items=1,
            max_items=limits.MAX_PATHS,
            item=_TABLE_NAME,
        ),
    ] = None
    non_finite: Annotated[
        NonFinite | None,
        Doc(
            "Refuse (the default) fails the job for NaN and infinities in columns of type decimal, which has none, and "
            "for nulls of numbers that wal2json may have written for them; Null stores null for them. No key may be "
            "one."
        ),
    ] = None
    infinity: Annotated[
        Infinity | None,
        Doc(
            "Refuse (the default) fails the job for infinite dates and timestamps, which Iceberg does not have; Null "
            "stores null, Max stores the last moment of the year 9999 for infinity and the first of the year 1 for "
            "-infinity. No key may be one."
        ),
    ] = None
    generated: Annotated[
        Mapping[str, str] | None,
        Doc(
            "Columns that the source database generates and its changes do not have, as stored generated columns of "
            "PostgreSQL in feeds of Debezium: table column to an expression of + - * / % ||, coalesce, concat, round, "
            "to_date and cast over other columns of the same row, which is computed for each change, or null, which "
            "leaves its values out. A job fails as long as such a column is not named.",
            max_properties=limits.MAX_COLUMNS,
            item=Doc("An expression.", min_length=1, max_length=limits.MAX_ASSIGNED),
        ),
    ] = None
    replay_from: Annotated[
        str | None,
        Doc(
            "Path of a file, or a prefix of it: the first job that has this value merges this file and all later ones "
            "once more, together with new files, in the order of their paths (AWS DMS: of their names). For values "
            "that earlier jobs left out. Needs consume: New.",
            min_length=1,
            max_length=limits.MAX_PATH,
        ),
    ] = None
    equal_rows: Annotated[
        EqualRows | None,
        Doc(
            "Refuse (the default) fails a job whose keys are all columns of the table, because equal rows of a source "
            "table without a primary key would become one. Collapse allows this."
        ),
    ] = None
    only_rejected: Annotated[
        bool | None,
        Doc(
            "Apply only those changes in the files that badRecords of earlier merges left out and that no later change "
            "of their row has made obsolete."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BadRecords:
    """What happens to rows that do not fit the table."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule(
            holds=lambda bad: bad.max_count is None or bad.policy != BadRecordPolicy.FAIL,
            rule="!has(self.maxCount) || self.policy != 'Fail'",
            message="badRecords.maxCount is for the policies Redirect and Drop only: Fail accepts no bad record",
            field_path=".maxCount",
        ),
    )

    policy: Annotated[
        BadRecordPolicy,
        Doc(
            "Fail: apply no row. Redirect: apply the other rows and write the bad ones to a reject file. Drop: leave "
            "them out."
        ),
    ] = BadRecordPolicy.FAIL
    max_count: Annotated[
        int | None, Doc("Fail the job when more rows than this are left out; no limit when absent.", minimum=0)
    ] = None


@dataclass(frozen=True, kw_only=True)
class RunFields:
    """The fields of a job that may change after its creation."""

    suspend: Annotated[
        bool,
        Doc("Start no run while true; a run in progress is stopped and started again later without a lost attempt."),
    ] = False
    backoff_limit: Annotated[
        int, Doc("The number of failed attempts that are followed by another one.", minimum=0, maximum=100)
    ] = 3
    active_deadline_seconds: Annotated[
        int | None,
        Doc(
            "Seconds from the first attempt after which the job fails; no limit when absent.",
            minimum=1,
            maximum=31_536_000,
        ),
    ] = None
    ttl_seconds_after_finished: Annotated[
        int | None,
        Doc(
            "Seconds after its end at which the resource is removed; kept forever when absent. Do not set it on "
            "resources that a GitOps tool applies: the tool would create the job again.",
            minimum=0,
            maximum=315_360_000,
        ),
    ] = None
