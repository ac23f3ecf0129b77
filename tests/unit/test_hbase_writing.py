"""Writing pages to HBase: attempts do not hide one another, and cells of others do not stop a removal."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock
from uuid import UUID

import numpy as np
import pyarrow as pa
from skipstone.indexes.building.entries import Stretch
from skipstone.indexes.building.sorting import Origin
from skipstone.indexes.stores.hbase import writing
from skipstone.indexes.stores.hbase.client import Cell, HBaseTable, Row
from skipstone.indexes.stores.hbase.generations import cell_name, new_id
from skipstone.indexes.stores.hbase.pages import join_cells, row_key, unpack_pages
from skipstone.indexes.stores.hbase.store import HBaseStore
from skipstone.indexes.stores.hbase.writing import PagesWritten, PageTask, write_entries
from skipstone_core.contract.stores import HBaseRef

INDEX = bytes(range(16))


def test_an_attempt_that_is_given_up_hides_no_entries_of_the_one_that_counts() -> None:
    generation, cells = new_id(0), dict[bytes, bytes]()
    source, columns = mock.Mock(), mock.Mock()
    columns.definition.key_storages = ("long",)
    task = PageTask((source,), columns, HBaseRef(host="nowhere"), INDEX, generation, level=0, buffer_rows=1000)

    def rows(*_: object) -> Iterator[Stretch]:
        yield Stretch((pa.array([5, 6, 7], pa.int64()),), Origin(file_id=3, row_group=0, first=0, rows=3))

    def unreadable(*_: object) -> Iterator[Stretch]:
        raise OSError("the storage is away")
        yield

    def put(_table: HBaseTable, written: Iterator[Row]) -> int:
        cells.update((cell.name, cell.value) for row in written for cell in row.cells)
        return 0

    def attempt(stretches: object) -> PagesWritten:
        with mock.patch.object(writing, "file_stretches", stretches):
            return write_entries(task, "")

    with mock.patch.object(HBaseTable, "put", put):
        counted, given_up = attempt(rows), attempt(unreadable)
    assert (counted.rows, len(given_up.skipped)) == (3, 1)
    row = row_key(INDEX, 0, 0)
    entries = unpack_pages([join_cells(row, cell_name(generation, part), cells) for part in counted.parts])
    np.testing.assert_array_equal(np.sort(entries.positions), [0, 1, 2])


def test_cells_of_others_in_a_row_do_not_stop_removing_orphans() -> None:
    orphan, index, removed = cell_name(new_id(1000), 7) + b"\0\0", mock.Mock(), list[bytes]()
    index.table.metadata.table_uuid, index.table.properties = UUID(bytes=INDEX), {}
    cells = dict.fromkeys((b"", b"x", b"comment", b"a comment", orphan), b"")
    row = row_key(INDEX, 0, 0)

    def remove(_table: HBaseTable, rows: Iterator[Row]) -> None:
        removed.extend(cell.name for row in rows for cell in row.cells)

    with (
        mock.patch.object(HBaseTable, "get", return_value={row: cells}),
        mock.patch.object(HBaseTable, "scan_names", return_value=[Row(row, [*map(Cell, cells)])]),
        mock.patch.object(HBaseTable, "remove", remove),
    ):
        covers = pa.table({"generation": pa.array([], pa.string()), "file_id": pa.array([], pa.int32())})
        HBaseStore(index, HBaseRef(host="nowhere")).tidy(covers)
    assert removed == [orphan]
