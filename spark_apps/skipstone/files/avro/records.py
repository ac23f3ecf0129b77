"""The records of Avro blocks, each with a proof that it is as long as it says.

Used for sources and for data files of tables. Must not know what a record means.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from typing import Any

from skipstone.files.avro.containers import Block, Damaged

#: Follows each block, so that a record that reads beyond its end is noticed.
_BEHIND = b"\0"
_MISREAD = (EOFError, LookupError, ValueError, TypeError, ArithmeticError, struct.error)
#: A record by the names of its fields.
AvroRecord = Mapping[str, Any]


def avro_records(layout: Any, blocks: Iterable[Block]) -> Iterator[tuple[AvroRecord, int]]:
    """Each record as ``layout``, a schema of Avro, has it, and the bytes that it took. Raises Damaged."""
    import fastavro  # here, because drivers that read other formats start sooner without it

    parsed = fastavro.parse_schema(layout)

    def read(content: BytesIO) -> AvroRecord:
        record: AvroRecord = fastavro.schemaless_reader(content, parsed, None)  # type: ignore[assignment]
        return record

    for block in blocks:
        try:
            yield from _block_records(read, block)
        except _MISREAD as error:
            raise Damaged(f"the records of the block at byte {block.at} are damaged ({error})") from error


def _block_records(read: Callable[[BytesIO], AvroRecord], block: Block) -> Iterator[tuple[AvroRecord, int]]:
    content, end = BytesIO(block.content + _BEHIND), len(block.content)
    at = 0
    for _ in range(block.count):
        row = read(content)
        begin, at = at, content.tell()
        if at > end:
            raise Damaged("a record goes on behind its end")
        yield row, at - begin
    if at != end:
        raise Damaged("it holds more than it says")
