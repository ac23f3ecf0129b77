"""Reaching HBase: whatever answers at its address is one error, within bounds, and errors of our own are not hidden."""

from __future__ import annotations

import socket
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from unittest import mock

import happybase  # noqa: F401 - makes the module Hbase_thrift
import pytest
from Hbase_thrift import Hbase, TCell, TRowResult
from hypothesis import given
from hypothesis import strategies as st
from skipstone.indexes.stores.hbase import connections
from skipstone.indexes.stores.hbase.client import Cell, HBaseTable, Row, StoreUnavailable
from skipstone_core.contract.stores import HBaseRef, ThriftProtocol, ThriftTransport
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TMessageType
from thriftpy2.transport import TMemoryBuffer

MIB = 1024 * 1024
#: The first bytes that an HTTP proxy, a server with TLS, another program, and a broken server answer with.
OTHER_ANSWERS = {
    "HTTP": b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\n" + 4096 * b"try again ",
    "TLS": b"\x15\x03\x03\x00\x02\x02\x46",
    "SSH": b"SSH-2.0-OpenSSH_9.2\r\n",
    "broken": b"\x80\x01\x00\x02\x00\x00\x00\x04rows\x00\x00\x00\x00\x0f\x00\x00\x0c\xff\xff\xff\xff",
    "nothing": b"",
}
ROW, CELLS = b"row", {b"e:a": b"1", b"e:b": b"22"}


@dataclass
class OtherServer:
    """A server that gives each connection the same ``answer`` to what it sends first, and then ends it."""

    listener: socket.socket
    answer: bytes = b""
    questions: list[bytes] = field(default_factory=list)

    @property
    def ref(self) -> HBaseRef:
        """Its address."""
        return HBaseRef(host="127.0.0.1", port=self.listener.getsockname()[1], timeout_seconds=20)

    def serve(self) -> None:
        """Answer until the listener is closed."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self.questions.append(connection.recv(65_536))
                connection.sendall(self.answer)


@pytest.fixture(scope="module")
def server() -> Iterator[OtherServer]:
    """Another server at the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = OtherServer(listener)
        serving = threading.Thread(target=other.serve)
        serving.start()
        yield other
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def answer_of(rows: list[TRowResult], protocol: ThriftProtocol) -> bytes:
    """The message of a Thrift server that found ``rows``."""
    memory = TMemoryBuffer()
    written = (TCompactProtocol if protocol is ThriftProtocol.COMPACT else TBinaryProtocol)(memory)
    written.write_message_begin("getRowsWithColumns", TMessageType.REPLY, 0)
    Hbase.getRowsWithColumns_result(success=rows).write(written)
    written.write_message_end()
    message: bytes = memory.getvalue()
    return message


def whole_row() -> TRowResult:
    """A row with cells."""
    return TRowResult(row=ROW, columns={name: TCell(value=value, timestamp=1) for name, value in CELLS.items()})


@pytest.mark.parametrize("transport", ThriftTransport)
@pytest.mark.parametrize("protocol", ThriftProtocol)
@pytest.mark.parametrize("name", OTHER_ANSWERS)
def test_another_server_at_the_address_does_not_answer(
    server: OtherServer, name: str, protocol: ThriftProtocol, transport: ThriftTransport
) -> None:
    server.answer = OTHER_ANSWERS[name]
    table = HBaseTable(replace(server.ref, protocol=protocol, transport=transport), waits=())
    tracemalloc.start()
    try:
        with pytest.raises(StoreUnavailable, match=r"does not answer: .*; look at spec\.store"):
            table.get([b"row"])
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


def test_the_text_of_another_server_is_not_taken_for_the_size_of_an_answer(server: OtherServer) -> None:
    server.answer = OTHER_ANSWERS["HTTP"]
    framed = replace(server.ref, transport=ThriftTransport.FRAMED)
    with pytest.raises(StoreUnavailable, match="more than 134217728 bytes, as servers do that are not HBase's Thrift"):
        HBaseTable(framed, waits=()).get([b"row"])


def test_an_answer_in_small_parts_may_not_be_longer_either(server: OtherServer) -> None:
    many = [whole_row() for _ in range(1000)]
    server.answer = answer_of(many, ThriftProtocol.BINARY)
    assert HBaseTable(server.ref, waits=()).get([ROW])
    with (
        mock.patch.object(connections, "MAX_ANSWER_BYTES", len(server.answer) // 2),
        pytest.raises(StoreUnavailable, match="it sends an answer of more than"),
    ):
        HBaseTable(server.ref, waits=()).get([ROW])


@pytest.mark.parametrize("protocol", ThriftProtocol)
def test_an_answer_is_what_was_sent_or_an_error(server: OtherServer, protocol: ThriftProtocol) -> None:
    whole = answer_of([whole_row()], protocol)
    table = HBaseTable(replace(server.ref, protocol=protocol), waits=())

    @given(st.integers(0, len(whole) - 1), st.integers(1, 255), st.integers(0, len(whole)))
    def check(place: int, change: int, end: int) -> None:
        damaged = bytearray(whole)
        damaged[place] ^= change
        server.answer = bytes(damaged[: end or None])
        try:
            found = table.get([ROW])
        except StoreUnavailable:
            return
        finally:
            table.close()
        assert all(isinstance(cell, bytes) for cells in found.values() for cell in cells.values())

    check()
    server.answer = whole
    assert table.get([ROW]) == {ROW: {b"a": b"1", b"b": b"22"}}


@pytest.mark.parametrize(
    "row", [TRowResult(columns={}), TRowResult(row=ROW), TRowResult(row=ROW, columns={b"e:": TCell()})]
)
def test_a_row_without_a_part_is_no_answer(server: OtherServer, row: TRowResult) -> None:
    server.answer = answer_of([whole_row(), row], ThriftProtocol.BINARY)
    with pytest.raises(StoreUnavailable, match="its answer has rows without a name or without cells"):
        HBaseTable(server.ref, waits=()).get([ROW])


def test_errors_of_our_own_are_raised_as_they_are_and_once(server: OtherServer) -> None:
    server.answer = answer_of([], ThriftProtocol.BINARY)
    slept: list[float] = []
    table = HBaseTable(server.ref, sleep=slept.append)
    with pytest.raises(TypeError, match="concat"):
        table.put([Row(ROW, [Cell("text", b"1")])])  # type: ignore[arg-type]
    with pytest.raises(Exception, match="Field 'rows"):
        table.get([1])  # type: ignore[list-item]
    with mock.patch("skipstone.indexes.stores.hbase.client._named", side_effect=KeyError("ours")):
        server.answer = answer_of([whole_row()], ThriftProtocol.BINARY)
        with pytest.raises(KeyError, match="ours"):
            table.get([ROW])
    assert slept == []
    assert table.get([ROW])  # by a new connection


def test_an_answer_that_is_lost_is_asked_for_again(server: OtherServer) -> None:
    server.answer = b""
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        server.answer = answer_of([whole_row()], ThriftProtocol.BINARY)

    assert HBaseTable(server.ref, waits=(0.2, 1.0), sleep=sleep).get([ROW])
    assert slept == [0.2]
