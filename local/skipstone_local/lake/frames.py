"""Rows that a Python program holds, as a stream of Arrow's batches, and such a stream as a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from skipstone_core.errors import LakeError

#: Rows of a row group: tasks take row groups side by side.
GROUP_ROWS = 256 * 1024
COMPRESSION = "zstd"


def open_reader(source: Any) -> Any:
    """A pyarrow.RecordBatchReader of a source.

    It may be a Table, RecordBatch, RecordBatchReader or Dataset of Arrow, a frame of pandas or Polars, a relation of
    DuckDB, a Table or scan of PyIceberg, a list of dictionaries, or anything that exports Arrow's C stream. Raises
    LakeError.
    """
    import pyarrow as pa

    if isinstance(source, pa.RecordBatchReader):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source]).to_reader()
    try:
        for give in (_of_rows, _of_pandas, _of_iceberg, _of_methods, _of_stream):
            if (reader := give(source)) is not None:
                return reader
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise LakeError(
            "InvalidSpec",
            f"the source cannot be read as rows of Arrow: {' '.join(map(str, error.args))}",
            "give each column a name of its own and values of one type",
        ) from error
    raise LakeError(
        "InvalidSpec",
        f"an object of the type {type(source).__name__} is not a source of rows",
        "give paths of files, an Arrow table, a pandas or Polars frame, a DuckDB relation, a PyIceberg table or a list "
        "of dictionaries",
    )


def _of_rows(source: Any) -> Any:
    """Of a list of dictionaries, which may have different names: what a row lacks is null."""
    import pyarrow as pa

    if not isinstance(source, list) or not all(isinstance(row, dict) for row in source):
        return None
    names = dict.fromkeys(name for row in source for name in row)
    return pa.table({name: pa.array([row.get(name) for row in source]) for name in names}).to_reader()


def _of_pandas(source: Any) -> Any:
    """Of a frame of pandas; its index if that has a name."""
    import pyarrow as pa

    if type(source).__module__.partition(".")[0] != "pandas" or type(source).__name__ != "DataFrame":
        return None
    keep_index = any(name is not None for name in source.index.names)
    return pa.Table.from_pandas(source, preserve_index=keep_index).to_reader()


def _of_iceberg(source: Any) -> Any:
    """Of a Table of PyIceberg, or of a scan of one."""
    if hasattr(source, "metadata_location") and callable(getattr(source, "scan", None)):
        source = source.scan()
    return source.to_arrow_batch_reader() if hasattr(source, "to_arrow_batch_reader") else None


def _of_methods(source: Any) -> Any:
    """Of what gives a reader by a method: relations of DuckDB, Datasets and Tables of Arrow."""
    for name in ("to_arrow_reader", "fetch_arrow_reader", "to_reader"):
        if callable(getattr(source, name, None)):
            return getattr(source, name)()
    return source.scanner().to_reader() if callable(getattr(source, "scanner", None)) else None


def _of_stream(source: Any) -> Any:
    import pyarrow as pa

    return pa.RecordBatchReader.from_stream(source) if hasattr(source, "__arrow_c_stream__") else None


def write_parquet(source: Any, path: Path) -> None:
    """Write all rows of a source to a file. Raises LakeError and OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader = open_reader(source)
    # Iceberg has no floats of 16 bits; those of 32 hold all of them.
    half = (field.with_type(pa.float32()) if pa.types.is_float16(field.type) else field for field in reader.schema)
    schema = pa.schema(half)
    try:
        with pq.ParquetWriter(
            path, schema, compression=COMPRESSION, store_schema=False, coerce_timestamps="us"
        ) as writer:
            for table in (group.cast(schema) for group in _groups(reader)):
                # A little more than a group is one, and no group of a few rows behind it.
                size = table.num_rows if table.num_rows < 2 * GROUP_ROWS else GROUP_ROWS
                writer.write_table(table, row_group_size=size)
    except pa.ArrowException as error:
        raise LakeError(
            "InvalidSpec",
            f"the source cannot be written as Parquet: {error}",
            "cast its columns to types of Iceberg; times have microseconds",
        ) from error


def _groups(reader: Any) -> Any:
    """Tables of at least GROUP_ROWS rows each, but for the last."""
    import pyarrow as pa

    batches, rows = [], 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        if rows >= GROUP_ROWS:
            yield pa.Table.from_batches(batches, schema=reader.schema)
            batches, rows = [], 0
    if batches:
        yield pa.Table.from_batches(batches, schema=reader.schema)
