"""Which segments each index of a table covers: a row of cells, as far as the statuses tell.

Called by the section of indexes. A status counts all segments and names the oldest 20 missing ones. What is not named
is told by rules that hold for that list, and what they do not tell is shown as not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from skipstone_report.charts.drawing import Part, bar
from skipstone_report.markup import Content, Markup, number, tag
from skipstone_report.reading import Entity

#: So many ids a status names at most; a list of fewer is complete.
LISTED = 20
#: Columns of one heat map.
MAX_COLUMNS = 40


class Cell(Enum):
    """The state of one segment in one index: the sign in the cell and its words."""

    COVERED = ("✓", "covered", "covered")
    MISSING = ("✗", "missing", "missing")
    LATER = ("·", "later", "made after the index was last looked at")
    UNKNOWN = ("?", "not-known", "not known")

    def __init__(self, sign: str, style: str, words: str) -> None:
        self.sign, self.style, self.words = sign, style, words


def missing_ids(index: Entity) -> tuple[int, ...]:
    """The ids that the status names as missing."""
    ids = (
        index.number(f"status.missingSegments.{at}") for at in range(min(index.size("status.missingSegments"), 1000))
    )
    return tuple(sorted({segment_id for segment_id in ids if segment_id is not None}))


def judge_segment(index: Entity, segment: int) -> Cell:
    """Return the state of ``segment`` by the status of ``index``; it is missing in some index of the table.

    Ids are sequence numbers. The list holds the oldest missing ones: below its last id, and everywhere when it is
    complete, what is not listed is not missing.
    """
    listed = missing_ids(index)
    if segment in listed:
        return Cell.MISSING
    seen, synced = index.number("status.tableSequenceNumber"), index.number("status.syncedSequenceNumber")
    if synced is not None and 0 < segment <= synced:
        return Cell.COVERED
    if seen is not None and segment > seen:
        return Cell.LATER
    missing = index.number("status.segments.missing")
    is_complete = missing is not None and missing == len(listed)
    if is_complete or (listed and segment < listed[-1]):
        return Cell.COVERED
    return Cell.UNKNOWN


def columns(indexes: Sequence[Entity]) -> tuple[int, ...]:
    """The segments that any of these indexes names as missing, oldest first."""
    return tuple(sorted({segment for index in indexes for segment in missing_ids(index)}))


def draw_coverage(table: str, indexes: Sequence[Entity]) -> Markup:
    """The heat map of one table."""
    every = columns(indexes)
    shown = every[:MAX_COLUMNS]
    head = ("Index", "Synced of all", "", "Missing", "Failed", *(f"#{segment_id}" for segment_id in shown))
    cells = tag("tr", *(tag("th", text, scope="col") if text else tag("td") for text in head))
    rows = (_row(index, shown) for index in indexes)
    caption = f"Segments of table {table} in its indexes"
    if len(every) > len(shown):
        caption += f"; of {len(every)} segments that are named as missing, the oldest {len(shown)}"
    whole = tag("table", tag("caption", caption), tag("thead", cells), tag("tbody", *rows), class_="heat")
    return tag("div", whole, class_="scroll", role="region", aria_label=caption, tabindex="0")


def _row(index: Entity, shown: Sequence[int]) -> Markup:
    figures = {name: index.figure(f"status.segments.{name}") for name in ("total", "synced", "missing", "failed")}
    total, synced = figures["total"], figures["synced"]
    fractions: tuple[Content, ...] = (number(synced), " / ", number(total))
    cells = (tag("td", *fractions), tag("td", _bar(index)), tag("td", number(figures["missing"])))
    return tag(
        "tr",
        tag("th", index.name, scope="row"),
        *cells,
        tag("td", number(figures["failed"])),
        *(_cell(judge_segment(index, segment)) for segment in shown),
    )


def _bar(index: Entity) -> Markup:
    # Segments that failed are among the missing ones.
    fills = {"synced": "kept", "missing": "missing"}
    figures = {name: index.figure(f"status.segments.{name}") for name in fills}
    known = {name: figure for name, figure in figures.items() if figure is not None}
    parts = [Part(label=name, amount=figure.value, fill=fills[name], figure=figure) for name, figure in known.items()]
    whole = max(index.number("status.segments.total") or 0, sum(part.amount for part in parts))
    description = ", ".join(f"{part.amount:,} {part.label}" for part in parts) or "not known"
    return bar(parts, whole, f"Segments of index {index.name}: {description}")


def _cell(cell: Cell) -> Markup:
    words = tag("span", cell.words, class_="unseen")
    return tag("td", tag("span", cell.sign, aria_hidden="true"), words, class_=f"cell {cell.style}", title=cell.words)
