"""A foreign writer that upserts as Flink does: equality deletes of names by Iceberg's Java library, and new rows.

Runs in a pod that mounts the Warehouse's claim: ``ROOT NAMESPACE.TABLE ROWS...``, rows as a list of JSON objects for
each upsert. Prints how many live delete files there are then.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

from demo.verify import CATALOG, plain_session


def delete_equal(spark: Any, table: str, names: list[str]) -> None:
    """Commit an equality delete file of these names."""
    java, gateway = spark._jvm, spark.sparkContext._gateway
    iceberg = java.org.apache.iceberg
    found = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, f"{CATALOG}.{table}")
    column = java.java.util.ArrayList()
    column.add("name")
    schema = found.schema().select(column)
    ids = gateway.new_array(java.int, 1)
    ids[0] = found.schema().findField("name").fieldId()
    parquet = java.org.apache.iceberg.FileFormat.fromString("parquet")
    factory = getattr(iceberg.data, "GenericFileWriterFactory$Builder")(found)
    factory = factory.deleteFileFormat(parquet).equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    files = iceberg.io.OutputFileFactory.builderFor(found, 1, 1).format(parquet).build()
    writer = factory.newEqualityDeleteWriter(files.newOutputFile(), found.spec(), None)
    row = iceberg.data.GenericRecord.create(schema)
    for name in names:
        row.setField("name", name)
        writer.write(row)
    writer.close()
    found.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


root, table, *texts = sys.argv[1:]
catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{root}/catalog.db", warehouse=root)
spark = plain_session(Path(root))
for text in texts:
    rows = json.loads(text)
    delete_equal(spark, table, [row["name"] for row in rows])
    loaded = catalog.load_table(table)
    loaded.append(pa.Table.from_pylist(rows, schema=loaded.schema().as_arrow()))
(deletes,) = spark.sql(f"select count(*) from {CATALOG}.{table}.delete_files").collect()[0]
spark.stop()
print("ANSWER " + json.dumps({"deletes": deletes}))
