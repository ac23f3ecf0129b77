"""A random table with its history and a model of it in memory, indexed in random states.

Used by the random query tests only. Tables, commits, deletes and index runs are the real ones, in a directory; the
model is filled beside them and never read back from Iceberg.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.table import Table
from pyiceberg.types import DoubleType, IcebergType, LongType
from skipstone.runs import reindex as reindex_run
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.requests import IndexRef
from skipstone_core.errors import UserError

from tests.spark.index_bed import Lake, index_on
from tests.spark.lake import append
from tests.spark.rawdeletes import add_equality_delete, add_position_delete
from tests.unit.bloom_beds import filter_properties, written_by_pyiceberg
from tests.unit.query_values import KINDS, Kind, random_values

ID = "id"
WIDENED: dict[str, tuple[str, IcebergType]] = {"int": ("long", LongType()), "float": ("double", DoubleType())}
#: Equality deletes by these cannot be told from no delete (float), or are no keys of ours to make (boolean, binary).
_UNFIT = (UserError, OSError, pa.ArrowException)
DELETABLE = frozenset({"int", "long", "string", "date", "decimal", "timestamp"})


@dataclass
class RandomLake:
    """One table, what it must hold, and its indexes. ``kinds``: column to name in ``pool``.

    ``sizes``: how many rows a step may append.
    """

    lake: Lake
    random: Random
    kinds: dict[str, str]
    pool: Mapping[str, Kind] = field(default_factory=lambda: KINDS)
    sizes: tuple[int, ...] = (1, 7, 30, 60)
    partitioned_by: str | None = None
    live: dict[int, dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, frozenset[int]]] = field(default_factory=list)
    indexes: list[IndexRef] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    _all: dict[int, dict[str, Any]] = field(default_factory=dict)
    _snapshot: int | None = None
    _deleted_by: set[str] = field(default_factory=set)
    _ids: Any = field(default_factory=itertools.count)
    _names: Any = field(default_factory=itertools.count)

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.lake.table()

    @property
    def columns(self) -> dict[str, Kind]:
        """Kinds of all columns but the row's id."""
        return {name: self.pool[kind] for name, kind in self.kinds.items()}

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the model."""
        return pa.schema([(ID, pa.int64()), *((name, kind.type) for name, kind in self.columns.items())])

    def rows(self, ids: frozenset[int] | None = None) -> pa.Table:
        """The live rows, or those of a snapshot in ``history``."""
        chosen = [self._all[number] for number in sorted(self.live if ids is None else ids)]
        return pa.Table.from_pylist([{**dict.fromkeys(self.schema.names), **row} for row in chosen], self.schema)

    def step(self, name: str) -> None:
        """Do one of STEPS or ENDS, and remember what the table holds now."""
        self.log.append(name)
        getattr(self, name)()
        snapshot = self.table.current_snapshot()
        if snapshot is not None and snapshot.snapshot_id != self._snapshot:
            self._snapshot = snapshot.snapshot_id
            self.history.append((snapshot.snapshot_id, frozenset(self.live)))

    # --- what writers do ---

    def add_rows(self) -> None:
        """Append a segment, by PyIceberg or by our writer."""
        count = self.random.choice(self.sizes)
        columns = {name: random_values(self.random, kind, count) for name, kind in self.columns.items()}
        rows = [{ID: next(self._ids), **{name: columns[name][n] for name in columns}} for n in range(count)]
        data = pa.Table.from_pylist(rows, self.schema)
        if self.random.random() < 0.5 and self.table.spec().is_unpartitioned():  # PyIceberg fails on tiny partitions
            with written_by_pyiceberg():
                self.table.append(data)
        else:
            append(self.table, data)
        for row in rows:
            self.live[row[ID]] = self._all[row[ID]] = row

    def delete_positions(self) -> None:
        """Delete rows of one file by position."""
        files = read_file_set(self.table)
        if not len(files):
            return
        file = files.data_file(self.random.randrange(len(files)))
        ids = pq.read_table(file.file_path.removeprefix("file://"), columns=[ID])[ID].to_pylist()
        chosen = sorted(self.random.sample(range(len(ids)), self.random.randint(1, len(ids))))
        add_position_delete(self.table, file, chosen)
        self._drop({ids[position] for position in chosen})

    def delete_equal(self) -> None:
        """Delete rows by equality with values of some columns, null among them."""
        names = [name for name, kind in self.kinds.items() if kind in DELETABLE]
        if not names or self.partitioned_by or not self.live:
            return
        chosen = self.random.sample(names, self.random.randint(1, min(2, len(names))))
        self._deleted_by.update(chosen)
        victim = self.random.choice(list(self.live.values()))
        values = tuple(victim.get(name) for name in chosen)
        add_equality_delete(self.table, {name: [value] for name, value in zip(chosen, values, strict=True)})
        self._drop({n for n, row in self.live.items() if tuple(row.get(name) for name in chosen) == values})

    def rewrite_files(self) -> None:
        """Copy-on-write: files are replaced by others that lack some rows."""
        if read_file_set(self.table).delete_files or not self.live:
            return
        border = self.random.choice(list(self.live))
        with written_by_pyiceberg():
            self.table.delete(f"{ID} = {border} or {ID} = {border + 1}")
        self._drop({border, border + 1})

    def hold(self, rows: list[dict[str, Any]]) -> None:
        """The table holds these rows now, whatever it held before."""
        self.live = self._all = dict(enumerate(rows))
        self.history = []

    def _drop(self, ids: set[int]) -> None:
        self.live = {number: row for number, row in self.live.items() if number not in ids}

    # --- what schemas do ---

    def add_column(self) -> None:
        """A column that older files do not have."""
        kind = self.random.choice(sorted(self.pool))
        name = f"late{next(self._names)}"
        with self.table.update_schema() as update:
            update.add_column(name, iceberg_type(self.pool[kind].type))
        self._changed({**self.kinds, name: kind})

    def widen_column(self) -> None:
        """int to long, float to double."""
        names = [name for name, kind in self.kinds.items() if kind in WIDENED and name != self.partitioned_by]
        if not names:
            return
        name = self.random.choice(names)
        kind, wider = WIDENED[self.kinds[name]]
        with self.table.update_schema() as update:
            update.update_column(name, wider)
        if kind == "double":
            for row in self._all.values():
                row[name] = pa.scalar(row.get(name), pa.float32()).as_py()
        self._changed({**self.kinds, name: kind})

    def rename_column(self) -> None:
        """Another name for the same column."""
        names = [name for name in self.kinds if name != self.partitioned_by]
        if not names:
            return
        old, new = self.random.choice(names), f"renamed{next(self._names)}"
        with self.table.update_schema() as update:
            update.rename_column(old, new)
        for row in self._all.values():
            if old in row:
                row[new] = row.pop(old)
        self._deleted_by = {new if name == old else name for name in self._deleted_by}
        self._changed({new if name == old else name: kind for name, kind in self.kinds.items()})

    def replace_column(self) -> None:
        """Drop a column and give its name to a new one: all old values are gone; no column that deletes are by."""
        fixed = {self.partitioned_by, *self._deleted_by}
        names = [name for name in self.kinds if name not in fixed]
        if not names:
            return
        name, kind = self.random.choice(names), self.random.choice(sorted(self.pool))
        with self.table.update_schema() as update:
            update.delete_column(name)
        with self.table.update_schema() as update:
            update.add_column(name, iceberg_type(self.pool[kind].type))
        for row in self._all.values():
            row.pop(name, None)
        self._changed({**{one: k for one, k in self.kinds.items() if one != name}, name: kind})

    def _changed(self, kinds: dict[str, str]) -> None:
        """The model's rows have today's columns, so older snapshots cannot be asked any more."""
        self.kinds = kinds
        self.history = []

    # --- what indexes go through ---

    def add_index(self) -> None:
        """Another index, not built yet."""
        names = sorted(self.kinds)
        chosen = self.random.sample(names, self.random.randint(1, min(3, len(names))))
        others = [name for name in names if name not in chosen]
        chance = Random(f"{self.log} {chosen}")
        included = chance.sample(others, chance.randint(0, len(others)))
        self.indexes.append(index_on(*chosen, name=f"i{len(self.indexes)}", include=included))

    def sync_index(self) -> None:
        """Enter some or all missing segments of an index."""
        if self.indexes:
            self.reindex(self.random.choice(self.indexes), self.random.choice([1, 2, None]))

    def reindex(self, index: IndexRef, max_segments: int | None = None) -> None:
        """A reindex run, segment by segment or all at once; an index whose columns are gone stays as it is."""
        if self._table_of(index) is not None or {*index.columns, *index.include} <= set(self.kinds):
            together = self.random.choice([1, reindex_run.BUFFER_BYTES])
            with suppress(*_UNFIT), mock.patch.object(reindex_run, "BUFFER_BYTES", together):
                self.lake.reindex(index, max_segments=max_segments)

    def damage_entries(self) -> None:
        """An entry file becomes garbage."""
        self._damage(lambda index: index.entries)

    def damage_covers(self) -> None:
        """A cover file becomes garbage."""
        self._damage(lambda index: index.covers)

    def drop_index_table(self) -> None:
        """The index table is dropped from the catalog."""
        if (found := self._any_table()) is not None:
            self.lake.catalog.drop_table(found.identifier)

    def lose_metadata(self) -> None:
        """The index table is listed, and its metadata is gone."""
        if (found := self._any_table()) is not None:
            Path(found.table.metadata_location.removeprefix("file://")).unlink()

    def redefine_index(self) -> None:
        """The index table says that it is of something else."""
        if (found := self._any_table()) is not None:
            name = self.random.choice(["skipstone.index.definition", "skipstone.index.table-uuid"])
            with found.table.transaction() as change:
                change.set_properties({name: "00000000"})

    def _damage(self, files_of: Callable[[Any], Any]) -> None:
        found = self._any_table()
        files = [] if found is None else files_of(found)
        if files:
            path = Path(self.random.choice(files).path.removeprefix("file://"))
            path.write_bytes(self.random.choice([b"", b"PAR1 no more", path.read_bytes()[:-20]]))

    def _any_table(self) -> Any:
        found = [table for index in self.indexes if (table := self._table_of(index)) is not None]
        return self.random.choice(found) if found else None

    def _table_of(self, index: IndexRef) -> Any:
        try:
            return self.lake.index_table(index)
        except (AssertionError, OSError, ValueError):
            return None


@lru_cache
def iceberg_type(kind: pa.DataType) -> IcebergType:
    """The Iceberg type of a model column."""
    found = pyarrow_to_schema(pa.schema([pa.field("c", kind, metadata={"PARQUET:field_id": "1"})]))
    return found.fields[0].field_type


PARTITIONED = frozenset({"int", "long", "date", "boolean", "timestamp"})
STEPS: tuple[tuple[str, int], ...] = (
    ("add_rows", 8),
    ("add_index", 4),
    ("sync_index", 6),
    ("delete_positions", 2),
    ("delete_equal", 2),
    ("rewrite_files", 2),
    ("add_column", 1),
    ("widen_column", 1),
    ("rename_column", 1),
    ("replace_column", 1),
)
ENDS = ("damage_entries", "damage_covers", "drop_index_table", "lose_metadata", "redefine_index")


def random_lake(root: Path, seed: int) -> RandomLake:
    """A table with a random past; the same for the same seed."""
    random = Random(seed)
    kinds = {f"c{n}": random.choice(sorted(KINDS)) for n in range(random.randint(2, 5))}
    made = RandomLake(Lake(root), random, kinds)
    fitting = [name for name, kind in kinds.items() if kind in PARTITIONED]
    made.partitioned_by = random.choice(fitting) if fitting and random.random() < 0.2 else None
    properties = {"write.parquet.row-group-limit": str(random.choice([4, 16, 64]))} | filter_properties(seed, kinds)
    made.lake.create(made.schema, properties=properties)
    if made.partitioned_by:
        with made.table.update_spec() as update:
            update.add_identity(made.partitioned_by)
    names = [name for name, weight in STEPS for _ in range(weight)]
    steps = ["add_rows", "add_index", *random.choices(names, k=random.randint(4, 14)), "sync_index"]
    for step in steps:
        made.step(step)
    if random.random() < 0.5:
        made.step(random.choice(ENDS))
    return made
