"""A REST catalog vends the credentials of its tables: they reach the tasks, end in the middle, and are never shown."""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
import skipstone
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.causes import find_cause
from skipstone.query import read
from skipstone.query.pinned import pin_source
from skipstone.runs.load import run_load
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.scrubbing import ScrubbingFormatter
from skipstone.tables.storage import DurableFileIO, file_access
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    JobRequest,
    LoadTask,
    ReindexTask,
    RunKind,
    SourceFormat,
    SourceSpec,
    WarehouseRef,
)
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

from tests.s3client import S3Client
from tests.s3proxy import Proxy, Seen, s3_proxy
from tests.s3server import OWNER, REGION
from tests.spark.index_bed import index_on
from tests.spark.lake import append
from tests.spark.merge_bed import ALL_IN_SPARK, task_of
from tests.spark.postgres import Server
from tests.spark.s3_bed import NOTHING_HERE, S3Bed, rows
from tests.spark.vendingserver import CANARY, Vendor, vending_catalog
from tests.storages import credentials, s3_ref

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
AB = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]
CHANGED = [AB[0], {"id": 2, "name": "B"}, {"id": 3, "name": "c"}]
BY_ID = index_on("id")
LOAD = SourceSpec(format=SourceFormat.PARQUET, paths=("in",))


@dataclass
class VendingBed(S3Bed):
    """A Warehouse in a bucket behind ``proxy``; the catalog at ``vendor`` vends what tables need."""

    vendor: Vendor | None = None

    @property
    def warehouse(self) -> WarehouseRef:
        """As requests carry it."""
        assert self.vendor is not None
        catalog = CatalogRef(type=CatalogType.REST, uri=self.vendor.address)
        return WarehouseRef(name="wh", catalog=catalog, s3=s3_ref(self.bucket))


@pytest.fixture
def proxy(bucket: S3Client) -> Iterator[Proxy]:
    with s3_proxy(bucket.endpoint) as found, credentials(OWNER):
        yield found


@pytest.fixture
def bed(bucket: S3Client, proxy: Proxy) -> Iterator[VendingBed]:
    """A table of two rows; the proxy has seen nothing of how it was made."""
    behind = replace(bucket, endpoint=proxy.endpoint)
    with vending_catalog(bucket) as vendor:
        made = VendingBed(behind, Server(0, Path()), vendor=vendor)
        made.create(SCHEMA)
        made.put("in/a.parquet", pa.Table.from_pylist(AB))
        made.put("changes/c.parquet", pa.Table.from_pylist(CHANGED[1:]))
        proxy.forget()
        yield made


def vendor_of(bed: VendingBed) -> Vendor:
    assert bed.vendor is not None
    return bed.vendor


class Ending(Reporter):
    """All credentials that were given end when a stage begins; a load told its tasks a moment before they begin."""

    def end_by(self, proxy: Proxy, vendor: Vendor) -> Ending:
        """Of whom."""
        self.proxy, self.vendor = proxy, vendor
        return self

    def stage(self, name: str) -> Any:
        """As runs say."""
        if name not in ("session", "write"):
            with self.vendor.lock:
                self.proxy.ended_keys.update(self.vendor.given)
        return super().stage(name)


def load_request(bed: VendingBed, uid: str = "", attempt: int = 1) -> JobRequest:
    return bed.request(RunKind.LOAD, uid, attempt, load=LoadTask(source=LOAD))


def is_data(seen: Seen) -> bool:
    return "tables/" in unquote(seen.path)


@pytest.mark.parametrize("in_list", [False, True], ids=["in the configuration", "in the list"])
def test_files_of_tables_are_reached_by_what_the_catalog_vends(bed: VendingBed, proxy: Proxy, in_list: bool) -> None:
    vendor_of(bed).in_list = in_list
    assert bed.load(LOAD).outcome is RunOutcome.COMMITTED
    assert bed.merge(task_of("changes")).outcome is RunOutcome.COMMITTED
    assert bed.rows() == rows(CHANGED)
    assert vendor_of(bed).delegations == {"vended-credentials"}
    others = [one for one in proxy.seen if is_data(one) != one.key.startswith(CANARY)]
    assert others == []


def test_the_data_source_takes_what_the_catalog_vends_when_it_plans(bed: VendingBed, proxy: Proxy) -> None:
    """The table is read as it was at the call of load, whose own credentials have ended."""
    bed.load(LOAD)
    place = {"catalog.s3.endpoint": proxy.endpoint, "catalog.s3.region": REGION}
    rest = {"catalog": "lake", "catalog.type": "rest", "catalog.uri": vendor_of(bed).address}
    pinned = pin_source({"path": f"{bed.namespace}.t", **rest, **place})
    assert read(pinned.table()).num_rows == len(AB)
    bed.merge(task_of("changes"))
    proxy.forget()
    proxy.ended_keys.update(vendor_of(bed).given)
    assert rows(read(pickle.loads(pickle.dumps(pinned)).table())) == rows(AB)
    assert {one.key.startswith(CANARY) for one in proxy.seen} == {True}


def test_sql_reads_through_indexes_by_what_the_catalog_vends(
    bed: VendingBed, proxy: Proxy, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the list of credentials, which Java keeps apart from properties; nobody has other keys."""
    for segment in range(3):
        ids = range(segment, 300, 3)
        append(
            bed.table(), pa.table({"id": ids, "name": [f"n{n}" for n in ids]}, schema=bed.table().schema().as_arrow())
        )
    request = bed.request(RunKind.REINDEX, indexes=(BY_ID,), reindex=ReindexTask(index=BY_ID))
    assert run_reindex(request, Reporter(request)).outcome is RunOutcome.COMMITTED
    vendor_of(bed).in_list = True
    opened = spark.newSession()
    for name, value in {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "rest",
        ".uri": vendor_of(bed).address,
        ".rest-metrics-reporting-enabled": "false",
        ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        ".http-client.type": "urlconnection",
        ".s3.endpoint": proxy.endpoint,
        ".s3.path-style-access": "true",
        ".client.region": REGION,
    }.items():
        opened.conf.set(f"spark.sql.catalog.skipstone{name}", value)
    with monkeypatch.context() as patch:
        patch.delenv("AWS_ACCESS_KEY_ID")
        patch.delenv("AWS_SECRET_ACCESS_KEY")
        found = skipstone.sql(opened, f"select * from skipstone.{bed.namespace}.t where id = 42")
        (relation,) = skipstone.explain(found).relations
    assert relation.is_rewritten, relation
    assert rows(found.toArrow()) == rows([{"id": 42, "name": "n42"}])


@pytest.mark.parametrize("work", ["load", "merge"])
@pytest.mark.parametrize("place", ["driver", "spark"])
def test_credentials_that_end_between_stages_are_renewed(
    bed: VendingBed, proxy: Proxy, spark: SparkSession, work: str, place: str
) -> None:
    """The catalog says that they end at once, and they do when the next stage begins."""
    vendor_of(bed).seconds = 0
    if work == "merge":
        bed.load(LOAD)
    limits = {} if place == "driver" else {"load": NOTHING_HERE, "merge": ALL_IN_SPARK}
    request = load_request(bed) if work == "load" else bed.request(RunKind.MERGE, merge=task_of("changes"))
    reporter = Ending(request).end_by(proxy, vendor_of(bed))
    given = [limits[work]] if work in limits else []
    report = (run_load if work == "load" else run_merge)(request, reporter, None, *given)  # type: ignore[operator]
    assert report.outcome is RunOutcome.COMMITTED, report
    assert bed.rows() == rows(AB if work == "load" else CHANGED)
    assert len(proxy.ended_keys) > 0


@pytest.mark.parametrize("work", ["load", "merge"])
def test_a_task_that_meets_ended_credentials_is_told_and_the_next_attempt_takes_others(
    bed: VendingBed, proxy: Proxy, spark: SparkSession, work: str
) -> None:
    if work == "merge":
        bed.load(LOAD)
        bed.limits = ALL_IN_SPARK
    proxy.ends_with = lambda seen: not proxy.ended_keys and seen.kind == "PUT" and "/t/data/" in seen.path
    uid = "55555555-0000-0000-0000-000000000000"

    def attempt(number: int) -> JobReport:
        if work == "merge":
            return bed.merge(task_of("changes"), uid, number)
        request = load_request(bed, uid, number)
        return run_load(request, Reporter(request), None, NOTHING_HERE)

    with pytest.raises(Exception) as caught:
        attempt(1)
    cause = find_cause(caught.value)
    assert cause is not None
    assert cause.reason is Reason.CREDENTIALS_EXPIRED
    assert "the credentials expired" in cause.message
    assert len(proxy.ended_keys) == 1
    assert attempt(2).outcome is RunOutcome.COMMITTED
    assert bed.rows() == rows(AB if work == "load" else CHANGED)


def test_credentials_are_asked_for_again_when_half_of_their_time_is_over(
    bed: VendingBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    for seconds, half in ((3600.0, 1800), (None, 300)):
        vendor_of(bed).seconds = seconds
        table = bed.table()
        given = len(vendor_of(bed).given)
        now += half - 1
        assert dict(file_access(table).properties or ())["s3.access-key-id"] == vendor_of(bed).given[given - 1]
        now += 2
        assert dict(file_access(table).properties or ())["s3.access-key-id"] == vendor_of(bed).given[-1]
        assert len(vendor_of(bed).given) == given + 1
        copy = pickle.loads(pickle.dumps(table.io))
        assert isinstance(copy, DurableFileIO) and copy.vending is None


class AwayAtHalfTime(Reporter):
    """When files are written, half of the time of all credentials is over, and the catalog is away until the commit."""

    def meet(self, vendor: Vendor, monkeypatch: pytest.MonkeyPatch) -> AwayAtHalfTime:
        """Whose catalog, and what sets the clock."""
        self.vendor, self.monkeypatch = vendor, monkeypatch
        return self

    def stage(self, name: str) -> Any:
        """As runs say."""
        self.vendor.is_away = name == "rewrite"
        if self.vendor.is_away:
            later = time.time() + 1801
            self.monkeypatch.setattr("time.time", lambda: later)
        return super().stage(name)


def test_a_run_goes_on_while_the_catalog_is_away_and_its_credentials_are_good(
    bed: VendingBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    bed.load(LOAD)
    request = bed.request(RunKind.MERGE, merge=task_of("changes"))
    report = run_merge(request, AwayAtHalfTime(request).meet(vendor_of(bed), monkeypatch))
    assert report.outcome is RunOutcome.COMMITTED, report
    assert vendor_of(bed).refused > 0
    assert bed.rows() == rows(CHANGED)


@pytest.mark.parametrize("seconds", [3600.0, None], ids=["of known end", "of unknown end"])
def test_credentials_are_used_as_long_as_they_are_good_while_the_catalog_is_away(
    bed: VendingBed, monkeypatch: pytest.MonkeyPatch, seconds: float | None
) -> None:
    now = 1_000_000.0
    monkeypatch.setattr("time.time", lambda: now)
    vendor = vendor_of(bed)
    vendor.seconds = seconds
    table = bed.table()
    first = vendor.given[-1]

    def used() -> str:
        return dict(file_access(table).properties or ())["s3.access-key-id"]

    vendor.is_away = True
    now += 1801
    assert (used(), used(), vendor.refused) == (first, first, 1)
    now += 31
    assert (used(), vendor.refused) == (first, 2)
    vendor.is_away = False
    now += 31
    second = used()
    assert (second != first, vendor.given[-1]) == (True, second)
    vendor.is_away = True
    now += 3601
    if seconds is None:
        assert used() == second
    else:
        with pytest.raises(DependencyUnavailable, match="did not answer"):
            used()


def test_no_vended_credentials_are_shown(
    bed: VendingBed, proxy: Proxy, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    handler = logging.StreamHandler()
    monkeypatch.setattr(handler, "emit", lambda record: lines.append(handler.format(record)))
    handler.setFormatter(ScrubbingFormatter("%(message)s"))
    logging.getLogger().addHandler(handler)
    try:
        told = vendor_of(bed).given
        request = load_request(bed)
        report = run_load(request, Reporter(request), None, NOTHING_HERE)
        proxy.ends_with = is_data
        with pytest.raises(Exception) as caught:
            bed.merge(task_of("changes"))
        logging.getLogger("skipstone").error("failed with %s", told[-1], exc_info=caught.value)
    finally:
        logging.getLogger().removeHandler(handler)
    conf = str(spark.sparkContext.getConf().getAll())
    table = bed.table()
    shown = [
        report.to_json(),
        request.to_json(),
        conf,
        str(caught.value),
        repr(table),
        repr(file_access(table)),
        *lines,
    ]
    assert len(lines) > 0
    assert [text for text in shown if CANARY in text] == []
