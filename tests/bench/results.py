"""Results of benchmarks: lines of JSON in build/bench, one file for each benchmark, one line for each case and scale.

Every line says on which commit, when and on which machine it was measured, and carries its goals (``goals``). Nothing
here imports an engine: pages and goals are made from these files without one.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.bench.goals import GOALS, MISSED, judged, report, rows_of

ROOT = Path(__file__).parents[2]
#: Names another folder for the results: those of small runs are not kept beside the others.
ELSEWHERE = "SKIPSTONE_BENCH_FOLDER"
FOLDER = Path(os.environ.get(ELSEWHERE) or ROOT / "build" / "bench")
#: The exit code of a benchmark that ran to its end and misses a goal.
EXIT_MISSED = 3
#: Set for a benchmark that goes on where an earlier call ended: cases that this commit has are left out.
RESUME = "SKIPSTONE_BENCH_RESUME"
DIRTY = "-dirty"
Line = dict[str, Any]


def keep(results: Path, line: Line) -> Line:
    """Write ``line`` in place of an earlier one of its case and scale, so that a benchmark can run in parts.

    Returns the line as it was written: with commit, date, machine and goals. Raises ValueError for a measure that is
    called as one of these.
    """
    stamped = stamp()
    if taken := sorted(stamped.keys() & line.keys()):
        raise ValueError(f"a line of results cannot have the measures {taken}: give them other names")
    stamped |= line
    stamped |= {"goals": judged(results.stem, stamped)}
    results.parent.mkdir(parents=True, exist_ok=True)
    kept = [before for before in read(results) if _identity(before) != _identity(stamped)]
    written = results.with_suffix(".new")
    written.write_text("".join(f"{json.dumps(row)}\n" for row in [*kept, stamped]))
    written.replace(results)
    return stamped


def read(results: Path) -> list[Line]:
    """The lines of a file of results; none if the file does not exist."""
    return [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []


def verdict(line: Line) -> str:
    """``ok`` or ``NOT ok``, or nothing if the line has no goal at its scale."""
    found = [goal["ok"] for goal in line["goals"]]
    return ("ok" if all(found) else "NOT ok") if found else ""


def show_goals(results: Path) -> bool:
    """Print the goals of the benchmark whose file is ``results``, and what it measured.

    True if no line of this commit misses a goal.
    """
    rows = report(results.stem, read(results))
    for row in rows:
        print(row.text, flush=True)
    return not any(row.verdict == MISSED and row.line and row.line["commit"] == commit() for row in rows)


def is_left(results: Path, cases: Iterable[str], scale: object = None) -> bool:
    """True if one of ``cases`` has to be measured. Only a call that resumes leaves out those that this commit has."""
    if not os.environ.get(RESUME) or commit().endswith(DIRTY):
        return True
    done = {line["case"] for line in read(results) if line["commit"] == commit() and line.get("scale") == scale}
    return not done.issuperset(cases)


def stamp() -> Line:
    """Commit, time (UTC), machine and its load as a line says them."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="minutes")
    return {"commit": commit(), "date": now, "machine": machine(), "load": round(os.getloadavg()[0], 1)}


@functools.cache
def commit() -> str:
    """The commit that was checked out when this process first asked: see ``current_commit``."""
    return current_commit()


def current_commit() -> str:
    """The commit that is checked out, shortened; it ends in ``-dirty`` if files differ from it."""
    command = ["git", "describe", "--always", "--abbrev=8", "--exclude=*", f"--dirty={DIRTY}"]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


@functools.cache
def machine() -> Line:
    """Cores that this process may use, and GiB of memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": len(os.sched_getaffinity(0)), "memory_gib": round(memory / 1024**3)}


def _identity(line: Line) -> tuple[Any, Any]:
    return line["case"], line.get("scale")


def main() -> None:
    """Print all goals beside what build/bench holds, and how many are reached, missed and not measured."""
    counts: Counter[str] = Counter()
    for promise, goals in GOALS.items():
        print(f"\n{promise}")
        for goal in goals:
            for row in rows_of(goal, read(FOLDER / f"{goal.benchmark}.jsonl")):
                counts[row.verdict] += 1
                print(f"  {row.text}")
    print(f"\n{', '.join(f'{count} {verdict}' for verdict, count in sorted(counts.items()))}")


if __name__ == "__main__":
    main()
