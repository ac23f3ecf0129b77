"""Applying and deleting in any order, and runs on executor pods."""

from __future__ import annotations

import pytest

from demo.kube import condition
from tests.e2e.lake import PATIENCE, Lake, index, load, people, spark, table, warehouse

ORDERS = ("forward", "backward")


def objects(lake: Lake) -> list[dict[str, object]]:
    """A whole small lake in the order in which a person would write it."""
    lake.write("in/1.parquet", people(1, 30))
    return [warehouse(), table(reclaimPolicy="Delete"), index("by-city", ["city"]), load("one", "in/1.parquet")]


@pytest.fixture(scope="module")
def applied(lakes: dict[str, Lake]) -> dict[str, list[dict[str, object]]]:
    """What was applied to the lake of each order; it runs beside the first tests."""
    made = {}
    for order in ORDERS:
        lake = lakes[f"e2e-{order}"]
        made[order] = objects(lake)
        lake.apply(*(made[order] if order == "forward" else made[order][::-1]))
    return made


def test_a_load_runs_on_executor_pods(lakes: dict[str, Lake], applied: dict[str, list[dict[str, object]]]) -> None:
    lake = lakes["e2e-wide"]
    lake.write("in/1.csv", people(1, 500))
    sizes = spark("400m")
    conf = {**sizes["conf"], "spark.kubernetes.executor.request.cores": "400m"}
    sizes |= {"executor": {"instances": 1, "cores": 1, "memory": "768Mi"}, "conf": conf}
    lake.apply(warehouse(spark=sizes), table(), load("one", "in/1.csv"))
    seen: set[str] = set()

    def done(job: dict[str, object]) -> bool:
        seen.update(p["metadata"]["name"] for p in lake.kube.items("pods", "spark-role=executor"))
        return "True" in {condition(job, "Complete").get("status"), condition(job, "Failed").get("status")}

    job = lake.until("lj", "one", done)
    assert condition(job, "Complete").get("status") == "True", job["status"]
    assert seen != set()
    lake.kube.wait_for(
        "executors are gone", lambda: not lake.kube.items("pods", "spark-role=executor"), seconds=PATIENCE
    )
    assert len(lake.rows()) == 500


@pytest.mark.parametrize("order", ORDERS)
def test_apply_and_delete_end_clean_in_both_orders(
    lakes: dict[str, Lake], applied: dict[str, list[dict[str, object]]], order: str
) -> None:
    lake, manifests = lakes[f"e2e-{order}"], applied[order]
    lake.until_complete("lj", "one")
    lake.until_condition("si", "by-city", "Synced")
    for item in manifests if order == "backward" else manifests[::-1]:
        metadata: dict[str, str] = item["metadata"]  # type: ignore[assignment]
        lake.kube.run("delete", str(item["kind"]), metadata["name"], "--wait=false")
    lake.kube.wait_for("all resources are gone", lambda: not lake.kube.items("wh,tbl,si,lj,mj"), seconds=PATIENCE)
    lake.kube.wait_for("no driver is left", lambda: not lake.kube.items("pods", "spark-role=driver"), seconds=PATIENCE)
