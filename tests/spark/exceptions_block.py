"""The tables of exceptions in docs/guide/feeds.md, which the soaks of change feeds write.

A soak adds a row for each value or event that did not arrive as the database has it, and writes its block when it is
over. What it tries is the same in each run, whatever its seed, so that a table changes only when the product does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "feeds.md"
END = "<!-- end -->"
HEAD = "| In the database | Setting | What happens | Way out |\n|---|---|---|---|\n"


@dataclass(frozen=True, order=True)
class Exceptional:
    """One row of a table, in Markdown.

    ``what``: a type and value of the database, or an event. ``setting``: of the tool; empty where it is the same in
    all. ``outcome``: the sentence of the refusal, or what is stored. ``way_out``: what to do.
    """

    what: str
    setting: str
    outcome: str
    way_out: str


@dataclass
class Exceptions:
    """The rows of the block ``name``, in the order in which they were added; ``page``: has the block."""

    name: str
    page: Path = PAGE
    rows: list[Exceptional] = field(default_factory=list)

    def add(self, what: str, setting: str, outcome: str, way_out: str) -> None:
        """Add a row, unless it is there."""
        row = Exceptional(what, setting, outcome, way_out)
        if row not in self.rows:
            self.rows.append(row)

    def write(self) -> None:
        """Replace the block in the page by the rows. Raises ValueError where the page has no such block."""
        self.page.write_text(with_block(self.page.read_text(), self.name, self.rows))


def with_block(text: str, name: str, rows: Iterable[Exceptional]) -> str:
    """Return ``text`` with ``rows`` in its block ``name``. Raises ValueError where it has no such block."""
    begin = f"<!-- exceptions: {name} -->"
    if begin not in text or END not in text.partition(begin)[2]:
        raise ValueError(f"the page has no block that begins with {begin} and ends with {END}")
    before, _, rest = text.partition(begin)
    after = rest.partition(END)[2]
    return f"{before}{begin}\n\n{table_of(rows)}\n{END}{after}"


def table_of(rows: Iterable[Exceptional]) -> str:
    """Return ``rows`` as a table; those that differ in their setting only, or then in what they are of, are one."""
    found = _joined(_joined(rows, "setting", ", "), "what", "; ")
    lines = ((row.what, row.setting, row.outcome, row.way_out) for row in found)
    return HEAD + "".join(f"| {' | '.join(map(_cell, line))} |\n" for line in lines)


def sentence_of(error: Exception) -> tuple[str, str]:
    """Return what is wrong and the way out, of a refusal of the table ``t`` with a number and its column ``v``."""
    text = re.sub(r"\bt\d+(?=[_'])", "t", str(error))
    text = re.sub(r"^[\w.]+: |'[\w/.]+', line \d+: |column 'v': ", "", text)
    head, colon, way_out = re.sub(r"'[\w/.]+', line \d+: |column 'v': ", "", text).rpartition(": ")
    return (head, way_out) if colon else (way_out, "declare a type that holds it")


def _joined(rows: Iterable[Exceptional], column: str, separator: str) -> list[Exceptional]:
    """Return ``rows`` with those as one that are equal but for ``column``."""
    told: dict[Exceptional, list[str]] = {}
    for row in rows:
        told.setdefault(replace(row, **{column: ""}), []).append(getattr(row, column))
    return [replace(row, **{column: separator.join(dict.fromkeys(filter(None, texts)))}) for row, texts in told.items()]


def _cell(text: str) -> str:
    """Return ``text`` as one line without the bars that end a cell."""
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))
