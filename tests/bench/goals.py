"""Goals of all benchmarks in one table, and whether lines of results reach them. ``make bench-goals`` prints all.

A benchmark named here may not exist yet: its goals are printed as *not measured*.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

OK, MISSED, NOT_MEASURED = "ok", "missed", "not measured"
_GRAMMAR = re.compile(r"([\w.]+) (<=|>=) ([\d.]+)")
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Bound:
    """A limit of one measure of a line. ``measure`` is a path such as ``files.touched``."""

    measure: str
    comparison: str
    limit: float

    @classmethod
    def of(cls, text: str) -> Bound:
        """Read ``MEASURE >= NUMBER`` or ``MEASURE <= NUMBER``. Raises ValueError for other texts."""
        match = _GRAMMAR.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a limit: write it as MEASURE >= NUMBER or MEASURE <= NUMBER")
        return cls(match[1], match[2], float(match[3]))

    def value(self, line: Mapping[str, Any]) -> float | None:
        """The measure of ``line``; None if the line lacks it."""
        found: Any = line
        for part in self.measure.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        return None if found is None else float(found)

    def holds(self, value: float | None) -> bool:
        """True if there is a ``value`` and it is within the limit."""
        return value is not None and _COMPARISONS[self.comparison](value, self.limit)


@dataclass(frozen=True)
class Goal:
    """A limit for the lines of ``benchmark`` (the name of its file) whose case matches ``case``, as a shell matches.

    ``scales``: where it counts; at all of them if empty. ``only_if``: a limit within which a line must be to have this
    goal.
    """

    benchmark: str
    case: str
    limit: str
    scales: tuple[float, ...] = ()
    only_if: str = ""

    @property
    def bound(self) -> Bound:
        """The limit."""
        return Bound.of(self.limit)

    def concerns(self, benchmark: str, line: Mapping[str, Any]) -> bool:
        """True if the line has this goal at its scale: it holds the measure, or says that the case failed."""
        if self.benchmark != benchmark or not fnmatchcase(line["case"], self.case):
            return False
        if self.scales and line.get("scale") not in self.scales:
            return False
        if self.bound.value(line) is None:
            return "error" in line
        condition = Bound.of(self.only_if) if self.only_if else None
        return condition is None or condition.holds(condition.value(line))


#: Scales of TPC-H for which goals of queries are set.
LARGE = (3, 10)
#: A line for each goal, under the promise that it is a part of.
GOALS: dict[str, tuple[Goal, ...]] = {
    "never slower": (
        Goal("tpch", "Q*", "ratio >= 0.98", LARGE),
        Goal("tpch", "geometric mean of queries that use an index", "ratio >= 2.2", LARGE),
        Goal("tpch", "planning of queries that use no index", "more_ms <= 10", LARGE),
        Goal("overhead", "no index", "more_ms <= 10"),
        Goal("overhead", "indexes on other columns", "more_ms <= 10"),
        Goal("overhead", "no index*", "ratio >= 0.97"),
        Goal("overhead", "indexes on other columns", "ratio >= 0.97"),
        Goal("overhead", "join without an index", "ratio >= 0.97"),
        Goal("overhead", "an index that answers nearly all rows", "ratio >= 0.95"),
        Goal("overhead", "an index, and nearly all files match", "ratio >= 0.95"),
        Goal("overhead", "in of * values, planned", "ratio >= 0.83"),
        Goal("unseen", "*", "ratio >= 0.97"),
        Goal("thresholds", "*", "default_ratio >= 0.8"),
    ),
    "lookups": (
        Goal("lookup", "point, none synced: *", "ratio >= 0.99", LARGE),
        Goal("lookup", "point, half synced: *", "ratio >= 2.5", LARGE),
        Goal("lookup", "point, all but 3 synced: *", "ratio >= 6", LARGE),
        Goal("lookup", "point, all synced: aggregate", "ours_s <= 0.05", (3,)),
        Goal("lookup", "point, all synced: aggregate", "ratio >= 12", LARGE),
        Goal("lookup", "point, all synced: rows", "ratio >= 25", LARGE),
        Goal("lookup", "point: indexed columns", "ratio >= 10", LARGE),
        Goal("lookup", "and of two indexes: *", "ratio >= 8", LARGE),
        Goal("lookup", "in of 100, uniform: *", "ratio >= 1", LARGE),
        Goal("lookup", "in of 1,000, uniform: *", "ratio >= 1", LARGE),
        Goal("lookup", "range of 0.1 %, uniform: *", "ratio >= 2", LARGE),
        Goal("lookup", "in of 100, load order: *", "ratio >= 4", LARGE),
        Goal("lookup", "range of 0.1 %, load order: *", "ratio >= 4", LARGE),
        Goal("lookup", "keys and included columns, point: *", "ratio >= 15", LARGE),
        Goal("lookup", "keys and included columns, range of 0.1%: *", "ratio >= 15", LARGE),
        Goal("lookup", "keys and included columns, range of 3.0%: *", "ratio >= 4", LARGE),
        Goal("lookup", "8 threads of one session", "throughput_ratio >= 4"),
    ),
    "joins": (
        Goal("joins", "a brand in a container, none synced: *", "ratio >= 0.97", LARGE),
        Goal("joins", "a brand in a container, all but 3 synced: *", "ratio >= 1", (10,)),
        Goal("joins", "a brand in a container, all synced: *", "ratio >= 1", (10,)),
        Goal("joins", "orders of a customer, none synced: *", "ratio >= 0.97", LARGE),
        Goal("joins", "orders of a customer, all but 3 synced: *", "ratio >= 7", LARGE),
        Goal("joins", "orders of a customer, all synced: *", "ratio >= 7", LARGE),
        Goal("joins", "orders of a customer, in (select …): *", "ratio >= 7", LARGE),
        Goal("joins", "all orders, all but 3 synced: *", "ratio >= 1.5", LARGE),
        Goal("joins", "all orders, all synced: *", "ratio >= 1.8", LARGE),
    ),
    "merges": (
        Goal("merge", "*", "limit_ratio >= 0.6", only_if="files.touched >= 4"),
        Goal("merge", "*", "ratio_cow >= 5"),
        Goal("merge", "*", "ratio_fitting >= 1.5"),
        Goal("merge", "bloom filters of random UUIDs", "ratio_best >= 3"),
        Goal("merge", "bloom filters of random UUIDs", "candidates_per_touched <= 2"),
        Goal("merge", "4 of 10,000 files", "planning_s <= 0.3"),
        Goal("merge", "processor seconds of the 1,000th merge / the 10th", "ratio <= 1.15"),
        Goal("merge", "deletion vectors / position deletes", "ratio <= 1"),
        Goal("upsert", "* changes, *", "ratio >= 20"),
        Goal("requests", "load of one file", "ratio >= 1"),
        Goal("requests", "merge touching 4 of 400 files*", "ratio >= 1"),
        Goal("requests", "merge touching 4 of 400 files", "ours.requests <= 60"),
        Goal("requests", "reindex of one segment", "ratio >= 1"),
        Goal("requests", "observe run", "ratio >= 1"),
        Goal("requests", "point lookup, *", "ratio >= 1"),
        Goal("requests", "point lookup, first of a session", "ours.requests <= 30"),
        Goal("requests", "point lookup, next ones", "ours.requests <= 10"),
        Goal("latency", "*", "ratio_kept >= 0.9"),
        Goal("latency", "*", "slowdown <= 3"),
    ),
    "launch": (
        Goal("application", "kept driver, 200 rows: launch to commit", "seconds <= 1"),
        Goal("application", "kept driver, 200 rows: merges a minute", "per_minute >= 120"),
        Goal("freshness", "file *", "from_minute_s <= 5"),
        Goal("operator", "launches", "launches_per_minute >= 300"),
        Goal("operator", "launches", "p99_s <= 5"),
        Goal("operator", "200 jobs of one Table", "seconds <= 10"),
        Goal("operator", "invalid manifest", "seconds <= 2"),
        Goal("operator", "at rest", "requests_per_minute <= 10"),
        Goal("operator", "at rest", "cpu_percent <= 2"),
        Goal("operator", "start", "seconds <= 30"),
        Goal("operator", "start", "peak_mib <= 300"),
    ),
    "memory": (
        Goal("memory", "*", "ours_mib <= 700"),
        Goal("resident", "merge: ours / Iceberg", "ratio <= 0.5", (10,)),
        Goal("resident", "reindex: ours / Iceberg", "ratio <= 0.5", (10,)),
        Goal("resident", "compaction: ours / Iceberg", "ratio <= 0.5", (10,)),
        Goal("resident", "merge of 1,000,000 keys", "peak_mib <= 1434"),
    ),
    "builds and maintenance": (
        Goal("build", "build on *", "ratio <= 0.3", LARGE),
        Goal("catchup", "catch-up ratio", "ratio <= 1.1"),
        Goal("catchup", "a merge with an Inline index / without", "ratio <= 1.08"),
        Goal("compaction", "bin-pack", "ratio >= 1.5"),
        Goal("compaction", "sorted by l_partkey", "ratio >= 1.5"),
        Goal("compaction", "* with two indexes", "ratio >= 2"),
        Goal("compaction", "*merges on read*", "ratio >= 1"),
        Goal("compaction", "*before compaction / after*", "ratio >= 1"),
        Goal("growth", "maintained, commit_cpu_ms: * / first of a table begun today", "ratio <= 1.3"),
        Goal("growth", "maintained, plan_*_cpu_ms: * / first of a table begun today", "ratio <= 1.3"),
        Goal("growth", "maintained, size that grew most: *", "ratio <= 4"),
    ),
    "servers": (
        Goal("server", "point, none synced: *", "ratio >= 0.95", LARGE),
        Goal("server", "point, synced: aggregate", "ratio >= 6", LARGE),
        Goal("server", "point, synced: rows", "ratio >= 12", LARGE),
        Goal("server", "point, synced: *", "of_ours <= 1.1", LARGE),
        Goal("server", "server: CPU of a plan, * files", "ms <= 15"),
        Goal("server", "server: * callers", "plans_a_second >= 60"),
        Goal("server", "server: * callers", "p99_s <= 1"),
        Goal("server", "server: after a commit", "ms_dearer <= 20"),
        Goal("server", "many files: CPU of a plan, *", "ms <= 40"),
        Goal("server", "many files: all of * planned", "ratio <= 1"),
        Goal("server", "start", "seconds <= 5"),
        Goal("server", "memory: * files", "own_mib <= 600"),
        Goal("server", "tpch: Q*", "ratio >= 0.97"),
        Goal("server", "tpch: geometric mean", "ratio >= 1.2"),
    ),
    "peers with indexes": (
        Goal("peers", "upsert: *", "ratio_cpu >= 1.5"),
        Goal("peers", "lookup, *", "ratio_cpu >= 1"),
        Goal("peers", "services: *", "ratio_cpu >= 1"),
        Goal("peers", "bytes: *", "ratio_bytes >= 1"),
    ),
    "scale": (
        Goal("planning", "planning, * files", "ratio <= 0.1"),
        Goal("pruning", "int64, *", "cpu_s <= 2"),
        Goal("pruning", "uuid, *", "cpu_s <= 3"),
        Goal("pruning", "*", "peak_mib <= 600"),
        Goal("scale", "model / measured: *", "error <= 0.25"),
        Goal("scale", "executors: *", "shuffle_bytes <= 0"),
    ),
}


@dataclass(frozen=True)
class Row:
    """A goal beside what was measured: one for each line that has the goal, or one that says *not measured*."""

    goal: Goal
    verdict: str
    line: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The row as it is printed: case, measure, value, goal and verdict."""
        bound = self.goal.bound
        wanted = f"{bound.measure} {bound.comparison} {bound.limit:g}"
        if self.line is None:
            scales = f" at scale {' or '.join(f'{scale:g}' for scale in self.goal.scales)}" if self.goal.scales else ""
            return f"{self.goal.benchmark + ': ' + self.goal.case:<76} {'':>9}  {wanted:<30} {self.verdict}{scales}"
        scale = self.line.get("scale")
        case = f"{self.goal.benchmark}: {self.line['case']}" + ("" if scale is None else f", scale {scale}")
        value = bound.value(self.line)
        shown = "failed" if value is None else f"{value:.3g}"
        return f"{case:<76} {shown:>9}  {wanted:<30} {self.verdict} ({self.line['commit']})"


def judged(benchmark: str, line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The goals of a line, each with its measure, its limit, and whether it is reached (``ok``)."""
    bounds = [goal.bound for goal in all_goals() if goal.concerns(benchmark, line)]
    return [
        {"measure": bound.measure, "limit": f"{bound.comparison} {bound.limit:g}", "ok": bound.holds(bound.value(line))}
        for bound in bounds
    ]


def report(benchmark: str, lines: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows of all goals of a benchmark, given all of its lines."""
    return [row for goal in all_goals() if goal.benchmark == benchmark for row in rows_of(goal, lines)]


def rows_of(goal: Goal, lines: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The rows of one goal, given all lines of its benchmark."""
    bound = goal.bound
    concerned = [line for line in lines if goal.concerns(goal.benchmark, line)]
    rows = [Row(goal, OK if bound.holds(bound.value(line)) else MISSED, line) for line in concerned]
    return rows or [Row(goal, NOT_MEASURED)]


def all_goals() -> Iterator[Goal]:
    """Every goal."""
    for goals in GOALS.values():
        yield from goals
