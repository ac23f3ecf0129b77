"""Source tables of another Warehouse: its catalog and storage are reached with its own credentials, and named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from skipstone.runs.load import run_load
from skipstone.runs.reporting.report import Reporter
from skipstone.tables.catalogs import PASSWORD_VARIABLE, USER_VARIABLE
from skipstone_core.contract.reports import RunOutcome
from skipstone_core.contract.requests import (
    CatalogRef,
    CatalogType,
    ConsumePolicy,
    JobRequest,
    LoadTask,
    SourceFormat,
    SourceSpec,
    SourceTableRef,
    WarehouseRef,
)
from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable
from skipstone_core.ids import SOURCE_VARIABLES
from skipstone_core.reasons import Reason

from tests.s3client import Keys, S3Client
from tests.s3server import OWNER, STRANGER
from tests.spark.merge_bed import MergeBed, task_of
from tests.spark.postgres import PASSWORD, USER, Server, postgres
from tests.spark.s3_bed import S3Bed, pod
from tests.spark.table_bed import TableBed
from tests.spark.test_table_sources import UID, Killed, after_swap, before_swap
from tests.storages import credentials, s3_ref

NEW = ConsumePolicy.NEW
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[TableBed]:
    made = TableBed(tmp_path, elsewhere=True)
    yield made
    made.close()


def test_a_driver_that_dies_at_its_commit_loads_the_rows_once(bed: TableBed) -> None:
    bed.add({1: "mon", 2: "tue"})
    for number, death in enumerate((before_swap, after_swap)):
        uid = UID.replace("e", str(number))
        with pytest.raises(Killed):
            bed.load(bed.spec(NEW, where="id > 0"), uid, death())
        bed.add({10 + number: "wed"})
        bed.load(bed.spec(NEW, where="id > 0"), uid, attempt=2)
        assert bed.ids() == [[1, 2], [1, 2, 10]][number]
    assert bed.load(bed.spec(NEW, where="id > 0")).counts["rowsLoaded"] == 1
    assert bed.ids() == [1, 2, 10, 11]
    assert bed.left() == []


def test_a_merge_reads_it_and_changes_nothing_there(bed: TableBed) -> None:
    bed.append([{"id": 1, "v": "old", "day": "mon"}])
    bed.add({1: "mon", 2: "tue"})
    assert bed.elsewhere is not None
    there = {path: path.stat().st_mtime_ns for path in Path(bed.elsewhere.root).rglob("*")}
    counts = bed.merge(task_of("", source=bed.spec())).counts
    assert (counts["rowsUpdated"], counts["rowsInserted"]) == (1, 1)
    assert {path: path.stat().st_mtime_ns for path in Path(bed.elsewhere.root).rglob("*")} == there


def test_a_snapshot_that_expired_there_is_a_refusal(bed: TableBed) -> None:
    first = bed.add({1: "mon"})
    with pytest.raises(Killed):
        bed.load(bed.spec(), UID, before_swap())
    bed.add({2: "mon"})
    bed.src().maintenance.expire_snapshots().by_id(first).commit()
    with pytest.raises(BadData, match="expired meanwhile"):
        bed.load(bed.spec(), UID, attempt=2)
    assert bed.ids() == []


def test_what_is_wrong_there_names_that_warehouse(bed: TableBed) -> None:
    bed.theirs.rename_table("ns.src", "ns.renamed")
    with pytest.raises(BadSpec, match=r"spec.source.table: Warehouse 'erp': .* holds no table ns.src") as missing:
        bed.load(bed.spec())
    assert missing.value.reason is Reason.TABLE_MISSING
    bed.theirs.rename_table("ns.renamed", "ns.src")
    bed.load(bed.spec())
    assert bed.elsewhere is not None
    Path(bed.elsewhere.root, "catalog.db").unlink()
    with pytest.raises(DependencyUnavailable, match=r"spec.source.table: Warehouse 'erp': .*/erp/catalog.db"):
        bed.load(bed.spec())


def test_a_catalog_that_signs_does_not_use_the_keys_of_the_job(bed: TableBed) -> None:
    signed = {"rest.sigv4-enabled": "true", "rest.signing-region": "eu-central-1", "rest.signing-name": "glue"}
    catalog = CatalogRef(type=CatalogType.REST, uri="http://127.0.0.1:9", properties=signed)
    request = bed.load_request(bed.spec())
    assert request.source_warehouse is not None
    request = replace(request, source_warehouse=replace(request.source_warehouse, catalog=catalog))
    with credentials(OWNER), pytest.raises(BadSpec, match=r"'erp', in which .* set spec.credentialsSecretRef of"):
        run_load(request, Reporter(request))


# --- with credentials ---


@contextmanager
def variables(given: dict[str, str]) -> Iterator[None]:
    """More variables in the environment of the driver."""
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


def keys_of(keys: Keys) -> dict[str, str]:
    """What the operator gives a driver of a source Warehouse in a bucket."""
    named = {
        "AWS_ACCESS_KEY_ID": keys.access, "AWS_SECRET_ACCESS_KEY": keys.secret,
        USER_VARIABLE: USER, PASSWORD_VARIABLE: PASSWORD,
    }  # fmt: skip
    return {f"{SOURCE_VARIABLES}{name}": value for name, value in named.items()}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as found:
        yield found


def test_each_warehouse_is_reached_with_its_own_credentials(bucket: S3Client, server: Server, tmp_path: Path) -> None:
    with pod(server):
        there = S3Bed(bucket, server)
        there.create(SCHEMA)
        there.put("in.parquet", pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]}))
        there.load(SourceSpec(format=SourceFormat.PARQUET, paths=("in.parquet",)))
        there.catalog.close()  # type: ignore[no-untyped-call, unused-ignore]
    here = MergeBed(tmp_path)
    here.create(SCHEMA)

    def load(erp: WarehouseRef) -> JobRequest:
        source = SourceSpec(format=SourceFormat.PARQUET, paths=(), table=SourceTableRef(table=there.ref))
        request = here.request(task_of("", source=source))
        return replace(request, source_warehouse=erp, merge=None, load=LoadTask(source=source))

    apart = replace(there.warehouse, name="erp", credentials_prefix=SOURCE_VARIABLES)
    own = replace(apart, s3=replace(s3_ref(bucket), credentials_prefix=SOURCE_VARIABLES))
    with credentials(STRANGER), variables(keys_of(OWNER)):
        request = load(own)
        assert run_load(request, Reporter(request)).outcome is RunOutcome.COMMITTED
    assert sorted(here.table().scan().to_arrow()["id"].to_pylist()) == [1, 2]
    without = {name: value for name, value in keys_of(OWNER).items() if "AWS" not in name}
    with credentials(OWNER), variables(without):
        request = load(apart)
        with pytest.raises(BadSpec, match=r"the job's Warehouse are not used for it: set spec.storage.s3"):
            run_load(request, Reporter(request))
    with pod(server):
        request = load(apart)
        with pytest.raises(DependencyUnavailable, match=r"spec.source.table: Warehouse 'erp'"):
            run_load(request, Reporter(request))
    here.catalog.close()
