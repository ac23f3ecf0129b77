"""How many bytes an index takes for each row, by the type of its columns and by how rows lie: `make bench-sizing`.

Bytes do not depend on the speed of the machine. Prints a table and writes build/bench/sizing.jsonl.
"""

from __future__ import annotations

import argparse
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from skipstone.tasks.share import DriverShare

from tests.bench.results import FOLDER, keep, show_goals
from tests.spark.index_bed import Lake, index_on

ALL_BY_THE_DRIVER = DriverShare(indexed_rows=1 << 40)
RESULTS = FOLDER / "sizing.jsonl"
CITIES = ("Oslo", "Bonn", "Lyon", "Bergamo", "Kyoto", "Windhoek")
#: Index columns and included columns, with words for the table.
CASES = (
    (("ordered",), (), "long, rows in its order"),
    (("spread",), (), "long, numbered without gaps, rows in no order"),
    (("random",), (), "long, any of 62 bits, rows in no order"),
    (("few",), (), "int with 1,000 values, rows in no order"),
    (("city",), (), "string with 6 values"),
    (("code",), (), "string of 12 characters, rows in no order"),
    (("uuid",), (), "UUID as a string of 36 characters"),
    (("city", "spread"), (), "string with 6 values and long"),
    (("random",), ("price",), "long of 62 bits, with an included decimal(9,2)"),
    (("random",), ("price", "code"), "the same, with an included string of 12 characters too"),
)


def rows(count: int, seed: int) -> pa.Table:
    """Rows whose columns differ in order and number of values."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    return pa.table(
        {
            "ordered": np.arange(count, dtype=np.int64) + seed * count,
            "spread": numbers.permutation(np.arange(count, dtype=np.int64) + seed * count),
            "random": numbers.integers(0, 1 << 62, count),
            "few": numbers.integers(0, 1000, count, dtype=np.int32),
            "city": [CITIES[number] for number in numbers.integers(0, len(CITIES), count)],
            "code": [f"{number:012x}" for number in numbers.integers(0, 1 << 48, count)],
            "uuid": [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(count)],
            "price": pa.array(numbers.integers(1, 99_999, count)).cast(pa.decimal128(20, 0)).cast(pa.decimal128(9, 2)),
        }
    )


def measure(count: int, files: int) -> Iterator[dict[str, Any]]:
    """A line for each case."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Lake(Path(folder), share=ALL_BY_THE_DRIVER)
        sample = rows(count // files, 0)
        lake.create(sample.schema)
        for number in range(files):
            lake.table().append(sample if number == 0 else rows(count // files, number))
        data = sum(task.file.file_size_in_bytes for task in lake.table().scan().plan_files())
        for columns, include, words in CASES:
            index = index_on(*columns, name="-".join((*columns, *include)), include=include)
            lake.reindex(index)
            size = sum(task.file.file_size_in_bytes for task in lake.index_table(index).table.scan().plan_files())
            yield {
                "case": words,
                "scale": count,
                "files": files,
                "table_bytes_per_row": round(data / count, 2),
                "index_bytes_per_row": round(size / count, 2),
            }


def main() -> None:
    """Print and keep all lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=20)
    options = parser.parse_args()
    for line in measure(options.rows, options.files):
        keep(RESULTS, line)
        print(f"{line['case']:<60} {line['index_bytes_per_row']:6.2f} bytes a row", flush=True)
    show_goals(RESULTS)


if __name__ == "__main__":
    main()
