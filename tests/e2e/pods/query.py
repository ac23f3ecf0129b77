"""A reader with a Spark session of his own: asks through the indexes, and asks DuckDB, which knows of none.

Runs in a pod that mounts the Warehouse's claim: ``ROOT NAMESPACE.TABLE QUERY``, where ``{table}`` in the query stands
for the table. Prints both answers and what explain says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import duckdb
import skipstone
from pyiceberg.catalog.sql import SqlCatalog

from demo.verify import CATALOG, plain_session

root, table, query = sys.argv[1:]
spark = plain_session(Path(root))
rows = skipstone.sql(spark, query.format(table=f"{CATALOG}.{table}"))
answer = [list(row) for row in rows.collect()]

catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{root}/catalog.db", warehouse=root)
reference = duckdb.connect()
reference.register("everything", catalog.load_table(table).scan().to_arrow())
expected = [list(row) for row in reference.execute(query.format(table="everything")).fetchall()]

told = {"rows": answer, "reference": expected, "explain": str(skipstone.explain(rows))}
print("ANSWER " + json.dumps(told, default=str))
spark.stop()
