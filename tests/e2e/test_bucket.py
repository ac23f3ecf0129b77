"""A lake in a bucket behind a REST catalog: no claim anywhere, feeds in another bucket, runs on two executor pods."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from skipstone.query import explain, read
from skipstone_core.ids import EVENT_LOG_DIRECTORY

from demo.kube import address, condition
from tests.cluster.controlplane import SERVICE_IP
from tests.cluster.node import API_PORT
from tests.e2e.attempts import policy, until_attempts
from tests.e2e.bucket import PREFIX, BucketLake, bucket_lake, node_address
from tests.e2e.executors import Ended, Executors, executors_of
from tests.e2e.lake import (
    PATIENCE,
    JsonObject,
    Lake,
    change,
    has_ended,
    index,
    load,
    merge,
    people,
    resource,
    table,
    warehouse,
)
from tests.s3client import values

SCHEDULED = "skipstone.dev/schedule=feed"
SPARK = executors_of(2) | {"eventLog": {"maxAge": "1d"}}
SERVER = "lake-planning"
KINDS = "ms,mj,lj,si,tbl,wh"


def from_landing(job: JsonObject, **changes: Any) -> JsonObject:
    """The job, with its source in the landing bucket."""
    job["spec"]["source"] |= {"location": "landing", **changes}
    return job


def feed_schedule() -> JsonObject:
    """Every minute what is new in a folder of the landing bucket."""
    spec = from_landing(merge("", "feeds/.parquet", table_name="fed"), paths=["feeds/fed"], consume="New")["spec"]
    del spec["sequenceBy"]  # an old drop applied again would show
    template = {"schedule": "* * * * *", "successfulJobsHistoryLimit": 100, "mergeTemplate": {"spec": spec}}
    return resource("MergeSchedule", "feed", template)


def drop(lake: BucketLake, number: int) -> None:
    """An object of the folder that the schedule looks into: it changes row 0 and adds a row."""
    lake.write(f"feeds/fed/{number}.parquet", [change("I", 0, f"drop {number}"), change("I", number, "new")])


@pytest.fixture(scope="module")
def lake(lakes: dict[str, Lake], tmp_path_factory: pytest.TempPathFactory) -> Iterator[BucketLake]:
    """A Warehouse with two Tables. All of it is gone before its bucket is: nobody asks for it afterwards."""
    with bucket_lake(lakes["e2e-bucket"], tmp_path_factory.mktemp("bucket")) as found:
        found.apply(warehouse(spark=SPARK, **found.storage()), table(), table("fed"))
        drop(found, 1)
        found.apply(feed_schedule())
        yield found
        found.kube.run("delete", KINDS, "--all", "--wait=false")
        found.kube.wait_for("all resources are gone", lambda: not found.kube.items(KINDS), seconds=PATIENCE)


@pytest.fixture(scope="module")
def loaded(lake: BucketLake) -> Ended:
    """After a load, with its executors."""
    lake.write("in/1.csv", people(1, 300))
    lake.write("in/2.csv", people(301, 600))
    lake.apply(from_landing(load("one", "in/.csv"), paths=["in"]), index("by-name", ["name"]))
    job, ended = Executors(lake).until_complete("lj", "one")
    assert job["status"]["rowsLoaded"] == 600
    return ended


@pytest.fixture(scope="module")
def merged(lake: BucketLake, loaded: object) -> Ended:
    """After a merge into what was loaded, with its executors. The second drop comes meanwhile."""
    lake.kube.wait_for("drop 1 is merged", lambda: taken(lake) >= 2, seconds=PATIENCE)
    drop(lake, 2)
    lake.apply(warehouse("denied", **lake.storage("landing-keys")))
    changes = [change("U", 7, "renamed", "Oslo"), change("D", 8), change("I", 1000, "new", "Lima")]
    lake.write("feeds/1.csv", changes)
    lake.apply(from_landing(merge("corrections", "feeds/1.csv")))
    job, ended = Executors(lake).until_complete("mj", "corrections")
    rows = job["status"]["rows"]
    assert (rows["updated"], rows["deleted"], rows["inserted"]) == (1, 1, 1)
    return ended


@pytest.mark.parametrize("job", ["loaded", "merged"])
def test_a_job_runs_on_two_executor_pods(job: str, request: pytest.FixtureRequest) -> None:
    ended: Ended = request.getfixturevalue(job)
    assert len(ended.pods) >= 2  # more when an attempt died
    assert ended.tasks > 0


def test_the_logs_of_spark_are_kept_in_the_bucket(lake: BucketLake, merged: object) -> None:
    listed = lake.lake.send("GET", list_type="2", prefix=f"{PREFIX}/{EVENT_LOG_DIRECTORY}/")
    names = [key.rpartition("/")[2] for key in values(listed, "Key")]
    finished = [name for name in names if name.endswith(".zstd") and not name.startswith(".")]
    assert len(finished) >= 2  # the load's and the merge's; those of the schedule's merges come and go


def test_a_schedule_takes_each_object_of_a_folder_once(lake: BucketLake, merged: object) -> None:
    lake.kube.wait_for("drop 2 is merged", lambda: taken(lake) >= 4, seconds=PATIENCE)
    lake.kube.run("patch", "ms", "feed", "--type=merge", "-p", '{"spec":{"suspend":true}}')
    lake.kube.wait_for(
        "all merges ended", lambda: all(map(has_ended, lake.kube.items("mj", SCHEDULED))), seconds=PATIENCE
    )
    lake.kube.wait_for(
        "executors are gone", lambda: not lake.kube.items("pods", "spark-role=executor"), seconds=PATIENCE
    )
    assert taken(lake) == 4
    assert [(row["id"], row["name"]) for row in lake.rows("fed")] == [(0, "drop 2"), (1, "new"), (2, "new")]


def test_others_read_the_rows(lake: BucketLake, merged: object) -> None:
    rows = {row["id"]: row["name"] for row in lake.rows()}
    names = {**{number: f"person {number}" for number in range(1, 601) if number != 8}, 7: "renamed", 1000: "new"}
    assert rows == names


def test_a_query_through_the_index_answers_as_a_full_scan_does(lake: BucketLake, merged: object) -> None:
    lake.until_synced("by-name", with_job=("mj", "corrections"))
    found, asked = lake.table("people"), "name = 'person 35'"
    assert "index people__si_by_name" in (told := explain(found, asked))
    assert ": used," in told
    expected = found.scan(row_filter=asked).to_arrow().to_pylist()
    assert read(found, None, asked).to_pylist() == expected
    assert [row["id"] for row in expected] == [35]


def taken(lake: BucketLake) -> int:
    """Source rows of all MergeJobs of the schedule."""
    jobs = lake.kube.items("mj", SCHEDULED)
    assert [job for job in jobs if condition(job, "Failed").get("status") == "True"] == []
    return sum(job.get("status", {}).get("rows", {}).get("source", 0) for job in jobs)


def test_a_planning_server_needs_the_catalog_and_the_storage_and_nothing_else(lake: BucketLake, merged: object) -> None:
    needed = [urlsplit(uri).netloc for uri in (lake.catalog_uri, lake.lake.endpoint)]
    ways = [way_to(*target.split(":")) for target in needed]
    chosen = {"matchLabels": {"app.kubernetes.io/component": "planning"}}
    lake.apply(policy("planning", {"podSelector": chosen, "policyTypes": ["Egress"], "egress": ways}))
    planning = {"replicas": 1, "allowPlaintextTokens": True, "resources": {"requests": {"cpu": "100m"}}}
    lake.apply(warehouse(spark=SPARK, planning=planning, **lake.storage()))
    lake.until_condition("wh", "lake", "PlanningReady")
    until_attempts(
        lake.kube,
        f"deploy/{SERVER}",
        *((target, "open") for target in needed),
        (f"{SERVICE_IP}:443", "dropped"),
        (f"{node_address(lake.kube)}:{API_PORT}", "dropped"),
    )
    url = address(lake.kube, SERVER)
    with lake.catalog(url, **{"scan-planning-mode": "server"}) as catalog:
        found = catalog.load_table("db.people").scan(row_filter="name = 'person 35'").to_arrow().to_pylist()
    assert [row["id"] for row in found] == [35]
    with urllib.request.urlopen(f"{url}/metrics") as answer:
        plans = re.findall(r'skipstone_planning_plans_total{outcome="(\w+)"} ([1-9])', answer.read().decode())
    assert plans == [("completed", "1")]
    lake.apply(warehouse(spark=SPARK, **lake.storage()))
    lake.kube.run("delete", "networkpolicy", "planning")
    lake.kube.wait_for("the end of the server", lambda: lake.kube.get("deployment", SERVER) is None, seconds=PATIENCE)


def way_to(host: str, port: str) -> JsonObject:
    """A rule of a NetworkPolicy that lets connections out to one port."""
    return {"to": [{"ipBlock": {"cidr": f"{host}/32"}}], "ports": [{"port": int(port)}]}


def test_keys_that_open_nothing_make_a_warehouse_not_ready(lake: BucketLake, merged: object) -> None:
    found = lake.until_condition("wh", "denied", "Ready", status="False", reason="StorageUnavailable")
    assert f"in bucket 'lake' at {lake.lake.endpoint}" in found["message"]
    assert "AccessDenied): give the credentials s3:" in found["message"]


def test_nothing_is_on_a_volume(lake: BucketLake, merged: object) -> None:
    assert lake.kube.run("get", "pvc", "-o", "name") == ""
    (ready,) = (one for one in lake.kube.items("wh") if one["metadata"]["name"] == "lake")
    assert ready["status"]["storage"] == "s3://lake/prod/lake"
    pods = lake.kube.items("pods")
    volumes = [volume for pod in pods for volume in pod["spec"].get("volumes", ())]
    assert pods
    assert [volume for volume in volumes if "persistentVolumeClaim" in volume] == []
