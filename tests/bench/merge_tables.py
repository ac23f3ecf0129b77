"""The tables of the merge benchmark: TPC-H lineitem with a key of one column, in the same files for every engine.

Written once by the data plane's own writer from the files of ``lineitem``, then linked into every engine's table. Kept
under ``.cache/bench``; a merge's own files are removed after it, so that only the first state stays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from skipstone.files.writer import DataFileWriter, to_data_files, write_spec
from skipstone_core.table_properties import BLOOM_FILTER_OF, BLOOM_RATE_OF

from tests.bench.lineitem import ROOT, Lineitem, say
from tests.bench.sqllake import SqlLake

NAMESPACE = "bench"
#: Rises with every change of what is generated.
LAYOUT = 1
#: What all engines write with.
CODEC, LEVEL = "zstd", 1
ORDERS, NUMBERS = "l_orderkey", "l_linenumber"
ID, UUID = "l_id", "l_uuid"
COPY_ON_WRITE, MERGE_ON_READ = "copy-on-write", "merge-on-read"


@dataclass(frozen=True)
class Target:
    """A table: lineitem with one more column first. ``groups``: row groups of a file. ``filters``: of the key."""

    name: str
    key: str
    groups: int = 1
    filters: bool = False

    @property
    def properties(self) -> dict[str, str]:
        """Of bloom filters that hardly ever err, for as many keys as a feed has."""
        on = {f"{BLOOM_FILTER_OF}{self.key}": "true", f"{BLOOM_RATE_OF}{self.key}": "0.0001"}
        return on if self.filters else {}

    def files(self, files: int) -> int:
        """How many files it has: files of many row groups are as much fewer."""
        return max(1, files // self.groups)


LINES = Target("lines", ID)
UUIDS = Target("uuids", UUID)
GROUPED = Target("grouped", ID, groups=8)
FILTERED = Target("filtered", UUID, filters=True)


@dataclass(frozen=True)
class Bed(SqlLake):
    """All tables of one scale."""

    namespace = NAMESPACE
    lineitem: Lineitem

    @property
    def root(self) -> Path:
        """Where they lie."""
        return ROOT / ".cache" / "bench" / f"merge-{self.lineitem.scale:g}-{self.lineitem.files}-{LAYOUT}"

    def table(self, name: str) -> Table:
        """A table as it is now."""
        return self.catalog.load_table((NAMESPACE, name))

    def make(self, target: Target) -> list[Path]:
        """The data files of ``target``, in the order of l_orderkey; written unless they are there."""
        listing = self.root / f"{target.name}.json"
        if not listing.exists():
            say(f"writing {target.name}")
            paths = self._write(target)
            listing.write_text(json.dumps([str(path) for path in paths]))
        return [Path(path) for path in json.loads(listing.read_text())]

    def _write(self, target: Target) -> list[Path]:
        self.lineitem.make()
        given = [
            Path(task.file.file_path.removeprefix("file://")) for task in self.lineitem.table().scan().plan_files()
        ]
        given.sort(key=lambda path: path.name)
        rows = pq.read_metadata(given[0]).num_rows
        properties = {
            "write.parquet.compression-codec": CODEC,
            "write.parquet.compression-level": str(LEVEL),
            "write.parquet.row-group-limit": str(rows + rows // 50),
        } | target.properties
        sample = keyed(pq.read_table(given[0]), target)
        table = self.catalog.create_table((NAMESPACE, f"{target.name}_ours"), sample.schema, properties=properties)
        bundles = np.array_split(np.arange(len(given)), target.files(len(given)))
        with ThreadPoolExecutor(2) as pool:
            written = list(
                pool.map(lambda n: _write_file(table, target, n, [given[i] for i in bundles[n]]), range(len(bundles)))
            )
        files = to_data_files(written, table)
        self._append(table, files)
        return [Path(file.file_path.removeprefix("file://")) for file in files]

    def copy(self, target: Target, name: str, mode: str) -> None:
        """A table ``name`` of the files of ``target``, unless it is there; ``mode``: of merges, updates and deletes."""
        if (self.root / f"{name}.first").exists():
            return
        given = self.catalog.register_table((NAMESPACE, f"{name}_given"), self.first_state(f"{target.name}_ours"))
        modes = {f"write.{verb}.mode": mode for verb in ("merge", "update", "delete")}
        table = self.catalog.create_table((NAMESPACE, name), given.schema(), properties=given.properties | modes)
        files = sorted((task.file for task in given.scan().plan_files()), key=lambda file: file.file_path)
        self._append(table, files)
        self.catalog.drop_table((NAMESPACE, f"{name}_given"))

    def first_state(self, name: str) -> str:
        """The metadata file of a table as it was made."""
        return (self.root / f"{name}.first").read_text()

    def _append(self, table: Table, files: Sequence[DataFile]) -> None:
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in files:
                append.append_data_file(file)
        name = table.name()[-1]
        (self.root / f"{name}.first").write_text(self.table(name).metadata_location)


def keyed(rows: pa.Table, target: Target) -> pa.Table:
    """Lineitem with the key column of ``target`` first."""
    ids = pc.add(pc.multiply(rows[ORDERS], 8), pc.cast(rows[NUMBERS], pa.int64()))
    key = uuids(ids.to_numpy()) if target.key == UUID else ids
    plain = rows.replace_schema_metadata(None)
    plain = pa.table({name: plain[name] for name in plain.column_names})
    return plain.add_column(0, target.key, key)


def uuids(ids: np.ndarray) -> pa.Array:
    """A text in the form of a UUID for each number, in no order."""
    halves = np.empty((len(ids), 2), dtype=">u8")
    for half, salt in enumerate((0x9E3779B97F4A7C15, 0xD1B54A32D192ED03)):
        mixed = ids.astype(np.uint64) * np.uint64(salt) + np.uint64(salt)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        halves[:, half] = mixed ^ (mixed >> np.uint64(31))
    nibbles = np.unpackbits(halves.view(np.uint8), axis=1).reshape(len(ids), 32, 4) @ np.array([8, 4, 2, 1])
    text = np.full((len(ids), 36), ord("-"), dtype=np.uint8)
    places = [at for at in range(36) if at not in (8, 13, 18, 23)]
    text[:, places] = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)[nibbles]
    return pa.array(text.view("S36").reshape(-1), pa.binary()).cast(pa.string())


def _write_file(table: Table, target: Target, number: int, given: list[Path]) -> bytes:
    """One file of the rows of ``given``, about one row group for each."""
    writer = DataFileWriter(write_spec(table, "bench"), f"{number:05}")
    for path in given:
        writer.write(keyed(pq.read_table(path, use_threads=False), target))
    (written,) = writer.close()
    return written.to_row()


def remove_others(folder: Path, keep: set[str]) -> None:
    """Remove the Parquet files in ``folder`` that are not named in ``keep``."""
    for path in _data_files(folder):
        if path.name not in keep:
            path.unlink()


def _data_files(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "_delta_log"]
        yield from (Path(parent) / name for name in names if name.endswith((".parquet", ".bin", ".puffin", ".crc")))
