"""Formats of files, and of change feeds with the properties of each tool's feed.

Imported by ``requests``, by the checks of specs, and by the data plane, where a module of ``sources.feeds.tools`` reads
each change format. Data only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from skipstone_core.coded import Coded


class SourceFormat(StrEnum):
    """File formats that loads and merges read."""

    CSV = "Csv"
    JSON = "Json"
    PARQUET = "Parquet"
    ORC = "Orc"
    AVRO = "Avro"


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """The columns by which files of a tool are recognized when a spec names no change format.

    Such a file has all columns of ``all_of`` and one of each set of ``one_of``, and no others if it ``is_whole``.
    ``rows``: columns that a spec may not leave unused; the first that a file has counts. ``holds``: the reason.
    """

    all_of: frozenset[str]
    rows: tuple[str, ...]
    one_of: tuple[frozenset[str], ...] = ()
    is_whole: bool = False
    holds: str = "holds the rows"


@dataclass(frozen=True, kw_only=True)
class ToolFeed:
    """The properties of a change format.

    ``title``: the tool that writes it, for messages. ``files``: the formats of its files. ``fields``: fields of a
    source that have a meaning for it and not for every feed. ``table_names``: the form of the
    names in ``source.tables``.
    """

    title: str
    files: tuple[SourceFormat, ...]
    fields: tuple[str, ...] = ()
    table_names: str = ""
    envelopes: tuple[Envelope, ...] = ()


_LOGGED = ("allow_truncate", "replica_identity", "non_finite", "infinity")
_DEBEZIUM_FIELDS = ("time_precision", "column_time_precisions", "unavailable_value", *_LOGGED)


class ChangeFormat(Coded):
    """The tools whose change feeds a merge reads as they are written. ``feed``: the properties of each."""

    feed: ToolFeed

    def __init__(self, _name: str, feed: ToolFeed) -> None:
        self.feed = feed

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
