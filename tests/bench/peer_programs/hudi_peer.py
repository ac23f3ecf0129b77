"""Hudi in Spark, with its record index and a secondary index, or with bloom filters: ``python hudi_peer.py ROOT``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving import CHECKS, KEY, PART, SELECTED, condition, serve
from sessions import session

SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.parquet.compression.codec": "zstd",
}
#: Of a session: readers use the indexes of the metadata table.
READING = {
    "hoodie.metadata.enable": "true",
    "hoodie.enable.data.skipping": "true",
    "hoodie.metadata.record.index.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
}
#: Of every write. Services run when `catch_up` asks for them.
WRITING = {
    "hoodie.datasource.write.recordkey.field": KEY,
    "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.parquet.compression.codec": "zstd",
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "true",
    "hoodie.metadata.index.column.stats.column.list": f"{KEY},{PART}",
    "hoodie.upsert.shuffle.parallelism": "2",
    "hoodie.bulkinsert.shuffle.parallelism": "2",
    "hoodie.bulkinsert.sort.mode": "NONE",
    "hoodie.datasource.write.row.writer.enable": "true",
    "hoodie.compact.inline": "false",
    "hoodie.clean.automatic": "true",
}
RECORD_INDEX = {"hoodie.metadata.record.index.enable": "true", "hoodie.index.type": "RECORD_INDEX"}
BLOOM = {
    "hoodie.metadata.record.index.enable": "false",
    "hoodie.index.type": "BLOOM",
    "hoodie.bloom.index.use.metadata": "true",
    "hoodie.metadata.index.bloom.filter.enable": "true",
    "hoodie.metadata.index.bloom.filter.column.list": KEY,
}


class Hudi:
    """A table for each mode."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._spark = session(root, SETTINGS)
        for key, value in READING.items():
            self._spark.sql(f"set {key}={value}")

    def load(self, mode: str, files: Sequence[str]) -> None:
        """A bulk insert with one file group for each file."""
        rows = self._spark.read.parquet(*files).repartitionByRange(len(files), "l_orderkey")
        kind = "MERGE_ON_READ" if mode == "hudi_mor" else "COPY_ON_WRITE"
        options = {
            **WRITING,
            "hoodie.table.name": mode,
            "hoodie.datasource.write.operation": "bulk_insert",
            "hoodie.datasource.write.table.type": kind,
            "hoodie.bulkinsert.shuffle.parallelism": str(len(files)),
        }
        if mode == "hudi_bloom":
            options |= BLOOM
        rows.write.format("hudi").options(**options).mode("overwrite").save(self._path(mode))

    def index(self, mode: str, column: str) -> None:
        """The record index for the key, a secondary index for the second column; bloom filters came with the rows."""
        if mode == "hudi_bloom":
            return
        self._register(mode)
        if column == KEY:
            self._spark.sql(f"create index record_index on {mode} ({KEY})")
        else:
            self._spark.sql(f"create index by_part on {mode} ({PART})")

    def upsert(self, mode: str, changes: str) -> None:
        """A write with the operation upsert."""
        options = {
            **WRITING,
            **(BLOOM if mode == "hudi_bloom" else RECORD_INDEX),
            "hoodie.table.name": mode,
            "hoodie.datasource.write.operation": "upsert",
        }
        self._spark.read.parquet(changes).write.format("hudi").options(**options).mode("append").save(self._path(mode))

    def catch_up(self, mode: str) -> None:
        """Compact logs into files; a table that copies on write has nothing to do."""
        if mode == "hudi_mor":
            self._register(mode)
            self._spark.sql(f"call run_compaction(op => 'scheduleandexecute', table => '{mode}')").collect()

    def lookup(self, mode: str, column: str, values: Sequence[Any], shape: str) -> Any:
        """A query."""
        self._register(mode)
        return self._spark.sql(f"select {SELECTED[shape]} from {mode} where {condition(column, values)}").collect()

    def checks(self, mode: str) -> Any:
        """A query."""
        self._register(mode)
        return self._spark.sql(f"select {CHECKS} from {mode}").collect()

    def _register(self, mode: str) -> None:
        if not self._spark.catalog.tableExists(mode):
            self._spark.sql(f"create table {mode} using hudi location '{self._path(mode)}'")

    def _path(self, mode: str) -> str:
        return f"{self._root}/{mode}"


if __name__ == "__main__":
    serve(Hudi)
