"""Runs whose tables, indexes and sources are in a bucket, as the operator asks for them; nothing is in a directory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.sql import SparkSession
from skipstone.causes import find_cause
from skipstone.indexes.tables import find_index, index_identifier, sorted_runs
from skipstone.query import ReadOptions, read
from skipstone.runs.check import run_check
from skipstone.runs.load import run_load
from skipstone.runs.merging.merge import run_merge
from skipstone.runs.observe import run_observe
from skipstone.runs.reindex import run_reindex
from skipstone.runs.reporting.report import Reporter
from skipstone.sources.listing import pinned_source
from skipstone.storage.opening import open_location
from skipstone.tables.catalogs import open_catalog
from skipstone_core.contract.badrecords import BadRecordPolicy, BadRecordsSpec
from skipstone_core.contract.places import SourceLocationRef
from skipstone_core.contract.reports import JobReport, RunOutcome
from skipstone_core.contract.requests import (
    ConsumePolicy,
    DuplicatesPolicy,
    LoadMode,
    LoadTask,
    ObservedTable,
    ObserveTask,
    ReindexTask,
    RunKind,
    SourceFormat,
    SourceSpec,
)
from skipstone_core.errors import BadData, BadSpec, DependencyUnavailable
from skipstone_core.reasons import Reason

from tests.avrofiles import avro_file, record
from tests.s3client import S3Client
from tests.s3proxy import Proxy, Refusal, s3_proxy
from tests.s3server import OWNER, STRANGER
from tests.spark.conftest import JVM_KEYS
from tests.spark.index_bed import index_on
from tests.spark.lake import append
from tests.spark.merge_bed import ALL_IN_SPARK, task_of
from tests.spark.postgres import Server, postgres
from tests.spark.s3_bed import NOTHING_HERE, S3Bed, pod, rows
from tests.storages import PREFIX, s3_ref

SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType()))
#: What stands in for the environment of executors' pods.
WORKERS_HAVE = {"spark.executorEnv.AWS_ACCESS_KEY_ID", "spark.executorEnv.AWS_SECRET_ACCESS_KEY"}
AB = [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with postgres() as found, pod(found):
        yield found


@pytest.fixture
def bed(bucket: S3Client, server: Server) -> S3Bed:
    made = S3Bed(bucket, server)
    made.create(SCHEMA)
    return made


def source(kind: SourceFormat, *paths: str, **rest: object) -> SourceSpec:
    options = {"header": "true"} if kind is SourceFormat.CSV else {}
    return SourceSpec(format=kind, paths=paths, options=options, **rest)  # type: ignore[arg-type]


def table(*found: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(found), schema=pa.schema([("id", pa.int64()), ("name", pa.string())]))


def orc_bytes(content: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    orc.write_table(content, sink)
    return bytes(sink.getvalue().to_pybytes())


def test_a_plain_parquet_file_is_loaded_by_the_driver_alone(bed: S3Bed) -> None:
    bed.put("in/a b+c.parquet", table(*AB))
    report = bed.load(source(SourceFormat.PARQUET, "in/*.parquet"))
    assert report.counts["rowsLoaded"] == 2
    assert bed.rows() == rows(AB)


@pytest.mark.parametrize("kind", list(SourceFormat))
def test_spark_reads_every_format_from_a_bucket(bed: S3Bed, kind: SourceFormat) -> None:
    contents = {
        SourceFormat.CSV: "id,name\n1,a\n2,b\n",
        SourceFormat.JSON: '{"id": 1, "name": "a"}\n{"id": 2, "name": "b"}\n',
        SourceFormat.PARQUET: table(*AB),
        SourceFormat.ORC: orc_bytes(table(*AB)),
        SourceFormat.AVRO: avro_file(record(id="long", name="string"), AB),
    }
    bed.put("in/a b+%20c.x", contents[kind])
    report = bed.load(source(kind, "in"), NOTHING_HERE)
    assert (report.outcome, report.counts["rowsLoaded"]) == (RunOutcome.COMMITTED, 2), report
    assert bed.rows() == rows(AB)


def test_rows_that_do_not_fit_are_kept_in_the_bucket(bed: S3Bed) -> None:
    bed.put("in/a.csv", "id,name\n1,a\nx,b\n")
    bed.put("in/b.csv", "id,name\n1,a\ny,b\n")
    bad = BadRecordsSpec(policy=BadRecordPolicy.REDIRECT, max_count=None)
    report = bed.load(source(SourceFormat.CSV, "in/a.csv"), bad_records=bad)
    assert (report.counts["rowsLoaded"], report.counts["rowsRejected"]) == (1, 1)
    assert report.rejected_path is not None
    (part,) = [key for key in bed.objects() if key.startswith(report.rejected_path)]
    assert part.endswith("/part-00000.jsonl")
    assert '"file": "in/a.csv"' in bed.bucket.send("GET", f"{PREFIX}/{part}").text
    with pytest.raises(BadData, match="1 rows do not fit and 0 are allowed"):
        bed.load(source(SourceFormat.CSV, "in/b.csv"), bad_records=replace(bad, max_count=0))
    assert not [key for key in bed.objects() if ".jsonl" in key and key != part]


def test_a_folder_is_consumed_object_by_object(bed: S3Bed) -> None:
    new = source(SourceFormat.PARQUET, "in", consume=ConsumePolicy.NEW, consumer="c")
    bed.put("in/1.parquet", table(AB[0]))
    assert bed.load(new).counts["rowsLoaded"] == 1
    assert bed.load(new).counts.get("rowsLoaded", 0) == 0
    bed.put("in/2.parquet", table(AB[1]))
    assert bed.load(new).counts["rowsLoaded"] == 1
    assert bed.rows() == rows(AB)
    bed.put("in/1.parquet", table({"id": 9, "name": "other"}))
    with pytest.raises(BadData, match=r"'in/1\.parquet' changed since c consumed it"):
        bed.load(new)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("place", ["driver", "spark"])
def test_a_merge_changes_a_table_in_a_bucket(
    bed: S3Bed, mode: str, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if place == "spark":
        bed.limits = ALL_IN_SPARK
        monkeypatch.setattr("skipstone.kernels.changes.CARRIED_BYTES", 0)
    with bed.table().transaction() as change:
        change.set_properties({"write.merge.mode": mode})
    bed.put("in/a.parquet", table(*AB))
    bed.load(source(SourceFormat.PARQUET, "in"))
    bed.put("changes/c.parquet", table({"id": 2, "name": "B"}, {"id": 3, "name": "c"}))
    report = bed.merge(task_of("changes"))
    assert report.outcome is RunOutcome.COMMITTED, report
    assert bed.rows() == rows([AB[0], {"id": 2, "name": "B"}, {"id": 3, "name": "c"}])
    if mode == "copy-on-write":
        assert bed.duck_rows(tmp_path) == bed.rows()
    assert not [key for key in bed.objects() if "slice" in key]


def test_the_next_attempt_removes_what_a_killed_one_left(bed: S3Bed) -> None:
    uid = "77777777-0000-0000-0000-000000000000"
    bed.put("in/a.parquet", table(*AB))
    left, other = (f".skipstone/runs/{uid}/77777777-cafe-{number}-0123abcd/slice-0.parquet" for number in (1, 2))
    bed.put(left, b"left by the first attempt")
    bed.put(other, b"of a later one")
    assert bed.merge(task_of("in"), uid, attempt=2).outcome is RunOutcome.COMMITTED
    found = [name for name in bed.objects() if name.startswith(".skipstone/runs/")]
    assert found == []


def test_an_index_is_built_merged_and_read_in_a_bucket(bed: S3Bed) -> None:
    index = index_on("id")
    for number in range(8):
        bed.put("in/a.parquet", table(*({"id": one, "name": str(number)} for one in range(number, 100, 8))))
        bed.load(source(SourceFormat.PARQUET, "in"))
        request = bed.request(RunKind.REINDEX, indexes=(index,), reindex=ReindexTask(index=index))
        report = run_reindex(request, Reporter(request))
        assert report.outcome is RunOutcome.COMMITTED, report
    found = read(bed.table(), None, "id = 42", ReadOptions())
    assert found.to_pylist() == [{"id": 42, "name": "2"}]
    task = ObserveTask(tables=(ObservedTable(table=bed.ref, indexes=(index,)),))
    observe = bed.request(RunKind.OBSERVE, observe=task)
    (state,) = run_observe(observe, Reporter(observe)).table_states
    assert [(one.segments_synced, one.segments_missing) for one in state.indexes] == [(8, 0)]
    uuid = str(bed.table().metadata.table_uuid)
    built = find_index(bed.catalog, index_identifier(bed.warehouse, bed.ref, index), table_uuid=uuid)
    assert built is not None
    assert len(sorted_runs(built.entries)) < 8


def test_a_source_location_is_read_with_its_own_keys(bucket: S3Client, server: Server) -> None:
    place = replace(s3_ref(bucket, "feeds"), credentials_prefix=JVM_KEYS)
    bed = S3Bed(bucket, server, (SourceLocationRef(name="landing", s3=place),))
    bed.create(SCHEMA)
    bed.put("a.csv", "id,name\n1,a\n2,b\n", "feeds")
    landing = source(SourceFormat.CSV, "a.csv", location="landing")
    assert bed.load(landing).counts["rowsLoaded"] == 2
    assert bed.load(landing).counts == {}
    with pytest.raises(BadSpec, match="the Warehouse has no source location 'drop'"):
        bed.load(replace(landing, location="drop"))


def test_files_of_a_bucket_are_registered_where_they_are(bucket: S3Client, server: Server) -> None:
    """Also those of another place that is reached alike; not those that need keys of their own."""
    near, far = s3_ref(bucket, "lake-of-others"), replace(s3_ref(bucket, "feeds"), credentials_prefix=JVM_KEYS)
    bed = S3Bed(bucket, server, (SourceLocationRef(name="near", s3=near), SourceLocationRef(name="far", s3=far)))
    bed.create(Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType())))
    bed.put("lake/part=1/a b.parquet", table(AB[0]))
    bed.put("part=2/b.parquet", table(AB[1]), "lake-of-others")
    bed.put("c.parquet", table(AB[0]), "feeds")

    def register(*paths: str, **rest: object) -> JobReport:
        task = LoadTask(source=source(SourceFormat.PARQUET, *paths, **rest), mode=LoadMode.REGISTER)
        request = bed.request(RunKind.LOAD, load=task)
        return run_load(request, Reporter(request))

    assert register("lake").counts["filesRegistered"] == 1
    assert register("part=2", location="near").counts["filesRegistered"] == 1
    with pytest.raises(BadSpec, match="source location 'far' cannot be registered"):
        register("c.parquet", location="far")
    assert register("lake").reason is Reason.SOURCE_ALREADY_APPLIED
    assert sorted(read(bed.table())["id"].to_pylist()) == [1, 2]
    assert sorted(bed.table().scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_check_looks_at_every_source_location(
    bucket: S3Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(secret: str) -> JobReport:
        monkeypatch.setenv("LANDING_AWS_SECRET_ACCESS_KEY", secret)
        monkeypatch.setenv("LANDING_AWS_ACCESS_KEY_ID", OWNER.access)
        place = replace(s3_ref(bucket, f"feeds-{len(secret)}"), credentials_prefix="LANDING_")
        bed = S3Bed(bucket, server, (SourceLocationRef(name="landing", s3=place),))
        request = bed.request(RunKind.CHECK)
        return run_check(request, Reporter(request))

    assert check(OWNER.secret).reason is Reason.CHECKED
    with pytest.raises(DependencyUnavailable, match=r"the source location 'landing': .*is not that of the access key"):
        check("wrong")
    with pytest.raises(DependencyUnavailable, match="'landing': there are no credentials for bucket"):
        check("")


def test_a_source_that_is_replaced_is_told(bed: S3Bed) -> None:
    spec = source(SourceFormat.CSV, "in/a.csv")
    bed.put("in/a.csv", "id,name\n1,a\n")
    request = bed.request(RunKind.LOAD, load=LoadTask(source=spec))
    pinned_source(bed.warehouse, spec, request.owner_uid)
    bed.put("in/a.csv", "id,name\n1,b\n")
    with pytest.raises(BadData, match="is not the file that this job began with"):
        run_load(request, Reporter(request))


@pytest.fixture
def behind(bucket: S3Client, server: Server, spark: SparkSession) -> Iterator[tuple[S3Bed, Proxy]]:
    """A table in a bucket behind a proxy."""
    with s3_proxy(bucket.endpoint) as proxy:
        bed = S3Bed(replace(bucket, endpoint=proxy.endpoint), server)
        bed.create(SCHEMA)
        yield bed, proxy
        bed.catalog.close()


def test_a_file_that_is_away_for_a_moment_is_never_taken_for_an_empty_source(behind: tuple[S3Bed, Proxy]) -> None:
    """One look at it finds nothing, whichever of the load: Spark leaves out what is away when it lists."""
    bed, proxy = behind
    bed.put("in/a.csv", "id,name\n1,a\n2,b\n")
    loaded = 0
    for at in itertools.count(1):
        asked = itertools.count(1)
        proxy.choose = lambda kind, path, at=at, asked=asked: (  # type: ignore[misc]
            Refusal.GONE if kind == "HEAD" and path.endswith("/in/a.csv") and next(asked) == at else None
        )
        try:
            report = bed.load(source(SourceFormat.CSV, "in", duplicates=DuplicatesPolicy.ALLOW), NOTHING_HERE)
            loaded += 1
            assert report.counts["rowsLoaded"] == 2, at
        except DependencyUnavailable as error:
            assert error.reason in (Reason.SOURCE_CHANGED, Reason.STORAGE_UNAVAILABLE)
        except BadData as error:
            assert error.reason is Reason.SOURCE_CHANGED
        if next(asked) <= at:
            break
    assert loaded > 0
    assert bed.table().scan().to_arrow().num_rows == 2 * loaded


def test_a_merge_rewrites_several_files_of_a_bucket_at_a_time(behind: tuple[S3Bed, Proxy]) -> None:
    """Each request for a new file waits until four of them are on their way."""
    bed, proxy = behind
    for number in range(4):
        bed.put("in/a.parquet", table({"id": number, "name": "old"}))
        bed.load(source(SourceFormat.PARQUET, "in", duplicates=DuplicatesPolicy.ALLOW), NOTHING_HERE)
    bed.put("changes/c.parquet", table(*({"id": number, "name": "new"} for number in range(4))))
    together = Barrier(4, timeout=60)

    def choose(kind: str, path: str) -> None:
        if kind == "GET" and "-merge-" in path:
            together.wait()

    proxy.choose = choose
    request = bed.request(RunKind.MERGE, merge=task_of("changes"))
    assert run_merge(request, Reporter(request)).outcome is RunOutcome.COMMITTED
    assert bed.rows() == rows([{"id": number, "name": "new"} for number in range(4)])


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_merge_that_fails_in_one_thread_deletes_what_the_others_wrote(behind: tuple[S3Bed, Proxy], mode: str) -> None:
    bed, proxy = behind
    with bed.table().transaction() as change:
        change.set_properties({"write.merge.mode": mode})
    ids = pa.schema([SCHEMA.as_arrow().field("id"), SCHEMA.as_arrow().field("name")])
    for number in range(4):
        kept = {"id": [number, number + 100, number + 200], "name": ["old", "kept", "kept"]}
        append(bed.table(), pa.table(kept, schema=ids))
    bed.put("changes/c.parquet", table(*({"id": number, "name": "new"} for number in range(4))))
    before = data_files(bed)
    proxy.choose = lambda kind, path: Refusal.DENIED if kind == "PUT" and "-merge-00001-local-" in path else None
    request = bed.request(RunKind.MERGE, merge=task_of("changes"))
    request = replace(request, spark=replace(request.spark, driver_cores=2))
    with pytest.raises(OSError, match="ACCESS_DENIED"):
        run_merge(request, Reporter(request))
    assert {path.rpartition("/")[2] for path in written(proxy) if "-merge-00002-local-" in path} != set()
    assert data_files(bed) == before


def data_files(bed: S3Bed) -> list[str]:
    return [path for path in bed.objects() if "/data/" in path]


def written(proxy: Proxy) -> list[str]:
    return [one.path for one in proxy.seen if one.kind == "PUT"]


@pytest.mark.parametrize(
    ("begins", "refusal", "reason"),
    [
        ("GET", Refusal.GONE, Reason.STORAGE_UNAVAILABLE),
        ("HEAD", Refusal.EXPIRED, Reason.CREDENTIALS_EXPIRED),
    ],
)
def test_what_keeps_spark_from_a_bucket_is_told_and_blamed_on_no_file(
    behind: tuple[S3Bed, Proxy], begins: str, refusal: Refusal, reason: Reason
) -> None:
    """From the second such request on, which is Spark's; the driver's own comes first."""
    bed, proxy = behind
    bed.put("in/a", orc_bytes(table(*AB)))
    met: list[str] = []

    def choose(kind: str, path: str) -> Refusal | None:
        if path.endswith("/in/a"):
            met.append(kind)
        is_met = met.count(begins) > 1 and (kind == begins or refusal is Refusal.EXPIRED)
        return refusal if is_met and path.endswith("/in/a") else None

    proxy.choose = choose
    with pytest.raises(DependencyUnavailable) as raised:
        bed.load(source(SourceFormat.ORC, "in"), NOTHING_HERE)
    assert raised.value.reason is reason, raised.value


def test_two_racing_consumers_take_each_object_once(bed: S3Bed) -> None:
    new = source(SourceFormat.PARQUET, "in", consume=ConsumePolicy.NEW, consumer="c")
    for number in range(4):
        bed.put(f"in/{number}.parquet", table({"id": number, "name": "x"}))
    requests = [bed.request(RunKind.LOAD, load=LoadTask(source=new)) for _ in range(2)]
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda one: run_load(one, Reporter(one)), requests))
    assert RunOutcome.COMMITTED in [one.outcome for one in reports]
    assert bed.rows() == rows([{"id": number, "name": "x"} for number in range(4)])
    assert bed.load(new).counts.get("rowsLoaded", 0) == 0


def test_what_s3_refuses_is_told_without_what_was_signed(bed: S3Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", STRANGER.access)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", STRANGER.secret)
    bed.catalog = open_catalog(bed.warehouse)
    with pytest.raises(DependencyUnavailable) as raised:
        bed.load(source(SourceFormat.PARQUET, "in"))
    found = find_cause(raised.value)
    assert found is not None
    assert found.reason is Reason.STORAGE_UNAVAILABLE
    assert "S3 answered ACCESS_DENIED to HeadObject" in found.message
    assert f"in bucket '{bed.bucket.bucket}': give the credentials s3:GetObject" in found.message


def test_small_files_are_put_by_one_request_each_and_no_secret_travels(
    bucket: S3Client, server: Server, spark: SparkSession
) -> None:
    with s3_proxy(bucket.endpoint) as proxy:
        bed = S3Bed(replace(bucket, endpoint=proxy.endpoint), server)
        bed.create(SCHEMA)
        bed.put("in/a.parquet", table(*AB))
        proxy.forget()
        request = bed.request(RunKind.LOAD, load=LoadTask(source=source(SourceFormat.PARQUET, "in")))
        report = run_load(request, Reporter(request))
        kinds = {one.kind for one in proxy.seen}
        put = {one.path for one in proxy.seen if one.kind == "PUT"}
        shown = [repr(bed.table()), repr(bed.catalog.properties), request.to_json(), report.to_json()]
        counted = proxy.counted()
    assert "POST" not in kinds
    # no pin is there; the source is one request, and two look for logs of Delta and Hudi beside it; of the table
    # nothing is fetched that this process wrote
    assert counted == {"GET": 3, "HEAD": 3, "LIST": 3, "PUT": 5, "DELETE": 1}
    # the pin, which is deleted at the end, a data file, a manifest, a manifest list, the table's metadata
    assert len(put) == 5
    settings = dict(spark.sparkContext.getConf().getAll())
    told = [*shown, str({name: value for name, value in settings.items() if name not in WORKERS_HAVE})]
    told += [str(open_location(bed.warehouse, "").hadoop_settings())]
    assert not [text for text in told if OWNER.secret in text]
