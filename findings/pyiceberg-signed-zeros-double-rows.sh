#!/usr/bin/env bash
# PyIceberg: an append to a table that is partitioned by a double writes rows of zero twice if both zeros occur.
#
# One expects: three rows appended are three rows in the table, whatever their values.
# What happens: the distinct partition values 0.0 and -0.0 are two, but each partition takes its rows by `==`, which both
#   zeros satisfy. Each row with a zero is written into both partitions, the commit succeeds, and the table holds five
#   rows. With one kind of zero only, all is right.
# Versions: pyiceberg 0.12.0, pyarrow 26.0.1, pyiceberg-core 0.10.1.
# Why it matters: -0.0 comes from plain arithmetic (rounding of a small negative number, 0 * -1), and doubled rows raise no error.
#   Add 0.0 to a float column before such an append: it turns -0.0 into 0.0.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow,pyiceberg-core]==0.12.0" \
    pyarrow==26.0.1 pyiceberg-core==0.10.1
cat >"$folder/program.py" <<'PY'
import sys
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField

catalog = SqlCatalog("c", uri=f"sqlite:///{sys.argv[1]}/catalog.db", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
schema = Schema(NestedField(1, "k", LongType(), required=False), NestedField(2, "x", DoubleType(), required=False))
spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "x"))
for name, values in (("both", [-0.0, 0.0, 1.0]), ("plus", [0.0, 0.0, 1.0]), ("minus", [-0.0, -0.0, 1.0])):
    table = catalog.create_table(f"n.{name}", schema=schema, partition_spec=spec)
    table.append(pa.table({"k": [1, 2, 3], "x": values}))
    print(f"appended x = {values}: keys in the table {sorted(table.scan().to_arrow()['k'].to_pylist())}")
PY
seen=$("$folder/venv/bin/python" -W ignore "$folder/program.py" "$folder")
echo "$seen"
expected='appended x = [-0.0, 0.0, 1.0]: keys in the table [1, 1, 2, 2, 3]
appended x = [0.0, 0.0, 1.0]: keys in the table [1, 2, 3]
appended x = [-0.0, -0.0, 1.0]: keys in the table [1, 2, 3]'
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }
