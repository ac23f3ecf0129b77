"""DuckLake, whose tables are sorted and have bounds: ``python ducklake_peer.py ROOT``."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
from serving import CHECKS, KEY, SELECTED, condition, serve

#: Bytes of a data file, as in the other engines' tables.
FILE = "16MB"


class DuckLake:
    """One table, in the catalog of a file of DuckDB's."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        self._root.mkdir(parents=True, exist_ok=True)
        self._base = duckdb.connect(config={"allow_unsigned_extensions": "true", "threads": "2"})
        folder = importlib.util.find_spec("duckdb_extension_ducklake").submodule_search_locations[0]
        (path,) = Path(folder).rglob("*.duckdb_extension")
        self._base.execute(f"load '{path}'")
        self._base.execute(f"attach 'ducklake:{self._root}/catalog.ducklake' as lake (data_path '{self._root}/data')")

    def load(self, mode: str, files: Sequence[str]) -> None:
        """Sorted by the key."""
        given = ", ".join(f"'{path}'" for path in files)
        self._base.execute(f"call lake.set_option('target_file_size', '{FILE}')")
        self._base.execute(f"create table lake.lineitem as select * from read_parquet([{given}]) limit 0")
        self._base.execute(f"alter table lake.lineitem set sorted by ({KEY} asc)")
        self._base.execute(f"insert into lake.lineitem select * from read_parquet([{given}])")

    def index(self, mode: str, column: str) -> None:
        """There is none: files have bounds."""

    def upsert(self, mode: str, changes: str) -> None:
        """A statement."""
        self._base.execute(
            f"merge into lake.lineitem as t using (from '{changes}') as s on t.{KEY} = s.{KEY} "
            "when matched then update when not matched then insert"
        )

    def catch_up(self, mode: str) -> None:
        """Write inlined rows and rows of files with many deleted ones again, and merge small files."""
        self._base.execute("call ducklake_flush_inlined_data('lake')")
        self._base.execute("call ducklake_rewrite_data_files('lake', delete_threshold => 0.0)")
        self._base.execute("call ducklake_merge_adjacent_files('lake')")

    def lookup(self, mode: str, column: str, values: Sequence[Any], shape: str) -> Any:
        """A query."""
        text = f"select {SELECTED[shape]} from lake.lineitem where {condition(column, values)}"
        return self._base.execute(text).fetchall()

    def checks(self, mode: str) -> Any:
        """A query."""
        return self._base.execute(f"select {CHECKS} from lake.lineitem").fetchall()


if __name__ == "__main__":
    serve(DuckLake)
