"""Lance, with scalar indexes of B-trees: ``python lance_peer.py ROOT``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from serving import AGGREGATE, CHECKED, COLUMNS, KEY, aggregated, checked, condition, serve

SHAPES = {AGGREGATE: ["l_extendedprice", "l_shipdate"]}


class Lance:
    """One dataset, whose handle stays open."""

    def __init__(self, root: str) -> None:
        self._path = str(Path(root) / "lineitem.lance")
        self._open: lance.LanceDataset | None = None

    def load(self, mode: str, files: Sequence[str]) -> None:
        """One fragment for each file."""
        rows = pq.read_metadata(files[0]).num_rows
        source = ds.dataset(list(files))
        lance.write_dataset(source.scanner(), self._path, schema=source.schema, max_rows_per_file=rows)

    def index(self, mode: str, column: str) -> None:
        """A B-tree."""
        self._dataset().create_scalar_index(column, "BTREE")

    def upsert(self, mode: str, changes: str) -> None:
        """Rows that change are deleted by position and appended."""
        merge = self._dataset().merge_insert(KEY)
        merge.when_matched_update_all().when_not_matched_insert_all().execute(pq.read_table(changes))

    def catch_up(self, mode: str) -> None:
        """Compact fragments and enter new ones into the indexes."""
        dataset = self._dataset()
        dataset.optimize.compact_files()
        dataset.optimize.optimize_indices()

    def lookup(self, mode: str, column: str, values: Sequence[Any], shape: str) -> Any:
        """Through a scanner, which asks the index."""
        columns = SHAPES.get(shape, list(COLUMNS))
        rows = self._dataset().to_table(columns=columns, filter=condition(column, values))
        return aggregated(rows) if shape == AGGREGATE else rows

    def checks(self, mode: str) -> Any:
        """From the columns."""
        rows: pa.Table = self._dataset().to_table(columns=list(CHECKED))
        return checked(rows)

    def _dataset(self) -> lance.LanceDataset:
        if self._open is None:
            self._open = lance.dataset(self._path)
        self._open.checkout_latest()
        return self._open


if __name__ == "__main__":
    serve(Lance)
