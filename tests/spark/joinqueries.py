"""Random queries that join a table with few rows and with itself, in every shape that Spark SQL has for that.

A query is made of *sources*: tables in brackets with the columns x (of one type in the whole query), y and m. They are
joined by x, filtered, grouped, united and compared with others in subqueries. Answers do not depend on an order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

TABLE, SMALL = "skipstone.ns.t", "skipstone.ns.small"
KINDS = ("join", "join", "join", "left join", "right join", "full join", "left semi join", "left anti join")
COMPARISONS = ("=", "<>", "<", ">=")
#: Tests of rows of an alias {a} by a subquery over {source}, which is in brackets.
TESTS = (
    "{a}.x in (select s.x from {source} s)",
    "{a}.x not in (select s.x from {source} s)",
    "{a}.x not in (select s.x from {source} s where s.x is not null)",
    "exists (select 1 from {source} s where s.x = {a}.x)",
    "exists (select 1 from {source} s where s.x <=> {a}.x and s.m <> {a}.m)",
    "not exists (select 1 from {source} s where s.x = {a}.x)",
    "not exists (select 1 from {source} s where s.x = {a}.x and s.y = {a}.y)",
    "{a}.m <= (select max(s.m) from {source} s where s.x = {a}.x)",
    "{a}.m > coalesce((select min(s.m) from {source} s where s.x = {a}.x), 0)",
    "{a}.x = (select max(s.x) from {source} s)",
    "{a}.x >= (select min(s.x) from {source} s)",
    "{a}.y = (select max(s.y) from {source} s)",
    "({a}.x, {a}.y) in (select s.x, s.y from {source} s)",
    "exists (select 1 from {source} s where s.x = {a}.x and s.m in (select u.m from {other} u where u.x = s.x))",
    "{a}.x in (select s.x from {source} s where not exists (select 1 from {other} u where u.y = s.y))",
)
#: Sources over columns {x} and {y} of {table} where {where}, or over other sources.
SOURCES = (
    "(select {x} x, {y} y, n m from {table} where {where})",
    "(select {x} x, {y} y, n m from {table} where {where})",
    "(select {x} x, {y} y, n m from {table})",
    "(select {x} x, max({y}) y, max(n) m from {table} where {where} group by {x})",
    "(select {x} x, min({y}) y, count(*) m from {table} group by {x} having count(*) > 2)",
    "(select distinct {x} x, {y} y, 7 m from {table} where {where})",
    "(select {x} x, {y} y, n m from {table} where {where} order by n limit 4)",
    "(select {x} x, {y} y, row_number() over (partition by {x} order by n) m from {table} where {where})",
    "(select {x} x, {y} y, sum(n) over (partition by {y}) m from {table})",
    "(select {x} x, {y} y, e m from {table} lateral view explode(array(n, 1)) as e where {where})",
    "(select {x} x, {y} y, n m from {table} union all select {x}, {y}, -n from {other} where {where})",
    "(select {y} y, {x} x, n m from {table} where {where} union select {y}, {x}, n from {other})",
    "(select {x} x, {y} y, 1 m from {table} where {where} intersect select {x}, {y}, 1 from {other})",
    "(select {x} x, {y} y, 1 m from {table} except select {x}, {y}, 1 from {other} where {where})",
    "(select l.x, r.y, l.m from {left} l join {right} r on l.x = r.x)",
    "(select l.x, l.y, r.m from {left} l left join {right} r on l.x = r.x and l.m <> r.m)",
    "(select r.x, l.y, r.m from {left} l right join {right} r on l.x <=> r.x)",
    "(select l.x, l.y, l.m from {left} l, {right} r where l.x = r.x and l.y = r.y)",
    "(select l.x, max(r.y) y, count(r.m) m from {left} l left join {right} r on l.x = r.x group by l.x)",
)


@dataclass(frozen=True)
class Columns:
    """What is joined by: ``x``, any column, and ``y``, of which all conditions are. ``literal``: of a value of y."""

    x: str
    y: str
    literal: Callable[[], str]


def random_join(random: Random, number: int, columns: Columns) -> str:
    """A query whose columns are its number and a text."""
    return _Query(random, columns).text(number)


@dataclass(frozen=True)
class _Query:
    random: Random
    columns: Columns

    def text(self, number: int) -> str:
        """Sources joined one after the other."""
        count = self.random.choice((1, 2, 2, 3, 4))
        joined, shown = f"{self._source()} a0", ["a0"]
        for at in range(1, count):
            kind = self.random.choice(KINDS)
            joined += f" {kind} {self._source()} a{at} on {self._on(shown, f'a{at}')}"
            shown += [] if "semi" in kind or "anti" in kind else [f"a{at}"]
        tests = [self._test(self.random.choice(shown)) for _ in range(self.random.choice((0, 1, 1, 2)))]
        tests += [] if tests or count > 1 else [self._test("a0")]
        where = f" where {self._folded(tests)}" if tests else ""
        found = ", ".join(f"{alias}.m as m{at}, {alias}.y as y{at}" for at, alias in enumerate(shown))
        return f"select {number} as q, to_json(struct({found})) as j from {joined}{where}"

    def _folded(self, tests: Sequence[str]) -> str:
        forms = ["{}", "not {}", "({} or a0.m % 3 = 0)"]
        return self.random.choice((" and ", " or ")).join(self.random.choice(forms).format(f"({t})") for t in tests)

    def _on(self, shown: Sequence[str], alias: str) -> str:
        other = self.random.choice(shown)
        equality = f"{other}.x {self.random.choice(('=', '=', '=', '<=>'))} {alias}.x"
        more = (f" and {other}.y = {alias}.y", f" and {other}.m <= {alias}.m", f" and {self._where(f'{alias}.y')}")
        return equality + self.random.choice(("", "", "", *more))

    def _test(self, alias: str) -> str:
        if self.random.random() < 0.2:
            return self._where(f"{alias}.y")
        return self.random.choice(TESTS).format(a=alias, source=self._source(1), other=self._source(1))

    def _where(self, operand: str) -> str:
        return f"{operand} {self.random.choice(COMPARISONS)} {self.columns.literal()}"

    def _source(self, depth: int = 0) -> str:
        form = self.random.choice(SOURCES if depth < 2 else SOURCES[:-5])
        below = {name: self._source(depth + 1) for name in ("left", "right") if f"{{{name}}}" in form}
        tables = self.random.choice(((TABLE, SMALL), (TABLE, SMALL), (SMALL, TABLE)))
        where = self._where(self.columns.y) if self.random.random() < 0.6 else f"n % 5 = {self.random.randrange(5)}"
        x, y = self.columns.x, self.columns.y
        return form.format(x=x, y=y, table=tables[0], other=tables[1], where=where, **below)
