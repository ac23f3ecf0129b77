"""Queries the demonstration's table while an index lags, and compares the answers with DuckDB on the CSV files.

Runs in a pod that reaches the Warehouse. Prints the plan: which segments the index answered for and which
files were left to min/max.
"""

from __future__ import annotations

import argparse
import sys

import pyarrow as pa
from pyiceberg.table import Table
from skipstone import query

from demo.data import COLUMNS
from demo.lakes import Lake, open_lake
from demo.replay import open_replay

CONDITIONS = (
    "tailnum = 'N356SW'",
    "tailnum in ('N367SW', 'N346SW')",
    "carrier = '9E' and flight = 3284",
    "tailnum = 'N14228' and month = 12",
    "tailnum is null and month >= 11",
)


SHOWN_COLUMNS = ("month", "day", "carrier", "flight", "tailnum", "origin", "dest")
SHOWN_ROWS = 3


def opened(table: Table, condition: str) -> str:
    """The files that Skipstone opens, and those that PyIceberg opens by min/max alone."""
    plan = query.plan_read(table, condition)
    with_index, without = len(plan.ordinals), len(list(table.scan(condition).plan_files()))
    ratio = f", {without / with_index:.3g} times as many" if without > with_index > 0 else ""
    return f"files opened: {with_index} with the indexes, {without} without them{ratio}"


def first_rows(answer: pa.Table) -> str:
    """Some columns of the first rows, as a table of text."""
    rows = answer.select(SHOWN_COLUMNS).slice(0, SHOWN_ROWS).to_pylist()
    cells = [SHOWN_COLUMNS, *(["" if row[name] is None else str(row[name]) for name in SHOWN_COLUMNS] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(SHOWN_COLUMNS))]
    lines = ["  " + "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in cells]
    return "\n".join(line.rstrip() for line in [*lines, *(["  ..."] if answer.num_rows > SHOWN_ROWS else [])])


def explained(table: Table, condition: str) -> str:
    """The plan, without its line on caches, which tells of this process."""
    lines = query.explain(table, condition).splitlines()
    return "\n".join(f"  {line}" for line in lines if not line.startswith("caches:"))


def wrong_answers(lake: Lake, name: str, first_month: int = 1) -> list[str]:
    """Conditions whose rows differ from DuckDB's; prints each plan. ``first_month``: of those that were loaded."""
    table = lake.catalog().load_table(name)
    with lake.reading() as folder:
        reference = open_replay(folder, months=tuple(range(first_month, 13)), feed=False)
    wrong = []
    for condition in CONDITIONS:
        print(f'>>> skipstone.query.read(table, condition="{condition}")')
        answer = query.read(table, [c for c in COLUMNS if c != "time_hour"], condition)
        print(f"{first_rows(answer)}\n{explained(table, condition)}")
        reference.register("found", answer)
        columns = ", ".join(c for c in COLUMNS if c != "time_hour")
        expected = f"SELECT {columns} FROM expected WHERE {condition}"
        answered = f"SELECT {columns} FROM found"
        apart = reference.execute(
            f"SELECT count(*) FROM (({expected} EXCEPT ALL {answered}) UNION ALL ({answered} EXCEPT ALL {expected}))"
        ).fetchall()[0]
        rows = reference.execute("SELECT count(*) FROM found").fetchall()[0]
        verdict = "as DuckDB says" if apart[0] == 0 else "DIFFERENT from DuckDB"
        print(f"  {rows[0]} rows, {verdict}; {opened(table, condition)}\n")
        if apart[0]:
            wrong.append(condition)
    return wrong


def main(argv: list[str]) -> int:
    """Command line: ``query ROOT NAMESPACE.TABLE``; exit code 1 when an answer is wrong."""
    parser = argparse.ArgumentParser(prog="demo.query")
    parser.add_argument("root")
    parser.add_argument("table")
    parser.add_argument("--first-month", type=int, default=1, help="the first month that was loaded")
    arguments = parser.parse_args(argv)
    return 1 if wrong_answers(open_lake(arguments.root), arguments.table, arguments.first_month) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
