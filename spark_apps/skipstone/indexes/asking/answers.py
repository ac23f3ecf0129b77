"""Answers from an index alone: a read of nothing but indexed columns takes them from the entries of covered files.

Called by the query planner (which files can be answered) and by ``read`` (their rows). Entries name every row of a
file, deleted or not: whoever reads an answer applies position deletes. Must not read the indexed table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.types import IcebergType
from skipstone_core.indexing.snapshots import DeleteKind

from skipstone.indexes.asking.candidates import WeighedFiles
from skipstone.indexes.asking.hits import POSITION_BITS
from skipstone.indexes.asking.lookup import weighed_probe
from skipstone.indexes.asking.probes import Probe, read_entries
from skipstone.indexes.found import FoundIndex, IndexRefusal
from skipstone.indexes.keys import column_values, is_exact
from skipstone.indexes.keytests import Test
from skipstone.tables.filesets import FileSet


@dataclass(frozen=True)
class Wanted:
    """Columns of a read, by name in the schema of its FileSet: those it selects, and those its condition tests."""

    selected: tuple[str, ...]
    tested: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Both, each once."""
        return tuple(dict.fromkeys([*self.selected, *self.tested]))


@dataclass(frozen=True)
class IndexAnswer:
    """The files (``ordinals``, ascending) whose rows the entries of one probe hold.

    ``keys``: key column of each column wanted, and the column's type.
    """

    probe: Probe
    ordinals: npt.NDArray[np.int64]
    keys: Mapping[str, tuple[str, IcebergType]]

    @property
    def name(self) -> str:
        """Name of the index table."""
        return self.probe.index.name


@dataclass(frozen=True)
class AnswerRows:
    """Rows of an answer: columns by name, and where each row is (ordinal << 40 | position)."""

    columns: dict[str, pa.Array]
    keys: npt.NDArray[np.int64]


def plan_answer(
    test: Test, wanted: Wanted, indexes: Sequence[FoundIndex], files: FileSet, candidates: WeighedFiles
) -> IndexAnswer | None:
    """The cheapest answer from one index for some of the candidates; None when no index holds all columns."""
    fields = {field.name: field for field in files.schema.fields}
    if not all(is_exact(fields[name].field_type) for name in wanted.selected):
        return None
    numbers = {fields[name].field_id for name in wanted.all}
    fitting = [index for index in indexes if index.key_columns().keys() >= numbers and index.serves(test)]
    weighed: list[Probe | IndexRefusal] = [weighed_probe(index, test, candidates) for index in fitting]
    probes = [probe for probe in weighed if isinstance(probe, Probe)]
    if not probes:
        return None
    probe = min(probes, key=lambda one: one.cost.weight)
    ordinals = _answerable(files, np.flatnonzero(candidates.mask & probe.index.covered))
    stored = probe.index.key_columns()
    keys = {name: (stored[fields[name].field_id][0], fields[name].field_type) for name in wanted.all}
    return IndexAnswer(probe, ordinals, keys) if len(ordinals) else None


def _answerable(files: FileSet, ordinals: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Files without equality deletes: those are by values that entries need not hold."""
    if not files.delete_files:
        return ordinals
    plain = [all(one.kind is DeleteKind.POSITION for one in files.applying_deletes(int(n))) for n in ordinals]
    return ordinals[np.array(plain, np.bool_)]


def read_answer(answer: IndexAnswer) -> Iterator[AnswerRows]:
    """The rows that pass the probe's test. Raises UnreadableIndexFile."""
    names = tuple(dict.fromkeys([*answer.probe.columns, *(key for key, _ in answer.keys.values())]))
    for entries in read_entries(answer.probe, names):
        ordinals = answer.probe.index.files.ordinals_of(entries["file_id"])
        mine = np.isin(ordinals, answer.ordinals)
        rows = entries.filter(pa.array(mine)).combine_chunks()
        if rows.num_rows:
            columns = {name: _values(rows[key], kind) for name, (key, kind) in answer.keys.items()}
            yield AnswerRows(columns, ordinals[mine] << POSITION_BITS | rows["pos"].to_numpy())


def _values(stored: pa.ChunkedArray, kind: IcebergType) -> pa.Array:
    return column_values(stored.combine_chunks(), kind)
