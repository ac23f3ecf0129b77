#!/usr/bin/env bash
# PyArrow, PyIceberg: the limits of a Parquet page and of a dictionary (1 MiB each by default) hold nothing back for long
# values: of 512 texts of 128 KiB, all different, the file has one dictionary of 64 MiB, whatever limit is asked for.
#
# One expects: `data_page_size` and `dictionary_pagesize_limit`, or Iceberg's `write.parquet.page-size-bytes` and
#   `write.parquet.dict-size-bytes`, bound a page and a dictionary, to one value more at most; a dictionary is for values that
#   repeat; and a reader of few rows at a time holds few rows.
# What happens: the writer looks at the limits only after `write_batch_size` values (1,024). Before that, everything is put into
#   a dictionary. Who reads one row holds all values, and three times if the column is read as a dictionary.
#   `write_batch_size=1` makes the limits hold; PyIceberg has no property for it.
# Versions: pyarrow 26.0.1, pyiceberg 0.12.0.
# Why it matters: 1,024 images or documents of 1 MiB make a page of 1 GiB, and every reader has to unpack a page as a whole: a
#   table of such files takes as much memory to read one row, to delete one or to compact it, however small its tasks are.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check pyarrow==26.0.1 'pyiceberg[sql-sqlite]==0.12.0'
cat >"$folder/program.py" <<'PY'
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

MIB, COUNT, LENGTH = 1 << 20, 512, 128 << 10
ROWS = pa.table({"text": [f"{number:08d}".ljust(LENGTH, "x") for number in range(COUNT)]})
PATH = sys.argv[1] + "/long.parquet"


def pages(path):
    """MiB of the dictionary, and of all behind it: the file is not packed, so that bytes in it are those of pages."""
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    begin = column.dictionary_page_offset or column.data_page_offset
    dictionary = column.data_page_offset - begin
    return round(dictionary / MIB), round((column.total_compressed_size - dictionary) / MIB)


def peak(**options):
    """How many times the memory of all values it takes to read one row."""
    usual = pa.default_memory_pool()
    counting = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(counting)
    next(pq.ParquetFile(PATH, **options).iter_batches(1))
    pa.set_memory_pool(usual)
    return round(counting.max_memory() / (COUNT * LENGTH))


limits = {"data_page_size": MIB, "dictionary_pagesize_limit": MIB, "compression": "none"}
for name, options in {"limits of 1 MiB": {}, "and write_batch_size=1": {"write_batch_size": 1}}.items():
    pq.write_table(ROWS, PATH, **limits, **options)
    print(f"PyArrow, {name}: a dictionary of {pages(PATH)[0]} MiB, {pages(PATH)[1]} MiB behind it")
pq.write_table(ROWS, PATH, **limits)
print("memory of one row, of all values: as texts", peak(), "times, as a dictionary", peak(read_dictionary=["text"]), "times")
catalog = SqlCatalog("c", uri="sqlite:///:memory:", warehouse=f"file://{sys.argv[1]}/lake")
catalog.create_namespace("n")
properties = {"write.parquet.dict-size-bytes": str(MIB), "write.parquet.page-size-bytes": str(MIB)}
table = catalog.create_table("n.t", ROWS.schema, properties=properties | {"write.parquet.compression-codec": "uncompressed"})
table.append(ROWS)
(task,) = table.scan().plan_files()
print("PyIceberg, the same limits: a dictionary of", pages(task.file.file_path.removeprefix("file://"))[0], "MiB")
PY
seen=$("$folder/venv/bin/python" "$folder/program.py" "$folder" 2>"$folder/errors") || { cat "$folder/errors" >&2; exit 1; }
echo "$seen"
expected=$(cat <<'SEEN'
PyArrow, limits of 1 MiB: a dictionary of 64 MiB, 0 MiB behind it
PyArrow, and write_batch_size=1: a dictionary of 1 MiB, 63 MiB behind it
memory of one row, of all values: as texts 1 times, as a dictionary 3 times
PyIceberg, the same limits: a dictionary of 64 MiB
SEEN
)
[ "$seen" = "$expected" ] || { echo "this is not the output of the versions above" >&2; exit 1; }
