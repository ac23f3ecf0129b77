"""Writing pages to HBase, and reaching it: attempts do not hide one another, and whatever answers is one error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from unittest import mock
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from skipstone.indexes.building.entries import Stretch
from skipstone.indexes.building.sorting import Origin
from skipstone.indexes.stores.hbase import writing
from skipstone.indexes.stores.hbase.client import Cell, HBaseTable, Row, StoreUnavailable
from skipstone.indexes.stores.hbase.generations import cell_name, new_id
from skipstone.indexes.stores.hbase.pages import join_cells, row_key, unpack_pages
from skipstone.indexes.stores.hbase.store import HBaseStore
from skipstone.indexes.stores.hbase.writing import PagesWritten, PageTask, write_entries
from skipstone_core.contract.stores import HBaseRef

INDEX = bytes(range(16))
#: The first bytes that an HTTP proxy, a server with TLS, another program, and a broken server answer with.
OTHER_ANSWERS = (
    b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
    b"\x15\x03\x03\x00\x02\x02\x46",
    b"SSH-2.0-OpenSSH_9.2\r\n",
    b"\x80\x01\x00\x02\x00\x00\x00\x04rows\x00\x00\x00\x00\x0f\x00\x00\x0c\xff\xff\xff\xff",
)


@pytest.fixture(params=OTHER_ANSWERS, ids=["HTTP", "TLS", "SSH", "broken"])
def other_server(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a server that gives each connection the same answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(request.param)

        server = threading.Thread(target=serve)
        server.start()
        yield listener.getsockname()[1]
        server.join()


def test_another_server_at_the_address_does_not_answer(other_server: int) -> None:
    table = HBaseTable(HBaseRef(host="127.0.0.1", port=other_server), waits=())
    with pytest.raises(StoreUnavailable, match=r"does not answer: .*; look at spec\.store"):
        table.get([b"row"])


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
