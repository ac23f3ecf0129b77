"""A table with equality deletes, and a dictionary of its rows: what each write does is done to both.

Used by the tests of ResolveEqualityDeletes. The model takes no bytes and no files: a row is there until a later delete
names its values.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType
from skipstone.runs.maintaining.maintain import run_maintain
from skipstone.tables.committing.commits import CommitPorts
from skipstone_core.contract.reports import StepReport
from skipstone_core.contract.requests import IndexRef, JobRequest
from skipstone_core.indexing.snapshots import DeleteKind
from skipstone_core.maintenance.policies import EqualityDeletesPolicy, MaintenancePolicy, MaintenanceStep

from tests.spark.interleavings import Held
from tests.spark.maintain_bed import MaintainBed
from tests.spark.merge_bed import AtSwap
from tests.spark.rawdeletes import add_equality_delete, add_position_delete, add_vectors, upgrade

SCHEMA = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "id", IntegerType()),
    NestedField(3, "k", StringType()),
    NestedField(4, "f", DoubleType()),
    NestedField(5, "p", StringType()),
)
BY_P = PartitionSpec(PartitionField(5, 1000, IdentityTransform(), "p"))
POLICY = MaintenancePolicy(equality_deletes=EqualityDeletesPolicy(min_files=1))
STEP = (MaintenanceStep.RESOLVE_EQUALITY_DELETES,)
#: Stages of the run at which another writer may come, and the two sides of its swap.
POINTS = ("search", "write", "commit", "before swap", "after swap")
Key = Mapping[str, Any]


def same(value: Any, other: Any) -> bool:
    """Whether an equality delete takes two values for equal: nulls, and floats by their bits, but for NaN."""
    if isinstance(value, float) and isinstance(other, float):
        both = math.isnan(value) and math.isnan(other)
        return both or struct.pack(">d", value) == struct.pack(">d", other)
    return bool(value == other)


@dataclass
class ResolveBed(MaintainBed):
    """The table, and ``live``: its rows by their number ``n``."""

    version: int = 2
    is_parted: bool = False
    live: dict[int, dict[str, Any]] = field(default_factory=dict)
    _next: Any = field(default_factory=itertools.count)
    _paths: dict[str, list[int]] = field(default_factory=dict)

    def make(self) -> None:
        """Make the table."""
        self.create(SCHEMA, BY_P if self.is_parted else UNPARTITIONED_PARTITION_SPEC)
        if self.version > 2:
            upgrade(self.table())

    def add(self, *keys: Key) -> None:
        """Append rows with these values."""
        rows = [{"n": next(self._next), "id": None, "k": None, "f": None, "p": "a", **key} for key in keys]
        self.append(rows)
        self.live.update({row["n"]: row for row in rows})

    def delete_equal(self, names: Sequence[str], keys: Sequence[Key], part: str = "a") -> None:
        """Delete the rows with these values, of one partition where there are several."""
        values = {name: [key.get(name) for key in keys] for name in names}
        add_equality_delete(self.table(), values, *([part] if self.is_parted else []))
        self._drop(
            lambda row: (
                (not self.is_parted or row["p"] == part)
                and any(all(same(row[name], key.get(name)) for name in names) for key in keys)
            )
        )

    def delete_rows(self, chosen: Callable[[int], bool]) -> None:
        """Delete rows of one data file by position: those of the first whose places in it are chosen."""
        files = self.files()
        for ordinal in range(len(files)):
            held = pq.read_table(files.data_file(ordinal).file_path.removeprefix("file://"))["n"].to_pylist()
            positions = [place for place in range(len(held)) if chosen(place)]
            if positions and not any(one.kind is DeleteKind.EQUALITY for one in files.applying_deletes(ordinal)):
                self._mark(ordinal, positions)
                gone = {held[place] for place in positions}
                self._drop(lambda row, gone=gone: row["n"] in gone)  # type: ignore[misc]
                return

    def _mark(self, ordinal: int, positions: list[int]) -> None:
        files = self.files()
        if self.version < 3:
            add_position_delete(self.table(), files.data_file(ordinal), positions)
            return
        from skipstone.files.projections import deleted_positions
        from skipstone.files.reader import describe_files

        (described,) = describe_files(self.table(), files, [ordinal])
        add_vectors(self.table(), {ordinal: np.union1d(deleted_positions(described), positions).tolist()})

    def _drop(self, is_gone: Callable[[dict[str, Any]], bool]) -> None:
        self.live = {number: row for number, row in self.live.items() if not is_gone(row)}

    # --- the step ---

    def resolution(self, *indexes: IndexRef) -> JobRequest:
        """The request of a run of the step alone."""
        return replace(self.maintenance(STEP, POLICY), indexes=indexes)

    def resolve(self, point: str = "", act: Callable[[], None] = lambda: None) -> StepReport:
        """Run the step, and ``act`` once when it is at ``point``."""
        request = self.resolution()
        hooks = AtSwap(before=act if point == "before swap" else None, after=act if point == "after swap" else None)
        (step,) = run_maintain(request, Held(request, point, act), CommitPorts(hooks=hooks)).steps
        return step

    def numbers_held(self) -> list[int]:
        """The numbers of all rows, as our own reader gives them."""
        from tests.spark.lake import read_all

        numbers: list[int] = sorted(read_all(self.table(), ["n"])["n"].to_pylist())
        return numbers

    def equality_files(self) -> int:
        """How many equality deletes there are."""
        return sum(one.kind is DeleteKind.EQUALITY for one in self.files().delete_files)
