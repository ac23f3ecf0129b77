"""A client of Spark Connect: a process of its own, as gRPC keeps threads that forks of the test process would not have.

Prints what it got as JSON.
"""

from __future__ import annotations

import json
import sys

import skipstone
from pyspark.sql import SparkSession

remote, text = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
df = skipstone.sql(spark, text)
found = {
    "kind": type(df).__module__,
    "rows": [list(row) for row in df.collect()],
    "rewritten is itself": skipstone.rewrite(df) is df,
    "without index is itself": skipstone.no_index(df) is df,
    "again": skipstone.rewrite(skipstone.no_index(df)) is df,
    "refusal": skipstone.explain(df).refusal,
}
spark.stop()
print(json.dumps(found))
