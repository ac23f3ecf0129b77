"""Shapes of conditions that people write, on keys of all types: they are looked up, and the answer is Spark's.

`make test` takes a third of them; which ones changes with the commit. `make soak-query` has the others.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
import skipstone
from pyspark.sql import SparkSession

from tests.examples import turn
from tests.spark.index_bed import index_on
from tests.spark.lake import append
from tests.spark.plans_bed import TABLE, Bed, answer, open_bed

FILES, ROWS = 6, 60
SCHEMA = pa.schema(
    [
        *(pa.field("u", pa.uuid()), pa.field("f", pa.binary(4)), pa.field("b", pa.binary())),
        *(pa.field("a", pa.int32()), pa.field("c", pa.string()), pa.field("k", pa.int64()), pa.field("d", pa.date32())),
    ]
)
INDEXES = [index_on(*columns, name="_".join(columns)) for columns in (("u",), ("f",), ("b",), ("a", "c"), ("k",))]
#: UUIDs on both sides of the sign bit, which some compare by and Spark does not.
UUIDS = [UUID(int=random.Random(number).getrandbits(128)) for number in range(FILES * ROWS)]
SORTED = sorted(UUIDS)
ORDER = random.Random(1).sample(range(FILES * ROWS), FILES * ROWS)


def rows(file: int) -> pa.Table:
    """Keys are spread over all files, so that no bounds tell where one is."""
    numbers = ORDER[file * ROWS : file * ROWS + ROWS]
    columns = {
        "u": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUIDS[n].bytes for n in numbers], pa.binary(16))),
        "f": [n.to_bytes(4, "big", signed=False) for n in numbers],
        "b": [None if n % 9 == 8 else bytes([n % 256, 255 - n % 256]) for n in numbers],
        "a": [None if n % 10 == 9 else n // 10 for n in numbers],
        "c": [None if n % 7 == 6 else "null" if n % 7 == 5 else f"c{n % 10}" for n in numbers],
        "k": [None if n % 20 == 19 else n for n in numbers],
        "d": list(numbers),
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """The table, and all its rows as Spark's view ``unfiltered``."""
    made = open_bed(spark, tmp_path_factory.mktemp("lake"), driver_rows=None)
    made.lake.create(SCHEMA)
    for file in range(FILES):
        append(made.lake.table(), rows(file))
    made.reindex(*INDEXES)
    made.spark.table(TABLE).localCheckpoint().createOrReplaceTempView("unfiltered")
    yield made
    made.lake.catalog.close()


def hexed(number: int) -> str:
    return f"X'{number:08x}'"


def pair(number: int) -> str:
    return (
        f"({number}L, {'string(null)' if number % 7 == 6 else repr('null' if number % 7 == 5 else f'c{number % 10}')})"
    )


MANY = range(0, 300, 2)
#: Conditions, and how many files may be read at most.
SERVED = {
    "uuid": (f"u = '{UUIDS[3]}'", 1),
    "uuid, mirrored": (f"'{UUIDS[3]}' = u", 1),
    "uuid, null-safe": (f"u <=> '{UUIDS[3]}'", 1),
    "uuid, list": (f"u in ('{UUIDS[3]}', '{UUIDS[4]}', null, 'none')", 2),
    "uuid, upper case": (f"u in ('{UUIDS[3]}', '{str(UUIDS[4]).upper()}', 'x')", 1),
    "uuid, prefix": (f"u like '{str(UUIDS[3])[:6]}%'", 1),
    "uuid, range": (f"u between '{SORTED[100]}' and '{SORTED[101]}'", 2),
    "uuid, range with open ends": (f"u > '{SORTED[100]}' and u < '{SORTED[103]}'", 2),
    "uuid, range of parts": (f"u >= '{str(SORTED[100])[:5]}' and u <= '{str(SORTED[102])[:5]}'", 3),
    "fixed": (f"f = {hexed(3)}", 1),
    "fixed, list": (f"f in ({hexed(3)}, {hexed(4)}, X'01')", 2),
    "fixed, range": (f"f between {hexed(100)} and {hexed(101)}", 2),
    "binary": ("b = X'03FC'", 2),
    "binary, null": ("b <=> null and k = 8", 1),
    "binary, range": ("b > X'639D' and b < X'6599'", 2),
    "rows": ("(a, c) in ((1, 'c1'), (2, 'c0'))", 2),
    "rows, nulls and a word": ("(a, c) in ((12, 'null'), (2, string(null)))", 3),
    "row": ("(a, c) = (1, 'c1')", 1),
    "row, null-safe": ("(a, c) <=> (1, 'c1')", 1),
    "row, mirrored and named": ("named_struct('x', 1, 'y', 'c1') = named_struct('x', a, 'y', c)", 1),
    "row, field by field": ("(a, c) = (1, concat('c', 1))", 1),
    "row, expression beside": ("(k, a + 1) = (7L, 1)", 1),
    "row of one": ("struct(k) = struct(7L)", 1),
    "rows, widened": ("(bigint(a), c) in ((1L, 'c1'), (2L, 'c0'))", 2),
    "row, after": ("(a, c) > (35, 'c7')", 2),
    "row, between": ("(k, a) > (7L, 0) and (k, a) <= (9L, 0)", 2),
    "row, not after": ("not (k, a) > (9L, 0) and k > 7", 2),
    "row, days": ("(k, d) = (11L, date'1970-01-12')", 1),
    "if": ("if(a = 1, 'x', 'y') = 'x' and c = 'c1'", 1),
    "if, columns": ("if(d > date'1970-01-01', k, -1L) = 7", 1),
    "case": ("case when k = 7 then 'x' when k = 8 then 'y' else 'z' end = 'x'", 1),
    "case of a value": ("case k when 7 then 1 when 8 then 2 end in (1, 2)", 2),
    "case, boolean": ("case when k = 7 then true when k = 8 then c is null else false end", 2),
    "coalesce": ("coalesce(k, -1) = 7", 1),
    "coalesce, several": ("coalesce(k, bigint(a), -1L) = 7 and a < 8", 4),
    "coalesce, list": ("coalesce(k, -1) in (7, 8)", 2),
    "nvl": ("nvl(k, -1) = 7", 1),
    "nvl2": ("nvl2(c, k, -1L) = 7", 1),
    "ifnull": ("ifnull(k, 0) = 7", 1),
    "nullif": ("nullif(k, 8) = 7", 1),
    "decode": ("decode(k, 7, 'x', 8, 'y', 'z') = 'x'", 1),
    "zeroifnull": ("zeroifnull(k) = 7", 1),
    "long list of uuids": (f"u in ({', '.join(repr(str(UUIDS[n])) for n in MANY)}) and k < 2", 1),
    "long list of bytes": (f"f in ({', '.join(map(hexed, MANY))}) and k < 2", 1),
    "long list of rows": (f"(k, c) in ({', '.join(map(pair, MANY))}) and k < 8", 4),
}


def some_of(shapes: Iterable[str]) -> list[Any]:
    """A third of the shapes has its turn; the others are for a soak."""
    first = turn(3)
    marks: list[list[Any]] = [[], [pytest.mark.soak], [pytest.mark.soak]]
    return [pytest.param(shape, marks=marks[(first + number) % 3]) for number, shape in enumerate(shapes)]


@pytest.mark.parametrize("shape", some_of(SERVED))
def test_shapes_are_looked_up(bed: Bed, shape: str) -> None:
    condition, files = SERVED[shape]
    select = "select k, a, c, u, hex(f), hex(b) from {} where {}"
    found = skipstone.sql(bed.spark, select.format(TABLE, condition))
    explanation = skipstone.explain(found)
    assert answer(found) == answer(bed.spark.sql(select.format("unfiltered", condition))), str(explanation)
    assert explanation.is_rewritten, str(explanation)
    (relation,) = explanation.relations
    assert relation.plan is not None
    assert relation.plan.funnel.read <= files, str(explanation)


#: Queries of ``{t}`` with ``k = 7`` in them.
QUERIES = {
    "pipes": "from {t} |> where k = 7 |> select a, c",
    "pipes, filter last": "from {t} |> extend a + 1 as x |> select k, x |> where k = 7",
    "lateral view": "select k, x from {t} lateral view explode(array(a, 1)) as x where k = 7",
    "lateral view outer": "select k, x from {t} lateral view outer explode(array(a, 1)) as x where k = 7 and x = 1",
    "two lateral views": "select k, x, y from {t} lateral view explode(array(a, 1)) as x lateral view "
    "explode(array(x, 2)) as y where k = 7",
    "lateral join of a generator": "select k, x from {t}, lateral explode(array(a, 1)) as e(x) where k = 7",
    "lateral subquery": "select k, x from {t} t, lateral (select t.a + 1 as x) where k = 7",
    "left lateral join": "select k, x from {t} t left join lateral (select t.a + 1 as x where t.a = 0) where k = 7",
    "lateral aggregate": "select t.k, x from {t} t, lateral (select max(s.d) as x from {t} s where s.a = t.a) "
    "where t.k = 7",
    "lateral join with a condition": "select t.k, x from {t} t join lateral (select s.k as x from {t} s "
    "where s.a = t.a) on x > t.k where t.k = 7",
    "generator in the select list": "select * from (select k, explode(array(a, 1)) as x from {t}) where k = 7",
    "or over both sides of a join": "select t.k, y from {t} t, (select a + 6 as x, a as y from {t}) v "
    "where (t.k = v.x and t.f = X'00000007' and v.y = 1 and t.d < date'1971-01-01') or "
    "(t.k = v.x and t.f = X'00000008' and v.y = 3 and t.d < date'1971-01-01')",
    "unpivot": "select * from (select k, a, d from {t}) unpivot (v for n in (a)) where k = 7",
}


@pytest.mark.parametrize("shape", some_of(QUERIES))
def test_conditions_above_what_makes_rows_of_rows_are_looked_up(bed: Bed, shape: str) -> None:
    found = bed.query(QUERIES[shape].format(t=TABLE))
    assert found.answer == answer(bed.spark.sql(QUERIES[shape].format(t="unfiltered")))
    assert found.explanation.relations[0].is_rewritten, str(found.explanation)
