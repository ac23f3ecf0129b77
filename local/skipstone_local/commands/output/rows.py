"""Rows of Arrow as text for a terminal, as JSON with one object per line, as CSV and as Parquet.

Times are in ISO 8601, bytes in Base64. Decimals are JSON texts, as are NaN and infinities, which are not JSON numbers.
In CSV, null is an empty field and an empty text is in quotes; lists, maps and structs are JSON.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from skipstone_cli.errors import CliError
from skipstone_cli.escaping import clean_line
from skipstone_cli.output.screen import Screen

from skipstone_local.commands.output.columns import Columns
from skipstone_local.lake.frames import write_parquet

TABLE_FORMAT, JSON, CSV, PARQUET = "table", "json", "csv", "parquet"
FORMATS = (TABLE_FORMAT, JSON, CSV, PARQUET)
_ENDINGS = {
    ".json": JSON, ".jsonl": JSON, ".ndjson": JSON, ".csv": CSV, ".parquet": PARQUET, ".pq": PARQUET,
    ".txt": TABLE_FORMAT,
}  # fmt: skip
#: Rows by which the widths of columns are chosen; later rows with longer cells move theirs.
_WIDTH_ROWS = 1000
_MINIMUM, _PADDING = 6, 3
_NULL = "null"
#: Metadata of the field of a column that holds a type of Iceberg which Arrow has no own one for.
TYPE_KEY, UUID_TYPE = b"iceberg.type", b"uuid"


@dataclass(frozen=True)
class Rows:
    """Batches of rows with one schema, of PyArrow."""

    schema: Any
    batches: Iterator[Any]


def format_of(file: str) -> str:
    """The format that the name of a file shows; empty if it shows none."""
    return _ENDINGS.get(Path(file).suffix.lower(), "")


def print_rows(rows: Rows, screen: Screen, chosen: str) -> None:
    """Print rows to standard output, batch by batch."""
    if chosen != CSV:
        for line in _lines(rows, chosen):
            screen.write(f"{line}\n")
    elif sys.stdout.isatty():
        for text in _csv_texts(rows):
            screen.write(text.decode())
    else:
        sys.stdout.buffer.writelines(_csv_texts(rows))
        sys.stdout.buffer.flush()


def write_rows(rows: Rows, file: str, chosen: str) -> None:
    """Write rows to a file, which is there when it is whole only. Raises CliError."""
    path = Path(file)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _write(rows, unfinished, chosen)
        unfinished.replace(path)
    except OSError as error:
        raise CliError(f"{file} cannot be written ({error.strerror or error}): name another file") from error
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)


def _write(rows: Rows, path: Path, chosen: str) -> None:
    if chosen == PARQUET:
        import pyarrow as pa

        write_parquet(pa.RecordBatchReader.from_batches(rows.schema, rows.batches), path)
        return
    with path.open("wb") as out:
        out.writelines(_csv_texts(rows) if chosen == CSV else (f"{line}\n".encode() for line in _lines(rows, chosen)))


def _lines(rows: Rows, chosen: str) -> Iterator[str]:
    return _json_lines(rows) if chosen == JSON else _table_lines(rows)


def _json_lines(rows: Rows) -> Iterator[str]:
    for values in _plain_rows(rows):
        # The only control character that JSON leaves as it is.
        yield json.dumps(dict(zip(rows.schema.names, values, strict=True))).replace("\x7f", "\\u007f")


def _table_lines(rows: Rows) -> Iterator[str]:
    cells = ([clean_line(_text(value)) for value in values] for values in _plain_rows(rows))
    header = [clean_line(name.upper()) for name in rows.schema.names]
    first = [header, *itertools.islice(cells, _WIDTH_ROWS)]
    yield from (line.rstrip() for line in Columns(_MINIMUM, _PADDING).set(first))
    widths = [max(_MINIMUM, max(map(len, column)) + _PADDING) for column in zip(*first, strict=True)]
    for others in cells:
        yield "".join(cell.ljust(width) for cell, width in zip(others, widths, strict=True)).rstrip()


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _csv_texts(rows: Rows) -> Iterator[bytes]:
    import pyarrow as pa
    from pyarrow import csv

    schema = pa.schema([pa.field(field.name, _csv_type(field.type)) for field in rows.schema])
    empty = pa.RecordBatch.from_pylist([], schema)
    for number, batch in enumerate(itertools.chain([empty], rows.batches)):
        text = io.BytesIO()
        columns = zip(batch.columns, rows.schema, schema, strict=True)
        arrays = [column if column.type == to.type else _csv_texts_of(column, field) for column, field, to in columns]
        written = pa.RecordBatch.from_arrays(arrays, schema=schema)
        csv.write_csv(written, text, csv.WriteOptions(include_header=number == 0))
        yield text.getvalue()


def _csv_type(kind: Any) -> Any:
    """The type that a column is written as: numbers and truth values as they are, all else as text."""
    import pyarrow as pa

    is_plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return kind if is_plain else pa.string()


def _csv_texts_of(column: Any, field: Any) -> Any:
    import pyarrow as pa

    return pa.array([None if value is None else _text(value) for value in _plain_values(column, field)], pa.string())


# --- values as JSON has them ---


def _plain_rows(rows: Rows) -> Iterator[tuple[Any, ...]]:
    for batch in rows.batches:
        columns = [_plain_values(column, field) for column, field in zip(batch.columns, rows.schema, strict=True)]
        yield from zip(*columns, strict=True)


def _plain_values(column: Any, field: Any) -> list[Any]:
    import pyarrow as pa

    if (field.metadata or {}).get(TYPE_KEY) == UUID_TYPE:
        return [None if value is None else str(UUID(bytes=value)) for value in column.to_pylist()]
    if pa.types.is_nested(column.type) or pa.types.is_temporal(column.type):
        return [_of_scalar(scalar) for scalar in column]
    return [_plain(value) for value in column.to_pylist()]


def _of_scalar(scalar: Any) -> Any:
    import pyarrow as pa

    if not scalar.is_valid:
        return None
    if pa.types.is_struct(scalar.type):
        return {name: _of_scalar(value) for name, value in scalar.items()}
    if pa.types.is_map(scalar.type):
        return {_text(_of_scalar(entry["key"])): _of_scalar(entry["value"]) for entry in scalar.values}
    if pa.types.is_nested(scalar.type):
        return [_of_scalar(element) for element in scalar.values]
    if pa.types.is_temporal(scalar.type):
        # Python's times end with the year 9999 and have no nanoseconds.
        return scalar.cast(pa.string()).as_py().replace(" ", "T", 1)
    return _plain(scalar.as_py())


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value
