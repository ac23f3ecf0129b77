"""The files of a merge as a map of cells: pruned, read, touched, rewritten.

Called by the section of merges. The status holds counts, not which file is which: cells of one class stand together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from skipstone_report.charts.drawing import key, swatch
from skipstone_report.charts.funnel import is_decided
from skipstone_report.markup import NOTHING, Markup, count, tag
from skipstone_report.reading import Entity

#: Of more files than this, one cell stands for several.
MAX_CELLS = 1000
COLUMNS = 50
_CELL = 8


@dataclass(frozen=True, kw_only=True)
class FileClass:
    """Files of one fate; ``files`` counts them."""

    label: str
    fill: str
    files: int


def classify(merge: Entity) -> tuple[FileClass, ...] | None:
    """Every live file in one class, as the counts of the status tell; None when they lack or do not add up."""
    total, candidate = merge.number("status.files.total"), merge.number("status.files.candidate")
    if total is None or candidate is None or candidate > total:
        return None
    pruned = FileClass(label="Pruned: never opened", fill="pruned", files=total - candidate)
    if not is_decided(merge):
        return (pruned, FileClass(label="Candidates: may hold a source key", fill="candidate", files=candidate))
    touched, rewritten, marked = (
        merge.number(f"status.files.{name}") or 0 for name in ("touched", "rewritten", "marked")
    )
    unchanged = max(0, touched - rewritten - marked)
    vain = candidate - rewritten - marked - unchanged
    if vain < 0:
        return None
    return (
        pruned,
        FileClass(label="Read, no source key in it", fill="candidate", files=vain),
        FileClass(label="Touched, no row changed", fill="unchanged", files=unchanged),
        FileClass(label="Touched and rewritten", fill="rewritten", files=rewritten),
        FileClass(label="Touched, rows deleted by position", fill="marked", files=marked),
    )


def share_cells(amounts: Sequence[int], cells: int) -> tuple[int, ...]:
    """``cells`` in all, divided like ``amounts``; an amount that is not 0 gets at least one.

    The largest remainders get what rounding leaves (Hamilton's method); the largest share gives what ones too small
    for a cell take. At least as many cells as amounts that are not 0 are needed.
    """
    whole = sum(amounts)
    if whole <= cells:
        return tuple(amounts)
    shares = [max(1, amount * cells // whole) if amount else 0 for amount in amounts]
    by_remainder = sorted(range(len(amounts)), key=lambda at: -(amounts[at] * cells % whole))
    for at in by_remainder:
        if sum(shares) < cells and amounts[at]:
            shares[at] += 1
    while sum(shares) > cells:
        shares[shares.index(max(shares))] -= 1
    return tuple(shares)


def draw_filemap(merge: Entity) -> Markup:
    """The map with its key; a sentence when the counts lack or do not add up."""
    classes = classify(merge)
    if classes is None:
        has_counts = merge.number("status.files.total") is not None
        text = "The counts of files do not add up, so no map is drawn." if has_counts else ""
        return tag("p", text, class_="note") if text else NOTHING
    files = sum(file_class.files for file_class in classes)
    cells = share_cells([file_class.files for file_class in classes], MAX_CELLS)
    description = ", ".join(f"{file_class.label}: {file_class.files:,}" for file_class in classes if file_class.files)
    rows = -(-sum(cells) // COLUMNS)
    drawn = tag(
        "svg",
        *_rectangles(classes, cells),
        class_="map",
        viewBox=f"0 0 {COLUMNS * _CELL} {max(1, rows) * _CELL}",
        role="img",
        aria_label=f"Map of {files:,} files. {description}",
    )
    legend = key(
        (swatch(file_class.fill, "cell"), f" {file_class.label}: ", count(file_class.files))
        for file_class in classes
        if file_class.files
    )
    return tag("figure", drawn, tag("figcaption", _scale(files, sum(cells)), legend))


def _scale(files: int, cells: int) -> str:
    if files <= cells:
        return "One cell is one data file."
    return f"One cell is about {files / cells:,.1f} data files; a class with any file has at least one cell."


def _rectangles(classes: Sequence[FileClass], cells: Sequence[int]) -> Iterator[Markup]:
    start = 0
    for file_class, amount in zip(classes, cells, strict=True):
        for box in _boxes(start, start + amount):
            yield tag(
                "rect",
                tag("title", f"{file_class.label}: {file_class.files:,}"),
                fill=f"url(#cell-{file_class.fill})",
                **box,
            )
        start += amount


def _boxes(start: int, end: int) -> Iterator[dict[str, int]]:
    """The cells from ``start`` to before ``end``, row by row, as at most three boxes."""
    while start < end:
        row, column = divmod(start, COLUMNS)
        whole = (end - start) // COLUMNS if column == 0 else 0
        width = COLUMNS if whole else min(COLUMNS - column, end - start)
        height = max(1, whole)
        yield {"x": column * _CELL, "y": row * _CELL, "width": width * _CELL, "height": height * _CELL}
        start += width * height
