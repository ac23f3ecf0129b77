"""Formats of files, and of change feeds with all that is true of each tool's without reading one.

Imported by ``requests``, by who checks a spec, and by the data plane, where a module of ``sources.feeds.tools`` reads
each change format. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SourceFormat(StrEnum):
    """File formats that loads and merges read."""

    CSV = "Csv"
    JSON = "Json"
    PARQUET = "Parquet"
    ORC = "Orc"
    AVRO = "Avro"


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """By which columns files of a tool are known when they are read as rows of their own.

    They have ``all_of`` and one of each of ``one_of``, and no others when it ``is_whole``. ``rows``: what nobody may
    leave unused, the first that a file has; ``holds`` says why.
    """

    all_of: frozenset[str]
    rows: tuple[str, ...]
    one_of: tuple[frozenset[str], ...] = ()
    is_whole: bool = False
    holds: str = "holds the rows"


@dataclass(frozen=True, kw_only=True)
class ToolFeed:
    """What is told of a change format.

    ``title``: who writes it, for people. ``files``: the formats of its files. ``fields``: those of a source that have a
    meaning for it and not for every feed. ``table_names``: how it names the tables of ``source.tables``.
    """

    title: str
    files: tuple[SourceFormat, ...]
    fields: tuple[str, ...] = ()
    table_names: str = ""
    envelopes: tuple[Envelope, ...] = ()


_LOGGED = ("allow_truncate", "replica_identity", "non_finite", "infinity")
_DEBEZIUM_FIELDS = ("time_precision", "column_time_precisions", "unavailable_value", *_LOGGED)


class ChangeFormat(StrEnum):
    """The tools whose change feeds a merge reads as they are written. ``feed``: what is told of each."""

    feed: ToolFeed

    def __new__(cls, value: str, feed: ToolFeed | None = None) -> ChangeFormat:
        """A member is its name in specs, and carries what is told of it."""
        member = str.__new__(cls, value)
        member._value_ = value
        if feed is not None:
            member.feed = feed
        return member

    DEBEZIUM = (
        "Debezium",
        ToolFeed(
            title="Debezium",
            files=(SourceFormat.JSON, SourceFormat.AVRO),
            fields=_DEBEZIUM_FIELDS,
            envelopes=(
                Envelope(all_of=frozenset({"schema", "payload"}), rows=("payload",), is_whole=True),
                Envelope(
                    all_of=frozenset({"op"}),
                    one_of=(frozenset({"source", "ts_ms"}), frozenset({"before", "after"})),
                    rows=("after", "before"),
                ),
            ),
        ),
    )
    DEBEZIUM_FLAT = (
        "DebeziumFlat",
        ToolFeed(
            title="Debezium with ExtractNewRecordState (DebeziumFlat)",
            files=(SourceFormat.JSON, SourceFormat.AVRO),
            fields=_DEBEZIUM_FIELDS,
            envelopes=(
                Envelope(all_of=frozenset({"__deleted"}), rows=("__deleted",), holds="says which rows were deleted"),
            ),
        ),
    )
    DMS = ("Dms", ToolFeed(title="AWS DMS", files=(SourceFormat.CSV, SourceFormat.PARQUET)))
    MAXWELL = (
        "Maxwell",
        ToolFeed(
            title="Maxwell",
            files=(SourceFormat.JSON,),
            fields=("tables",),
            table_names="database.table",
            envelopes=(Envelope(all_of=frozenset({"database", "table", "type", "data"}), rows=("data",)),),
        ),
    )
    WAL2JSON = (
        "Wal2Json",
        ToolFeed(
            title="wal2json",
            files=(SourceFormat.JSON,),
            fields=(*_LOGGED, "tables"),
            table_names="schema.table",
            envelopes=(
                Envelope(
                    all_of=frozenset({"action", "schema", "table"}),
                    one_of=(frozenset({"columns", "identity"}),),
                    rows=("columns", "identity"),
                ),
            ),
        ),
    )
