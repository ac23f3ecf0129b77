"""Text with tabs in columns, as Go's text/tabwriter sets them, which kubectl prints with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Cells = Sequence[str]


@dataclass
class Columns:
    """Sets cells in columns: ``minimum`` width of one, and ``padding`` behind its longest cell.

    A column is a block of lines that follow each other and have a cell after it.
    """

    minimum: int
    padding: int
    _widths: list[int] = field(default_factory=list)

    def set(self, lines: Sequence[Cells]) -> list[str]:
        """The lines as text."""
        text: list[str] = []
        self._format(lines, text)
        return text

    def _format(self, lines: Sequence[Cells], text: list[str]) -> None:
        column, at = len(self._widths), 0
        while at < len(lines):
            end = at
            while end < len(lines) and column < len(lines[end]) - 1:
                end += 1
            if end == at:
                text.append(self._line(lines[at]))
                at += 1
                continue
            longest = max(len(cells[column]) for cells in lines[at:end])
            self._widths.append(max(self.minimum, longest + self.padding))
            self._format(lines[at:end], text)
            self._widths.pop()
            at = end

    def _line(self, cells: Cells) -> str:
        widths = [*self._widths[: len(cells)], *[0] * (len(cells) - len(self._widths))]
        return "".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
