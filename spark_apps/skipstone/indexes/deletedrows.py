"""The rows that equality deletes take, by the entries of an index: no data file is read for them.

Called by the step that resolves equality deletes. Entries name every row of a file, deleted or not, and an index with
more columns than the deletes serves as well. An index whose keys do not tell the values of all columns exactly, such as
hashes in a store, still tells which files hold no such row. Must not read data files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType
from skipstone_core.indexing.use import ReadCost, is_worthwhile

from skipstone.indexes.asking.keyprobe import BoundColumn
from skipstone.indexes.asking.lookup import no_gain, worthwhile_probe
from skipstone.indexes.asking.probes import PLACE, Probe, ProbeColumns, read_entries
from skipstone.indexes.found import FoundIndex
from skipstone.indexes.keys import is_exact, stored_keys
from skipstone.indexes.keytests import AnyTest, Null, Points, Test
from skipstone.indexes.kinds import kind_of
from skipstone.indexes.stores.port import store_of
from skipstone.kernels.canonical import Int64s
from skipstone.kernels.resolving.keys import DeleteGroup, EqualityKeys, key_rows

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class RowQuestion:
    """What is asked: the rows of the files ``wanted`` that a ``group`` of deletes takes, whose keys are ``keys``.

    ``kinds``: types of the columns of the group. ``sequences``: data sequence number of each file. ``savings``: the
    cost of reading the columns of the wanted files instead.
    """

    group: DeleteGroup
    keys: EqualityKeys
    kinds: Sequence[IcebergType]
    wanted: Mask
    sequences: Int64s
    savings: ReadCost


@dataclass(frozen=True)
class RowAnswer:
    """Rows of an index by file: ``ordinals`` and ``positions``, one of each per row; ``covered``: of all their rows."""

    covered: Mask
    ordinals: Int64s
    positions: Int64s


def find_by_index(index: FoundIndex, question: RowQuestion) -> RowAnswer | str | None:
    """Return what ``index`` knows; None when it has other columns.

    A sentence without a full stop when it cannot be asked, or that does not pay. Raises UnreadableIndexFile, OSError.
    """
    if _tells_rows(index, question.group, question.kinds):
        return _find_rows(index, question)
    numbers = _bound_columns(index, question.group)
    return _find_untouched(index, numbers, question) if numbers else None


def _tells_rows(index: FoundIndex, group: DeleteGroup, kinds: Sequence[IcebergType]) -> bool:
    """Return whether entries of ``index`` tell which rows the ``group`` takes, and are ordered by one of its columns.

    A column that was dropped, and made again under its name, has another field id.
    """
    columns = index.index.definition.field_ids
    is_whole = set(group.field_ids) <= set(columns) and columns[0] in group.field_ids
    tells_values = kind_of(index.index.definition).tells_values
    return is_whole and tells_values and not index.replaced and all(is_exact(kind) for kind in kinds)


def _find_rows(index: FoundIndex, question: RowQuestion) -> RowAnswer | str:
    """Rows by the entries of ``index``."""
    group = question.group
    tested = {number: column for number, column in index.keys.items() if number in group.field_ids}
    names = [tested[number].name for number in group.field_ids]
    probe = worthwhile_probe(index, _test(index, group), question.savings, ProbeColumns(tested, (*names, *PLACE)))
    if not isinstance(probe, Probe):
        return probe.message
    bound = [BoundColumn(tested[column.field_id].storage, column.kind) for column in group.columns]
    wanted = question.wanted & index.covered
    ordinals, positions = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for entries in read_entries(probe):
        files = index.files.ordinals_of(entries["file_id"])
        mine = np.flatnonzero(np.append(wanted, False)[files])
        if not len(mine):
            continue
        rows = entries.take(pa.array(mine))
        values = [column.canonical(rows[name]) for column, name in zip(bound, names, strict=True)]
        taken = question.keys.takes(values, question.sequences[files[mine]])
        ordinals.append(files[mine][taken])
        positions.append(rows["pos"].to_numpy().astype(np.int64)[taken])
    return RowAnswer(wanted, np.concatenate(ordinals), np.concatenate(positions))


def _bound_columns(index: FoundIndex, group: DeleteGroup) -> tuple[int, ...]:
    """Numbers of the columns of ``group`` by which files can be found in ``index``, in its order; none: they cannot."""
    numbers = {field_id: number for number, field_id in enumerate(group.field_ids)}
    bound = [numbers.get(field_id) for field_id in index.index.definition.field_ids]
    kinds = [None if number is None else group.columns[number].kind for number in bound]
    count = 0 if index.replaced else store_of(index.index).bound(kinds)
    return tuple(number for number in bound[:count] if number is not None)


def _find_untouched(index: FoundIndex, numbers: Sequence[int], question: RowQuestion) -> RowAnswer | str:
    """The files without a row, by a search in ``index`` for the columns ``numbers`` of the group.

    The other files stay unknown: the deletes may name more columns, and hashes of other values may be equal.
    """
    wanted = question.wanted & index.covered
    kinds = [question.group.columns[number].kind for number in numbers]
    search = store_of(index.index).search(index, kinds, wanted, question.savings)
    asked = []
    for valid, columns in question.keys.since(-1):
        if not set(numbers) <= set(valid):
            return "a delete names a null, for which it is not searched"
        asked.append([columns[valid.index(number)] for number in numbers])
    probes = [search.plan(keys) for keys in asked]
    cost = sum((probe.cost for probe in probes), ReadCost())
    if not is_worthwhile(cost, question.savings):
        return no_gain(cost, question.savings).message
    untouched = wanted.copy()
    for probe, keys in zip(probes, asked, strict=True):
        untouched[search.hits(probe, keys)] = False
    return RowAnswer(untouched, np.empty(0, np.int64), np.empty(0, np.int64))


def _test(index: FoundIndex, group: DeleteGroup) -> Test:
    """The test on the first column of the index: one of the values that deletes name, or null where one names it."""
    first = index.index.definition.field_ids[0]
    place, storage = group.field_ids.index(first), index.keys[first].storage
    values = pa.concat_arrays([stored_keys(columns[place], storage) for columns, _ in key_rows(group)])
    distinct = values.drop_null().unique()
    points = Points(first, distinct.take(pc.sort_indices(distinct)))
    tests: tuple[Test, ...] = (points,) if len(distinct) else ()
    if values.null_count:
        tests = (*tests, Null(first, expected=True))
    return tests[0] if len(tests) == 1 else AnyTest(tests)
