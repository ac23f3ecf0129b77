"""Files of messages as batches of changes: a message a line of Json or a record of Avro.

Called by the tools that write messages, which bring what turns them into changes. What is wrong with a message is told
with its file and line, and never with a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa
from skipstone_core.contract.formats import SourceFormat

from skipstone.sources.feeds.batches import BATCH_ROWS, BatchMaker
from skipstone.sources.feeds.kafka.avro import avro_messages
from skipstone.sources.feeds.kafka.connect import MessageReader
from skipstone.sources.feeds.registry import Batches
from skipstone.sources.feeds.shapes import Change, FeedError, FeedTarget, Fields, Semantics, refused
from skipstone.sources.text.headers import open_binary, unreadable
from skipstone.storage.port import READ_AHEAD, StoredFile

#: Bytes of lines whose changes become one batch, if they are fewer than BATCH_ROWS.
_BATCH_BYTES = 8 << 20
_BOM = b"\xef\xbb\xbf"
T = TypeVar("T")


class FeedReader(Protocol):
    """Turns the messages of a tool into changes."""

    def changes(self, message: Fields, line: int, columns: Semantics) -> Iterator[Change]:
        """What a message does; ``columns``: what its schema says of them. Raises FeedError."""
        ...


class LineReader(Protocol):
    """Turns the lines of a file into messages."""

    def read(self, line: bytes) -> tuple[Fields, Semantics] | None:
        """The message of ``line`` and what is told of its columns; None for a line without one. Raises FeedError."""
        ...


def _plain_lines(_target: FeedTarget) -> LineReader:
    return MessageReader()


def message_batches(
    reader: Callable[[FeedTarget], FeedReader], lines: Callable[[FeedTarget], LineReader] = _plain_lines
) -> Batches:
    """Return what reads files of the messages that ``reader`` takes, once for each file.

    ``lines``: what reads lines of Json, if not one JSON object a line with or without the schema of Kafka Connect.
    """
    return partial(_batches, reader, lines)


def _batches(
    reader: Callable[[FeedTarget], FeedReader],
    lines: Callable[[FeedTarget], LineReader],
    stored: StoredFile,
    maker: BatchMaker,
) -> Iterator[pa.RecordBatch]:
    target = maker.target
    if target.format is SourceFormat.AVRO:
        return _avro_batches(stored, reader(target), maker)
    return _json_batches(stored, lines(target), reader(target), maker)


def _json_batches(
    stored: StoredFile, lines: LineReader, reader: FeedReader, maker: BatchMaker
) -> Iterator[pa.RecordBatch]:
    held = _Held(maker)
    try:
        with open_binary(stored, READ_AHEAD) as binary:
            for number, line in enumerate(binary, 1):
                placed = _placed(stored, number, partial(lines.read, _plain(line, number)))
                if placed is None:
                    continue
                message, semantics = placed
                yield from held.full(semantics)
                held.take(_changes(stored, reader, message, number, semantics), len(line))
    except (OSError, EOFError) as error:
        raise unreadable(stored.name, f"the file cannot be read: {error}") from error
    yield from held.rest()


def _avro_batches(stored: StoredFile, reader: FeedReader, maker: BatchMaker) -> Iterator[pa.RecordBatch]:
    held = _Held(maker)
    for number, (message, semantics) in enumerate(avro_messages(stored), 1):
        yield from held.full(semantics)
        held.take(_changes(stored, reader, message, number, semantics), 0)
    yield from held.rest()


def _plain(line: bytes, number: int) -> bytes:
    return line.removeprefix(_BOM) if number == 1 else line


def _changes(stored: StoredFile, reader: FeedReader, message: Fields, number: int, columns: Semantics) -> list[Change]:
    return _placed(stored, number, lambda: list(reader.changes(message, number, columns)))


def _placed(stored: StoredFile, number: int, work: Callable[[], T]) -> T:
    try:
        return work()
    except FeedError as error:
        raise refused(stored.name, str(error), number) from error


class _Held:
    """Changes of one schema that wait for their batch."""

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker
        self._changes: list[Change] = []
        self._semantics: Semantics = None
        self._bytes = 0

    def full(self, semantics: Semantics) -> Iterator[pa.RecordBatch]:
        """The batch of what waits, when it is enough or ``semantics`` of the next message are others."""
        is_full = len(self._changes) >= BATCH_ROWS or self._bytes >= _BATCH_BYTES
        if is_full or semantics is not self._semantics:
            yield from self.rest()
        self._semantics = semantics

    def take(self, changes: list[Change], size: int) -> None:
        """Wait with those before."""
        self._changes += changes
        self._bytes += size

    def rest(self) -> Iterator[pa.RecordBatch]:
        """The batch of what waits."""
        if self._changes:
            yield from self._maker.batches(self._changes, self._semantics)
        self._changes, self._bytes = [], 0
