"""Manifests with any entries, written by PyIceberg's own writer. Used by the tests of decoding and of kept decodes."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader, construct_writer
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriter,
    write_manifest,
)
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

IO = PyArrowFileIO()
LONGS = st.integers(-(2**63), 2**63 - 1)
INTS = st.integers(-(2**31), 2**31 - 1)
#: Partition types with the values that PyIceberg holds for them.
PARTITION_TYPES: list[tuple[PrimitiveType, st.SearchStrategy[Any]]] = [
    (BooleanType(), st.booleans()),
    (IntegerType(), INTS),
    (LongType(), LONGS),
    (FloatType(), st.floats(width=32)),
    (DoubleType(), st.floats() | st.sampled_from([0.0, -0.0])),
    (DecimalType(9, 2), st.decimals(-9999999, 9999999, places=2)),
    (DecimalType(38, 10), st.decimals(Decimal(-(10**27)), Decimal(10**27), places=10)),
    (DateType(), INTS),
    (TimeType(), st.integers(0, 86_399_999_999)),
    (TimestampType(), LONGS),
    (TimestamptzType(), LONGS),
    (StringType(), st.text()),
    (BinaryType(), st.binary()),
    (FixedType(3), st.binary(min_size=3, max_size=3)),
    (UUIDType(), st.uuids()),
]
SCHEMA = Schema(*(NestedField(number, f"c{number}", kind) for number, (kind, _) in enumerate(PARTITION_TYPES, 1)))
BY_EVERYTHING = PartitionSpec(
    *(
        PartitionField(number, 1000 + number, IdentityTransform(), f"p{number}")
        for number in range(1, len(PARTITION_TYPES) + 1)
    ),
    PartitionField(2, 2000, BucketTransform(4), "bucket"),
    spec_id=3,
)
NO_PARTITION = st.just(())
PARTITIONS = st.tuples(*(st.none() | values for _, values in PARTITION_TYPES), st.none() | st.integers(0, 3))
UNPARTITIONED = PartitionSpec()
_NUMBERS = itertools.count()


def data_file(path: str = "file:/x.parquet", partition: Sequence[Any] = (), **fields: Any) -> DataFile:
    """A data file without statistics, but for ``fields``."""
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=fields.pop("file_format", FileFormat.PARQUET),
        partition=Record(*partition),
        record_count=fields.pop("record_count", 1),
        file_size_in_bytes=fields.pop("file_size_in_bytes", 2),
        **fields,
    )


_COUNTS = st.none() | st.dictionaries(INTS | st.integers(1, 20), LONGS, max_size=20)
_BOUNDS = st.none() | st.dictionaries(INTS | st.integers(1, 20), st.binary(max_size=40), max_size=20)
_STATISTICS = {
    "file_format": st.sampled_from([FileFormat.PARQUET] * 8 + [FileFormat.ORC, FileFormat.AVRO]),
    "record_count": LONGS,
    "file_size_in_bytes": LONGS,
    "column_sizes": _COUNTS,
    "value_counts": _COUNTS,
    "null_value_counts": _COUNTS,
    "nan_value_counts": _COUNTS,
    "lower_bounds": _BOUNDS,
    "upper_bounds": _BOUNDS,
    "key_metadata": st.none() | st.binary(max_size=20),
    "split_offsets": st.none() | st.lists(LONGS, max_size=200),
    "equality_ids": st.none() | st.lists(INTS, max_size=5),
    "sort_order_id": st.none() | INTS,
}


@st.composite
def entries(draw: st.DrawFn, partitions: st.SearchStrategy[Sequence[Any]] = NO_PARTITION) -> ManifestEntry:
    """Any entry that a v2 manifest may hold."""
    status = draw(st.sampled_from(ManifestEntryStatus))
    inherits = status is ManifestEntryStatus.ADDED and draw(st.booleans())
    path = draw(st.text() | st.text().map(lambda name: f"{name}.parquet"))
    file = data_file(path, draw(partitions), **{name: draw(values) for name, values in _STATISTICS.items()})
    return ManifestEntry.from_args(
        status=status,
        snapshot_id=None if inherits else draw(LONGS),
        sequence_number=None if inherits else draw(st.integers(0, 2**40)),
        file_sequence_number=None if inherits else draw(st.integers(0, 2**40)),
        data_file=file,
    )


def written_manifest(
    folder: Path,
    found: Sequence[ManifestEntry],
    *,
    spec: PartitionSpec = UNPARTITIONED,
    version: int = 2,
    codec: str = "gzip",
    writer: type[ManifestWriter] | None = None,
) -> ManifestFile:
    """A manifest with the entries ``found`` as a manifest list would name it."""
    output = IO.new_output(f"file://{folder}/{next(_NUMBERS)}.avro")
    made = (
        writer(spec, SCHEMA, output, 77, codec)  # type: ignore[arg-type]
        if writer
        else write_manifest(version, spec, SCHEMA, output, 77, codec)  # type: ignore[arg-type]
    )
    with made as manifest:
        for entry in found:
            manifest.add_entry(entry)
    path = local_path(made.to_manifest_file())
    return at(path, spec_id=spec.spec_id, sequence_number=0 if version == 1 else 9)


def at(path: Path, *, spec_id: int = 0, sequence_number: int = 9, added: int | None = None) -> ManifestFile:
    """A manifest list's line for the file ``path``, which may tell how many entries were ``added``."""
    return ManifestFile.from_args(
        manifest_path=f"file://{path}",
        manifest_length=path.stat().st_size,
        partition_spec_id=spec_id,
        content=ManifestContent.DATA,
        sequence_number=sequence_number,
        min_sequence_number=0,
        added_snapshot_id=77,
        added_files_count=added,
    )


def local_path(manifest: ManifestFile) -> Path:
    """The file of ``manifest``."""
    return Path(manifest.manifest_path.removeprefix("file://"))


def recoded(manifest: ManifestFile, sizes: Sequence[int], codec: str = "null", **coders: Any) -> ManifestFile:
    """The same records in blocks of ``sizes`` records each, as other writers make them; the rest in one more.

    ``coders``: ``compress`` codes a block, ``spell`` the schema.
    """
    raw = local_path(manifest).read_bytes()
    decoder = new_decoder(raw)
    header = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    assert header.meta["avro.codec"] == "null"
    records = []
    while decoder.tell() < len(raw):
        assert decoder.read_int() == 1
        records.append(decoder.read_bytes())
        decoder.read(16)
    path = local_path(manifest).with_suffix(f".{uuid.uuid4().hex}.avro")
    with path.open("wb") as file:
        encoder = BinaryEncoder(file)
        header.meta["avro.codec"] = codec
        header.meta["avro.schema"] = coders.get("spell", str)(header.meta["avro.schema"])
        construct_writer(META_SCHEMA).write(encoder, header)
        for block in _blocks(records, sizes):
            content = coders.get("compress", bytes)(b"".join(block))
            encoder.write_int(len(block))
            encoder.write_int(len(content))
            encoder.write(content + header.sync)
    return at(path, spec_id=manifest.partition_spec_id, sequence_number=manifest.sequence_number)


def _blocks(records: list[bytes], sizes: Sequence[int]) -> list[list[bytes]]:
    blocks = []
    for size in sizes:
        blocks.append(records[:size])
        records = records[size:]
    return [block for block in (*blocks, records) if block]
