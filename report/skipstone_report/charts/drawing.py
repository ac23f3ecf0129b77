"""What charts share: fills that differ by pattern as well as by color, bars, and keys to the fills.

Used by charts. Lengths are percentages, so that a chart fits every screen and its text keeps its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skipstone_report.markup import NOTHING, Content, Markup, join, tag
from skipstone_report.reading import Figure

#: Fills by name, and what is drawn on the color. Colors are in the style sheet, as fill-<name>.
FILLS = {
    "kept": "",
    "pruned": "",
    "candidate": "M4 3V5",
    "unchanged": "M4 2V6M2 4H6",
    "rewritten": "M1 1L7 7M7 1L1 7",
    "marked": "M-1 5L5 -1M3 9L9 3",
    "missing": "M-1 3L5 9M-1 -1L9 9M3 -1L9 5",
    "failed": "M1 1L7 7M7 1L1 7",
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of a bar: ``amount`` of the whole, filled with ``fill``. ``figure``: where the number is from."""

    label: str
    amount: int
    fill: str
    figure: Figure | None = None


def patterns() -> Markup:
    """All fills, once for the page."""
    made = [_pattern(use, name, lines) for name, lines in FILLS.items() for use in ("bar", "cell")]
    return tag("svg", tag("defs", *made, _symbols()), class_="defs", width=0, height=0, aria_hidden="true")


def _pattern(use: str, name: str, lines: str) -> Markup:
    """Bars are filled without gaps; cells stand apart."""
    box = {"x": 0, "y": 0, "width": 8, "height": 8} if use == "bar" else {"x": 1, "y": 1, "width": 6, "height": 6}
    ground = tag("rect", class_=f"fill-{name}", **box)
    marks = tag("path", d=lines, class_=f"marks-{name}") if lines else NOTHING
    return tag("pattern", ground, marks, id=f"{use}-{name}", width=8, height=8, patternUnits="userSpaceOnUse")


def _symbols() -> Markup:
    return join(
        (
            tag("path", id="mark-merge", d="M0 -5L5 0L0 5L-5 0Z", class_="mark-merge"),
            tag("rect", id="mark-load", x=-4, y=-4, width=8, height=8, class_="mark-load"),
            tag("path", id="mark-failed", d="M-5 -5L5 5M5 -5L-5 5", class_="mark-failed"),
            tag("path", id="mark-sync", d="M0 -6L5 4L-5 4Z", class_="mark-sync"),
        )
    )


def percent(amount: float, whole: float) -> float:
    """How many percent ``amount`` is of ``whole``, with two digits; 0 of nothing."""
    return round(100 * amount / whole, 2) if whole > 0 else 0.0


def bar(parts: Sequence[Part], whole: int, label: str) -> Markup:
    """Parts beside each other in a bar of ``whole``. What is too small to be seen gets a hair's breadth."""
    drawn, at = list[Content](), 0
    for part in parts:
        if part.amount > 0:
            drawn.append(_rectangle(part, percent(at, whole), percent(part.amount, whole)))
        at += part.amount
    frame = tag("rect", width="100%", height="100%", class_="frame")
    return tag("svg", frame, *drawn, class_="bar", role="img", aria_label=label, height=18)


def _rectangle(part: Part, start: float, length: float) -> Markup:
    title = tag("title", f"{part.label}: {part.amount:,}")
    known = part.figure
    return tag(
        "rect",
        title,
        x=f"{start}%",
        width=f"{max(length, 0.3)}%",
        height="100%",
        fill=f"url(#bar-{part.fill})",
        data_value=None if known is None else known.value,
        data_from=None if known is None else known.source,
    )


def swatch(fill: str, use: str = "bar") -> Markup:
    """A small sample of a fill, as it is in bars or as a ``cell``."""
    inside = tag("rect", width="100%", height="100%", fill=f"url(#{use}-{fill})")
    return tag("svg", inside, class_="swatch", width=16, height=16, aria_hidden="true")


def key(entries: Iterable[Sequence[Content]]) -> Markup:
    """A list of what the fills or marks stand for: a sample, then its text."""
    return tag("ul", *(tag("li", *entry) for entry in entries), class_="key")
