"""A stock client of Spark Connect that runs queries and statements on a catalog planned by a server.

A process of its own, as gRPC keeps threads that forks of the test process would not have. Reads JSON, prints JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main() -> None:
    """Print the rows of each text, or the error."""
    asked = json.load(sys.stdin)
    spark = SparkSession.builder.remote(asked["remote"]).getOrCreate()
    for name, value in asked["settings"].items():
        spark.conf.set(name, value)
    print(json.dumps([_rows(spark, text) for text in asked["texts"]]))
    spark.stop()


def _rows(spark: SparkSession, text: str) -> Any:
    try:
        return [list(row) for row in spark.sql(text).collect()]
    except Exception as error:  # noqa: BLE001 - the test says which errors it expects
        return f"{type(error).__name__}: {error}"[:2000]


if __name__ == "__main__":
    main()
