"""Charts of results, whose numbers are those of the tables in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile, takewhile

from drawing import Area, box, picture, text

WIDTH, LABELS, ROW, TOP = 860, 330, 44, 64
OURS = "Skipstone"


@dataclass(frozen=True)
class Measured:
    """Seconds of one case, as the page says them: Skipstone's, and those of the fastest other engine."""

    label: str
    ours: str
    theirs: str
    engine: str


def merges(page: str) -> str:
    """The chart of merges: each engine with the faster of its two ways to merge."""
    rows = (_best(row["Case"].split(" (")[0], row) for row in table_rows(page, "Merges"))
    return _chart("Merges into 36 million rows in 240 files", list(rows))


#: Cases of lookups on the first screen; the one that Skipstone loses is among them.
SHOWN = {
    "point, no segment synced: rows": "point lookup, no segment synced",
    "point, 20 of 40 segments synced: rows": "point lookup, 20 of 40 segments synced",
    "point, all synced: rows": "point lookup, all segments synced",
    "`in` of 100 keys from everywhere: rows": "100 keys from everywhere",
}
#: Cases of merges beside them.
MERGED = {
    "uniform keys (one row in a thousand of every file)": "merge, one row in a thousand of every file",
    "recent keys (240,000 changes in the last files)": "merge, 240,000 changes in the last files",
    "composite key, 20 rows of every tenth file updated": "merge, 20 rows of every tenth file",
}


def lookups(page: str) -> str:
    """The chart of the first screen: some merges and some lookups."""
    rows = [_best(MERGED[row["Case"]], row) for row in table_rows(page, "Merges") if row["Case"] in MERGED]
    rows += [_best(SHOWN[row["Case"]], row) for row in table_rows(page, "Lookups") if row["Case"] in SHOWN]
    if len(rows) != len(MERGED) + len(SHOWN):
        raise ValueError("docs/benchmarks.md lacks a case of the chart: name its cases in scripts/measured.py again")
    return _chart("Merges into 36 million rows, lookups in 18 million rows", rows)


def table_rows(page: str, section: str) -> Iterator[Mapping[str, str]]:
    """The rows of the first table of ``section``, each by the names of its columns."""
    lines = page.split(f"\n## {section}\n")[1].split("\n## ")[0].splitlines()
    table = takewhile(lambda line: line.startswith("|"), dropwhile(lambda line: not line.startswith("|"), lines))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    for row in cells[2:]:
        yield dict(zip(cells[0], row, strict=True))


def _best(label: str, row: Mapping[str, str]) -> Measured:
    mine = {name: cell for name, cell in row.items() if name.startswith(OURS) and cell}
    others = {name: cell for name, cell in row.items() if name.startswith(("Delta", "Iceberg")) and cell}
    engine = min(others, key=lambda name: _seconds(others[name]))
    return Measured(label, min(mine.values(), key=_seconds), others[engine], engine)


def _seconds(cell: str) -> float:
    return float(cell.removesuffix(" s"))


def _chart(title: str, rows: Sequence[Measured]) -> str:
    most = max(max(_seconds(row.ours), _seconds(row.theirs)) for row in rows)
    room = WIDTH - LABELS - 190
    parts = [text(20, 26, f"{title}: seconds, less is better", "head left")]
    parts += [box(Area(LABELS, 40, 12, 10), (), "ours"), text(LABELS + 18, 50, OURS, "small left")]
    parts += [
        box(Area(LABELS + 110, 40, 12, 10), (), "theirs"),
        text(LABELS + 128, 50, "the fastest other engine", "small left"),
    ]
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        parts.append(text(LABELS - 10, y + 20, row.label.replace("`", ""), "right"))
        for at, cell, kind, engine in ((y, row.ours, "ours", ""), (y + 16, row.theirs, "theirs", f"  {row.engine}")):
            width = max(1.0, room * _seconds(cell) / most)
            parts.append(f'<rect class="{kind}" x="{LABELS}" y="{at + 2}" width="{width:.1f}" height="13"/>')
            parts.append(text(LABELS + width + 6, at + 13, f"{cell}{engine}", "small left"))
    return picture(WIDTH, TOP + ROW * len(rows) + 8, title, parts)
