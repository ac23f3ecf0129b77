"""Coverage of segments by the indexes of each table.

Called by the page.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_report.charts.coverage import Cell, draw_coverage
from skipstone_report.charts.drawing import key, swatch
from skipstone_report.markup import NOTHING, Content, Grid, Markup, count, join, number, table, tag, volume, when
from skipstone_report.reading import Entity
from skipstone_report.scope import Scope, TableKey, by_table

#: Indexes of the whole section.
MAX_INDEXES = 150


def show_coverage(scope: Scope) -> Markup:
    """A heat map for each table with indexes, those with missing segments first; then what else is known of indexes."""
    groups = by_table(scope.by_kind["SecondaryIndex"])
    if not groups:
        return tag("p", "There are no indexes.", class_="note")
    maps, shown = list[Markup](), list[Entity]()
    for where in sorted(groups, key=lambda group: (-_missing(groups[group]), str(group))):
        if (room := MAX_INDEXES - len(shown)) <= 0:
            break
        shown += groups[where][:room]
        maps.append(draw_coverage(str(where), groups[where][:room]))
    more = sum(map(len, groups.values())) - len(shown)
    rest = tag("p", count(more), " more indexes are not shown.", class_="note") if more else NOTHING
    return join((_legend(), *maps, rest, table(_grid(shown, scope))))


def _missing(indexes: Sequence[Entity]) -> int:
    return sum(index.number("status.segments.missing") or 0 for index in indexes)


def _legend() -> Markup:
    cells = [
        (tag("span", cell.sign, class_=f"cell {cell.style}", aria_hidden="true"), f" {cell.words}") for cell in Cell
    ]
    bars: list[Sequence[Content]] = [(swatch("kept"), " segments synced"), (swatch("missing"), " segments missing")]
    note = tag(
        "p",
        "A status counts all segments and names the oldest 20 that are missing. Columns are the segments that any "
        "index of the table names.",
        class_="note",
    )
    return join((note, key([*bars, *cells])))


def _grid(indexes: Sequence[Entity], scope: Scope) -> Grid:
    rows = [
        (
            str(TableKey(namespace=index.namespace, name=index.name)),
            index.text("status.columnList"),
            index.text("status.covered"),
            join((number(index.figure("status.files.covered")), " / ", number(index.figure("status.files.live")))),
            join((number(index.figure("status.rows.covered")), " / ", number(index.figure("status.rows.live")))),
            number(index.figure("status.entries")),
            volume(index.figure("status.bytes")),
            when(index.moment("status.lastSyncTime"), scope.now),
        )
        for index in indexes
    ]
    head = ("Index", "Columns", "Rows covered", "Files", "Rows", "Entries", "Size", "Last sync")
    return Grid(caption="What indexes cover and hold", head=head, rows=rows)
