"""Queries of every shape through a server that plans: rows as an unfiltered scan and client planning give them.

`make test` takes a part of the shapes, which changes with the commit; `make soak-planning` takes all of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyspark.sql import SparkSession
from skipstone.compat.java import object_named
from skipstone_core.contract.planning import PlanningMode, PlanningSettings

from tests.docs.blocks import blocks_of
from tests.examples import ALL_CASES, turn
from tests.spark.planning_arrow import SCANS, compared, files
from tests.spark.planning_bed import (
    TOKEN,
    answers,
    configured,
    planned_files,
    planning_server,
    served_settings,
    together,
)
from tests.spark.planning_lake import INDEXES, UUIDS, Names, PlanningLake
from tests.spark.planning_shapes import METADATA, REFUSED, SHAPES, UNLIKE

ROOT = Path(__file__).parents[2]
#: `make test` takes one of so many shapes.
PARTS = 1 if ALL_CASES else 8
STOCK = {"spark.sql.caseSensitive": "false", "spark.sql.shuffle.partitions": "1"}


@dataclass
class Bed:
    """The tables, the server before them, and what each query must give."""

    lake: PlanningLake
    address: str
    session: SparkSession
    served: Names
    reference: Mapping[str, str]

    @property
    def direct(self) -> Names:
        """As client planning names the tables."""
        return Names("skipstone.ns.", self.lake.at)

    def differences(self, queries: Sequence[str], *, plain: Names | None = None) -> list[str]:
        """A sentence for each query whose served rows are not those of an unfiltered scan, or of ``plain``."""
        expected = answers(self.session, queries, plain or self.reference)
        found = answers(self.session, queries, self.served)
        return [f"{text}: served {found[text]}, not {rows}" for text, rows in expected.items() if rows != found[text]]


def some_of(shapes: Sequence[Any]) -> Sequence[Any]:
    """Those that have their turn."""
    return shapes[turn(PARTS) :: PARTS]


@pytest.fixture(scope="module")
def bed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """All tables with indexes that are in sync, and a server of their Sql catalog."""
    lake = PlanningLake(spark, tmp_path_factory.mktemp("lake"))
    lake.index()
    settings = PlanningSettings(warehouse=lake.lake.warehouse, mode=PlanningMode.OPT_IN)
    with planning_server(settings, tmp_path_factory.mktemp("server")) as address:
        session = configured(lake.session, {**served_settings(address), **STOCK})
        made = Bed(lake, address, session, Names("served.ns.", lake.at), {})
        made.reference = dict(_unfiltered(made))
        yield made
    lake.lake.catalog.close()


def _unfiltered(bed: Bed) -> Iterator[tuple[str, str]]:
    """Views of all rows of each table, which no filter reaches."""
    for name, table in bed.direct.items():
        view = f"all_{name}"
        bed.session.sql(f"select * from {table}").localCheckpoint().createOrReplaceTempView(view)
        yield name, view


def test_the_settings_of_the_page_are_those_that_are_tested() -> None:
    spark, python = [block.text for block in blocks_of("docs/guide/engines.md") if "lake.example.org" in block.text][:2]
    told = dict(line.split() for line in spark.splitlines())
    tested = served_settings("https://lake.example.org", "lake") | {"spark.sql.catalog.lake.token": "TOKEN"}
    assert told.items() <= tested.items()
    assert tested.keys() - told.keys() == {"spark.sql.catalog.lake.cache-enabled"}
    assert '"scan-planning-mode": "server"' in python


@pytest.fixture
def catalog(bed: Bed) -> Catalog:
    """PyIceberg's catalog whose scans the server plans."""
    return RestCatalog("served", uri=bed.address, token=TOKEN, **{"scan-planning-mode": "server"})


def test_spark_sql_gets_the_rows_of_an_unfiltered_scan(bed: Bed) -> None:
    before = planned_files(bed.address)
    assert bed.differences(some_of((*SHAPES, *UNLIKE))) == []
    total, left = (after - earlier for after, earlier in zip(planned_files(bed.address), before, strict=True))
    assert 0 < left < 0.6 * total


def test_spark_sql_gets_the_rows_of_client_planning(bed: Bed) -> None:
    assert bed.differences(some_of((*SHAPES, *METADATA)), plain=bed.direct) == []


def test_pyiceberg_gets_the_rows_and_counts_of_its_own_planning(bed: Bed, catalog: Catalog) -> None:
    assert list(compared(catalog, bed.lake.lake.catalog, SCANS, bed.lake.at)) == []


def test_pyiceberg_opens_the_few_files_that_an_index_names(bed: Bed, catalog: Catalog) -> None:
    points = {scan: files(catalog, scan, bed.lake.at) for scan in SCANS if scan.row_filter == "k = 7"}
    own = {scan: files(bed.lake.lake.catalog, scan, bed.lake.at) for scan in points}
    assert {scan.table: found for scan, found in points.items()} == {
        "types": 1, "parts": 1, "dels": 1, "empty": 0, "evolved": 1, "changed": 1,
    }  # fmt: skip
    assert sum(own.values()) > 2 * sum(points.values())


@pytest.fixture
def connect(spark: SparkSession) -> Iterator[str]:
    """The address of a Connect server in the JVM of the tests."""
    spark._jsc.sc().conf().set("spark.connect.grpc.binding.port", "0")
    service = object_named(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService")
    service.start(spark._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    none = object_named(spark._jvm, "scala.None")
    service.stop(none, none)


def test_spark_connect_gets_the_rows_of_an_unfiltered_scan(bed: Bed, connect: str) -> None:
    queries = some_of((*SHAPES, *UNLIKE))
    expected = answers(bed.session, queries, bed.reference)
    batches = list(together(queries))
    settings = {**served_settings(bed.address), **STOCK}
    asked = {"remote": connect, "settings": settings, "texts": [text.format_map(bed.served) for _, text in batches]}
    command = [sys.executable, str(ROOT / "tests" / "spark" / "planning_connect.py")]
    done = subprocess.run(command, input=json.dumps(asked), check=True, capture_output=True, text=True, timeout=3000)
    for (some, _), rows in zip(batches, json.loads(done.stdout), strict=True):
        assert isinstance(rows, list), rows
        found = {query: sorted(row for number, row in rows if some[number] == query) for query in some}
        assert found == {query: expected[query] for query in some}


#: Filters of Iceberg's Java library and the same in SQL, of which nothing but the residual filters rows there.
JAVA = (
    ("dels", "equal", ("k", 8), "k = 8"),
    ("equal", "lessThan", ("k", 14), "k < 14"),
    ("vectors", "greaterThanOrEqual", ("k", 110), "k >= 110"),
    ("parts", "equal", ("g", 3), "g = 3"),
    ("parts", "notEqual", ("g", 3), "g != 3 or g is null"),
    ("types", "startsWith", ("s", "app"), "s like 'app%'"),
    ("types", "equal", ("u", str(UUIDS[3])), f"u = '{UUIDS[3]}'"),
    ("floats", "greaterThan", ("d", 5.0), "d > 5.0D"),
    ("floats", "equal", ("d", 0.0), "d = 0.0D"),
    ("changed", "equal", ("h", 1), "h = 1"),
)


@pytest.fixture
def java(bed: Bed) -> Any:
    """Iceberg's Java library on the server: makes a scan of a table."""
    jvm: Any = bed.session._jvm
    catalog = jvm.org.apache.iceberg.rest.RESTCatalog()
    catalog.setConf(bed.session._jsc.hadoopConfiguration())
    catalog.initialize("java", {"uri": bed.address, "token": TOKEN, "scan-planning-mode": "server"})
    identifier = jvm.org.apache.iceberg.catalog.TableIdentifier
    return lambda name: jvm.org.apache.iceberg.data.IcebergGenerics.read(
        catalog.loadTable(identifier.parse(f"ns.{name}"))
    )


def _size(bed: Bed, scan: Any, name: str, values: tuple[Any, ...]) -> int:
    jvm: Any = bed.session._jvm
    filtered = scan.where(getattr(jvm.org.apache.iceberg.expressions.Expressions, name)(*values))
    return int(jvm.org.apache.iceberg.relocated.com.google.common.collect.Iterables.size(filtered.build()))


def test_the_reader_of_java_finds_the_rows(bed: Bed, java: Any) -> None:
    queries = [f"select count(*) as n from {{{table}}} where {condition}" for table, _, _, condition in JAVA]
    expected = answers(bed.session, queries, bed.reference)
    found = [_size(bed, java(table), name, values) for table, name, values, _ in JAVA]
    assert [f'{{"n":{rows}}}' for rows in found] == [expected[query][0] for query in queries]


def test_what_the_reader_of_java_cannot_filter_is_refused_with_a_sentence(bed: Bed, java: Any) -> None:
    scan = java("changed").useSnapshot(bed.lake.at["changed_first"])
    with pytest.raises(Exception, match=r"another name in the newest schema, .*let the client plan this read"):
        _size(bed, scan, "equal", ("a", 20))


def test_no_statement_changes_a_table_through_the_server(bed: Bed) -> None:
    before = {name: bed.lake.lake.table(name).metadata_location for name in INDEXES}
    for statement in REFUSED:
        with pytest.raises(Exception, match=r"(?i)support|read-only|read only"):
            bed.session.sql(statement.format_map(bed.served))
    assert before == {name: bed.lake.lake.table(name).metadata_location for name in INDEXES}
    assert not bed.lake.lake.catalog.table_exists("ns.dels_new")


def test_a_partition_of_nan_is_refused_with_a_sentence(bed: Bed) -> None:
    bed.session.sql("create table skipstone.ns.parted (k bigint, d double) using iceberg partitioned by (d)")
    bed.session.sql("insert into skipstone.ns.parted values (1, 1.0), (2, double('nan'))")
    assert bed.session.table("served.ns.parted").where("d = 1.0").count() == 1
    with pytest.raises(Exception, match=r"a partition is NaN, .*let the client plan this read"):
        bed.session.table("served.ns.parted").where("d > 0.5D").collect()


def test_a_stream_is_refused_with_a_sentence(bed: Bed, tmp_path: Path) -> None:
    stream = bed.session.readStream.table(bed.served["dels"])
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    with pytest.raises(Exception, match="FileIO is not available"):
        query.start().awaitTermination()


def test_indexes_that_lag_are_damaged_or_gone_cost_files_only(bed: Bed) -> None:
    changed = tuple(text for text in SHAPES if "{types}" in text or "{dels}" in text)
    bed.lake.append()
    bed.reference = dict(_unfiltered(bed))
    for becomes in (lambda: None, bed.lake.damage_indexes, bed.lake.drop_indexes):
        becomes()
        assert bed.differences(some_of(some_of(changed))) == []
