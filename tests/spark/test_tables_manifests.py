"""Manifests that Spark and Iceberg wrote are decoded to what PyIceberg's own reader gives, without its help."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import ManifestContent, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import SparkSession
from skipstone.tables.decoding.avro import read_container
from skipstone.tables.filesets import read_file_set
from skipstone_core.contract.requests import WarehouseRef

from tests.manifest_rows import assert_decoded_exactly
from tests.spark.secondengine import second_spark

COLUMNS = """id bigint, flag boolean, small int, real float, number double, price decimal(9, 2),
    total decimal(38, 10), day date, seen timestamp_ntz, sent timestamp, name string, raw binary,
    tags array<string>, place struct<city: string, zip: int>, extra map<string, bigint>"""
ROWS = """select id, if(id % 7 = 3, null, id % 2 = 0), cast(-id as int),
    if(id % 5 = 0, float('NaN'), cast(id as float)), if(id % 11 = 0, -0.0D, id / 3),
    cast(id - 50 as decimal(9, 2)), cast(-id as decimal(38, 10)),
    if(id % 13 = 1, null, date_add(date '1965-01-01', cast(id * 30 as int))),
    cast(timestamp_seconds(id * 86400 - 100000000) as timestamp_ntz), timestamp_seconds(id * 3600),
    if(id % 9 = 0, null, concat('日本𝄞', id)), cast(cast(id as string) as binary),
    array('a', null), named_struct('city', concat('c', id), 'zip', cast(id as int)), map('k', id)
    from range({begin}, {end})"""
SPECS = {
    "unpartitioned": "",
    "bucket": "partitioned by (bucket(32, id))",
    "truncate": "partitioned by (truncate(4, name), truncate(10, price))",
    "time": "partitioned by (years(sent), months(day))",
    "values": "partitioned by (flag, total, real)",
}


class Bed:
    """One table that Spark writes."""

    def __init__(self, spark: SparkSession, warehouse: WarehouseRef, catalog: Catalog) -> None:
        """The table is not made yet."""
        self.spark, self.catalog = second_spark(spark, warehouse), catalog

    def create(self, partitioning: str = "", **properties: object) -> None:
        """Make the table ns.t."""
        properties |= {"write.distribution-mode": "none", "write.spark.fanout.enabled": "true"}
        given = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
        self.spark.sql(f"create table skipstone.ns.t ({COLUMNS}) using iceberg {partitioning} tblproperties ({given})")

    def insert(self, begin: int, end: int) -> None:
        """One commit of many files."""
        self.spark.sql(f"insert into skipstone.ns.t {ROWS.format(begin=begin, end=end)}")

    @property
    def table(self) -> Table:
        """The table as it is now."""
        return self.catalog.load_table("ns.t")

    def manifests(self) -> list[ManifestFile]:
        """The data manifests of the current snapshot."""
        snapshot = self.table.current_snapshot()
        assert snapshot
        return [found for found in snapshot.manifests(self.table.io) if found.content == ManifestContent.DATA]

    def containers(self) -> list[tuple[int, int]]:
        """Records and blocks of each data manifest."""
        found = [read_container(local(manifest).read_bytes()) for manifest in self.manifests()]
        return [(sum(each.counts), len(each.counts)) for each in found]

    def statuses(self) -> set[ManifestEntryStatus]:
        """Every kind of entry in the data manifests."""
        entries = (entry for found in self.manifests() for entry in found.fetch_manifest_entry(self.table.io, False))
        return {entry.status for entry in entries}


def local(manifest: ManifestFile) -> Path:
    """The file of ``manifest``."""
    return Path(manifest.manifest_path.removeprefix("file:"))


@pytest.fixture
def bed(spark: SparkSession, warehouse: WarehouseRef, catalog: Catalog) -> Bed:
    """No table yet."""
    return Bed(spark, warehouse, catalog)


@pytest.mark.parametrize("partitioning", SPECS.values(), ids=SPECS.keys())
def test_partitions_of_every_kind(bed: Bed, partitioning: str) -> None:
    bed.create(partitioning)
    bed.insert(0, 40)
    assert_decoded_exactly(bed.manifests(), bed.table.io)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_every_format_version_with_merged_manifests_and_deleted_files(bed: Bed, version: int) -> None:
    bed.create(
        SPECS["bucket"],
        **{"format-version": version, "commit.manifest.min-count-to-merge": 2, "write.delete.mode": "copy-on-write"},
    )
    bed.insert(0, 300)
    bed.insert(300, 400)
    bed.spark.sql("delete from skipstone.ns.t where id in (7, 350)")
    assert max(records / blocks for records, blocks in bed.containers()) > 2
    assert bed.statuses() == set(ManifestEntryStatus)
    assert_decoded_exactly(bed.manifests(), bed.table.io)


@pytest.mark.parametrize("version", [2, 3], ids=["position deletes", "deletion vectors"])
def test_data_files_under_deletes(bed: Bed, version: int) -> None:
    bed.create(**{"format-version": version, "write.delete.mode": "merge-on-read"})
    bed.insert(0, 50)
    bed.spark.sql("delete from skipstone.ns.t where id = 7")
    files = read_file_set(bed.table)
    assert len(files.delete_files) == 1
    assert (files.decode_counts.decoded, files.decode_counts.by_pyiceberg) == (1, 0)
    assert read_file_set(bed.table).decode_counts.from_memory == 1


def test_manifests_of_several_specs_and_schemas(bed: Bed) -> None:
    bed.create(SPECS["truncate"])
    bed.insert(0, 20)
    with bed.table.update_spec() as update:
        update.add_field("day", IdentityTransform(), "day")
    bed.insert(20, 40)
    bed.spark.sql("alter table skipstone.ns.t add column late double")
    bed.spark.sql("insert into skipstone.ns.t (id, late) values (99, double('NaN'))")
    assert len({manifest.partition_spec_id for manifest in bed.manifests()}) == 2
    assert_decoded_exactly(bed.manifests(), bed.table.io)


@pytest.mark.parametrize("mode", ["none", "counts", "truncate(1)", "full"])
def test_statistics_of_every_mode(bed: Bed, mode: str) -> None:
    bed.create(SPECS["bucket"], **{"write.metadata.metrics.default": mode})
    bed.insert(0, 40)
    assert_decoded_exactly(bed.manifests(), bed.table.io)


@pytest.mark.parametrize(
    ("codec", "spelled"),
    [("gzip", b"deflate"), ("zstd", b"zstandard"), ("uncompressed", b"null"), ("snappy", b"snappy")],
)
def test_codecs_that_iceberg_writes(bed: Bed, codec: str, spelled: bytes) -> None:
    """PyIceberg reads Snappy only with a package that we do not have; Spark tells what is in there."""
    bed.create(SPECS["bucket"], **{"write.manifest.compression-codec": codec})
    bed.insert(0, 40)
    (manifest,) = bed.manifests()
    assert b"avro.codec" + bytes([2 * len(spelled)]) + spelled in local(manifest).read_bytes()
    if codec == "snappy":
        found = read_file_set(bed.table)
        assert found.decode_counts.by_pyiceberg == 0
        rows = bed.spark.sql("select file_path, file_size_in_bytes, record_count from skipstone.ns.t.files").collect()
        named = found.files.select(["path", "size", "records"]).to_pylist()
        assert sorted(tuple(row) for row in rows) == sorted(tuple(row.values()) for row in named)
    else:
        assert_decoded_exactly([manifest], bed.table.io)
