"""Partitions by truncated decimals: a value whose truncation has more digits than its type has no partition."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import DecimalType, NestedField
from pyiceberg.utils.schema_conversion import AvroSchemaConversion
from skipstone.compat.avro.naming import read_named_types
from skipstone.files.partitions import split_by_partition
from skipstone.tables.decoding.manifests import live_entries, read_data_manifests
from skipstone_core.errors import BadData

from tests.unit.manifest_files import IO, data_file, local_path, recoded, written_manifest


def named_once(schema: str) -> str:
    """The Avro schema as Java writes it: a type that was defined before is its name."""
    seen: set[str] = set()

    def spell(node: Any) -> Any:
        if isinstance(node, list):
            return [spell(each) for each in node]
        if not isinstance(node, dict):
            return node
        if node.get("type") == "fixed" and node["name"] in seen:
            return node["name"]
        seen.update([node["name"]] if node.get("type") == "fixed" else [])
        return {key: spell(value) for key, value in node.items()}

    return json.dumps(spell(json.loads(schema)))


def test_partitions_by_two_decimals_of_one_type_are_read(tmp_path: Path) -> None:
    by_two = PartitionSpec(
        PartitionField(6, 1000, IdentityTransform(), "price"), PartitionField(6, 1001, TruncateTransform(50), "about")
    )
    partition = (Decimal("1.50"), Decimal("1.00"))
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=77, data_file=data_file(partition=partition)
    )
    manifest = recoded(written_manifest(tmp_path, [entry], spec=by_two, codec="null"), [1], spell=named_once)
    assert '"decimal_9_2"]' in local_path(manifest).read_bytes().decode(errors="ignore").replace(" ", "")
    (decoded,), counters = read_data_manifests([manifest], IO)
    assert decoded.partitions == (partition,)
    assert counters.by_pyiceberg == 0
    (read,) = live_entries(manifest, IO)
    assert tuple(read.data_file.partition[place] for place in range(2)) == partition


def test_pyiceberg_reads_them_in_a_process_that_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AvroSchemaConversion, "avro_to_iceberg", AvroSchemaConversion.avro_to_iceberg)
    by_two = PartitionSpec(
        PartitionField(6, 1000, IdentityTransform(), "price"), PartitionField(6, 1001, TruncateTransform(50), "about")
    )
    file = data_file(partition=(Decimal("1.50"), Decimal("1.00")))
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=77, data_file=file)
    manifest = recoded(written_manifest(tmp_path, [entry], spec=by_two, codec="null"), [1], spell=named_once)
    read_named_types()
    (read,) = manifest.fetch_manifest_entry(IO)
    assert read.data_file.partition[1] == Decimal("1.00")


def test_a_decimal_whose_truncation_has_too_many_digits_is_told() -> None:
    schema = Schema(NestedField(1, "price", DecimalType(9, 2)))
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(100), "about"))
    table = pa.table({"price": pa.array([Decimal("-9999999.99")], pa.decimal128(9, 2))})
    with pytest.raises(
        BadData, match=r"its 'about' \(truncate\[100\]\) is -10000000.00, which is beyond decimal\(9, 2\)"
    ):
        list(split_by_partition(table, spec, schema))
