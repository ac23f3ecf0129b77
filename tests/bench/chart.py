"""Draws results of a benchmark: `python -m tests.bench.chart build/bench/joins.jsonl joins.svg`.

One bar a case: how many times longer the best other engine takes, on a logarithmic scale. Colors follow the reader's
light or dark mode; a bar below 1 is hatched too, so that nothing is told by color alone.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, LABELS, ROW, TOP = 860, 400, 24, 34
#: The scale begins here, so that bars of queries that lose are seen too.
LEAST = 0.5
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328 } .axis { stroke: #8c959f; stroke-width: 1 }
.one { stroke: #1f2328; stroke-width: 1.5 } .bar { fill: #0969da } .low { fill: url(#hatched) }
.hatch { stroke: #bc4c00; stroke-width: 3 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .one { stroke: #e6edf3 } .bar { fill: #4493f8 } .hatch { stroke: #f0883e }
}
"""


@dataclass(frozen=True)
class Bar:
    """A case, and the other engine's time divided by Skipstone's."""

    label: str
    ratio: float


def main() -> None:
    """Write the chart."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("chart", type=Path)
    parser.add_argument("--inverse", action="store_true", help="the results hold Skipstone's time divided by the other")
    given = parser.parse_args()
    lines = [json.loads(line) for line in given.results.read_text().splitlines()]
    bars = [Bar(one["case"], 1 / one["ratio"] if given.inverse else one["ratio"]) for one in lines if "ratio" in one]
    given.chart.parent.mkdir(parents=True, exist_ok=True)
    given.chart.write_text(chart(bars))


def chart(bars: Sequence[Bar]) -> str:
    """The chart as SVG."""
    most = max(10.0, *(bar.ratio for bar in bars))
    room = WIDTH - LABELS - 60

    def at(ratio: float) -> float:
        return LABELS + room * math.log(max(ratio, LEAST) / LEAST) / math.log(most / LEAST)

    height = TOP + ROW * len(bars) + 12
    ticks = [tick for tick in (0.5, 1, 2, 5, 10, 20, 50, 100) if tick <= most]
    parts = [_tick(at(tick), tick, height) for tick in ticks]
    parts += [_bar(bar, at(bar.ratio), TOP + ROW * number) for number, bar in enumerate(bars)]
    hatched = (
        '<defs><pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" '
        'patternTransform="rotate(45)"><line class="hatch" y2="6"/></pattern></defs>'
    )
    title = "<title>Time of the best other engine divided by Skipstone's time</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    return "\n".join([head, title, f"<style>{STYLE}</style>", hatched, *parts, "</svg>", ""])


def _tick(x: float, ratio: float, height: int) -> str:
    kind = "one" if ratio == 1 else "axis"
    line = f'<line class="{kind}" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{height - 8}"/>'
    return f'<text x="{x:.1f}" y="{TOP - 14}" text-anchor="middle">{ratio:g}x</text>{line}'


def _bar(bar: Bar, end: float, y: int) -> str:
    kind = "bar" if bar.ratio >= 1 else "low"
    label = f'<text x="{LABELS - 8}" y="{y + 15}" text-anchor="end">{escape(bar.label)}</text>'
    drawn = f'<rect class="{kind}" x="{LABELS}" y="{y + 3}" width="{max(1.0, end - LABELS):.1f}" height="{ROW - 7}"/>'
    return f'{label}{drawn}<text x="{end + 6:.1f}" y="{y + 15}">{bar.ratio:.3g}</text>'


if __name__ == "__main__":
    main()
