"""A foreign writer in a process of its own: appends by plain PyIceberg, and knows nothing of Skipstone.

Run as ``python appender.py ROOT TABLE``: for each line on standard input it appends as often as the line says, as fast
as it can. The n-th append adds row 1000 + n and, every third time, row 5, which merges change too. Prints n when it is
in; the snapshot bears n as well.
"""

from __future__ import annotations

import itertools
import sys

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException


def main() -> None:
    """Append until standard input ends."""
    root, name = sys.argv[1:]
    catalog = SqlCatalog("skipstone", uri=f"sqlite:///{root}/catalog.db?timeout=60", warehouse=f"file://{root}")
    numbers = itertools.count(1)
    for line in sys.stdin:
        for number in itertools.islice(numbers, int(line)):
            append(catalog, name, number)
            print(number, flush=True)


def append(catalog: SqlCatalog, name: str, number: int) -> None:
    """As a careful job does it: again when another writer was faster."""
    ids = [1000 + number, 5] if number % 3 == 0 else [1000 + number]
    rows = pa.table({"id": ids, "v": [f"theirs {number}"] * len(ids)})
    while True:
        try:
            catalog.load_table(name).append(rows, snapshot_properties={"appender.number": str(number)})
        except CommitFailedException:
            continue
        return


if __name__ == "__main__":
    main()
