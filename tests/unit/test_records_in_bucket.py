"""What a table remembers in files, in a bucket: archived transactions, and files that were consumed."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField
from skipstone.runs.check import check_storage
from skipstone.sources.listing import SourceListing, find_pin, list_arrivals, list_source, pinned_source
from skipstone.sources.listing import require_unchanged as require_same
from skipstone.sources.plain import NotPlainError, PlainLimits, find_plain
from skipstone.storage.buckets.objectfiles import TAIL_BYTES
from skipstone.storage.opening import open_storage, storage_of, storage_properties
from skipstone.tables.records.archive import TxnArchive
from skipstone.tables.records.ledger import ConsumedFiles, Consumption
from skipstone_core.contract.requests import CatalogRef, CatalogType, SourceFormat, SourceSpec, WarehouseRef
from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable
from skipstone_core.history.commits import TxnRecord
from skipstone_core.history.consumption import NAME_BYTES, consumed_property, entry
from skipstone_core.ids import ARCHIVE_PROPERTY
from skipstone_core.reasons import Reason

from tests.s3client import S3Client, values
from tests.s3server import OWNER
from tests.storages import PREFIX, credentials, s3_ref

SCHEMA = Schema(NestedField(1, "id", LongType()))


@dataclass(frozen=True)
class Lake:
    """A Warehouse in ``bucket``, with a table whose own files are on a volume."""

    warehouse: WarehouseRef
    bucket: S3Client
    catalog: SqlCatalog

    def table(self) -> Table:
        """As it is now."""
        return self.catalog.load_table("ns.t")

    def set(self, **properties: str) -> None:
        """Set properties of the table."""
        self.table().transaction().set_properties(properties).commit_transaction()

    def objects(self) -> list[str]:
        """The paths of all objects below the prefix."""
        found = values(self.bucket.send("GET", list_type="2"), "Key")
        return [key.removeprefix(f"{PREFIX}/") for key in found]

    def put(self, path: str, content: bytes = b"x") -> None:
        """An object below the prefix."""
        assert self.bucket.send("PUT", f"{PREFIX}/{path}", content).ok


@pytest.fixture
def lake(bucket: S3Client, tmp_path: Path) -> Iterator[Lake]:
    warehouse = WarehouseRef(name="w", catalog=CatalogRef(type=CatalogType.REST), s3=s3_ref(bucket))
    place = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    catalog = SqlCatalog("lake", **place, **storage_properties(warehouse))
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", SCHEMA)
    with credentials(OWNER):
        yield Lake(warehouse, bucket, catalog)
    catalog.close()


def remembered(count: int) -> dict[str, TxnRecord]:
    return {f"job-{n}": TxnRecord(time_ms=n, snapshot_id=n + 1, source_digest=f"digest-{n}") for n in range(count)}


def archived(lake: Lake) -> dict[str, TxnRecord]:
    """Two batches of records that the table has in its archive."""
    records = remembered(300)
    lake.set(**{ARCHIVE_PROPERTY: TxnArchive(lake.table()).extended(records, (7,))})
    more = {"later": TxnRecord(time_ms=9)}
    lake.set(**{ARCHIVE_PROPERTY: TxnArchive(lake.table()).extended(more, (8,))})
    return {**records, **more}


def test_archived_transactions_are_found(lake: Lake) -> None:
    records = archived(lake)
    archive = TxnArchive(lake.table())
    some = ["job-0", "job-150", "job-299", "later"]
    assert [archive.find(txn) for txn in some] == [records[txn] for txn in some]
    assert archive.find("none") is None
    assert list(archive.find_sources("digest-5")) == [("job-5", records["job-5"])]
    assert archive.partial_segments() == {7, 8}


@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_a_damaged_archive_stops_and_is_named_with_its_bucket(lake: Lake, damage: str) -> None:
    archived(lake)
    for key in lake.objects():
        if damage == "gone":
            assert lake.bucket.send("DELETE", f"{PREFIX}/{key}").ok
        else:
            content = lake.bucket.send("GET", f"{PREFIX}/{key}").content
            lake.put(key, content[:-1] if damage == "cut" else b"\0" * len(content))
    with pytest.raises(
        DependencyUnavailable, match=f"cannot be read at s3://{lake.bucket.bucket}/prod/lake/"
    ) as caught:
        TxnArchive(lake.table()).find("job-5")
    assert caught.value.reason is Reason.STORAGE_UNAVAILABLE


def taken(lake: Lake, *names: str) -> Consumption:
    memory = ConsumedFiles(warehouse=lake.warehouse, consumer="feeds")
    entries = [entry(name, 1, '"etag"', 5) for name in names]
    hashes = {one[:NAME_BYTES]: name for one, name in zip(entries, names, strict=True)}
    return Consumption(memory=memory, taken=hashes, entries=b"".join(entries))


def consume(lake: Lake, *names: str) -> None:
    """As a commit does that takes these files."""
    before = lake.table()
    lake.table().append(pa.table({"id": pa.array([1], pa.int64())}))
    snapshot = lake.table().current_snapshot()
    assert snapshot is not None
    lake.set(**taken(lake, *names).properties(before, snapshot.snapshot_id))


def test_consumed_files_are_remembered_and_a_lost_record_stops(lake: Lake) -> None:
    consume(lake, "a", "b")
    memory, table = ConsumedFiles(warehouse=lake.warehouse, consumer="feeds"), lake.table()
    head = memory.find_head(table)
    assert head is not None
    assert {name for name, _ in memory.entries(table, head)} == {*taken(lake, "a", "b").taken}
    conflict = taken(lake, "b", "c").find_conflict(table)
    assert conflict is not None and "'b' was consumed by another job" in conflict.message
    (key,) = lake.objects()
    assert key.endswith(f"/{head.digest}")
    assert hashlib.sha256(lake.bucket.send("GET", f"{PREFIX}/{key}").content).hexdigest() == head.digest
    assert lake.bucket.send("DELETE", f"{PREFIX}/{key}").ok
    with pytest.raises(DependencyUnavailable, match="restore it from a backup"):
        list(memory.entries(table, head))
    assert consumed_property("feeds") in table.properties


def listed(lake: Lake, *paths: str) -> SourceListing:
    return list_source(lake.warehouse, source(*paths))


def source(*paths: str) -> SourceSpec:
    return SourceSpec(format=SourceFormat.CSV, paths=paths)


def test_a_source_in_a_bucket_is_named_as_on_a_volume(lake: Lake) -> None:
    for path in ("in/b.csv", "in/a.csv", "in/_SUCCESS", "in/.part", "deep/x/c.csv", "one.csv"):
        lake.put(path)
    assert [file.path for file in listed(lake, "in", "one.csv", "deep/**/*.csv", "in/?.csv").files] == [
        "deep/x/c.csv",
        "in/a.csv",
        "in/b.csv",
        "one.csv",
    ]
    for path, kind, sentence in (
        ("nowhere", BadData, "names no file"),
        ("nowhere/*.csv", BadData, "names no file"),
        ("deep", BadSpec, "holds the folder 'x'"),
        ("in/_SUCCESS", BadSpec, "is hidden by its name"),
        ("../other", BadSpec, "leads out of the Warehouse"),
        (".skipstone/runs", BadSpec, "holds records of runs"),
    ):
        with pytest.raises(kind, match=sentence):
            listed(lake, path)


def test_what_has_yet_to_arrive_in_a_bucket_is_awaited(lake: Lake) -> None:
    lake.put("in/_SUCCESS")
    assert list_arrivals(lake.warehouse, source("in", "nowhere", "nowhere/*.csv", "in/*.csv")).files == ()
    lake.put("in/a.csv")
    assert [file.path for file in list_arrivals(lake.warehouse, source("in", "nowhere")).files] == ["in/a.csv"]


def test_a_pinned_source_in_a_bucket_stays_and_a_change_is_told(lake: Lake) -> None:
    lake.put("in/a.csv", b"old")
    pinned = pinned_source(lake.warehouse, source("in"), "uid")
    lake.put("in/b.csv")
    assert pinned_source(lake.warehouse, source("in"), "uid") == pinned == find_pin(lake.warehouse, "uid")
    require_same(pinned)
    lake.put("in/a.csv", b"new")
    with pytest.raises(BadData, match=r"'in/a\.csv' is not the file that this job began with") as caught:
        require_same(pinned)
    assert caught.value.reason is Reason.SOURCE_CHANGED


def test_the_check_passes_and_leaves_nothing(lake: Lake) -> None:
    check_storage(open_storage(lake.warehouse), "run-1")
    assert lake.objects() == []


def test_a_catalog_remembers_the_storage_of_its_warehouse(lake: Lake) -> None:
    assert storage_of(lake.table().catalog.properties) == open_storage(lake.warehouse)
    assert OWNER.secret not in str(lake.table().catalog.properties)


def test_plain_files_in_a_bucket_are_read_without_spark_and_by_their_version(lake: Lake) -> None:
    """One whose bytes are all remembered is read as it was; of a longer one nothing is read any more."""
    wanted = pa.schema([pa.field("id", pa.int64())])
    limits = PlainLimits(rows=1_000_000, unpacked_bytes=1 << 24)
    for count, is_remembered in ((100, True), (TAIL_BYTES // 4, False)):
        lake.put("in/a.parquet", numbers(range(count)))
        spec = SourceSpec(format=SourceFormat.PARQUET, paths=("in",))
        listing = list_source(lake.warehouse, spec)
        plain = find_plain(listing, spec, SCHEMA, limits)
        assert plain is not None
        rows = plain.rows(wanted)
        assert rows is not None
        assert rows.column("id").to_pylist() == list(range(count))
        lake.put("in/a.parquet", numbers(range(1, count + 1)))
        if is_remembered:
            assert plain.rows(wanted) == rows
        else:
            with pytest.raises(NotPlainError):
                plain.rows(wanted)
        with pytest.raises(BadData, match="is not the file that this job began with"):
            require_same(listing)


def numbers(values: range) -> bytes:
    """A Parquet file of them, as long as they are."""
    sink = io.BytesIO()
    table = pa.table({"id": pa.array(values, pa.int64())})
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    return sink.getvalue()
