"""What peers are asked and what they must answer: rows, changes and queries, with the answers of DuckDB.

The rows are TPC-H lineitem with a text in the form of a UUID as their key, in Parquet files in the order of
``l_orderkey``. DuckDB keeps the table as it must be after each change, and answers each query once. All of it is kept
under ``.cache/bench``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq

from tests.bench.lineitem import NAME, ROOT, generated, say
from tests.bench.merge_tables import UUIDS, keyed
from tests.bench.peer_programs.serving import (
    AGGREGATE,
    CHECKS,
    KEY,
    PART,
    ROWS,
    SELECTED,
    condition,
    digest,
)

#: Rises with every change of what is generated.
LAYOUT = 1
RANDOM, RECENT = "random", "recent"
#: Changes of one upsert: how many keys, and of which rows.
UPSERTS = {
    "200 random keys": (200, RANDOM),
    "20,000 random keys": (20_000, RANDOM),
    "20,000 recent keys": (20_000, RECENT),
}
#: Queries: the column, how many of its values, and what is selected.
LOOKUPS = {
    "1 key: rows": (KEY, 1, ROWS),
    "100 keys: rows": (KEY, 100, ROWS),
    "1 value of a second column: rows": (PART, 1, ROWS),
    "1 value of a second column: aggregate": (PART, 1, AGGREGATE),
    "100 values of a second column: aggregate": (PART, 100, AGGREGATE),
}
#: States of the indexes in which queries are asked.
SYNCED, BEHIND, CAUGHT_UP = "synced", "after upserts", "caught up"
STATES = (SYNCED, BEHIND, CAUGHT_UP)
#: Of all rows, the part that counts as recent.
RECENT_PART = 0.025
WARM = "warm"


@dataclass(frozen=True)
class Expected:
    """What an answer must be: the number of its rows and their digest; ``first``: one of them, for messages."""

    rows: int
    digest: str
    first: str


@dataclass(frozen=True)
class Query:
    """One lookup with its answer."""

    case: str
    column: str
    values: list[Any]
    shape: str
    expected: Expected


@dataclass(frozen=True)
class Rows:
    """The rows of one scale in ``files`` files, with ``repeats`` upserts and queries of each case."""

    scale: float
    files: int
    repeats: int

    @property
    def root(self) -> Path:
        """Where everything of this scale lies."""
        return ROOT / ".cache" / "bench" / f"peers-{self.scale:g}-{self.files}-{LAYOUT}"

    @property
    def parts(self) -> list[Path]:
        """The files of the rows, in their order."""
        return [self.root / "rows" / f"part-{number:03d}.parquet" for number in range(self.files)]

    def changes(self, step: str) -> Path:
        """The file of the changes of a step, named as in `steps`."""
        return self.root / f"steps-{self.repeats}" / f"{step.replace(' ', '-').replace(',', '')}.parquet"

    def steps(self) -> Iterator[tuple[str, str, int]]:
        """All upserts in their order: the step, its case (``WARM``: not measured), and a number."""
        for number, case in enumerate(UPSERTS):
            yield f"{WARM} {case}", WARM, number
        for number in range(self.repeats):
            for case in UPSERTS:
                yield f"{case} {number}", case, 10 + number

    def make(self) -> None:
        """Generate rows, changes and answers, unless they are there."""
        if not (self.root / "rows" / "complete").exists():
            say(f"rows of scale {self.scale:g} in {self.files} files")
            (self.root / "rows").mkdir(parents=True, exist_ok=True)
            for number, path in enumerate(self.parts):
                rows = keyed(generated(self.root, self.scale, NAME, number, self.files), UUIDS)
                pq.write_table(rows, path, compression="zstd", compression_level=1, row_group_size=rows.num_rows)
            (self.root / "rows" / "complete").touch()
        if not self._answers.exists():
            say("changes, and the answers of DuckDB")
            self._answers.parent.mkdir(exist_ok=True)
            self._answers.write_text(json.dumps(self._make_steps()))

    def queries(self, state: str) -> list[Query]:
        """The queries in a state of the indexes, in turns of all cases; the first turn is for warming up."""
        return [
            Query(**{**query, "expected": Expected(**query["expected"])})
            for query in json.loads(self._answers.read_text())["queries"][state]
        ]

    def checks(self, state: str) -> Expected:
        """The sums over the whole table in a state."""
        return Expected(**json.loads(self._answers.read_text())["checks"][state])

    @property
    def _answers(self) -> Path:
        return self.changes("answers").with_suffix(".json")

    def _make_steps(self) -> dict[str, Any]:
        database = self.root / "reference.duckdb"
        database.unlink(missing_ok=True)
        with duckdb.connect(str(database), config={"memory_limit": "4GB", "threads": "2"}) as base:
            parts = ", ".join(f"'{path}'" for path in self.parts)
            base.execute(f"create table lineitem as from read_parquet([{parts}])")
            for step, case, _ in self.steps():
                if case == WARM:
                    self._change(base, step, UPSERTS[step.removeprefix(f"{WARM} ")])
            queries, checks = {SYNCED: self._ask(base, 1)}, {SYNCED: self._check(base)}
            for step, case, _ in self.steps():
                if case != WARM:
                    self._change(base, step, UPSERTS[case])
            for number, state in enumerate((BEHIND, CAUGHT_UP), 2):
                queries[state], checks[state] = self._ask(base, number), self._check(base)
        database.unlink()
        return {"queries": queries, "checks": checks}

    def _change(self, base: duckdb.DuckDBPyConnection, step: str, size: tuple[int, str]) -> None:
        """Make the changes of a step and apply them.

        Nine keys of ten are known; every fourth row gets another value of the second column.
        """
        count, which = size
        base.execute("select max(l_orderkey) filter (l_orderkey < 1000000000), max(l_partkey) from lineitem")
        last, parts = base.fetchall()[0]
        recent = f"where l_orderkey between {int(last * (1 - RECENT_PART))} and {last}" if which == RECENT else ""
        chosen = f"select {KEY} from lineitem {recent} order by hash({KEY}, '{step}'), {KEY} limit {count}"
        new = f"row_number() over (order by hash({KEY}, '{step}'), {KEY}) > {count * 9 // 10}"
        base.execute(f"""
            create or replace table changes as
            with chosen as (select *, {new} as is_new from lineitem semi join ({chosen}) using ({KEY}))
            select * exclude (is_new) replace (
                case when is_new then cast(cast(md5({KEY} || '{step}') as uuid) as varchar) else {KEY} end as {KEY},
                case when is_new then 1000000000 + hash({KEY}, '{step}') % 1000000000 else l_orderkey end::bigint
                    as l_orderkey,
                case when hash({KEY}) % 4 = 0 then 1 + hash({KEY}, '{step}') % {parts} else l_partkey end::bigint
                    as l_partkey,
                (1 + hash({KEY}, '{step}') % 50)::decimal(15, 2) as l_quantity,
                'CHANGED' as l_shipmode,
                'changed by {step}' as l_comment,
            ) from chosen order by {KEY}""")
        sample = pq.read_schema(self.parts[0])
        pq.write_table(base.sql("from changes").to_arrow_table().cast(sample), self.changes(step))
        base.execute(f"delete from lineitem where {KEY} in (select {KEY} from changes)")
        base.execute("insert into lineitem from changes")

    def _ask(self, base: duckdb.DuckDBPyConnection, seed: int) -> list[dict[str, Any]]:
        """Queries of random values, of which half stand in rows that were changed last, with their answers."""
        asked = []
        for turn in range(self.repeats + 1):
            for case, (column, count, shape) in LOOKUPS.items():
                values = []
                for table, some in (("changes", (count + 1) // 2), ("lineitem", count // 2)):
                    order = f"order by hash({KEY}, '{seed} {turn} {case}'), {KEY} limit {some}"
                    values += [row[0] for row in base.execute(f"select {column} from {table} {order}").fetchall()]
                text = f"select {SELECTED[shape]} from lineitem where {condition(column, values)}"
                answer = digest(base.execute(text).fetchall())
                asked.append(asdict(Query(case, column, values, shape, Expected(**answer))))
        return asked

    @staticmethod
    def _check(base: duckdb.DuckDBPyConnection) -> dict[str, Any]:
        return digest(base.execute(f"select {CHECKS} from lineitem").fetchall())
