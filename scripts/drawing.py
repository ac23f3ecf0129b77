"""Shapes of SVG for the pictures of the documentation. Colors follow the reader's light or dark setting.

Each picture has a background of its own: a page may be light where the reader's system is dark.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

LINE = 17
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
.ground { fill: #ffffff } .left { text-anchor: start } .right { text-anchor: end }
.head { font-weight: 600 } .small { font-size: 12px; fill: #59636e } .code { font-family: ui-monospace, monospace }
rect.box { fill: #f6f8fa; stroke: #8c959f } rect.main { fill: #ddf4ff; stroke: #0969da }
rect.good { fill: #dafbe1; stroke: #1a7f37 } rect.bad { fill: #fff1e5; stroke: #bc4c00; stroke-dasharray: 4 3 }
rect.frame { fill: none; stroke: #8c959f; stroke-dasharray: 2 3 }
line, path.line { stroke: #59636e; stroke-width: 1.5; fill: none } .tip { fill: #59636e }
.ours { fill: #0969da } .theirs { fill: #8c959f } .axis { stroke: #d1d9e0; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .ground { fill: #0d1117 } .small { fill: #9198a1 }
  rect.box { fill: #161b22; stroke: #6e7681 } rect.main { fill: #0c2d6b; stroke: #4493f8 }
  rect.good { fill: #033a16; stroke: #3fb950 } rect.bad { fill: #3d1300; stroke: #f0883e }
  line, path.line { stroke: #9198a1 } .tip { fill: #9198a1 }
  .ours { fill: #4493f8 } .theirs { fill: #6e7681 } .axis { stroke: #30363d }
}
"""


@dataclass(frozen=True)
class Area:
    """Where a rectangle is: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Way:
    """Where an arrow begins and ends."""

    x1: float
    y1: float
    x2: float
    y2: float


def picture(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """A whole SVG file; ``title`` is what a screen reader says."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker></defs>'
    )
    ground = f'<rect class="ground" width="{width}" height="{height}" rx="6"/>'
    return "\n".join(
        [head, f"<title>{escape(title)}</title>", f"<style>{STYLE}</style>", tip, ground, *parts, "</svg>", ""]
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """One line of text whose base line is at ``y``."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(words)}</text>'


def box(at: Area, lines: Sequence[str] = (), kind: str = "box") -> str:
    """A rectangle with lines of text in its middle; the first one is a heading."""
    place = f'x="{at.x:g}" y="{at.y:g}" width="{at.width:g}" height="{at.height:g}"'
    drawn = [f'<rect class="{kind}" {place} rx="5"/>']
    top = at.y + at.height / 2 - LINE * (len(lines) - 1) / 2 + 4.5
    for number, words in enumerate(lines):
        drawn.append(text(at.x + at.width / 2, top + LINE * number, words, "head" if number == 0 else "small"))
    return "".join(drawn)


def arrow(way: Way, words: str = "") -> str:
    """An arrow with words above its middle, or beside it when it goes up or down."""
    ends = f'x1="{way.x1:g}" y1="{way.y1:g}" x2="{way.x2:g}" y2="{way.y2:g}"'
    drawn = f'<line {ends} marker-end="url(#tip)"/>'
    if not words:
        return drawn
    if way.x1 == way.x2:
        return drawn + text(way.x1 + 8, (way.y1 + way.y2) / 2 + 4, words, "small left")
    return drawn + text((way.x1 + way.x2) / 2, (way.y1 + way.y2) / 2 - 6, words, "small")
