"""Which files an index build enters together: a wave is one commit, and what a run that is killed does not keep.

Waves are as small as they can be without more sorted runs than an index keeps unmerged, so each entry of a bulk build
is written once. Pure but for what it is told of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from skipstone_core.indexing.indexes import MERGE_FAN_IN, IndexDefinition, LiveFile, plan_builds
from skipstone_core.indexing.snapshots import FileIdentity

from skipstone.indexes.coverage import Coverage
from skipstone.indexes.definition import entry_schema
from skipstone.tables.filesets import FileSet

#: A task with fewer rows than this is not worth its own Spark task, nor its own file to look into.
ROWS_PER_TASK = 500_000
#: To open a file of a slow storage takes about as long as to enter so many rows.
ROWS_PER_FILE = 40_000
#: Most entries that a task of one wave keeps in files of its machine, in bytes; a wave may be half as large again as
#: it is planned.
SCRATCH_BYTES = 3 * 1024 * 1024 * 1024
#: About how many bytes a value takes whose type does not say it.
_USUAL_BYTES = 32
#: Of a buffer, what a wave plans to fill: tasks do not have exactly equal shares.
_FILLED = 7 / 8


@dataclass(frozen=True)
class MissingUnit:
    """Files of one segment that are entered together, as ordinals of the FileSet, and how many rows each has."""

    segment: int
    ordinals: tuple[int, ...]
    records: tuple[int, ...]

    @property
    def rows(self) -> int:
        """Of all files."""
        return sum(self.records)

    @property
    def weight(self) -> int:
        """Return the effort of entering it, in rows."""
        return self.rows + ROWS_PER_FILE * len(self.ordinals)


def plan_units(files: FileSet, coverage: Coverage) -> tuple[MissingUnit, ...]:
    """The missing files of a snapshot in units, oldest segment first."""
    live = _live_files(files, np.flatnonzero(~coverage.covered))
    ordinal_of = {file.identity: ordinal for ordinal, file in live.items()}
    units = plan_builds(live.values(), (), None)
    return tuple(
        MissingUnit(
            unit.segment, tuple(ordinal_of[file] for file in unit.files), tuple(file.records for file in unit.files)
        )
        for unit in units
    )


def _live_files(files: FileSet, ordinals: npt.NDArray[np.intp]) -> dict[int, LiveFile]:
    rows = files.files.take(pa.array(ordinals)).to_pylist()
    return {
        row["file_id"]: LiveFile(
            FileIdentity(row["path"], row["size"], row["records"]), row["segment"], row["added_snapshot_id"]
        )
        for row in rows
    }


@dataclass(frozen=True)
class BuildPower:
    """The power of a build: the number of tasks at a time, and the buffer of each in bytes."""

    tasks: int
    buffer_bytes: int


def wave_weight(power: BuildPower, definition: IndexDefinition, units: Sequence[MissingUnit]) -> int:
    """How much of ``units`` to enter at once, in rows.

    A task writes one sorted run a wave, so the waves are so few that their runs need no merge, and no larger than that:
    what fills the buffers of all tasks once, if that suffices. What is more waits in files of the tasks' machines.
    """
    rows, weight = sum(unit.rows for unit in units), sum(unit.weight for unit in units)
    held, stored = _bytes_per_row(definition)
    buffered = max(1, int(power.tasks * power.buffer_bytes * _FILLED) // held)
    scratch = power.tasks * SCRATCH_BYTES * 2 // 3
    few = max((MERGE_FAN_IN - 1) // task_count(rows, power.tasks), -(-weight * stored // scratch))
    waves = max(1, min(few, -(-weight // buffered)))
    return -(-weight // waves)


def _bytes_per_row(definition: IndexDefinition) -> tuple[int, int]:
    """About what a row takes in a buffer, where only its values are, and as an entry."""
    schema = entry_schema(definition)
    place = {"file_id", "row_group", "pos"}
    widths = {field.name: _width(field.type) for field in schema}
    return sum(width for name, width in widths.items() if name not in place), sum(widths.values())


def _width(kind: pa.DataType) -> int:
    return -(-kind.bit_width // 8) if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) else _USUAL_BYTES


def task_count(rows: int, parallelism: int) -> int:
    """How many tasks are worth starting for so many rows."""
    return min(parallelism, 1 + rows // ROWS_PER_TASK)


def plan_waves(units: Sequence[MissingUnit], weight: int) -> list[list[MissingUnit]]:
    """Units to enter together and commit at once, oldest first, in waves of about ``weight``.

    They are never more than the weight of all units goes into: a wave takes a unit more rather than to end before.
    Entries of small segments that are built together share sorted runs. A segment that is half a wave or more is
    entered by its files, maybe in several waves.
    """
    waves: list[list[MissingUnit]] = []
    left = 0
    for unit in (piece for whole in units for piece in _pieces(whole, max(1, weight // 2))):
        if left <= 0:
            waves.append([])
            left = weight
        waves[-1].append(unit)
        left -= unit.weight
    return waves


def _pieces(unit: MissingUnit, weight: int) -> Iterator[MissingUnit]:
    if unit.weight <= weight:
        yield unit
        return
    starts, held = [0], 0
    for at, records in enumerate(unit.records):
        if at > starts[-1] and held + records + ROWS_PER_FILE > weight:
            starts.append(at)
            held = 0
        held += records + ROWS_PER_FILE
    for start, end in pairwise([*starts, len(unit.ordinals)]):
        yield MissingUnit(unit.segment, unit.ordinals[start:end], unit.records[start:end])
