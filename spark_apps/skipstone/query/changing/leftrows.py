"""Finds the rows that the key of a deleted row still has in the newer snapshot, among those that are not compared.

Called by ``read_changes``. Rows are not compared that both snapshots have in one file, or with the same lineage. Of
such files, only the columns of keys are read, and the rows that have one of the keys. Must not decide what a row that
is left means for its key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from skipstone.files.projections import DataFileDescription, Decoding
from skipstone.files.reader import POSITION_COLUMN, describe_files, read_data_file
from skipstone.query.changing.dividing import Hashes, hashes_of_keys, part_of_rows
from skipstone.query.planner import ReadOptions, ReadPlan, plan_lookup

#: So many keys are looked for at once, at most.
MOST_KEYS = 1 << 20
_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class LeftRows:
    """Where rows may be left. ``schema``: in which they are read; ``options``: of reads of the newer snapshot;
    ``among``: one boolean for each of its files, whether rows of it are not compared; ``compared``: by file, which are.
    """

    table: Table
    schema: Schema
    keys: tuple[str, ...]
    options: ReadOptions
    among: npt.NDArray[np.bool_]
    compared: Mapping[int, _Numbers]
    decoding: Decoding

    def find(self, wanted: pa.Table) -> Iterator[pa.RecordBatch]:
        """The rows of ``among`` that are not compared and have one of the ``wanted`` keys.

        ``wanted``: each key once, and none with a null.

        Raises BadData for files and deletes that cannot be read.
        """
        plan = plan_lookup(self.table, wanted, replace(self.options, reads=self.keys), self.among)
        hashes = hashes_of_keys(wanted, self.keys)
        names = [column.name for column in self.schema.fields]
        for file in describe_files(self.table, plan.files.in_schema(self.schema), list(plan.ordinals)):
            positions = self._positions(file, plan, wanted.schema, hashes)
            if len(positions):
                yield from read_data_file(file, names, None, positions, self.decoding)

    def _positions(self, file: DataFileDescription, plan: ReadPlan, schema: pa.Schema, hashes: Hashes) -> _Numbers:
        """Rows of a file with such keys, ascending."""
        groups, positions = plan.row_groups.get(file.file_id), plan.positions.get(file.file_id)
        having = [np.empty(0, np.int64)]
        for batch in read_data_file(file, [*self.keys, POSITION_COLUMN], groups, positions, self.decoding):
            rows = pa.Table.from_batches([batch])
            is_wanted = _is_among(hashes_of_keys(rows.select(self.keys).cast(schema), self.keys), hashes)
            having.append(rows.column(POSITION_COLUMN).filter(is_wanted).to_numpy())
        return np.setdiff1d(np.concatenate(having), self.compared.get(file.file_id, having[0]))


@dataclass(frozen=True)
class DividedRows:
    """Files of rows of both snapshots, those with equal ``keys`` in files of the same place.

    ``most_bytes``: of keys that are in memory at once, about.
    """

    old: Sequence[Path]
    new: Sequence[Path]
    keys: tuple[str, ...]
    most_bytes: int

    def fewer(self) -> Iterator[pa.Table]:
        """The keys that fewer new rows have than old ones, each once and MOST_KEYS at most in a table; without nulls.

        A key whose rows are equal, but for some that are gone, is among them.
        """
        waiting: list[pa.Table] = []
        for pair in zip(self.old, self.new, strict=True):
            for keys in self._fewer_in(*pair):
                waiting.append(keys)
                if sum(map(len, waiting)) >= MOST_KEYS:
                    yield from _cut(waiting)
                    waiting = []
        yield from _cut(waiting)

    def _fewer_in(self, old: Path, new: Path) -> Iterator[pa.Table]:
        rounds = 1 + sum(map(self._bytes, (old, new))) // self.most_bytes
        for number in range(rounds):
            before = self._read(old, number, rounds)
            if not len(before):
                continue
            hashes = hashes_of_keys(before, self.keys)
            fewer = _fewer(hashes, hashes_of_keys(self._read(new, number, rounds), self.keys))
            if len(fewer):
                gone = before.filter(_is_among(hashes, fewer)).drop_null()
                yield gone.take(pa.array(np.unique(hashes_of_keys(gone, self.keys), return_index=True)[1]))

    def _batches(self, path: Path) -> Iterator[pa.Table]:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
            for at in range(file.num_record_batches):
                yield pa.Table.from_batches([file.get_batch(at)]).select(self.keys)

    def _bytes(self, path: Path) -> int:
        return sum(rows.nbytes for rows in self._batches(path))

    def _read(self, path: Path, number: int, rounds: int) -> pa.Table:
        """The keys of a file in one of ``rounds``, in which all rows with equal keys are read."""
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as file:
            none = file.schema.empty_table().select(self.keys)
        if rounds == 1:
            return pa.concat_tables([none, *self._batches(path)])
        parts = ((rows, part_of_rows(rows, self.keys, rounds, len(self.old))) for rows in self._batches(path))
        return pa.concat_tables([none, *(rows.filter(pa.array(part == number)) for rows, part in parts)])


def _is_among(hashes: Hashes, others: Hashes) -> pa.Array:
    return pc.is_in(pa.array(hashes), value_set=pa.array(others))


def _fewer(before: Hashes, after: Hashes) -> Hashes:
    """Those that are less often in ``after``."""
    known, counts = np.unique(before, return_counts=True)
    others, other_counts = np.unique(after, return_counts=True)
    places = np.searchsorted(others, known)
    others, other_counts = np.append(others, np.uint64(0)), np.append(other_counts, 0)
    return np.asarray(known[counts > np.where(others[places] == known, other_counts[places], 0)], np.uint64)


def _cut(tables: Sequence[pa.Table]) -> Iterator[pa.Table]:
    if tables:
        rows = pa.concat_tables(tables)
        yield from (rows.slice(start, MOST_KEYS) for start in range(0, len(rows), MOST_KEYS))
