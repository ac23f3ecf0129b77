"""Histories of tables whose columns and partitioning change between the rows, the deletes, and their resolution.

Columns are renamed, widened, dropped and added again under their names; deletes are of the spec of the day or of an
older one, of one partition or of all; the format is upgraded at any moment. The reference is a dictionary of rows by
field id. `make soak-maintain` takes more histories.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestamptzType,
)
from skipstone.runs.maintaining import resolving
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone_core.contract.requests import IndexRef, ReindexTask, RunKind

from tests.examples import cases
from tests.spark.rawdeletes import add_equality_delete, upgrade
from tests.spark.resolve_bed import POLICY, Key, ResolveBed, same

COLUMNS: dict[str, PrimitiveType] = {
    "id": IntegerType(),
    "f": FloatType(),
    "d": DecimalType(9, 2),
    "k": StringType(),
    "at": TimestamptzType(),
    "p": StringType(),
}
WIDER: dict[str, PrimitiveType] = {"id": LongType(), "f": DoubleType(), "d": DecimalType(20, 2)}
VALUES: dict[str, Sequence[Any]] = {
    "id": (None, 0, 1, -3, 2**31 - 1),
    "f": (None, 0.0, -0.0, math.nan, 1.5, struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    "d": (None, Decimal("0.00"), Decimal("-1.20"), Decimal("1.20")),
    "k": (None, "", "\u00e9", "e\u0301", "long text " * 4 + "a", "long text " * 4 + "b"),
    "at": (None, "1969-12-31T23:59:59.999999+00:00", "2026-03-29T01:30:00+00:00"),
    "p": ("a", "b"),
}
#: Columns that may be dropped and added again, and those that an index takes.
AGAIN, INDEXED = ("id", "f", "d", "k", "at"), ("id", "d", "k", "at", "p")
PARTS = st.sampled_from(["a", "b"])
ROWS = st.lists(
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in VALUES.items()}), min_size=1, max_size=4
)
NAMES = st.lists(st.sampled_from([*AGAIN, "p"]), min_size=1, max_size=3, unique=True)
Op = tuple[Any, ...]
OPS: st.SearchStrategy[Op] = st.one_of(
    st.tuples(st.just("add"), ROWS),
    st.tuples(st.just("delete"), NAMES, ROWS, PARTS, st.booleans()),
    st.tuples(st.just("upsert"), NAMES, ROWS, PARTS, st.booleans()),
    st.tuples(st.just("positions"), st.integers(1, 3)),
    st.tuples(st.just("rename"), st.sampled_from(AGAIN)),
    st.tuples(st.just("widen"), st.sampled_from(list(WIDER))),
    st.tuples(st.just("again"), st.sampled_from(AGAIN)),
    st.tuples(st.just("partition")),
    st.tuples(st.just("upgrade")),
    st.tuples(st.just("index"), st.sampled_from(INDEXED)),
    st.tuples(st.just("resolve")),
)


@dataclass
class EvolvedBed(ResolveBed):
    """The table. ``live``: rows by their number, with values by field id, and ``scope``: spec and partition.

    ``ids``: field id of the column that has the place of each of COLUMNS now.
    """

    ids: dict[str, int] = field(default_factory=lambda: {name: at for at, name in enumerate(COLUMNS, start=2)})
    indexes: list[IndexRef] = field(default_factory=list)

    def make(self) -> None:
        """Make the table."""
        columns = [NestedField(self.ids[name], name, kind) for name, kind in COLUMNS.items()]
        self.create(Schema(NestedField(1, "n", LongType()), *columns))

    def column(self, base: str) -> NestedField:
        """The column that has the place of ``base``."""
        return self.table().schema().find_field(self.ids[base])

    def valued(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row as the columns take it now: instants as such, and an id that only a wide column holds."""
        is_wide = row["id"] == 2**31 - 1 and isinstance(self.column("id").field_type, LongType)
        instant = row["at"] and datetime.fromisoformat(row["at"])
        return {**row, "at": instant, "id": 2**40 if is_wide else row["id"]}

    def do(self, op: Op) -> None:
        """Do it to the table and to the model."""
        getattr(self, f"do_{op[0]}")(*op[1:])

    def do_add(self, rows: Sequence[Key]) -> None:
        """Append rows."""
        spec, names = self.table().spec(), {base: self.column(base).name for base in COLUMNS}
        written = [{"n": next(self._next), **self.valued(row)} for row in rows]
        self.append([{names.get(base, base): value for base, value in row.items()} for row in written])
        for row in written:
            values = {str(self.ids[base]): row[base] for base in COLUMNS}
            self.live[row["n"]] = {"n": row["n"], "scope": (spec.spec_id, *(row["p"] for _ in spec.fields)), **values}

    def do_delete(self, bases: Sequence[str], rows: Sequence[Key], part: str, old: bool) -> None:
        """Delete rows by values, by the table's first spec, which has one partition, if it is of an ``old`` spec."""
        table = self.table()
        spec = table.specs()[0] if old else table.spec()
        partition = [part for _ in spec.fields]
        keys = [self.valued(row) for row in rows]
        values = {self.column(base).name: [key[base] for key in keys] for base in bases}
        add_equality_delete(table, values, *partition, spec_id=spec.spec_id)
        ids = {base: str(self.ids[base]) for base in bases}
        self._drop(
            lambda row: (
                (not spec.fields or row["scope"] == (spec.spec_id, *partition))
                and any(all(same(row.get(ids[base]), key[base]) for base in bases) for key in keys)
            )
        )

    def do_upsert(self, bases: Sequence[str], rows: Sequence[Key], part: str, old: bool) -> None:
        """Delete rows by values, and add rows with these."""
        self.do_delete(bases, rows, part, old)
        self.do_add(rows)

    def do_positions(self, every: int) -> None:
        """Delete rows of one file by position."""
        self.delete_rows(lambda place: place % every == 0)

    def do_rename(self, base: str) -> None:
        """Give a column another name."""
        with self.table().update_schema() as change:
            change.rename_column(self.column(base).name, f"{base}_{next(self._next)}")

    def do_widen(self, base: str) -> None:
        """Give a column its wider type."""
        with self.table().update_schema() as change:
            change.update_column(self.column(base).name, WIDER[base])

    def do_again(self, base: str) -> None:
        """Drop a column and add one of its first name and type: a new one, which is null in the rows that are there."""
        with self.table().update_schema() as change:
            change.delete_column(self.column(base).name)
        with self.table().update_schema() as change:
            change.add_column(base, COLUMNS[base])
        self.ids[base] = self.table().schema().find_field(base).field_id

    def do_partition(self) -> None:
        """Partition the table, or no longer."""
        with self.table().update_spec() as change:
            if self.table().spec().fields:
                change.remove_field("p_part")
            else:
                change.add_field("p", IdentityTransform(), "p_part")

    def do_upgrade(self) -> None:
        """Upgrade the format."""
        if self.version < 3:
            self.version = 3
            upgrade(self.table())

    def do_index(self, base: str) -> None:
        """Build an index, which lags from then on."""
        number = next(self._next)
        uid = f"33333333-0000-0000-0000-{number:012d}"
        index = IndexRef(name=f"by-{number}", uid=uid, columns=(self.column(base).name,))
        asked = replace(self.maintenance((), POLICY), kind=RunKind.REINDEX, maintain=None, indexes=(index,))
        asked = replace(asked, owner_uid=uid, reindex=ReindexTask(index=index))
        assert run_reindex(asked, Reporter(asked)).outcome == "Committed"

    def do_resolve(self) -> None:
        """Resolve the deletes; the rows are those of the model, for our reader and for PyIceberg."""
        step = self.resolve()
        assert step.is_done, step
        assert self.equality_files() == 0
        assert self.numbers_held() == sorted(self.live)
        assert sorted(self.table().scan(selected_fields=("n",)).to_arrow()["n"].to_pylist()) == sorted(self.live)
        assert self.strays() == set()


@settings(max_examples=cases(8, 500))
@given(
    version=st.sampled_from([2, 3]),
    history=st.lists(OPS, min_size=3, max_size=10),
    most_keys=st.sampled_from([2, resolving.MAX_KEYS]),
)
def test_rows_are_those_of_the_model_however_the_table_changed(version: int, history: list[Op], most_keys: int) -> None:
    """``most_keys``: with few of them, a run takes several commits."""
    with TemporaryDirectory() as folder, mock.patch.object(resolving, "MAX_KEYS", most_keys):
        bed = EvolvedBed(Path(folder))
        bed.make()
        bed.do_add([{**dict.fromkeys(COLUMNS), "id": 1, "f": -0.0, "p": "b"}])
        if version > 2:
            bed.do_upgrade()
        for op in history:
            bed.do(op)
        bed.do_resolve()
        bed.catalog.close()
