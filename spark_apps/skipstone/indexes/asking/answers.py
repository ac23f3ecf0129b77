"""Answers from an index alone: a read of nothing but columns that entries hold takes them from those of covered files.

Called by the query planner (which files can be answered) and by ``read`` (their rows). Entries name every row of a
file, deleted or not: whoever reads an answer applies position deletes. Must not read the indexed table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType
from skipstone_core.indexing.choice import Offer, plan_next
from skipstone_core.indexing.snapshots import DeleteKind
from skipstone_core.indexing.use import ReadCost

from skipstone.indexes.asking.candidates import WeighedFiles
from skipstone.indexes.asking.hits import POSITION_BITS
from skipstone.indexes.asking.lookup import worthwhile_probe
from skipstone.indexes.asking.probes import PLACE, Probe, ProbeColumns, read_entries
from skipstone.indexes.definition import EntryColumn
from skipstone.indexes.found import FoundIndex
from skipstone.indexes.keys import column_values, is_exact
from skipstone.indexes.keytests import Test
from skipstone.indexes.kinds import kind_of
from skipstone.indexes.values import included_values
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
class HeldColumn:
    """A column of the table, of type ``kind``, as entries hold it."""

    column: EntryColumn
    kind: IcebergType

    @property
    def is_exact(self) -> bool:
        """Return whether entries tell exactly which value it was: they do of all but keys that are floats."""
        return not self.column.is_key or is_exact(self.kind)

    def values(self, stored: pa.Array) -> pa.Array:
        """The values that are ``stored``; of keys that are floats those that are equal."""
        return (column_values if self.column.is_key else included_values)(stored, self.kind)


@dataclass(frozen=True)
class IndexAnswer:
    """The files (``ordinals``, ascending) whose rows the entries of one probe hold.

    ``columns``: those wanted, as entries hold them. ``sizes``: bytes of these columns in each of the files.
    """

    probe: Probe
    ordinals: npt.NDArray[np.int64]
    columns: Mapping[str, HeldColumn]
    sizes: npt.NDArray[np.int64]

    @property
    def name(self) -> str:
        """Name of the index table."""
        return self.probe.index.name

    @property
    def savings(self) -> ReadCost:
        """Return the cost of reading these columns of its files."""
        return self.cost_of(self.ordinals)

    def cost_of(self, ordinals: Sequence[int] | npt.NDArray[np.int64]) -> ReadCost:
        """Return the cost of reading its files that are among ``ordinals``."""
        chosen = np.isin(self.ordinals, ordinals)
        return ReadCost(int(chosen.sum()), int(self.sizes[chosen].sum()))


@dataclass(frozen=True)
class AnswerRows:
    """Rows of an answer: columns by name, and where each row is (ordinal << 40 | position)."""

    columns: dict[str, pa.Array]
    keys: npt.NDArray[np.int64]


def plan_answer(
    test: Test, wanted: Wanted, indexes: Sequence[FoundIndex], files: FileSet, candidates: WeighedFiles
) -> IndexAnswer | None:
    """The answer from one index that saves most of the candidates; None when no index holds all columns."""
    fitting = [index for index in indexes if index.serves(test) and kind_of(index.index.definition).tells_values]
    offered = [_answer(test, wanted, index, files, candidates) for index in fitting]
    answers = [answer for answer in offered if answer is not None]
    best = plan_next([Offer(answer.savings, answer.probe.cost) for answer in answers], candidates.limits)
    return None if best is None else answers[best]


def _answer(
    test: Test, wanted: Wanted, index: FoundIndex, files: FileSet, candidates: WeighedFiles
) -> IndexAnswer | None:
    columns = _held(index, wanted, files.schema)
    if columns is None:
        return None
    ordinals = np.flatnonzero(_answerable(files, candidates.mask & index.covered))
    ids = [field.field_id for field in files.schema.fields if field.name in columns]
    sizes = files.column_bytes(ids)[ordinals]
    savings = ReadCost(len(ordinals), int(sizes.sum()))
    besides = tuple(held.column.name for held in columns.values())
    besides_keys = ProbeColumns(index.columns, (*besides, *PLACE))
    probe = worthwhile_probe(index, test, savings, besides_keys, candidates.limits)
    return IndexAnswer(probe, ordinals, columns, sizes) if isinstance(probe, Probe) else None


def _held(index: FoundIndex, wanted: Wanted, schema: Schema) -> dict[str, HeldColumn] | None:
    """All columns wanted as entries hold them; None when these do not, or not exactly what is selected."""
    fields = {field.name: field for field in schema.fields}
    known = [name for name in wanted.all if fields[name].field_id in index.columns]
    held = {name: HeldColumn(index.columns[fields[name].field_id], fields[name].field_type) for name in known}
    is_whole = len(held) == len(wanted.all) and all(held[name].is_exact for name in wanted.selected)
    return held if is_whole else None


def _answerable(files: FileSet, mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Those of some files that have no equality deletes: these are by values that entries need not hold."""
    if not files.delete_files:
        return mask
    plain = mask.copy()
    for n in np.flatnonzero(mask).tolist():
        plain[n] = all(delete.kind is DeleteKind.POSITION for delete in files.applying_deletes(n))
    return plain


def read_answer(answer: IndexAnswer) -> Iterator[AnswerRows]:
    """The rows that pass the probe's test. Raises UnreadableIndexFile."""
    for entries in read_entries(answer.probe):
        ordinals = answer.probe.index.files.ordinals_of(entries["file_id"])
        mine = np.isin(ordinals, answer.ordinals)
        rows = entries.filter(pa.array(mine)).combine_chunks()
        if rows.num_rows:
            columns = {
                name: held.values(rows[held.column.name].combine_chunks()) for name, held in answer.columns.items()
            }
            yield AnswerRows(columns, ordinals[mine] << POSITION_BITS | rows["pos"].to_numpy())
