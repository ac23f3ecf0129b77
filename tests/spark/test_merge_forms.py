"""MERGE statements of every form, generated: the manifest gives the rows of Spark's own MERGE INTO on Iceberg.

Conditions are also judged row by row by Spark, with NaN and both zeros. The tables are of many small files, so that a
file that is pruned wrongly loses its rows. Their values have no NaN and no -0.0, of which Spark with Iceberg loses rows
under pushed filters.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from skipstone.files.reader import describe_files
from skipstone.kernels.evaluation import evaluate_predicate
from skipstone.tables.filesets import read_file_set
from skipstone_cli.translating.dialects import find_dialect
from skipstone_cli.translating.jobs import Chosen, translate
from skipstone_core.language.parser import parse_predicate
from skipstone_core.language.predicates import check_types
from skipstone_operator.resources.kinds import parse
from skipstone_operator.resources.mergejob import MergeJobSpec

from tests.examples import cases
from tests.unit.merge_shapes import SHAPES
from tests.unit.query_lake import RandomLake
from tests.unit.test_merges_random import Bench, rows_of
from tests.unit.test_sql2merge_random import (
    SOURCE,
    TARGET,
    VALUES,
    by_kernels,
    counted,
    schema_of,
    sources,
    statements,
    translated,
)

FILES, ROWS = 8, 2


class SparkBench:
    """A table of small files, and Spark's way to merge into it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._catalog = SqlCatalog("forms", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
        self._catalog.create_namespace("n")
        table = self._catalog.create_table("n.t", schema_of(TARGET))
        drawn = random.Random(11)
        for _ in range(FILES):
            rows = [{name: drawn.choice(VALUES[kind]) for name, kind in TARGET.items()} for _ in range(ROWS)]
            table.append(pa.Table.from_pylist(rows, schema_of(TARGET)))
        self._table = self._catalog.load_table("n.t")
        files = read_file_set(self._table)
        live = {one.path: rows_of(one, list(TARGET)) for one in describe_files(self._table, files, range(len(files)))}
        rows = [row for kept in live.values() for row in kept]
        self.bench = Bench(cast(RandomLake, None), self._table, self._table, files, live, rows)
        self._session = spark.newSession()
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{root}/catalog.db",
            ".warehouse": f"file://{root}",
            ".jdbc.schema-version": "V1",
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            self._session.conf.set(f"spark.sql.catalog.forms{key}", value)
        for key, value in {"sql.shuffle.partitions": 1, "sql.adaptive.enabled": "false"}.items():
            self._session.conf.set(f"spark.{key}", value)

    def merge(self, statement: str, rows: Sequence[dict[str, object]]) -> list[dict[str, Any]]:
        """The rows of the table after the statement, which is then taken back."""
        given = pa.Table.from_pylist(list(rows), schema_of(SOURCE))
        self._session.createDataFrame(given).createOrReplaceTempView("s")
        self._session.sql(statement.replace("MERGE INTO t ", "MERGE INTO forms.n.t AS t ", 1)).collect()
        found = self._catalog.load_table("n.t").scan().to_arrow().to_pylist()
        snapshot = self._table.metadata.current_snapshot_id
        self._session.sql(f"CALL forms.system.set_current_snapshot('n.t', {snapshot})").collect()
        return found

    def close(self) -> None:
        """Close the catalog."""
        self._catalog.close()


@pytest.fixture(scope="module")
def spark_bench(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkBench]:
    bench = SparkBench(spark, str(tmp_path_factory.mktemp("forms")))
    yield bench
    bench.close()


@pytest.mark.timeout(40000)
@settings(max_examples=cases(3, 2000), phases=[Phase.generate], deadline=None)
@given(st.data())
def test_a_merge_of_any_form_gives_the_rows_of_spark(spark_bench: SparkBench, data: st.DataObject) -> None:
    statement = data.draw(statements())
    rows = data.draw(sources(statement.keys, repeats=statement.repeats))
    found = translated(statement)
    if found.refused:  # one of several rows of a null key
        rows = [row for row in rows if None not in [row[key] for key in statement.keys]]
        found = translated(statement, keys_are_set=True)
    assert found.manifest is not None, (statement.spark, found.refused)
    spec = parse(dict(found.manifest)).spec
    assert isinstance(spec, MergeJobSpec)
    ours = by_kernels(spark_bench.bench, spec, rows)
    assert ours == counted(spark_bench.merge(statement.spark, rows)), (statement.spark, rows)


@pytest.mark.timeout(1200)
def test_shapes_of_other_suites_give_the_rows_of_spark(spark_bench: SparkBench) -> None:
    accepted = [shape for shape in SHAPES if shape.is_sql and not shape.refused]
    for number, shape in enumerate(accepted[:: cases(len(accepted) // 4, 1)]):
        drawn = random.Random(number)
        ids = [1, 2, 3, 4, 7, 8, *([] if shape.keys_are_set else [None])]
        rows = [{name: drawn.choice(VALUES[kind]) for name, kind in SOURCE.items()} | {"id": id_} for id_ in ids]
        rows = [{**row, "seq": at, "op": drawn.choice("DUI")} for at, row in enumerate(rows)]
        chosen = Chosen(dialect=find_dialect("spark"), paths=("feed/*.parquet",), keys_are_set=shape.keys_are_set)
        found = translate(shape.text, chosen)
        assert found.manifest is not None, (shape.text, found.refused)
        spec = parse(dict(found.manifest)).spec
        assert isinstance(spec, MergeJobSpec)
        ours = by_kernels(spark_bench.bench, spec, rows)
        assert ours == counted(spark_bench.merge(shape.text, rows)), (shape.text, rows)


KINDS: dict[str, tuple[str, pa.DataType, Sequence[object]]] = {
    "i": ("int", pa.int32(), (None, -7, -1, 0, 1, 2, 5, 2**31 - 1)),
    "l": ("long", pa.int64(), (None, -(2**53) - 1, -3, 0, 2, 2**53 + 1)),
    "d": ("decimal(9,2)", pa.decimal128(9, 2), (None, *map(Decimal, ("-1.50", "0", "1", "2.55")))),
    "x": ("double", pa.float64(), (None, math.nan, -math.inf, -1.5, -0.0, 0.0, 0.1, 2.0)),
    "f": ("float", pa.float32(), (None, math.nan, -0.0, 0.0, 0.1, 2.5, math.inf)),
    "s": ("string", pa.string(), (None, "", "a", "A", "ab", "a%b", "a_b", "b\na", "\U0001f600b")),
    "b": ("boolean", pa.bool_(), (None, True, False)),
    "y": ("date", pa.date32(), (None, date(1969, 12, 31), date(2024, 2, 29))),
}
LITERALS = ("0", "1", "-2", "2.5", "0.1", "1e0", "null")
CONDITIONS = 100


def random_number(drawn: random.Random, depth: int = 0) -> str:
    column = drawn.choice("ildxf")
    forms = [column, column, drawn.choice(LITERALS[:-1])]
    if depth < 2:
        inner, other = random_number(drawn, depth + 1), random_number(drawn, depth + 1)
        forms += [
            f"coalesce({column}, {inner})",
            f"({column} % {drawn.choice(('2', '-3', '2.5', '0.7'))})",
            f"-{column}",
        ]
        forms += [f"(cast({column} as double) {drawn.choice('+-*')} {inner})", f"coalesce(null, {inner}, {other})"]
    return drawn.choice(forms)


def random_condition(drawn: random.Random, depth: int = 0) -> str:
    compared = drawn.choice(("=", "==", "!=", "<>", "<", "<=", ">", ">=", "<=>"))
    number, other = random_number(drawn), random_number(drawn)
    no, pattern = drawn.choice(("", "not ")), "".join(drawn.choices("%_ab", k=drawn.randint(0, 3)))
    forms = [
        f"{number} {compared} {other}",
        f"{number} {compared} {drawn.choice(LITERALS)}",
        f"{number} {no}in ({drawn.choice(LITERALS)}, {drawn.choice(LITERALS)}, 5)",
        f"{number} {no}between {drawn.choice(LITERALS)} and {other}",
        f"{drawn.choice('ildxfsby')} is {no}null",
        f"s {compared} {drawn.choice(('null', repr('a'), 's', 'coalesce(s, ' + repr('b') + ')'))}",
        f"{drawn.choice(('s', 's || ' + repr('b')))} {no}like '{pattern}'",
        f"s {no}in ('a', 'ab', {drawn.choice(('null', repr('b')))})",
        drawn.choice(("b", "coalesce(b, false)", "b <=> null", "b = true", "true", "null = 1")),
        f"y {compared} {drawn.choice(('null', 'y', 'date ' + repr('2024-02-29')))}",
    ]
    if depth < 3:
        left, right = random_condition(drawn, depth + 1), random_condition(drawn, depth + 1)
        forms += [f"({left} and {right})", f"({left} or {right})", f"not ({left})"] * 3
    return drawn.choice(forms)


@pytest.mark.timeout(20000)
@pytest.mark.parametrize("seed", range(cases(1, 40)))
def test_conditions_mean_what_they_mean_in_spark(spark: SparkSession, seed: int) -> None:
    drawn = random.Random(seed)
    rows = [{name: drawn.choice(values) for name, (_, _, values) in KINDS.items()} for _ in range(40)]
    table = pa.Table.from_pylist(rows, pa.schema([(name, kind) for name, (_, kind, _) in KINDS.items()]))
    conditions = [random_condition(drawn) for _ in range(CONDITIONS)]
    frame = spark.createDataFrame(table)
    judged = frame.selectExpr(*(f"({text}) as c{number}" for number, text in enumerate(conditions))).toArrow()
    types = {name: kind for name, (kind, _, _) in KINDS.items()}
    columns = {name: table.column(name).combine_chunks() for name in KINDS}
    for number, text in enumerate(conditions):
        predicate = check_types(parse_predicate(text), types)
        ours = evaluate_predicate(predicate, columns, table.num_rows).to_pylist()
        assert ours == judged.column(f"c{number}").to_pylist(), text
