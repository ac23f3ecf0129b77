"""Delta in Spark, with liquid clustering: ``python delta_peer.py ROOT``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from serving import CHECKS, KEY, PART, SELECTED, condition, serve
from sessions import session

#: Bytes of a data file, as in the other engines' tables.
FILE = str(16 << 20)
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.optimize.maxFileSize": FILE,
    "spark.databricks.delta.optimize.minFileSize": FILE,
    "spark.sql.parquet.compression.codec": "zstd",
}


class Delta:
    """A table for each mode, clustered by the key and the second column."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._spark = session(root, SETTINGS)

    def load(self, mode: str, files: Sequence[str]) -> None:
        """Write the rows; `index` clusters them."""
        vectors = str(mode == "delta_dv").lower()
        self._spark.read.parquet(*files).createOrReplaceTempView("given")
        self._spark.sql(
            f"create table {self._table(mode)} using delta cluster by ({KEY}, {PART}) "
            f"tblproperties ('delta.enableDeletionVectors' = '{vectors}') as select * from given"
        )

    def index(self, mode: str, column: str) -> None:
        """Cluster by both columns at once."""
        if column == KEY:
            self._spark.sql(f"optimize {self._table(mode)} full").collect()

    def upsert(self, mode: str, changes: str) -> None:
        """A statement."""
        self._spark.read.parquet(changes).createOrReplaceTempView("changes")
        self._spark.sql(
            f"merge into {self._table(mode)} as t using changes as s on t.{KEY} = s.{KEY} "
            "when matched then update set * when not matched then insert *"
        ).collect()

    def catch_up(self, mode: str) -> None:
        """Cluster what is not clustered, and compact."""
        self._spark.sql(f"optimize {self._table(mode)}").collect()

    def lookup(self, mode: str, column: str, values: Sequence[Any], shape: str) -> Any:
        """A query."""
        text = f"select {SELECTED[shape]} from {self._table(mode)} where {condition(column, values)}"
        return self._spark.sql(text).collect()

    def checks(self, mode: str) -> Any:
        """A query."""
        return self._spark.sql(f"select {CHECKS} from {self._table(mode)}").collect()

    def _table(self, mode: str) -> str:
        return f"delta.`{self._root}/{mode}`"


if __name__ == "__main__":
    serve(Delta)
