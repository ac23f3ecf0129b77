"""Writes the tables of results into the documentation: `make bench-page`, and without --take `make generate`.

With --take, lines of build/bench that a table shows or a goal judges come into docs/results first, one file for each
benchmark, each line in place of the one of its case and scale. Lines that were measured on changed files do not: nobody
could measure them again. With --check it only compares pages with docs/results.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.marked import MarkedPart
from tests.bench import results
from tests.bench.chart import Bar, chart
from tests.bench.goals import NOT_MEASURED, Row, all_goals, rows_of
from tests.bench.published import CONDITIONS, SCALES, TABLES, shaped
from tests.bench.results import DIRTY, ROOT, Line, read
from tests.bench.tables import Table, ratio

DOCS = ROOT / "docs"
TAKEN = DOCS / "results"
CHART = DOCS / "images" / "lookups.svg"
#: What explains a line to developers and stands in no table: it would be most of a file.
LEFT_OUT = {"goals", "counts", "stages_ms", "of", "sizes", "load"}
#: Measured before lines said on which commit: the one that wrote the number into the page.
RECORDED = "recorded"
DIGITS = 4


def main(argv: Sequence[str]) -> int:
    """Take results if asked to, then write the pages, or compare them. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--take", action="store_true", help="take over results from build/bench")
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args(argv)
    if options.take:
        for benchmark in sorted({*(table.benchmark for table in TABLES), *(goal.benchmark for goal in all_goals())}):
            take(benchmark)
    checked = ["--check"] if options.check else []
    codes = [_part(table.page, table.name).write(_body(table), checked) for table in TABLES]
    codes += [_part("benchmarks.md", "goals").write(_goals(), checked), _charted(check=options.check)]
    return max(codes)


def take(benchmark: str) -> None:
    """Take over what is published of a benchmark from build/bench."""
    file = TAKEN / f"{benchmark}.jsonl"
    before = {_identity(line): line for line in read(file)}
    for line in read(results.FOLDER / file.name):
        if not is_published(benchmark, line):
            continue
        if line["commit"].endswith(DIRTY):
            print(f"{benchmark}: {line['case']} was measured on changed files: commit them and measure again")
            continue
        before[_identity(line)] = published(line)
    if before:
        file.parent.mkdir(exist_ok=True)
        file.write_text("".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in before.values()))


def is_published(benchmark: str, line: Line) -> bool:
    """True if a line has a scale of full runs, and a table shows it or a goal judges it."""
    if benchmark in SCALES and line.get("scale") not in SCALES[benchmark]:
        return False
    if any(goal.concerns(benchmark, line) for goal in all_goals()):
        return True
    tables = (table for table in TABLES if table.benchmark == benchmark)
    lines = [*read(results.FOLDER / f"{benchmark}.jsonl"), line]
    shown = (shown for table in tables for row in table.rows(lines) for shown in row.lines)
    return any(_identity(one) == _identity(line) for one in shown)


def published(line: Mapping[str, Any]) -> Line:
    """What is published of a line: without explanations, and its numbers with four digits."""
    return {name: _short(value) for name, value in line.items() if name not in LEFT_OUT}


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _short(part) for name, part in value.items()}
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    return value


def _body(table: Table) -> str:
    """A table in Markdown, and where its numbers come from."""
    rows = list(table.rows(read(TAKEN / f"{table.benchmark}.jsonl")))
    measured = [_measured(row.lines) for row in rows]
    is_mixed = len(set(measured)) > 1
    columns = (*table.columns, *(["Commit"] if is_mixed else []))
    shown = [(*row.cells, *([where] if is_mixed else [])) for row, where in zip(rows, measured, strict=True)]
    where = "" if is_mixed or not measured else f"; commit: {measured[0]}"
    machines = sorted({_machine(line) for row in rows for line in row.lines} - {""})
    return "\n".join(_markdown(columns, shown)) + f"\n\n*`{table.call}`{where}{''.join(machines)}.*\n"


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield ""
    yield _cells(columns)
    yield f"|{'---|' * len(columns)}"
    yield from map(_cells, rows)


def _cells(cells: Sequence[str]) -> str:
    return f"|{'|'.join(f' {cell} ' if cell else ' ' for cell in cells)}|"


def _measured(lines: Sequence[Mapping[str, Any]]) -> str:
    """The commit and the day of the oldest of some lines."""
    line = min(lines, key=lambda line: line["date"])
    day = dt.date.fromisoformat(line["date"][:10])
    return f"{'before ' if line.get(RECORDED) else ''}{line['commit']}, {day.day} {day:%B %Y}"


def _machine(line: Mapping[str, Any]) -> str:
    machine = line.get("machine")
    return f", {machine['cores']} cores, {machine['memory_gib']} GiB" if machine else ""


def _goals() -> str:
    """A row for each goal: the result that is farthest from it."""
    rows = []
    for goal in all_goals():
        judged = rows_of(goal, [*read(TAKEN / f"{goal.benchmark}.jsonl")])
        scales = ", ".join(f"{scale:g}" for scale in goal.scales)
        rows.append((goal.benchmark, f"`{goal.case}`", scales, f"`{goal.limit}`", *_worst(judged)))
    return "\n".join(_markdown(("Benchmark", "Cases", "Scales", "Goal", "Farthest from it", "Verdict"), rows)) + "\n"


def _worst(judged: Sequence[Row]) -> tuple[str, str]:
    """The value and the verdict of the row that is farthest from its goal."""
    known = [row for row in judged if row.line is not None]
    if not known:
        return "", NOT_MEASURED
    bound = known[0].goal.bound
    sign = 1 if bound.comparison == ">=" else -1
    row = min(known, key=lambda row: sign * (bound.value(row.line or {}) or 0))
    value = bound.value(row.line or {})
    return "failed" if value is None else ratio(value), row.verdict


def _charted(*, check: bool) -> int:
    """Draw the chart of lookups at scale 3, or compare it."""
    found = {line["case"]: line for line in read(TAKEN / "lookup.jsonl") if line.get("scale") == 3}
    drawn = chart([Bar(case, found[case]["ratio"]) for case in shaped(CONDITIONS) if case in found])
    if not check:
        CHART.write_text(drawn)
    elif CHART.read_text() != drawn:
        print(f"{CHART.name} differs from docs/results: run `make generate`", file=sys.stderr)
        return 1
    return 0


def _part(page: str, name: str) -> MarkedPart:
    begin = f"<!-- results of {name}: written by `make bench-page` from docs/results -->"
    return MarkedPart(DOCS / page, begin, f"<!-- end of results of {name} -->", "docs/results")


def _identity(line: Mapping[str, Any]) -> tuple[Any, Any]:
    return line["case"], line.get("scale")


def pages() -> set[Path]:
    """The pages that hold tables of results."""
    return {DOCS / table.page for table in TABLES}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
