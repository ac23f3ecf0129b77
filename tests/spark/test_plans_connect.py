"""Queries of Spark Connect run as Spark runs them, whatever is called."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from skipstone.compat.java import object_named
from skipstone.query.plans.refusals import Refusal

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    """The address of a Connect server in the JVM of the tests."""
    spark._jsc.sc().conf().set("spark.connect.grpc.binding.port", "0")
    service = object_named(spark._jvm, "org.apache.spark.sql.connect.service.SparkConnectService")
    service.start(spark._jsc.sc())
    yield f"sc://127.0.0.1:{service.localPort()}"
    none = object_named(spark._jvm, "scala.None")
    service.stop(none, none)


def test_a_query_of_spark_connect_is_left_as_it_is(server: str) -> None:
    command = [sys.executable, str(ROOT / "tests" / "spark" / "connect_client.py"), server, "select id from range(3)"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=800)
    assert json.loads(done.stdout) == {
        "kind": "pyspark.sql.connect.dataframe",
        "rows": [[0], [1], [2]],
        "rewritten is itself": True,
        "without index is itself": True,
        "again": True,
        "refusal": Refusal.SPARK_CONNECT,
    }
