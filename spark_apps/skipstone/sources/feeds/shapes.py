"""What a feed is read for and what it is made of, whichever tool wrote it.

Used by all modules of this room. Plain data.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa
from propcache.api import cached_property
from pyiceberg.types import IcebergType
from skipstone_core.contract.feeds import Infinity, NonFinite, TimePrecision
from skipstone_core.contract.formats import ChangeFormat, SourceFormat
from skipstone_core.errors import BadData
from skipstone_core.merging.clauses import BoundClause
from skipstone_core.merging.feeds import DELETE, READ, UPDATE
from skipstone_core.reasons import Reason

#: A value as JSON, Avro or text has it.
Raw = object
Fields = Mapping[str, Raw]
#: Columns of batches besides those of rows and OP_COLUMN, KEPT_COLUMN and MISSING_COLUMN of the core. ORDER: binary, a
#: greater one is a later change among those of one ORIGIN and LOG. ORIGIN: which tool and connector, and what its order
#: is made of. LOG: which log of it; null for rows of snapshots. TABLE: the table that the change is of.
ORDER_COLUMN = "_skipstone_order"
ORIGIN_COLUMN = "_skipstone_origin"
LOG_COLUMN = "_skipstone_log"
TABLE_COLUMN = "_skipstone_table"
#: FAULT: why the change cannot be applied; null of one that can. Only keys and control columns of such a row count: its
#: KEPT_COLUMN says which columns it would not have set. OTHER: of a message that changes a key, the other key, as
#: ``rejecting.keytexts`` writes it.
FAULT_COLUMN = "_skipstone_fault"
OTHER_COLUMN = "_skipstone_other"


class FeedError(Exception):
    """A message cannot be used: its text ends the sentence "'file', line 3: …"."""


class UnfitRecord(BadData):
    """One change cannot be applied, and its row is known. ``what``: why, in words; ``line``: where."""

    def __init__(self, file: str, line: int, what: str) -> None:
        super().__init__(Reason.BAD_RECORDS, f"'{file}', line {line}: {what}", field="spec.source")
        self.line = line
        self.what = what


class _Absent:
    """Stands for a column that a message does not have, which is not null."""


ABSENT = _Absent()
#: Stands for a value that a message leaves out, because the change leaves it as it is.
UNAVAILABLE = _Absent()


@dataclass(frozen=True)
class TableChoice:
    """Which tables of a tool a feed is of. ``patterns``: their names, with * for any text; all when there are none."""

    patterns: tuple[str, ...] = ()

    def takes(self, table: str) -> bool:
        """Return whether changes of ``table``, a name with its schema, belong to the feed."""
        return not self.patterns or self._pattern.fullmatch(table) is not None

    def name_of(self, table: str) -> str:
        """Return the name of the table that ``table`` is, or is a part of."""
        return ", ".join(self.patterns) or table

    @property
    def is_of_many(self) -> bool:
        """Return whether more than one table may belong to the feed."""
        return len(self.patterns) > 1 or any("*" in pattern for pattern in self.patterns)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        parts = (".*".join(map(re.escape, pattern.split("*"))) for pattern in self.patterns)
        return re.compile("|".join(f"(?:{part})" for part in parts), re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class FeedColumn:
    """A column of the table. ``arrow``: its type in kernels. ``read``: whether feeds can carry its type.

    ``required``: whether it may not be null.
    """

    name: str
    type: IcebergType
    arrow: pa.DataType
    is_key: bool = False
    read: bool = True
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class ValueStyle:
    """How a tool writes values.

    ``is_text``: its format has no types, so that text may stand for any value, and no value for one that is left out.
    ``octets``: gives the bytes that a text stands for, and raises ValueError for one of none; None: what schemas of
    messages tell. ``has_json``: values of JSON may stand for text. ``moves_days``: the name of a tool that counts days
    before 1582-10-15 by the calendar that was used then; empty of others. ``null_text``: what stands for null in Csv,
    if the spec does not say it. ``bytes_remedy``, ``zero_date_remedy``: how bytes become readable, and by which setting
    the zero date of MySQL becomes null.
    """

    is_text: bool = False
    octets: Callable[[str], bytes] | None = None
    has_json: bool = False
    moves_days: str = ""
    null_text: str = "NULL"
    bytes_remedy: str = "leave the column out"
    zero_date_remedy: str = "let the tool write null for it"


#: That of a tool of whose values only schemas and types tell.
PLAIN = ValueStyle()


@dataclass(frozen=True, kw_only=True)
class FeedTarget:
    """What a feed is read for. ``columns``: all of the table's, in its order; ``time_zone``: of times without offset.

    ``null_text`` and ``delimiter``, ``quote`` and ``encoding``: how Csv is written. ``unit``: of times in messages
    without schema, and ``column_units`` those of single columns. ``identity_declared``: the spec says that the source
    database logs the keys of deleted rows. ``unavailable_value``: octets that stand for a value that is left out,
    besides its default. ``non_finite``, ``infinity``: as the spec has them. ``tables``: which of the tool's.
    ``generated``: what computes columns that the source database generates. ``values``: how the tool writes them.
    """

    tool: ChangeFormat
    values: ValueStyle
    format: SourceFormat
    columns: tuple[FeedColumn, ...]
    time_zone: str = "UTC"
    unit: TimePrecision | None = None
    allow_truncate: bool = False
    identity_declared: bool = False
    column_units: Mapping[str, TimePrecision] = field(default_factory=dict)
    unavailable_value: bytes | None = None
    non_finite: NonFinite | None = None
    infinity: Infinity | None = None
    tables: TableChoice = TableChoice()
    generated: BoundClause | None = None
    null_text: str = "NULL"
    delimiter: str = ","
    quote: str = '"'
    encoding: str = "UTF-8"
    rejects: bool = False

    @property
    def zone(self) -> ZoneInfo | None:
        """That of times without offset; None: UTC."""
        return None if self.time_zone == "UTC" else ZoneInfo(self.time_zone)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return tuple(column.name for column in self.columns if column.is_key)

    @property
    def carried(self) -> tuple[FeedColumn, ...]:
        """The columns that feeds can carry."""
        return tuple(column for column in self.columns if column.read)


#: Of the place in a file: those that tell the row of a message, behind those that tell its line.
ROW_BITS = 24


class Mark(NamedTuple):
    """Of which table a change is, and when it happened: see the columns above."""

    table: str | None
    origin: str
    log: str | None
    order: bytes


#: That of a message that tells of no row.
NOWHERE = Mark(None, "", None, b"")


class Change(NamedTuple):
    """One change of one row. ``op``: as the core names it; a delete has the values of keys only.

    ``is_update``: the row is there before; ``is_read``: a snapshot read it, and changes may lack columns that it has.
    ``row``: which of the rows of its message, from 0, in the order in which they changed; both changes of a row whose
    key changes have the same. A message of no row (NO_ROW) has no values, and the mark NOWHERE.
    """

    op: str
    values: Fields
    mark: Mark
    line: int
    is_update: bool = False
    is_read: bool = False
    row: int = 0

    @property
    def place(self) -> bytes:
        """Where in its file it stands, as 8 bytes that order as changes do."""
        return (self.line << ROW_BITS | self.row).to_bytes(8, "big")

    @property
    def kind(self) -> str | None:
        """What KIND_COLUMN says of it."""
        if self.op == DELETE:
            return DELETE
        return READ if self.is_read else UPDATE if self.is_update else None


@dataclass(frozen=True)
class Semantic:
    """What a message's schema says of a column: Connect's ``name`` of its type, and the ``scale`` of decimals.

    ``item``: of the items of a list or the values of a map. ``is_bytes``: it says bytes, which JSON has in base64.
    ``default``: the value that a writer puts where it has none; ABSENT without one.
    ``type``: Connect's own, such as int32; empty where it has none. ``optional``: it may be null.
    """

    name: str = ""
    scale: int | None = None
    item: Semantic | None = None
    is_bytes: bool = False
    default: Raw = ABSENT
    type: str = ""
    optional: bool = False

    def is_default(self, value: Raw) -> bool:
        """Return whether ``value`` is the default, which schemas of Avro write for bytes as text of ISO 8859-1."""
        if isinstance(value, bytes) and isinstance(self.default, str):
            return value == self.default.encode("latin-1", "replace")
        return self.default is not ABSENT and value == self.default


#: By column; None: the message carries no schema.
Semantics = Mapping[str, Semantic] | None


def refused(file: str, message: str, line: int | None = None) -> BadData:
    """The error for a file that holds a message that cannot be used."""
    place = f"'{file}', line {line}" if line is not None else f"'{file}'"
    return BadData(Reason.BAD_RECORDS, f"{place}: {message}", field="spec.source")
