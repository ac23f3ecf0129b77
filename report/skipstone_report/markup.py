"""HTML and SVG elements in which every text and every attribute is escaped.

Used by all that is shown. Only ``tag`` and ``join`` make Markup, so a text of the cluster can never be markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from skipstone_report.reading import Figure

#: Elements without content and without an end.
_VOID = frozenset({"meta"})
_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
NOT_KNOWN = "—"


@dataclass(frozen=True)
class Markup:
    """Text that is HTML already."""

    html: str


Content = str | Markup
Attribute = str | int | None
NOTHING = Markup("")


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """An element. Underscores in names of attributes become hyphens, one at the end is dropped; None is left out."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(content).html}</{name}>")


def join(content: Iterable[Content]) -> Markup:
    """All of it, one after the other."""
    return Markup("".join(part.html if isinstance(part, Markup) else escape(part) for part in content))


def number(figure: Figure | None, shown: str = "") -> Markup:
    """A number of a status as it is there, or a dash. ``shown``: how to write it; with thousands apart when empty."""
    if figure is None:
        return tag("span", NOT_KNOWN, class_="none", title="not known")
    text = shown or f"{figure.value:,}"
    exact = f"{figure.value:,}" if shown else None
    return tag("data", text, value=figure.value, data_from=figure.source, title=exact)


def count(value: int) -> Markup:
    """A number that this page counted itself."""
    return tag("data", f"{value:,}", value=value, data_counted="")


def volume(figure: Figure | None) -> Markup:
    """A number of bytes, rounded to a unit; the exact one is in the element."""
    return number(figure, format_bytes(figure.value) if figure else "")


def duration(figure: Figure | None) -> Markup:
    """A number of milliseconds."""
    return number(figure, format_seconds(figure.value / 1000) if figure else "")


def format_bytes(value: int) -> str:
    """Bytes as people write them, such as ``1.5 MiB``."""
    if value < 1024:
        return f"{value} B"
    power = min(len(_UNITS), (value.bit_length() - 1) // 10)
    if value / 1024**power >= 1023.95 and power < len(_UNITS):
        power += 1
    return f"{value / 1024**power:.1f} {_UNITS[power - 1]}"


def format_seconds(seconds: float) -> str:
    """A length of time as people write it, such as ``250 ms``, ``12.5 s``, ``4 min 3 s`` or ``3 d 4 h``."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 60:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def when(moment: datetime | None, now: datetime) -> Markup:
    """A point in time in UTC, and how long ago it was."""
    if moment is None:
        return tag("span", NOT_KNOWN, class_="none", title="not known")
    seconds = (now - moment).total_seconds()
    age = f"{format_seconds(abs(round(seconds)))} ago" if seconds >= 1 else "now" if seconds > -60 else "in the future"
    exact = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    return tag("time", exact, tag("small", f" ({age})"), datetime=moment.isoformat())


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A table: what it shows, the heads of its columns, and rows of cells. The first cell of a row names the row."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Content]]


def table(grid: Grid) -> Markup:
    """The table in a box that scrolls by itself where the screen is narrow."""
    head = tag("tr", *(tag("th", text, scope="col") for text in grid.head))
    rows = (tag("tr", tag("th", row[0], scope="row"), *(tag("td", cell) for cell in row[1:])) for row in grid.rows)
    whole = tag("table", tag("caption", grid.caption), tag("thead", head), tag("tbody", *rows))
    return tag("div", whole, class_="scroll", role="region", aria_label=grid.caption, tabindex="0")


def fallback(grid: Grid) -> Markup:
    """The numbers of a chart as a table that opens on demand."""
    return tag("details", tag("summary", "These numbers as a table"), table(grid))
