"""HBase by its Thrift server: rows in batches, with time limits, tries again, and one error for all that goes wrong.

Used by the other modules of this room only. Every write may be done twice, so that whoever does not know whether one
was done does it again. The client library is optional: it is imported when a store is reached. Must not know what the
cells hold.
"""

from __future__ import annotations

import errno
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import happybase
from Hbase_thrift import AlreadyExists, Hbase
from Hbase_thrift import IOError as ServerError
from skipstone_core.contract.stores import HBaseRef, ThriftProtocol, ThriftTransport
from skipstone_core.ids import STORE_VARIABLES
from thriftpy2.protocol import TBinaryProtocol, TCompactProtocol
from thriftpy2.thrift import TClient, TException
from thriftpy2.transport import TBufferedTransport, TFramedTransport, TSSLSocket, TTransportException

FAMILY = b"e:"
#: Bytes of one request: a framed server takes 2 MB.
REQUEST_BYTES = 1024 * 1024
#: Rows that one request names.
REQUEST_ROWS = 512
#: Variables with a certificate and its key in PEM, for servers that ask clients for one.
CERTIFICATE_VARIABLE, KEY_VARIABLE = f"{STORE_VARIABLES}CERTIFICATE", f"{STORE_VARIABLES}KEY"
_WAITS = (0.2, 1.0)
_MISSING = "TableNotFound"
Answer = TypeVar("Answer")


class Cell(NamedTuple):
    """A cell of a row; without a value where its name is meant."""

    name: bytes
    value: bytes = b""


class Row(NamedTuple):
    """Some cells of a row."""

    key: bytes
    cells: Sequence[Cell]


class StoreUnavailable(OSError):
    """HBase, or its Thrift server, does not answer or refuses; the text is a sentence without a full stop."""

    def __init__(self, ref: HBaseRef, error: object) -> None:
        text = " ".join(str(error).split())[:300] or type(error).__name__
        super().__init__(errno.EIO, f"the store {ref} does not answer: {text}; look at spec.store and at the server")

    def __str__(self) -> str:
        """Without the number, which says nothing."""
        return str(self.strerror)


class StoreTableMissing(StoreUnavailable):
    """There is no such table in HBase."""

    def __init__(self, ref: HBaseRef) -> None:
        OSError.__init__(self, errno.ENOENT, f"the store {ref} has no such table; a reindex creates it")


@dataclass
class HBaseTable:
    """The table of a store. Connects when it is asked; not for several threads at once.

    Everything raises StoreUnavailable, and StoreTableMissing when the table does not exist.
    """

    ref: HBaseRef
    waits: Sequence[float] = _WAITS
    sleep: Callable[[float], None] = time.sleep
    _connection: happybase.Connection | None = field(default=None, init=False)

    def ensure(self) -> None:
        """Create the table if it does not exist: one version of each cell, which is kept for ever."""
        self._asked(_create)

    def get(self, rows: Sequence[bytes]) -> dict[bytes, dict[bytes, bytes]]:
        """Of ``rows``, those that exist: their cells by name."""
        answer = self._asked(lambda connection, name: connection.table(name).rows(list(rows)))
        return {row: _named(cells) for row, cells in answer}

    def put(self, rows: Iterable[Row]) -> int:
        """Write cells into rows. Returns how many bytes their values have."""
        total = 0
        for group in _requests(rows):
            self._asked(partial(_write, group))
            total += sum(len(cell.value) for row in group for cell in row.cells)
        return total

    def remove(self, rows: Iterable[Row]) -> None:
        """Remove cells by their names."""
        for group in _requests(rows):
            self._asked(partial(_delete, group))

    def scan_names(self, prefix: bytes) -> list[Row]:
        """Rows that begin with ``prefix``, in order, with the names of their cells; values are not sent."""
        return self._asked(lambda connection, name: _names(connection, name, prefix))

    def close(self) -> None:
        """End the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(OSError, TException):
                connection.close()

    def _asked(self, ask: Callable[[happybase.Connection, str], Answer]) -> Answer:
        """The answer; a broken connection is made again, and an error of the server gets a second chance."""
        for wait in (*self.waits, None):
            try:
                if self._connection is None:
                    self._connection = _connect(self.ref)
                return ask(self._connection, self.ref.table)
            except Exception as error:
                self.close()
                if isinstance(error, ServerError) and _MISSING in _text(error):
                    raise StoreTableMissing(self.ref) from error
                if wait is None:
                    raise StoreUnavailable(self.ref, _text(error)) from error
                self.sleep(wait)
        raise AssertionError("the last try answers or raises")


def _text(error: Exception) -> str:
    """What is wrong, in one line: of an error of the server, whose text is a stack trace, the innermost cause."""
    if isinstance(error, TTransportException) and isinstance(error.__context__, OSError):
        return str(error.__context__)  # the library says only that it could not connect
    message = getattr(error, "message", None)
    text = message.decode(errors="replace") if isinstance(message, bytes) else str(message or error)
    lines = text.strip().splitlines() or [type(error).__name__]
    return next((line for line in reversed(lines) if line.startswith("Caused by: ")), lines[0]).removeprefix(
        "Caused by: "
    )


def _connect(ref: HBaseRef) -> happybase.Connection:
    connection = happybase.Connection(
        ref.host,
        ref.port,
        timeout=1000 * ref.timeout_seconds,
        autoconnect=False,
        transport=ref.transport.value.lower(),
        protocol=ref.protocol.value.lower(),
    )
    if ref.tls:
        _protect(connection, ref)
    connection.open()
    return connection


def _protect(connection: happybase.Connection, ref: HBaseRef) -> None:
    """Give it a socket with TLS, which the library has no option for; the system's authorities are trusted."""
    milliseconds = 1000 * ref.timeout_seconds
    socket = TSSLSocket(  # type: ignore[no-untyped-call]
        ref.host, ref.port, socket_timeout=milliseconds, ssl_context=_ssl_context()
    )
    cut = TFramedTransport if ref.transport is ThriftTransport.FRAMED else TBufferedTransport
    written = TCompactProtocol if ref.protocol is ThriftProtocol.COMPACT else TBinaryProtocol
    connection.transport = cut(socket)
    connection.client = TClient(Hbase, written(connection.transport, decode_response=False))


def _ssl_context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    certificate, key = os.environ.get(CERTIFICATE_VARIABLE), os.environ.get(KEY_VARIABLE)
    if certificate and key:
        with tempfile.TemporaryDirectory() as folder:  # OpenSSL reads them from files only; the folder is ours alone
            paths = [Path(folder, "tls.crt"), Path(folder, "tls.key")]
            for path, text in zip(paths, (certificate, key), strict=True):
                path.write_text(text)
            context.load_cert_chain(paths[0], paths[1])
    return context


def _create(connection: happybase.Connection, name: str) -> None:
    if name.encode() in connection.tables():
        return
    with suppress(AlreadyExists):
        connection.create_table(name, {FAMILY.decode(): {"max_versions": 1}})


def _write(rows: Sequence[Row], connection: happybase.Connection, name: str) -> None:
    with connection.table(name).batch() as batch:
        for row in rows:
            batch.put(row.key, {FAMILY + cell.name: cell.value for cell in row.cells})


def _delete(rows: Sequence[Row], connection: happybase.Connection, name: str) -> None:
    with connection.table(name).batch() as batch:
        for row in rows:
            batch.delete(row.key, [FAMILY + cell.name for cell in row.cells])


def _names(connection: happybase.Connection, name: str, prefix: bytes) -> list[Row]:
    scan = connection.table(name).scan(row_prefix=prefix, filter="KeyOnlyFilter()", batch_size=REQUEST_ROWS)
    return [Row(row, [*map(Cell, _named(cells))]) for row, cells in scan]


def _named(cells: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {name.removeprefix(FAMILY): value for name, value in cells.items()}


def _requests(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Cells in requests of bounded size; a row may be in several."""
    group: list[Row] = []
    size = 0
    for row in rows:
        for cell in row.cells:
            if group and (size + len(cell.value) > REQUEST_BYTES or len(group) >= REQUEST_ROWS):
                yield group
                group, size = [], 0
            group.append(Row(row.key, [cell]))
            size += len(cell.value) + len(row.key) + len(cell.name)
    if group:
        yield group
