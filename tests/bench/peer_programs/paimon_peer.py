"""Paimon's Python API, a table with a primary key or with a global index: ``python paimon_peer.py ROOT``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pypaimon import CatalogFactory, Schema
from serving import AGGREGATE, CHECKED, COLUMNS, KEY, aggregated, checked, serve

#: Keys of an upsert that are looked up in the index.
FEW = 1000
SHAPES = {AGGREGATE: ["l_extendedprice", "l_shipdate"]}
#: Buckets of the table with a primary key, and options of both.
BUCKETS = {"bucket": "8", "file.compression": "zstd"}
TRACKED = {
    "bucket": "-1",
    "row-tracking.enabled": "true",
    "data-evolution.enabled": "true",
    "deletion-vectors.enabled": "true",
    # The default leaves out rows that are not indexed yet
    "scalar-index.search-mode": "full",
    "file.compression": "zstd",
}


class Paimon:
    """A table for each mode, in a catalog of files."""

    def __init__(self, root: str) -> None:
        Path(root).mkdir(parents=True, exist_ok=True)
        self._catalog = CatalogFactory.create({"warehouse": root})
        self._catalog.create_database("bench", ignore_if_exists=True)

    def load(self, mode: str, files: Sequence[str]) -> None:
        """A commit for each file."""
        sample = pq.read_schema(files[0])
        if mode == "paimon_pk":
            sample = sample.set(0, pa.field(KEY, pa.string(), nullable=False))
            schema = Schema.from_pyarrow_schema(sample, primary_keys=[KEY], options=BUCKETS)
        else:
            schema = Schema.from_pyarrow_schema(sample, options=TRACKED)
        self._catalog.create_table(f"bench.{mode}", schema, ignore_if_exists=False)
        for path in files:
            self._write(mode, pq.read_table(path).cast(sample))

    def index(self, mode: str, column: str) -> None:
        """A global index of a B-tree; a table with a primary key is sorted by it."""
        if mode == "paimon_index":
            self._table(mode).create_global_index(column, index_type="btree")

    def upsert(self, mode: str, changes: str) -> None:
        """Write into the table with a primary key; delete by key and append in one commit to the other one.

        Its update in place is refused for columns that have a global index.
        """
        rows = pq.read_table(changes)
        if mode == "paimon_pk":
            self._write(mode, rows.cast(rows.schema.set(0, pa.field(KEY, pa.string(), nullable=False))))
            return
        builder = self._table(mode).new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(rows)
        commit.commit([*self._deletes(mode, builder.new_update(), rows[KEY]), *write.prepare_commit()])
        write.close()
        commit.close()

    def catch_up(self, mode: str) -> None:
        """Index new rows. Python's API cannot compact."""
        if mode == "paimon_index":
            for column in (KEY, "l_partkey"):
                self._table(mode).create_global_index(column, index_type="btree")

    def lookup(self, mode: str, column: str, values: Sequence[Any], shape: str) -> Any:
        """A scan with a predicate."""
        builder = self._table(mode).new_read_builder()
        predicates = builder.new_predicate_builder()
        given = predicates.equal(column, values[0]) if len(values) == 1 else predicates.is_in(column, list(values))
        rows = self._read(builder.with_filter(given), SHAPES.get(shape, list(COLUMNS)))
        return aggregated(rows) if shape == AGGREGATE else rows

    def checks(self, mode: str) -> Any:
        """From the columns."""
        return checked(self._read(self._table(mode).new_read_builder(), list(CHECKED)))

    def _deletes(self, mode: str, update: Any, keys: pa.ChunkedArray) -> list[Any]:
        """Few keys are looked up in the index; for many of them, a scan of all keys takes less time."""
        builder = self._table(mode).new_read_builder()
        if len(keys) <= FEW:
            return list(update.delete_by_predicate(builder.new_predicate_builder().is_in(KEY, keys.to_pylist())))
        known = self._read(builder, [KEY, "_ROW_ID"])
        found = known.filter(pc.is_in(known[KEY], value_set=keys.combine_chunks()))
        return list(update.delete_by_row_id(found["_ROW_ID"].to_pylist()))

    def _read(self, builder: Any, columns: list[str]) -> pa.Table:
        chosen = builder.with_projection(columns)
        return chosen.new_read().to_arrow(chosen.new_scan().plan().splits())

    def _write(self, mode: str, rows: pa.Table) -> None:
        builder = self._table(mode).new_batch_write_builder()
        write, commit = builder.new_write(), builder.new_commit()
        write.write_arrow(rows)
        commit.commit(write.prepare_commit())
        write.close()
        commit.close()

    def _table(self, mode: str) -> Any:
        return self._catalog.get_table(f"bench.{mode}")


if __name__ == "__main__":
    serve(Paimon)
