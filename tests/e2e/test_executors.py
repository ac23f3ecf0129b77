"""Every kind of run on two executor pods: in a bucket without any claim, and on a ReadWriteMany claim.

`make soak-executors` runs them: `make test` has a load and a merge on the executors of a bucket. All work is sent to
Spark, however small, and each Warehouse has a catalog that pods of several nodes can share.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.kube import Kube, condition
from tests.e2e.bucket import bucket_lake, node_address
from tests.e2e.executors import Executors, executors_of
from tests.e2e.lake import (
    PATIENCE,
    JsonObject,
    Lake,
    change,
    index,
    installed,
    load,
    merge,
    people,
    table,
    warehouse,
)
from tests.spark.postgres import PASSWORD, USER, postgres

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]
STORAGES = {"bucket": "e2e-bucket", "claim": "e2e-shared"}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "catalog"},
    "stringData": {"SKIPSTONE_CATALOG_USER": USER, "SKIPSTONE_CATALOG_PASSWORD": PASSWORD},
}
ROWS = """
import json, sys
from pyiceberg.catalog.sql import SqlCatalog
catalog = SqlCatalog("skipstone", uri=sys.argv[1])
print("ANSWER " + json.dumps(catalog.load_table("db.people").scan().to_arrow().to_pylist(), default=str))
"""


@dataclass(frozen=True)
class Home:
    """A lake and what its Warehouse and its jobs say of storage.

    ``shown``: what the Warehouse shows of it. ``rows``: of `db.people`, as plain PyIceberg reads them.
    """

    lake: Lake
    storage: JsonObject
    source: JsonObject
    shown: str
    rows: Callable[[], list[JsonObject]]


@pytest.fixture(scope="module")
def lakes(kube: Kube) -> Iterator[dict[str, Lake]]:
    """Lakes of their own, with an operator of their own."""
    with installed(kube, tuple(STORAGES.values())) as found:
        yield {storage: found[name] for storage, name in STORAGES.items()}


@pytest.fixture(params=STORAGES)
def home(
    request: pytest.FixtureRequest, lakes: dict[str, Lake], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Home]:
    """A Warehouse whose runs all go through Spark, with a Table and an index."""
    lake, open_home = lakes[request.param], {"bucket": _in_bucket, "claim": _on_claim}[request.param]
    with ExitStack() as stack:
        found = open_home(stack, lake, tmp_path_factory.mktemp("home"))
        spark = executors_of(2) | {"smallWork": "Spark"}
        found.lake.apply(warehouse(spark=spark, **found.storage), table(), index("by-name", ["name"]))
        yield found
        found.lake.kube.run("delete", "mj,lj,si,tbl,wh", "--all", "--wait=false")
        found.lake.kube.wait_for("all is gone", lambda: not found.lake.kube.items("mj,lj,si,tbl,wh"), seconds=PATIENCE)


def _in_bucket(stack: ExitStack, lake: Lake, folder: Path) -> Home:
    bucket = stack.enter_context(bucket_lake(lake, folder))
    return Home(bucket, bucket.storage(), {"location": "landing"}, "s3://lake/prod/lake", bucket.rows)


def _on_claim(stack: ExitStack, lake: Lake, _: Path) -> Home:
    host = node_address(lake.kube)
    address = f"{host}:{stack.enter_context(postgres(host)).port}/postgres"
    lake.apply(SECRET)
    keys = list(SECRET["stringData"])
    storage = {
        "catalog": {"type": "Sql", "uri": f"postgresql://{address}"},
        "credentialsSecretRef": {"name": "catalog", "keys": keys},
    }
    uri = f"postgresql+psycopg2://{USER}:{PASSWORD.replace(' ', '%20')}@{address}"

    def rows() -> list[JsonObject]:
        log = lake.run_pod("read-rows", "python", "-c", ROWS, uri)
        answer = next(line for line in log.splitlines() if line.startswith("ANSWER "))
        return sorted(json.loads(answer.removeprefix("ANSWER ")), key=lambda row: row["id"])

    return Home(lake, storage, {}, "pvc/lake (ReadWriteMany)", rows)


def test_loads_reindexes_compactions_and_merges_run_on_two_executor_pods(home: Home) -> None:
    lake = home.lake
    tasks: dict[str, int] = {}
    seen: dict[str, frozenset[str]] = {}

    def note(step: str, job: JsonObject) -> None:
        job["spec"]["source"] |= home.source
        executors = Executors(lake)
        lake.apply(job)
        _, ended = executors.until_complete("lj" if job["kind"] == "LoadJob" else "mj", job["metadata"]["name"])
        tasks[step], seen[step] = ended.tasks, ended.pods

    def note_index(step: str, *with_job: str) -> None:
        snapshot = (lake.kube.get(*with_job) or {})["status"]["snapshotId"]
        ended = Executors(lake).until("si", "by-name", lambda found: _covers(lake, found, snapshot))
        tasks[step], seen[step] = ended.tasks, ended.pods

    lake.write("in/1.csv", people(1, 300))
    note("load", load("one", "in/1.csv"))
    note_index("reindex", "lj", "one")
    lake.write("feeds/1.csv", [change("U", 7, "renamed", "Oslo"), change("D", 8), change("I", 1000, "new", "Lima")])
    note("merge", merge("corrections", "feeds/1.csv"))
    note_index("compaction", "mj", "corrections")
    assert {step: len(pods) >= 2 for step, pods in seen.items()} == dict.fromkeys(seen, True), seen
    assert {step: count > 0 for step, count in tasks.items()} == dict.fromkeys(tasks, True), tasks
    names = {**{number: f"person {number}" for number in range(1, 301) if number != 8}, 7: "renamed", 1000: "new"}
    assert {row["id"]: row["name"] for row in home.rows()} == names
    assert (lake.kube.get("wh", "lake") or {})["status"]["storage"] == home.shown


def _covers(lake: Lake, found: JsonObject, snapshot: str) -> bool:
    """Whether the index covers the table as it is after ``snapshot``."""
    told = (lake.kube.get("tbl", "people") or {}).get("status", {})
    if told.get("snapshotId") != snapshot:
        return False
    same = found.get("status", {}).get("tableSequenceNumber") == told["sequenceNumber"]
    return same and condition(found, "Synced").get("status") == "True"
