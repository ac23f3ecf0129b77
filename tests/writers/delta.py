"""Tables that Spark writes with delta-spark, kept as archives with the rows that Spark reads of their versions.

`python -m tests.writers.delta` writes them again; arguments name the tables to write. Delta names files relative to the
table's folder, so a table can be laid out anywhere. Expected rows are in one Parquet file per version.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.spark.jars import DELTA, resolved_jars

ARCHIVES = Path(__file__).parent / "recorded" / "delta"
_EXPECTED = "expected"
_TYPES = """
    id bigint, i int, h smallint, b byte, f float, d double, flag boolean, on_day date, at timestamp,
    local timestamp_ntz, bytes binary, amount decimal(20,4), name string, code varchar(8),
    p_day date, p_name string, p_flag boolean,
    p_amount decimal(9,2), p_at timestamp, p_n int
"""
_VALUES = """
    id, if(id % 7 = 0, null, cast(id - 3 as int)) i, cast(-id as smallint) h, cast(id % 100 as byte) b,
    case id % 5 when 0 then float('nan') when 1 then float('-infinity') when 2 then -0.0f
        else cast(id / 3 as float) end f,
    case id % 4 when 0 then double('nan') when 1 then -0.0d when 2 then null else id / 7d end d,
    if(id % 3 = 0, null, id % 2 = 0) flag,
    element_at(array(date'0001-01-01', date'1969-12-31', date'9999-12-31', null), cast(id % 4 + 1 as int)) on_day,
    element_at(array(timestamp'1900-01-01 00:00:00.000001Z', timestamp'2262-04-12 00:00:00Z',
        timestamp'9999-12-31 23:59:59.999999Z', null), cast(id % 4 + 1 as int)) at,
    element_at(array(timestamp_ntz'1900-01-01 00:00:00.000001', timestamp_ntz'9999-12-31 23:59:59.999999', null),
        cast(id % 3 + 1 as int)) local,
    if(id % 6 = 0, null, encode(cast(id as string), 'utf-8')) bytes,
    cast(if(id % 9 = 0, null, -id) / 16 as decimal(20,4)) amount,
    if(id % 8 = 0, null, concat('é', id)) name, cast(id % 1000 as varchar(8)) code,
    element_at(array(date'1969-12-31', date'2026-01-31', null), cast(id % 3 + 1 as int)) p_day,
    element_at(array('a b/=%:', '', null, 'é+&?'), cast(id % 4 + 1 as int)) p_name,
    if(id % 5 = 0, null, id % 2 = 0) p_flag, cast(if(id % 5 = 0, null, -2) as decimal(9,2)) p_amount,
    element_at(array(timestamp'1969-12-31 23:59:59.999999Z', timestamp'2026-01-01 01:02:03Z', null),
        cast(id % 3 + 1 as int)) p_at,
    cast(if(id % 2 = 0, null, -7) as int) p_n
"""


@dataclass(frozen=True)
class Writing:
    """A table under way. ``path``: its folder."""

    spark: SparkSession
    path: Path

    @property
    def name(self) -> str:
        """As statements name it."""
        return f"delta.`{self.path}`"

    def run(self, *statements: str) -> None:
        """Run statements, in which ``{t}`` is the table."""
        for statement in statements:
            self.spark.sql(statement.replace("{t}", self.name))

    def expect(self, version: int | None = None) -> None:
        """Keep the rows of a version, the newest by default."""
        newest = self.spark.sql(f"describe history {self.name} limit 1").collect()[0]["version"]
        number = newest if version is None else version
        rows = self.spark.sql(f"select * from {self.name} version as of {number}").toArrow()
        folder = self.path / _EXPECTED
        folder.mkdir(exist_ok=True)
        pq.write_table(rows, folder / f"{number}.parquet")


def _typed(table: Writing) -> None:
    """All types, partitions of all types, checkpoints of several parts, and every kind of commit."""
    table.spark.conf.set("spark.databricks.delta.checkpoint.partSize", "40")
    partitions = "p_day, p_name, p_flag, p_amount, p_at, p_n"
    table.run(f"create table {{t}} ({_TYPES}) using delta partitioned by ({partitions})")
    table.run(*(f"insert into {{t}} select {_VALUES} from range({n}, {n + 24})" for n in range(0, 96, 24)))
    table.expect()
    table.run(
        "delete from {t} where id % 11 = 3",
        "delete from {t} where p_day is null",
        "update {t} set name = 'updated', p_name = 'moved' where id between 30 and 35",
        f"merge into {{t}} t using (select {_VALUES} from range(90, 120)) s on t.id = s.id "
        "when matched then update set t.name = 'merged' when not matched then insert *",
    )
    table.expect()
    table.run("optimize {t}", "alter table {t} add columns (more bigint)")
    table.run(*(f"insert into {{t}} select {_VALUES}, id more from range({n}, {n + 4})" for n in range(200, 212, 4)))
    table.expect()
    table.spark.conf.unset("spark.databricks.delta.checkpoint.partSize")
    if len(list((table.path / "_delta_log").glob("*.checkpoint.*.parquet"))) < 2:
        raise RuntimeError("there is no checkpoint of several parts")


def _changes(table: Writing) -> None:
    """A feed of changes, a generated column to partition by, a constraint, a default and an identity."""
    table.run(
        "create table {t} (id bigint, at timestamp, v string, day date generated always as (cast(at as date)), "
        "number bigint generated always as identity) using delta partitioned by (day) "
        "tblproperties (delta.enableChangeDataFeed = true, 'delta.feature.allowColumnDefaults' = 'supported', "
        "delta.enableInCommitTimestamps = true, delta.enableRowTracking = true)",
        "alter table {t} alter column v set default 'none'",
        "alter table {t} add constraint positive check (id > 0)",
        "insert into {t} (id, at) values (1, timestamp'2026-01-01 12:00:00Z'), (2, timestamp'2026-01-02 12:00:00Z')",
        "insert into {t} (id, at, v) values (3, timestamp'2026-01-02 13:00:00Z', 'x'), (4, null, 'y')",
        "update {t} set v = 'changed' where id = 2",
        "delete from {t} where id = 1",
    )
    table.expect()


def _clustered(table: Writing) -> None:
    """Liquid clustering, which needs features of writers only."""
    table.run(
        "create table {t} (id bigint, k string) using delta cluster by (k)",
        "insert into {t} select id, concat('k', id % 3) from range(20)",
        "insert into {t} select id, concat('k', id % 3) from range(20, 40)",
        "optimize {t}",
    )
    table.expect()


def _vectors(table: Writing) -> None:
    """Version 2 has deletion vectors, which the last version has purged."""
    table.run(
        "create table {t} (id bigint, v string) using delta tblproperties (delta.enableDeletionVectors = true)",
        "insert into {t} select id, concat('v', id) from range(0, 100, 1, 1)",
        "delete from {t} where id % 10 = 3",
    )
    table.expect()
    table.run("reorg table {t} apply (purge)")
    table.expect()


def _sidecars(table: Writing) -> None:
    """Checkpoints of version 2, whose files are named in files beside them."""
    table.run(
        "create table {t} (id bigint) using delta tblproperties (delta.checkpointPolicy = 'v2', "
        "delta.checkpointInterval = 2)",
        *(f"insert into {{t}} values ({number})" for number in range(4)),
    )
    table.expect()


def _mapped(table: Writing) -> None:
    table.run(
        "create table {t} (id bigint, `a b` string) using delta tblproperties (delta.columnMapping.mode = 'name')",
        "insert into {t} values (1, 'x')",
    )


def _widened(table: Writing) -> None:
    table.run(
        "create table {t} (id bigint, n int) using delta tblproperties (delta.enableTypeWidening = true)",
        "insert into {t} values (1, 2)",
        "alter table {t} alter column n type bigint",
        "insert into {t} values (2, 5000000000)",
    )


def _cloned(table: Writing) -> None:
    source = Writing(table.spark, table.path.with_name("clone-source"))
    source.run("create table {t} (id bigint) using delta", "insert into {t} values (1), (2)")
    table.run(f"create table {{t}} shallow clone {source.name}")


TABLES: Mapping[str, Callable[[Writing], None]] = {
    "typed": _typed,
    "changes": _changes,
    "clustered": _clustered,
    "vectors": _vectors,
    "sidecars": _sidecars,
    "mapped": _mapped,
    "widened": _widened,
    "cloned": _cloned,
}


def record(names: Collection[str]) -> None:
    """Write tables and their archives."""
    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.jars": ",".join(map(str, resolved_jars("delta", DELTA))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.showConsoleProgress": "false",
    }
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        builder = SparkSession.builder.config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        for name in names:
            TABLES[name](Writing(spark, Path(folder, name)))
            for checksum in Path(folder, name).rglob(".*.crc"):
                checksum.unlink()
            with tarfile.open(ARCHIVES / f"{name}.tar.xz", "w:xz") as archive:
                archive.add(Path(folder, name), name)
            print(name, sorted(path.name for path in Path(folder, name, "_delta_log").iterdir()), flush=True)
        spark.stop()


@dataclass(frozen=True)
class RecordedTable:
    """A table in ``folder``, and rows as Spark reads them, by version."""

    folder: Path
    rows: Mapping[int, pa.Table]


def laid_out(name: str, folder: Path) -> RecordedTable:
    """The table of an archive as ``folder``, which is made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as unpacked:
        with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
            archive.extractall(unpacked, filter="data")
        expected = {int(path.stem): pq.read_table(path) for path in Path(unpacked, name, _EXPECTED).glob("*.parquet")}
        shutil.rmtree(Path(unpacked, name, _EXPECTED), ignore_errors=True)
        Path(unpacked, name).rename(folder)
    return RecordedTable(folder, expected)


if __name__ == "__main__":
    record(sys.argv[1:] or TABLES)
