"""Installing, deleting, resting: what an administrator does to a cluster."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from demo.install import SYSTEM, install_arguments
from demo.kube import EMBEDDED, Kube, condition
from tests.e2e.conftest import LAKES
from tests.e2e.lake import Lake, index, load, merge, people, table, warehouse


def objects(lake: Lake) -> list[dict[str, object]]:
    """A whole small lake in the order in which a person would write it."""
    lake.write("in/1.csv", people(1, 30))
    return [warehouse(), table(reclaimPolicy="Delete"), index("by-city", ["city"]), load("one", "in/1.csv")]


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_apply_and_delete_end_clean_in_both_orders(lakes: dict[str, Lake], order: str) -> None:
    lake = lakes[f"e2e-{order}"]
    manifests = objects(lake)
    lake.apply(*(manifests if order == "forward" else manifests[::-1]))
    lake.until_complete("lj", "one", seconds=300)
    lake.until_condition("si", "by-city", "Synced", seconds=400)
    for item in manifests if order == "backward" else manifests[::-1]:
        metadata: dict[str, str] = item["metadata"]  # type: ignore[assignment]
        lake.kube.run("delete", str(item["kind"]), metadata["name"], "--wait=false")
    lake.kube.wait_for("all resources are gone", lambda: not lake.kube.items("wh,tbl,si,lj,mj"), seconds=400)
    lake.kube.wait_for("no driver is left", lambda: not lake.kube.items("pods", "spark-role=driver"), seconds=400)


def test_a_load_runs_on_executor_pods(lakes: dict[str, Lake]) -> None:
    lake = lakes["e2e-wide"]
    lake.write("in/1.csv", people(1, 500))
    small = {f"spark.kubernetes.{role}.request.cores": "400m" for role in ("driver", "executor")}
    sizes = {"cores": 1, "memory": "768Mi"}
    spark = {"driver": sizes, "executor": {"instances": 1, **sizes}, "conf": small}
    lake.apply(warehouse(spark=spark), table(), load("one", "in/1.csv"))
    seen: set[str] = set()

    def done(job: dict[str, object]) -> bool:
        seen.update(p["metadata"]["name"] for p in lake.kube.items("pods", "spark-role=executor"))
        return "True" in {condition(job, "Complete").get("status"), condition(job, "Failed").get("status")}

    job = lake.until("lj", "one", done, seconds=400)
    assert condition(job, "Complete").get("status") == "True", job["status"]
    assert seen != set()
    lake.kube.wait_for("executors are gone", lambda: not lake.kube.items("pods", "spark-role=executor"), seconds=400)
    assert len(lake.rows()) == 500


def test_deleting_the_namespace_with_a_running_merge_ends_within_two_minutes(lakes: dict[str, Lake]) -> None:
    lake = lakes["e2e-doomed"]
    lake.write("in/1.csv", people(1, 100))
    lake.write("feeds/1.csv", "op,seq,id,name,city,born\nU,1,7,x,y,1950-01-01\n")
    lake.apply(warehouse(), table(reclaimPolicy="Delete"), load("one", "in/1.csv"))
    lake.apply(index("by-city", ["city"]), index("by-name", ["name"]))
    lake.until_complete("lj", "one", seconds=300)
    lake.apply(merge("running", "feeds/1.csv"))
    lake.kube.wait_for(
        "the merge has a driver", lambda: bool(lake.kube.items("pods", "skipstone.dev/operation=Merge")), seconds=400
    )
    lake.kube.run("delete", "namespace", lake.kube.namespace, "--timeout=120s")  # raises when it takes longer


def test_uninstalling_keeps_the_resources_and_a_new_release_takes_over(main: Lake, kube: Kube) -> None:
    system = kube.within(SYSTEM)
    before = (main.kube.get("tbl", "people") or {})["metadata"]["uid"]
    system.run_helm("uninstall", "skipstone", "--wait")
    assert (main.kube.get("tbl", "people") or {})["metadata"]["uid"] == before
    main.write("in/after.csv", people(701, 710))
    main.apply(load("after", "in/after.csv"))
    alive = tuple(name for name in LAKES if kube.get("namespace", name))
    system.run_helm(*install_arguments(system, alive))
    assert main.until_complete("lj", "after", seconds=300)["status"]["rowsLoaded"] == 10


def test_at_rest_the_operator_writes_only_its_lease(main: Lake, kube: Kube) -> None:
    window = [datetime.now(UTC)]
    writes: list[str] = []

    def quiet_for_a_minute() -> bool:
        now = datetime.now(UTC)
        writes[:] = operator_writes(window[0])
        if any(write != "leases" for write in writes):
            window[0] = now
            return False
        return now - window[0] >= timedelta(seconds=60)

    kube.wait_for("a minute without writes but the Lease", quiet_for_a_minute, seconds=300, every=5)
    assert writes != [], "the audit log does not see the operator at all"


def operator_writes(since: datetime) -> list[str]:
    """Resources that the operator wrote since then, from the API server's audit log."""
    user = f"system:serviceaccount:{SYSTEM}:skipstone"
    text = (EMBEDDED / "log" / "audit.log").read_text()
    lines = text[: text.rfind("\n") + 1].splitlines()[-20000:]  # the last line may be half written
    entries = (json.loads(line) for line in lines if user in line)
    return [
        entry["objectRef"]["resource"]
        for entry in entries
        if entry["verb"] in {"create", "update", "patch", "delete", "deletecollection"}
        and entry["stage"] == "ResponseComplete"
        and datetime.fromisoformat(entry["requestReceivedTimestamp"]) >= since
    ]
