"""Sessions of Spark for peers that are libraries of it: two cores, the same settings for each."""

from __future__ import annotations

import os
from collections.abc import Mapping

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
}


def session(root: str, extra: Mapping[str, str]) -> SparkSession:
    """A session with the jars that the environment names, and ``extra`` settings."""
    builder = SparkSession.builder.appName("bench-peers")
    given = {
        "spark.jars": os.environ["PEER_JARS"],
        "spark.sql.warehouse.dir": f"{root}/spark-warehouse",
        "spark.local.dir": f"{root}.local",
    }
    for key, value in {**SETTINGS, **given, **extra}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark
