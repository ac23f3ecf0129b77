"""The tables of the documentation that hold results: which lines each shows, in which words.

A table takes the lines of one benchmark, as ``tests.bench.results`` keeps them, and gives rows. Cells are texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.bench.goals import all_goals

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Row:
    """A row: its cells in the order of the table's columns, and the lines that they come from."""

    cells: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Table:
    """A table of a page below docs/. ``call``: what measures it. ``rows`` gets all lines of ``benchmark``."""

    name: str
    benchmark: str
    call: str
    columns: tuple[str, ...]
    rows: Callable[[Sequence[Line]], Iterator[Row]]
    page: str = "benchmarks.md"


@dataclass(frozen=True)
class Column:
    """A column of a table with a row for each case: its title, the measure that it shows, and how."""

    title: str
    path: str
    form: Callable[[Any], str]


@dataclass(frozen=True)
class Cases:
    """Rows of one scale, a case each. ``labels``: words for cases by their names; only these are shown, so ordered."""

    labels: Mapping[str, str]
    columns: tuple[Column, ...]
    scale: object = None

    def __call__(self, lines: Sequence[Line]) -> Iterator[Row]:
        """The rows of all cases that are among the lines."""
        found = by_case(lines, self.scale)
        for case, label in self.labels.items():
            if case in found:
                line = found[case]
                shown = [column.form(value_of(line, column.path)) for column in self.columns]
                yield Row((label, *shown), (line,))


def value_of(line: Line, path: str) -> Any:
    """The measure of a line at a path such as ``peers.delta``; None if it has none. Without a path, the line."""
    found: Any = line
    for part in path.split(".") if path else ():
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def rounded(value: float) -> str:
    """A number with two decimals below 10, one below 100, and none above, but no more than it was written down with."""
    known = len(repr(float(value)).partition(".")[2].rstrip("0"))
    return f"{value:,.{min(known, 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0)}f}"


def unit(name: str, times: float = 1.0) -> Callable[[Any], str]:
    """Shows a number, multiplied, with a unit; nothing for no number."""
    return lambda value: "" if value is None else f"{rounded(value * times)} {name}".strip()


def seconds(value: Any) -> str:
    """Seconds; three decimals below a tenth of one."""
    if value is None:
        return ""
    return f"{value:.3f} s" if 0 < value < 0.1 and round(value, 2) != value else f"{rounded(value)} s"


ratio = unit("")
milliseconds = unit("ms")
mebibytes = unit("MiB")


def count(value: Any) -> str:
    """A whole number; nothing for one that is not known (-1 in lines)."""
    return "" if value is None or value < 0 else f"{round(value):,}"


def yes(value: Any) -> str:
    """``yes`` or nothing."""
    return "yes" if value else ""


def goal_of(benchmark: str, line: Line, *measures: str) -> str:
    """The limits of measures of a line, as the table of goals has them; all measures if none is named."""
    limits = [
        rounded(goal.bound.limit)
        for goal in all_goals()
        if goal.concerns(benchmark, line) and goal.bound.measure in (measures or (goal.bound.measure,))
    ]
    return ", ".join(limits)


def by_case(lines: Iterable[Line], scale: object = None) -> dict[str, Line]:
    """The lines of one scale by their cases."""
    return {line["case"]: line for line in lines if line.get("scale") == scale}
