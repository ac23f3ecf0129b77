"""Keys of rows that are gone: those that the database logged, and those that Debezium made up.

Called by ``debezium``. PostgreSQL logs of a deleted row, and of a row before its key changed, only the columns of the
table's replica identity. Debezium gives the other ones null, and where a column is NOT NULL its default or the zero of
its type. Such a value would name another row. Source: Debezium's PostgresValueConverter and PostgreSQL's documentation
of REPLICA IDENTITY. Must not know how values are written into tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skipstone.sources.feeds.shapes import FeedError, Fields, Raw, Semantic, Semantics

#: Connectors whose ``before`` always has the whole row.
_WHOLE_ROWS = frozenset({"mysql", "mariadb", "sqlserver", "oracle", "db2"})
#: How Debezium writes zero as text: numbers, decimals in base64, dates, times, time stamps, intervals and UUIDs.
_ZERO_TEXTS = frozenset({"0", "0.0", "AA==", "1970-01-01", "1970-01-01Z", "00:00:00", "00:00:00Z", "P0Y0M0DT0H0M0S",
                         "00000000-0000-0000-0000-000000000000"})  # fmt: skip
_EPOCH = "1970-01-01T00:00:00"


@dataclass(frozen=True)
class DeletedKeys:
    """Reads the keys of deleted rows. ``names``: the key columns; ``is_declared``: the spec says they are logged."""

    names: tuple[str, ...]
    is_declared: bool = False

    def require(self, before: Fields, source: Fields, columns: Semantics) -> dict[str, Raw]:
        """Return the key of ``before``. Raises FeedError for one that is missing or not proven to be the row's own."""
        key = dict(zip(self.names, require_keys(before, self.names, source), strict=True))
        if self.is_declared or source.get("connector") in _WHOLE_ROWS:
            return key
        for name, value in key.items():
            if is_filler(value, (columns or {}).get(name)):
                raise FeedError(
                    f"its key column '{name}' has a zero, an empty text or a default, which Debezium also writes for a "
                    "column outside the replica identity, so the row that is deleted is not certain: name the columns "
                    "of the replica identity in source.replicaIdentity if the key is among them, else run "
                    f"{alter_table(source)} and merge a new snapshot"
                )
        return key


def require_keys(values: Fields, names: tuple[str, ...], source: Fields | None = None) -> list[Raw]:
    """Return the values of ``names``. Raises FeedError when one is null or not there.

    ``source``: the place that the message tells, if the value is one of a deleted row.
    """
    for name in names:
        if values.get(name) is None:
            logged = f"let the database log them ({alter_table(source)})" if source else "let the database log them"
            raise FeedError(
                f"it has no value for the key column '{name}': name the columns of the table's primary key in keys, "
                f"and {logged}"
            )
    return [values[name] for name in names]


def is_filler(value: Raw, semantic: Semantic | None) -> bool:
    """Return whether Debezium may have written ``value`` for a column that it knows nothing of."""
    if semantic is not None and semantic.is_default(value):
        return True
    if isinstance(value, str):
        return not value or value in _ZERO_TEXTS or value.startswith(_EPOCH)
    if isinstance(value, bytes):
        return not any(value)
    if isinstance(value, Mapping):
        return all(is_filler(part, None) for name, part in value.items() if name != "scale")
    return not value


def alter_table(source: Fields) -> str:
    """Return the statement that makes PostgreSQL log whole rows of the table of ``source``."""
    names = [str(source[name]) for name in ("schema", "table") if source.get(name)]
    return f"ALTER TABLE {'.'.join(names) or 'of the source'} REPLICA IDENTITY FULL"
