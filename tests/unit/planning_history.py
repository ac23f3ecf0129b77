"""Random tables whose rows at every moment are known, and everything that may happen to a table while it is read.

Rows are kept by field id, as a client reads them by the schema that it loaded. They are read by a plan of the client
without a filter, right after each change.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, TruncateTransform
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.indexes.tables import index_identifier
from skipstone_core.contract.requests import IndexRef

from tests.spark.index_bed import Lake, index_on, local
from tests.spark.rawdeletes import add_position_delete

Row = Mapping[int, Any]
ARROW = pa.schema([("k", pa.int64()), ("s", pa.string()), ("g", pa.int32()), ("v", pa.int64())])
INDEXES = (index_on("k", name="byk"), index_on("s", name="bys"))
KEYS, GROUPS = 60, 4
_NAMES = itertools.count(1)
_LAYOUTS: Sequence[tuple[tuple[str, Any], ...]] = (
    (),
    (("g", IdentityTransform()),),
    (("k", BucketTransform(4)),),
    (("s", TruncateTransform(2)), ("g", IdentityTransform())),
)


@dataclass(frozen=True)
class State:
    """A table as it was for a while: its rows by field id."""

    table_uuid: str
    snapshot_id: int | None
    rows: tuple[Row, ...]
    what: str


@dataclass
class History:
    """One table by one name. ``states``: what the name stood for, one after the other; ``snapshots``: by their ids.

    ``place``: of the file that a location names.
    """

    lake: Lake
    chance: random.Random
    place: Callable[[str], Path] = local
    name: str = ""
    states: list[State] = field(default_factory=list)
    snapshots: dict[int, State] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Make the table, with rows, deletes and indexes as chance says."""
        self.name = f"t{next(_NAMES)}"
        self._create(self.name)
        for _ in range(self.chance.randint(2, 7)):
            self.append()
        if self.chance.random() < 0.4:
            self.delete_positions()
        for index in INDEXES:
            if self.chance.random() < 0.8:
                self.lake.reindex(index, name=self.name)
        for _ in range(self.chance.choice([0, 0, 1, 2])):
            self.append()

    def table(self) -> Table:
        """As it is now, planned by the client."""
        return self.lake.table(self.name)

    def note(self, what: str) -> None:
        """Keep the rows as they are now."""
        table = self.table()
        rows = tuple(rows_of(table))
        state = State(str(table.metadata.table_uuid), table.metadata.current_snapshot_id, rows, what)
        self.states.append(state)
        if state.snapshot_id is not None:
            self.snapshots.setdefault(state.snapshot_id, state)

    def _create(self, name: str) -> None:
        properties = {"format-version": "2", "write.metadata.delete-after-commit.enabled": "false"}
        if self.chance.random() < 0.3:
            properties["write.metadata.metrics.default"] = "none"
        table = self.lake.create(ARROW, name, properties=properties)
        layout = self.chance.choice(_LAYOUTS)
        if layout:
            with table.update_spec() as update:
                for column, transform in layout:
                    update.add_field(column, transform)

    # --- what may happen to it ---

    def append(self) -> None:
        """A commit of one more segment."""
        self._append(self.table())
        self.note("append")

    def _append(self, table: Table) -> None:
        made = [self._row(table) for _ in range(self.chance.randint(3, 12))]
        table.append(pa.Table.from_pylist(made, table.schema().as_arrow()))

    def _row(self, table: Table) -> dict[str, Any]:
        """A new row; null for columns that came later."""
        chance = self.chance
        values: dict[int, Callable[[], Any]] = {
            1: lambda: chance.randrange(KEYS),
            2: lambda: f"{chance.choice('abc')}{chance.randrange(9)}",
            3: lambda: chance.randrange(GROUPS),
            4: lambda: chance.randrange(KEYS),
        }
        found = {}
        for column in table.schema().fields:
            is_null = column.field_id not in values or (column.field_id != 1 and chance.random() < 0.1)
            found[column.name] = None if is_null else values[column.field_id]()
        return found

    def delete(self) -> None:
        """A delete that writes files again."""
        if keys := [row[1] for row in self.states[-1].rows if row.get(1) is not None]:
            self.table().delete(f"{self._name_of(1)} = {self.chance.choice(keys)}")
            self.note("delete")

    def delete_positions(self) -> None:
        """A delete by position."""
        table = self.table()
        tasks = list(table.scan().plan_files())
        if tasks:
            target = self.chance.choice(tasks).file
            if target.spec_id == table.spec().spec_id:
                add_position_delete(table, target, [self.chance.randrange(target.record_count)])
        self.note("delete by position")

    def compact(self) -> None:
        """All rows in new files."""
        table = self.table()
        if (rows := table.scan().to_arrow()).num_rows:
            table.overwrite(rows)
            self.note("compaction")

    def expire(self) -> None:
        """Remove all snapshots but the current one, and the files that only they have."""
        table = self.table()
        kept = table.current_snapshot()
        if kept is None:
            return
        before = self._files(table)
        old = [snapshot.snapshot_id for snapshot in table.snapshots() if snapshot != kept]
        refs = {ref.snapshot_id for ref in table.metadata.refs.values()}
        if removable := [snapshot_id for snapshot_id in old if snapshot_id not in refs]:
            table.maintenance.expire_snapshots().by_ids(removable).commit()
        for path in before - self._files(self.table()):
            self.place(path).unlink(missing_ok=True)
        self.note("expiry")

    def replace(self) -> None:
        """Another table by the same name; the files of this one stay or go."""
        files = self._files(self.table()) if self.chance.random() < 0.5 else set()
        self.lake.catalog.drop_table(self.lake.ref(self.name).identifier)
        for path in files:
            self.place(path).unlink(missing_ok=True)
        self._create(self.name)
        self._append(self.table())
        self.note("drop and create")

    def exchange(self) -> None:
        """Another table takes the name; this one takes another."""
        identifier = self.lake.ref(self.name).identifier
        other = f"{self.name}_{next(_NAMES)}"
        self._create(other)
        self._append(self.lake.table(other))
        self.lake.catalog.rename_table(identifier, (*identifier[:-1], f"{other}_old"))
        self.lake.catalog.rename_table((*identifier[:-1], other), identifier)
        self.note("exchange")

    def drop(self) -> None:
        """Nothing has the name any more."""
        self.lake.catalog.drop_table(self.lake.ref(self.name).identifier)

    def rename(self) -> None:
        """It is elsewhere."""
        identifier = self.lake.ref(self.name).identifier
        self.lake.catalog.rename_table(identifier, (*identifier[:-1], f"{self.name}_old"))

    def roll_back(self) -> None:
        """The main branch goes to an older snapshot."""
        table = self.table()
        choices = [snapshot.snapshot_id for snapshot in table.snapshots()]
        table.manage_snapshots().set_current_snapshot(self.chance.choice(choices)).commit()
        self.note("rollback")

    def rename_column(self) -> None:
        """Another name for a column."""
        with self.table().update_schema() as update:
            update.rename_column(self._name_of(1), f"k{self.chance.randrange(1000)}")
        self.note("renamed column")

    def swap_columns(self) -> None:
        """A column takes the name that another one had."""
        with self.table().update_schema() as update:
            update.rename_column(self._name_of(1), f"old{self.chance.randrange(1000)}")
        with self.table().update_schema() as update:
            update.rename_column(self._name_of(4), "k")
        self._append(self.table())
        self.note("swapped columns")

    def add_again(self) -> None:
        """A column goes, and another one by its name comes."""
        name = self._name_of(2)
        if not any(field.source_id == 2 for spec in self.table().specs().values() for field in spec.fields):
            with self.table().update_schema() as update:
                update.delete_column(name)
            with self.table().update_schema() as update:
                update.add_column(name, StringType())
            self._append(self.table())
            self.note("column again")

    def widen(self) -> None:
        """A column takes larger numbers."""
        if not any(field.source_id == 3 for spec in self.table().specs().values() for field in spec.fields):
            with self.table().update_schema() as update:
                update.update_column(self._name_of(3), field_type=LongType())
        self.note("wider column")

    def partition(self) -> None:
        """Another partition spec, and rows by it."""
        table = self.table()
        with table.update_spec() as update:
            for name in [field.name for field in table.spec().fields]:
                update.remove_field(name)
            if not table.spec().fields:
                update.add_field(self._name_of(3), IdentityTransform(), f"p{self.chance.randrange(10_000)}")
        self._append(self.table())
        self.note("other partitions")

    # --- what may happen to its indexes ---

    def reindex(self) -> None:
        """Its indexes follow it."""
        for index in INDEXES:
            self.lake.reindex(index, name=self.name)

    def drop_indexes(self) -> None:
        """No index any more, nor a file of one."""
        for table in self._index_tables():
            files = self._files(table) if self.chance.random() < 0.5 else set()
            self.lake.catalog.drop_table(table.name())
            for path in files:
                self.place(path).unlink(missing_ok=True)

    def rebuild_indexes(self) -> None:
        """All are built again."""
        self.drop_indexes()
        self.reindex()

    def damage_indexes(self) -> None:
        """Files of indexes are gone, cut, or hold something else."""
        for table in self._index_tables():
            # Its files may go, or be cut by an earlier fault, while they are listed.
            with suppress(OSError, EOFError, ValueError):
                for path in sorted(self._files(table)):
                    if self.chance.random() < 0.5:
                        spoil(self.place(path), self.chance)

    def lend_indexes(self) -> None:
        """Indexes of another table stand where those of this one stood."""
        other = f"{self.name}_{next(_NAMES)}"
        self.lake.create(ARROW, other)
        self._append(self.lake.table(other))
        for index in INDEXES:
            self.lake.reindex(index, name=other)
            ours = self._index_identifier(index)
            if self.lake.catalog.table_exists(ours):
                self.lake.catalog.drop_table(ours)
            lent = index_identifier(self.lake.warehouse, self.lake.ref(other), index)
            self.lake.catalog.rename_table(lent, ours)

    # --- what it consists of ---

    def _index_identifier(self, index: IndexRef) -> tuple[str, ...]:
        return index_identifier(self.lake.warehouse, self.lake.ref(self.name), index)

    def _index_tables(self) -> list[Table]:
        found = [self._index_identifier(index) for index in INDEXES]
        return [self.lake.catalog.load_table(each) for each in found if self.lake.catalog.table_exists(each)]

    def _name_of(self, field_id: int) -> str:
        """The name of a column that there has always been, or of the first one."""
        schema = self.table().schema()
        return schema.find_column_name(field_id) or schema.fields[0].name

    def manifests(self) -> list[str]:
        """Manifests and the list of them of the current snapshot."""
        table = self.table()
        snapshot = table.current_snapshot()
        if snapshot is None:
            return []
        return [snapshot.manifest_list, *(each.manifest_path for each in snapshot.manifests(table.io))]

    def _files(self, table: Table) -> set[str]:
        """Data files, delete files, manifests and lists of all snapshots."""
        found: set[str] = set()
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                found.add(manifest.manifest_path)
                found |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
        return found


def spoil(path: Path, chance: random.Random) -> None:
    """Remove a file, cut it anywhere or right after its header, empty it, or change bytes in it."""
    content = path.read_bytes()
    match chance.randrange(5):
        case 0:
            path.unlink()
        case 1:
            path.write_bytes(content[: chance.randrange(len(content))])
        case 2:
            path.write_bytes(b"")
        case 3:  # a header of Avro ends with the marker that the file ends with, too
            end = content.find(content[-16:]) + 16
            path.write_bytes(content[:end])
        case _:
            at = chance.randrange(len(content))
            path.write_bytes(content[:at] + bytes(8) + content[at + 8 :])


def rows_of(table: Table) -> Iterator[Row]:
    """All rows by field id, with the columns that a client sees whose copy of the table is older, too."""
    schemas = [table.schemas()[number] for number in sorted(table.schemas())]
    columns = {column.field_id: column for schema in (*schemas, table.schema()) for column in schema.fields}
    all_columns = Schema(*(NestedField(number, f"c{number}", column.field_type) for number, column in columns.items()))
    scan = ArrowScan(table.metadata, table.io, all_columns, AlwaysTrue())
    for row in scan.to_table(table.scan().plan_files()).to_pylist():
        yield {number: row[f"c{number}"] for number in columns}


def names_of(schema: Schema) -> dict[str, int]:
    """Field ids by the names of a schema's columns."""
    return {field.name: field.field_id for field in schema.fields}
