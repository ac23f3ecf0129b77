"""Kept drivers on a cluster: real pods take merges one after the other, die with one, and are replaced."""

from __future__ import annotations

import pytest

from demo.kube import JsonObject
from tests.e2e.lake import PATIENCE, Lake, change, load, merge, people, spark, table, warehouse
from tests.e2e.test_merge_faults import kill, processes_of, until_said

MERGES = 5
KEEP = "skipstone.dev/operation=Keep"


@pytest.fixture(scope="module")
def kept(lakes: dict[str, Lake]) -> Lake:
    """A lake whose Warehouse keeps a driver that takes runs, and a table of 40 people."""
    lake = lakes["e2e-kept"]
    lake.write("in/1.parquet", people(1, 40))
    lake.apply(warehouse(spark=spark("200m"), warmDrivers={}), table(), load("one", "in/1.parquet"))
    lake.until_complete("lj", "one")
    lake.until_condition("wh", "lake", "WarmDriversReady")
    return lake


def driver(lake: Lake) -> JsonObject:
    """The kept driver that is there, and no other."""
    (pod,) = lake.kube.items("pods", KEEP)
    return pod


def run_of(lake: Lake, name: str, operation: str = "Merge") -> list[JsonObject]:
    """The pods of a MergeJob's attempts, in their order."""
    uid = (lake.kube.get("mj", name) or {})["metadata"]["uid"]
    pods = lake.kube.items("pods", f"skipstone.dev/owner-uid={uid},skipstone.dev/operation={operation}")
    return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))


def is_assigned(pod: JsonObject, to: JsonObject) -> bool:
    """Whether a pod was run by a kept driver and by no node."""
    by_driver = pod["spec"]["schedulerName"] == f"skipstone.dev/kept-driver-{to['metadata']['uid']}"
    return by_driver and not pod["spec"].get("nodeName")


def test_merges_go_through_one_pod_and_each_is_in_the_table_once(kept: Lake) -> None:
    before = driver(kept)
    for number in range(MERGES):
        kept.write(f"feeds/{number}.parquet", [change("U", 1, f"v{number}", "Oslo"), change("I", 100 + number, "new")])
        kept.apply(merge(f"small-{number}", f"feeds/{number}.parquet"))
    for number in range(MERGES):
        kept.until_complete("mj", f"small-{number}")
        (pod,) = run_of(kept, f"small-{number}")
        assert is_assigned(pod, before)
        assert pod["status"]["phase"] == "Succeeded"
    now = driver(kept)
    assert (now["metadata"]["uid"], now["status"]["containerStatuses"][0]["restartCount"]) == (
        before["metadata"]["uid"],
        0,
    )
    rows = {row["id"]: row["name"] for row in kept.rows()}
    assert rows[1] == f"v{MERGES - 1}"
    assert sorted(rows) == [*range(1, 41), *range(100, 100 + MERGES)]
    run = run_of(kept, "small-0")[0]["metadata"]["name"].removesuffix("-driver")
    assert f"[{run}] " in kept.kube.run("logs", now["metadata"]["name"])


def test_a_merge_whose_driver_is_killed_is_tried_again_and_another_driver_is_kept(kept: Lake) -> None:
    kept.write("feeds/killed.parquet", [change("U", 2, "killed", "Lima"), change("I", 300, "new")])
    before = driver(kept)
    processes = processes_of(before["metadata"]["name"])
    kept.apply(merge("killed", "feeds/killed.parquet"))
    kept.kube.wait_for("the run", lambda: bool(run_of(kept, "killed")), seconds=PATIENCE, every=0.02)
    run = run_of(kept, "killed")[0]["metadata"]["name"].removesuffix("-driver")
    until_said(kept, before["metadata"]["name"], f"[{run}]")
    assert kill(processes)
    job = kept.until_complete("mj", "killed")
    first, *others = run_of(kept, "killed")
    assert is_assigned(first, before)
    assert not any(is_assigned(pod, before) for pod in others)
    if others:  # else it had committed before it died
        assert job["status"]["attempts"] == 1 + len(others)
    rows = {row["id"]: row["name"] for row in kept.rows()}
    assert (rows[2], rows[300]) == ("killed", "new")

    def is_replaced() -> bool:
        pods = [pod for pod in kept.kube.items("pods", KEEP) if pod["status"]["phase"] == "Running"]
        return bool(pods) and pods[0]["metadata"]["uid"] != before["metadata"]["uid"]

    kept.kube.wait_for("another kept driver", is_replaced, seconds=PATIENCE)
    kept.until_condition("wh", "lake", "WarmDriversReady", reason="KeptDriversReady")
    kept.write("feeds/after.parquet", [change("U", 3, "after", "Pune")])
    kept.apply(merge("after", "feeds/after.parquet"))
    kept.until_complete("mj", "after")
    assert is_assigned(run_of(kept, "after")[0], driver(kept))


def test_no_driver_is_kept_when_the_warehouse_asks_for_none(kept: Lake) -> None:
    kept.kube.run("patch", "wh", "lake", "--type=merge", "-p", '{"spec": {"warmDrivers": null}}')
    kept.kube.wait_for("no kept driver", lambda: not kept.kube.items("pods", KEEP), seconds=PATIENCE)
    kept.until("wh", "lake", lambda found: "warmDrivers" not in found["status"])
