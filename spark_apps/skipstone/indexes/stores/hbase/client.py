"""HBase by its Thrift server: rows in batches, with time limits, tries again, and one error for all that goes wrong.

Used by the other modules of this room only. Every write may be done twice, so that whoever does not know whether one
was done does it again. The client library is optional: it is imported when a store is reached. Must not know what the
cells hold.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, TypeVar

import happybase
from Hbase_thrift import AlreadyExists
from Hbase_thrift import IOError as ServerError
from skipstone_core.contract.stores import HBaseRef
from thriftpy2.thrift import TDecodeException, TException
from thriftpy2.transport import TTransportException

from skipstone.indexes.stores.hbase.connections import connect

FAMILY = b"e:"
#: Bytes of one request: a framed server takes 2 MB.
REQUEST_BYTES = 1024 * 1024
#: Rows that one request names.
REQUEST_ROWS = 512
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

    All methods raise StoreUnavailable for connections, answers and refusals, and StoreTableMissing when the table does
    not exist. Any other exception is an error of this program, and is raised at once.
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
                    self._connection = connect(self.ref)
                return ask(self._connection, self.ref.table)
            except (OSError, TException) as error:
                self.close()
                if isinstance(error, TDecodeException):  # of a value that was to be sent, in spite of its name
                    raise
                if isinstance(error, ServerError) and _MISSING in _text(error):
                    raise StoreTableMissing(self.ref) from error
                if wait is None:
                    raise StoreUnavailable(self.ref, _text(error)) from error
                self.sleep(wait)
            except BaseException:
                self.close()  # an answer may be under way, which the next question would take for its own
                raise
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
