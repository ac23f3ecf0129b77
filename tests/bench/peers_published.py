"""What the documentation shows of `make bench-peers`: a row for each case, a column for each way to keep a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.bench.tables import Line, Row, Table, seconds, unit

#: Of full runs.
SCALE = 0.2
CALL = "make bench-peers"
#: Seconds, or bytes, of what had nothing to do: an empty cell.
NOTHING = 0.001
#: Columns: ours first, then the ways of peers, by the names in lines.
OURS = {"skipstone_cow": "Skipstone", "skipstone_mor": "Skipstone, merge-on-read"}
PEERS = {
    "delta_cow": "Delta",
    "delta_dv": "Delta, deletion vectors",
    "hudi_cow": "Hudi",
    "hudi_mor": "Hudi, merge-on-read",
    "hudi_bloom": "Hudi, bloom",
    "paimon_pk": "Paimon, primary key",
    "paimon_index": "Paimon, global index",
    "lance": "Lance",
    "ducklake": "DuckLake",
}
megabytes = unit("MB", 1e-6)


@dataclass(frozen=True)
class Sides:
    """Rows of cases whose names begin with one of ``kinds``. ``measure``: of both sides of a line."""

    kinds: tuple[str, ...]
    measure: str
    form: Callable[[Any], str]

    def __call__(self, lines: Sequence[Line]) -> Iterator[Row]:
        """The rows; the least value of each is in bold letters."""
        mine = [line for line in lines if line.get("scale") == SCALE and self._has(line)]
        cases = dict.fromkeys(str(line["case"]).rpartition(", ")[0] for line in mine)
        for case in cases:
            some = [line for line in mine if str(line["case"]).rpartition(", ")[0] == case]
            values = {line["engine"]: line["peer"].get(self.measure) for line in some}
            for name in OURS:
                ours = [line["ours"][self.measure] for line in some if line["against"] == name and self._ours(line)]
                values[name] = median(ours) if ours else None
            known = {name: value for name, value in values.items() if value is not None and value > NOTHING}
            cells = [self._cell(known.get(name), min(known.values(), default=None)) for name in (*OURS, *PEERS)]
            yield Row((case, *cells), tuple(some))

    def _has(self, line: Line) -> bool:
        is_kind = str(line["case"]).startswith(self.kinds)
        return is_kind and (self.measure in line["peer"] or self._ours(line))

    def _ours(self, line: Line) -> bool:
        return self.measure in line["ours"]

    def _cell(self, value: float | None, least: float | None) -> str:
        text = self.form(value)
        return f"**{text}**" if text and value == least else text


def _table(name: str, sides: Sides) -> Table:
    return Table(f"peers-{name}", "peers", CALL, ("Case", *OURS.values(), *PEERS.values()), sides)


PEER_TABLES = (
    _table("upserts", Sides(("upsert:",), "cpu_seconds", seconds)),
    _table("written", Sides(("upsert:", "services:"), "bytes", megabytes)),
    _table("lookups", Sides(("lookup,",), "cpu_seconds", seconds)),
    _table("services", Sides(("services:",), "cpu_seconds", seconds)),
    _table("space", Sides(("bytes:",), "bytes", megabytes)),
)
