"""Messages of a feed as text, by their lines: what people read of a change that was left out.

Called once it is known which changes these are, so that no other message is ever kept.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping

from skipstone_core.contract.formats import SourceFormat

from skipstone.sources.feeds.batches import BATCH_ROWS
from skipstone.sources.feeds.csvrows import csv_texts
from skipstone.sources.feeds.kafka.avro import avro_messages
from skipstone.sources.feeds.shapes import FeedTarget, Raw
from skipstone.sources.rejects import RejectPart
from skipstone.sources.text.headers import open_binary
from skipstone.storage.port import READ_AHEAD, StoredFile
from skipstone.tables.parquetfiles import WholeFile


def keep_records(stored: StoredFile, target: FeedTarget, reasons: Mapping[int, str], part: RejectPart) -> None:
    """Write the messages of a file whose lines ``reasons`` names, in their order. Raises OSError, BadData."""
    for line, text in _records(stored, target, reasons.keys()):
        part.write({"file": stored.name, "line": line, "reason": reasons[line], "record": text})


def _records(stored: StoredFile, target: FeedTarget, lines: Collection[int]) -> Iterator[tuple[int, str]]:
    match target.format:
        case SourceFormat.CSV:
            return csv_texts(stored, target, lines)
        case SourceFormat.AVRO:
            messages = ((line, message) for line, (message, _) in enumerate(avro_messages(stored), 1))
            return ((line, _json(message)) for line, message in messages if line in lines)
        case SourceFormat.PARQUET:
            return ((line, _json(row)) for line, row in _parquet_rows(stored, lines))
    return _lines(stored, lines)


def _parquet_rows(stored: StoredFile, lines: Collection[int]) -> Iterator[tuple[int, dict[str, object]]]:
    """The rows of a Parquet file with these numbers, from 1. Raises OSError."""
    line = 1
    with stored.open(buffering=0) as opened:
        file = WholeFile(opened, coerce_int96_timestamp_unit="us")
        for batch in file.batches(list(dict.fromkeys(file.schema_arrow.names)), rows=BATCH_ROWS):
            for at in range(batch.num_rows):
                if line + at in lines:
                    yield line + at, batch.slice(at, 1).to_pylist()[0]
            line += batch.num_rows


def _lines(stored: StoredFile, lines: Collection[int]) -> Iterator[tuple[int, str]]:
    last = max(lines)
    with open_binary(stored, READ_AHEAD) as binary:
        for number, line in enumerate(binary, 1):
            if number in lines:
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8", "replace").rstrip("\r\n")
            if number >= last:
                return


def _json(message: Raw) -> str:
    return json.dumps(message, ensure_ascii=False, default=_text)


def _text(value: Raw) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
