"""Reads columns of an Avro file by field id into memory: those of a delete file.

Used by the deletes of a data file. Must not know what is deleted.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import cast

import pyarrow as pa
from pyiceberg.io import InputStream
from pyiceberg.types import IcebergType

from skipstone.files.avro.containers import BlockReader, Damaged
from skipstone.files.avro.fields import UnfitField, avro_fields
from skipstone.files.avro.records import avro_records
from skipstone.tables.arrow import arrow_type_of
from skipstone.tables.parquetfiles import DamagedFileError


def read_avro_columns(source: InputStream, kinds: Mapping[int, IcebergType]) -> pa.Table:
    """The columns of ``kinds``, types by field id, in that order, all rows. Raises DamagedFileError."""
    try:
        container = BlockReader(io.BufferedReader(cast(io.RawIOBase, source)))
        fields = avro_fields(container.schema, None)
        converts = [(fields.top[number].name, fields.convert(number, kind)) for number, kind in kinds.items()]
        rows = [row for row, _ in avro_records(fields.layout, container.blocks())]
        columns = [
            pa.array([convert(row[name]) for row in rows], arrow_type_of(kind))
            for (name, convert), kind in zip(converts, kinds.values(), strict=True)
        ]
    except MemoryError:
        raise
    except (Damaged, UnfitField, LookupError, pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise DamagedFileError(str(error)) from error
    return pa.Table.from_arrays(columns, [str(number) for number in kinds])
