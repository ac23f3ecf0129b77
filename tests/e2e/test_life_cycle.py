"""Applying and deleting in any order."""

from __future__ import annotations

import pytest

from tests.e2e.lake import PATIENCE, Lake, index, load, people, table, warehouse

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
