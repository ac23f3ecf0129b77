"""``skipstone local changes``: what changed in a table between two points of its history, printed or as a file.

The data plane reads the table; it is found by its entry point, since this package does not import it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skipstone_cli.errors import CliError, ExitCode, NotFound
from skipstone_cli.kinds import API_VERSION, TABLE, WAREHOUSE, ResourceKind, parse_target
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, text_of

from skipstone_local.client.objects import Objects
from skipstone_local.commands.naming import Named, missing
from skipstone_local.commands.output.rows import FORMATS, PARQUET, TABLE_FORMAT, Rows, format_of, print_rows, write_rows
from skipstone_local.lake.reading import ChangesRequest, find_reader, local_warehouse, primary_key, table_ref
from skipstone_local.places import RootFolder

_KIND = "_change_type"
_AFTER = "UPDATE_AFTER"
#: The kinds of changes in the order in which they are counted, and the row of a change that counts it.
_COUNTED = {"INSERT": "inserted", "UPDATE_BEFORE": "updated", "DELETE": "deleted"}


@dataclass(frozen=True, kw_only=True)
class ChangesQuery:
    """Which changes, and how they are shown.

    ``since``, ``until``: points of the table's history; ``until`` empty: now. ``keys`` None: the primary key.
    ``limit``: of changes; None: all. ``format`` empty: by the ending of ``file``, which is empty for standard output.
    """

    table: str
    since: str
    until: str = ""
    keys: tuple[str, ...] | None = None
    where: str = ""
    limit: int | None = None
    format: str = ""
    file: str = ""


def run_changes(objects: Objects, root: RootFolder, screen: Screen, query: ChangesQuery) -> ExitCode:
    """Print or write the changes. Raises CliError and LakeError."""
    chosen = _format(query)
    target = parse_target(query.table if "/" in query.table else f"{TABLE.short}/{query.table}", (TABLE,))
    table = _get(objects, TABLE, target.name)
    warehouse = _get(objects, WAREHOUSE, text_of(table, "spec", "warehouseRef", "name"))
    request = ChangesRequest(
        warehouse=local_warehouse(warehouse, root),
        table=table_ref(table),
        since=query.since,
        until=query.until or None,
        keys=primary_key(table) if query.keys is None else query.keys,
        where=query.where or None,
    )
    reader = find_reader().changes(request)
    tally = _Tally(query.limit)
    rows = Rows(reader.schema, tally.counted(reader))
    if query.file:
        write_rows(rows, query.file, chosen)
    else:
        print_rows(rows, screen, chosen)
    screen.note(tally.text())
    return ExitCode.FINE


def _format(query: ChangesQuery) -> str:
    """The format of the output. Raises CliError."""
    chosen = query.format or (format_of(query.file) if query.file else TABLE_FORMAT)
    if chosen not in FORMATS:
        names = ", ".join(FORMATS)
        why = f"--output is {query.format!r}" if query.format else f"the name {query.file} does not show a format"
        raise CliError(f"{why}: use one of {names} with --output")
    if chosen == PARQUET and not query.file:
        raise CliError("Parquet cannot be printed: add --file FILE")
    return chosen


def _get(objects: Objects, kind: ResourceKind, name: str) -> JsonObject:
    resource = objects.resources.find_kind(API_VERSION, kind.name)
    try:
        return objects.get(resource, objects.namespace, name)
    except NotFound as error:
        raise missing(objects, Named(resource, objects.namespace, name)) from error


class _Tally:
    """Counts changes, and ends them after so many. An update is one change of two rows."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._counts = dict.fromkeys(_COUNTED, 0)
        self._is_cut = False

    def counted(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches, up to the limit."""
        for batch in batches:
            kinds = batch.column(_KIND).to_pylist()
            rows = self._count(kinds)
            yield batch if rows == len(kinds) else batch.slice(0, rows)
            if self._is_cut:
                return

    def _count(self, kinds: list[str]) -> int:
        """How many rows of a batch are within the limit."""
        for place, kind in enumerate(kinds):
            if kind == _AFTER:
                continue
            if self._limit is not None and sum(self._counts.values()) >= self._limit:
                self._is_cut = True
                return place
            self._counts[kind] += 1
        return len(kinds)

    def text(self) -> str:
        """Return the numbers of changes."""
        counts = ", ".join(f"{self._counts[kind]:,} {name}" for kind, name in _COUNTED.items())
        return f"{counts}; there are more changes: raise --limit" if self._is_cut else counts
