"""Random joins of tables with covering indexes, in whatever state these are, give what plain Spark gives on all rows.

`make test` takes a few joins after a few changes, `make soak-query` SKIPSTONE_SOAK_CASES / 20 of them.
"""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
import skipstone
from pyspark.sql import SparkSession
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reporting.report import Reporter
from skipstone_core.indexing import indexes as index_rules

from tests.examples import cases
from tests.spark.index_bed import index_on
from tests.spark.merge_bed import DELETE_D, UPDATE, MergeBed, task_of
from tests.spark.plans_bed import Bed, answer, open_bed
from tests.spark.rawdeletes import add_equality_delete

#: PyIceberg says so when it overwrites rows of a table in which Spark marks them, or none.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Merge on read is not yet supported", "ignore:Delete operation did not match any records"
)

SOAK_CASES = int(os.environ.get("SKIPSTONE_SOAK_CASES", "50000")) // 20
SOAK_SEED = int(os.environ.get("SKIPSTONE_SOAK_SEED", str(int(time.time()))))
NAN, INF = float("nan"), float("inf")
#: Values by column, few enough to meet. All but those of x and r are keys.
VALUES: dict[str, tuple[pa.DataType, tuple[object, ...]]] = {
    "k": (pa.int64(), (-3, 0, 1, 2, 5, 7, 2**40, -(2**63), 2**63 - 1)),
    "i": (pa.int32(), (-3, 0, 1, 2, 5, 7, 2**31 - 1, -(2**31))),
    "s": (pa.string(), ("", "a", "ab", "abc", "é", "😀", "x" * 40)),
    "c": (pa.decimal128(9, 2), tuple(map(Decimal, ("0.00", "1.50", "-1.50", "9999999.99")))),
    "d": (pa.date32(), (dt.date(1, 1, 1), dt.date(1899, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31))),
    "w": (pa.timestamp("us"), (dt.datetime(1899, 1, 1, 1, 2, 3, 4), dt.datetime(2024, 3, 31, 2, 30))),  # noqa: DTZ001
    "b": (pa.bool_(), (True, False)),
    "y": (pa.binary(), (b"", b"\x00", b"\xff\x80", b"abcde")),
    "x": (pa.float64(), (NAN, 0.0, -0.0, 1.5, INF)),
    "r": (pa.float32(), (NAN, 0.0, -0.0, 0.10000000149011612)),
}
SCHEMA = pa.schema([*(pa.field(name, kind) for name, (kind, _) in VALUES.items()), pa.field("n", pa.int64())])
KEYS = (("k",), ("i",), ("s",), ("c",), ("d",), ("w",), ("y",), ("b", "k"), ("i", "s"))
INDEXES = tuple(
    index_on(
        *keys,
        name="by_" + "_".join(keys),
        include=[name for name in SCHEMA.names if name not in keys],
        buckets=3,
    )
    for keys in KEYS
)
#: What is joined: pairs of columns of the two tables.
PAIRS = (
    *(tuple((name, name) for name in keys) for keys in KEYS),
    (("k", "i"),),
    (("i", "k"),),
    (("s", "s"), ("i", "i")),
)
JOINS = (
    "select {q}, to_json(struct(l.n, r.n as m, l.x)) from {l} l join {r} r on {on}",
    "select {q}, to_json(struct(l.n, r.n as m, r.x)) from {l} l left join {r} r on {on} and {right}",
    "select {q}, to_json(struct(l.n, r.n as m)) from {l} l right join {r} r on {on} and {left}",
    "select {q}, to_json(struct(l.n, r.n as m, l.r)) from {l} l full join {r} r on {on}",
    "select {q}, to_json(struct(l.n, l.s)) from {l} l left semi join {r} r on {on} and {right}",
    "select {q}, to_json(struct(l.n, l.y)) from {l} l left anti join {r} r on {on}",
    "select {q}, to_json(struct(l.n, r.n as m)) from {l} l join {r} r on {on} where {left} and {right}",
    "select {q}, to_json(struct(l.n, r.n as m)) from {l} l left join {r} r on {on} where {left}",
    "select {q}, to_json(struct(l.n)) from {l} l where exists (select 1 from {r} r where {on} and r.n > l.n)",
    "select {q}, to_json(struct(l.n)) from {l} l where not exists (select 1 from {r} r where {on} and {right})",
    "select {q}, to_json(struct(l.n)) from {l} l where {left} or exists (select 1 from {r} r where {on})",
    "select {q}, to_json(struct(l.{key}, count(*), sum(r.n))) from {l} l join {r} r on {on} group by l.{key}",
    "select {q}, to_json(struct(l.n, (select max(r.n) from {r} r where {on}) as m)) from {l} l where {left}",
    "select {q}, to_json(struct(l.n, r.n as m, o.n as o)) from {l} l join {r} r on {on} join {l} o on r.k = o.k",
)


def rows(random: Random, number: int, count: int) -> pa.Table:
    """The rows of file ``number``, each with an n of its own."""
    columns: dict[str, list[object]] = {"n": [number * 1000 + at for at in range(count)]}
    for name, (_, values) in VALUES.items():
        few = [None, *random.sample(values, min(len(values), 6))]
        columns[name] = [random.choice(few) for _ in range(count)]
    return pa.table(columns, schema=SCHEMA)


@dataclass
class Pair:
    """Two tables that change at random."""

    bed: Bed
    random: Random
    made: int = 0
    done: list[str] = field(default_factory=list)

    def fill(self) -> None:
        """Make both tables, of two files each, and some of the indexes."""
        self.bed.spark.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
        for name in "tu":
            self.bed.lake.create(SCHEMA, name)
            self.bed.spark.sql(
                f"alter table skipstone.ns.{name} set tblproperties ('write.delete.mode'='merge-on-read')"
            )
            for _ in range(2):
                self.append(name)
            self.reindex(name)

    def change(self) -> None:
        """Change one of the tables, or its indexes."""
        changes: tuple[Callable[[str], None], ...] = (
            self.append,
            self.append,
            self.delete,
            self.delete_equal,
            self.overwrite,
            self.merge,
            self.reindex,
            self.reindex,
            self.follow,
        )
        change, name = self.random.choice(changes), self.random.choice("tu")
        self.done.append(f"{change.__name__} {name}")
        change(name)

    def append(self, name: str) -> None:
        """Add a file."""
        self.bed.lake.table(name).append(self._rows())

    def delete(self, name: str) -> None:
        """Delete some rows by position."""
        rest = self.random.randrange(2, 9)
        self.bed.spark.sql(f"delete from skipstone.ns.{name} where n % {rest} = {self.random.randrange(rest)}")

    def delete_equal(self, name: str) -> None:
        """Delete some rows by equality."""
        add_equality_delete(self.bed.lake.table(name), {"i": [self.random.choice(VALUES["i"][1])]})

    def overwrite(self, name: str) -> None:
        """Replace the rows of some files."""
        first = self.random.randrange(self.made + 1) * 1000
        self.bed.lake.table(name).overwrite(self._rows(), overwrite_filter=f"n >= {first} and n < {first + 1000}")

    def merge(self, name: str) -> None:
        """Update, delete and insert rows by a merge run, which copies files or marks rows."""
        feeds = MergeBed(self.bed.lake.root)
        known = [row[0] for row in self.bed.spark.table(f"skipstone.ns.{name}").select("n").limit(3).collect()]
        new = self._rows()
        numbers = [self.random.choice([number, *known]) for number in new["n"].to_pylist()]
        feed = new.set_column(new.schema.get_field_index("n"), "n", pa.array(numbers, pa.int64()))
        feed = feed.append_column("op", pa.array([self.random.choice("UUD") for _ in numbers]))
        feed = feed.take(pa.array({number: at for at, number in enumerate(numbers)}.values()))
        mode = self.random.choice(["copy-on-write", "merge-on-read"])
        self.bed.spark.sql(f"alter table skipstone.ns.{name} set tblproperties ('write.merge.mode'='{mode}')")
        task = task_of(feeds.source(feed, f"feed-{self.made}"), ["n"], when_matched=(DELETE_D, UPDATE))
        request = feeds.request(task)
        request = request.__class__(**{**vars(request), "table": self.bed.lake.ref(name)})
        run_merge(request, Reporter(request))
        feeds.catalog.close()

    def reindex(self, name: str) -> None:
        """Enter some segments into some indexes."""
        chosen = self.random.sample(INDEXES, self.random.randrange(1, len(INDEXES)))
        self.bed.reindex(*chosen, max_segments=self.random.choice([None, None, 1, 2]), name=name)

    def follow(self, name: str) -> None:
        """Enter all segments into all indexes."""
        self.bed.reindex(*INDEXES, name=name)

    def _rows(self) -> pa.Table:
        self.made += 1
        return rows(self.random, self.made, self.random.randrange(1, 30))

    # --- queries ---

    def join(self, number: int) -> str:
        """A random join as SQL on {l} and {r}."""
        pair = self.random.choice(PAIRS)
        on = " and ".join(f"l.{one} = r.{other}" for one, other in pair)
        left, right = (f"{side}.{self._condition()}" for side in "lr")
        form = self.random.choice(JOINS)
        return form.format(q=f"{number} as q", l="{l}", r="{r}", on=on, left=left, right=right, key=pair[0][0])

    def _condition(self) -> str:
        # not x > 1: without an index, Iceberg leaves out files by bounds, of which NaN is none
        kind = self.random.choice(("n % 3 <> 0", "k > 0", "i <= 2", "s >= 'a'", "x <= 1", "b", "d < date'2000-01-01'"))
        return self.random.choice((kind, "n is not null", "x is null"))

    def check(self, count: int) -> int:
        """So many random joins as one; how many relations were read from covering indexes."""
        texts = [self.join(number) for number in range(count)]
        spark = self.bed.spark
        for name in "tu":
            spark.table(f"skipstone.ns.{name}").localCheckpoint().createOrReplaceTempView(f"all_{name}")
        text, plain = (
            " union all ".join(one.format(l=f"{prefix}t", r=f"{prefix}u") for one in texts)
            for prefix in ("skipstone.ns.", "all_")
        )
        rewritten = skipstone.sql(spark, text)
        said = str(skipstone.explain(rewritten))
        assert answer(rewritten) == answer(spark.sql(plain)), f"{self.done}\n{text}\n{said}"
        assert "Failed" not in said
        return said.count(": used, ") - said.count("index: used, reading")


def open_pair(spark: SparkSession, root: Path, random: Random, monkeypatch: pytest.MonkeyPatch) -> Pair:
    """Two tables in a new lake; small runs are spread over buckets or not."""
    monkeypatch.setattr(index_rules, "ROWS_PER_BUCKET", random.choice([1, 20, 2048]))
    pair = Pair(open_bed(spark, root), random)
    pair.fill()
    return pair


@pytest.mark.parametrize("seed", range(cases(1, 6)))
def test_joins_give_what_plain_spark_gives(
    spark: SparkSession, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = open_pair(spark, tmp_path, Random(seed), monkeypatch)
    for _ in range(4):
        pair.change()
    pair.follow("t")
    assert pair.check(4)
    pair.bed.lake.catalog.close()


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_random_joins_for_as_long_as_wished(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = used = 0
    while done < SOAK_CASES:
        seed = f"{SOAK_SEED} {done}"
        print(f"\nseed {seed}, {done} joins done, {used} relations read from covering indexes", flush=True)
        (tmp_path / str(done)).mkdir()
        pair = open_pair(spark, tmp_path / str(done), Random(seed), monkeypatch)
        for number in range(8):
            pair.change()
            if number % 3 == 0:  # else most indexes miss so much that they gain nothing
                pair.follow("t")
                pair.follow("u")
            used += pair.check(5)
            done += 5
        pair.bed.lake.catalog.close()
    assert used > done
