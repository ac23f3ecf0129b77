"""Data manifests as plain rows: as PyIceberg's own reader gives them, and as ours does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from unittest.mock import patch

from pyiceberg.avro import STRUCT_DOUBLE
from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import DoubleReader
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from skipstone.tables.decoding.entries import DataManifest
from skipstone.tables.decoding.manifests import ManifestCounters, read_data_manifests

Row = dict[str, Any]
_STATISTICS = {
    "column_sizes": "column_sizes",
    "value_counts": "value_counts",
    "null_counts": "null_value_counts",
    "nan_counts": "nan_value_counts",
    "lower": "lower_bounds",
    "upper": "upper_bounds",
}


def expected_rows(manifest: ManifestFile, io: FileIO) -> list[Row]:
    """Live entries by PyIceberg, which loses the last half of doubles if nobody tells it not to."""
    with patch.object(DoubleReader, "read", _double):
        return [_expected(entry) for entry in manifest.fetch_manifest_entry(io)]


def _double(_: DoubleReader, decoder: BinaryDecoder) -> float:
    return float(STRUCT_DOUBLE.unpack(decoder.read(8))[0])


def _expected(entry: ManifestEntry) -> Row:
    file = entry.data_file
    statistics = {name: _signed_pairs(getattr(file, theirs)) for name, theirs in _STATISTICS.items()}
    offsets = file.split_offsets
    return {
        "path": file.file_path,
        "size": file.file_size_in_bytes,
        "records": file.record_count,
        "segment": entry.file_sequence_number or 0,
        "added_snapshot_id": entry.snapshot_id,
        "data_sequence": entry.sequence_number or 0,
        "spec_id": file.spec_id,
        "partition": [repr(file.partition[position]) for position in range(len(file.partition))],
        "format": file.file_format.value,
        "sort_order_id": file.sort_order_id,
        "split_offsets": None if offsets is None else [_signed(offset) for offset in offsets],
        **statistics,
        "key_metadata": file.key_metadata,
    }


def _signed_pairs(found: Mapping[int, Any] | None) -> list[tuple[int, Any]]:
    return sorted((_signed(key), _signed(value)) for key, value in (found or {}).items())


def _signed(value: Any) -> Any:
    """PyIceberg 0.12 reads the numbers of lists and maps as unsigned."""
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value


def rows_of(decoded: DataManifest) -> list[Row]:
    """Live entries as we decode them."""
    decoded.entries.validate(full=True)
    rows: list[Row] = decoded.entries.to_pylist()
    for number, row in enumerate(rows):
        row["partition"] = [repr(value) for value in decoded.partition(number)]
        del row["first_row_id"]  # which PyIceberg does not give
        row |= {name: sorted(row[name]) for name in _STATISTICS}
    return rows


def assert_decoded_exactly(manifests: list[ManifestFile], io: FileIO, *, by_pyiceberg: int = 0) -> ManifestCounters:
    """Manifests that nobody read before are decoded to what PyIceberg reads; ``by_pyiceberg`` by its own reader."""
    decoded, counters = read_data_manifests(manifests, io)
    assert [rows_of(found) for found in decoded] == [expected_rows(manifest, io) for manifest in manifests]
    size = sum(manifest.manifest_length for manifest in manifests)
    assert counters == ManifestCounters(decoded=len(manifests), by_pyiceberg=by_pyiceberg, bytes_read=size)
    return counters
