"""From a changed object to keys: jobs go to their Table, pods to their owner, dependants are told."""

from __future__ import annotations

from typing import Any

import pytest
from skipstone_operator.ports import Key
from skipstone_operator.routing import Router, identity_of

WAREHOUSE, TABLE, INDEX = (
    Key("Warehouse", "air", "lake"),
    Key("Table", "air", "flights"),
    Key("SecondaryIndex", "air", "i"),
)


def resource(kind: str, name: str, **references: str) -> dict[str, Any]:
    spec = {field: {"name": target} for field, target in references.items()}
    return {"kind": kind, "metadata": {"namespace": "air", "name": name}, "spec": spec}


def pod(owner_kind: str, owner_name: str, operation: str = "Load") -> dict[str, Any]:
    owner = {"kind": owner_kind, "name": owner_name, "uid": "u", "controller": True}
    labels = {"skipstone.dev/operation": operation}
    return {
        "kind": "Pod",
        "metadata": {"namespace": "air", "name": "p-driver", "ownerReferences": [owner], "labels": labels},
    }


@pytest.fixture
def router() -> Router:
    """A router that has seen one of each."""
    router = Router()
    router.changed(resource("Warehouse", "lake"))
    router.changed(resource("Table", "flights", warehouseRef="lake"))
    router.changed(resource("SecondaryIndex", "i", tableRef="flights"))
    router.changed(resource("LoadJob", "january", tableRef="flights"))
    return router


@pytest.mark.parametrize("kind", ["LoadJob", "MergeJob"])
def test_a_job_is_reconciled_under_its_table(kind: str) -> None:
    assert Router().changed(resource(kind, "january", tableRef="flights")) == {TABLE}


def test_a_warehouse_concerns_its_tables_and_their_indexes(router: Router) -> None:
    assert router.changed(resource("Warehouse", "lake")) == {WAREHOUSE, TABLE, INDEX}


def test_a_table_concerns_its_indexes_and_its_warehouse(router: Router) -> None:
    assert router.changed(resource("Table", "flights", warehouseRef="lake")) == {WAREHOUSE, TABLE, INDEX}


def test_an_index_concerns_its_table(router: Router) -> None:
    assert router.changed(resource("SecondaryIndex", "i", tableRef="flights")) == {INDEX, TABLE}


@pytest.mark.parametrize(
    ("owner", "key"),
    [
        (("LoadJob", "january"), TABLE),
        (("Table", "flights"), TABLE),
        (("SecondaryIndex", "i"), INDEX),
        (("Warehouse", "lake"), WAREHOUSE),
    ],
)
def test_a_driver_pod_concerns_the_key_of_its_owner(router: Router, owner: tuple[str, str], key: Key) -> None:
    assert router.changed(pod(*owner)) == {key}


def test_an_observe_pod_concerns_all_tables_of_its_warehouse(router: Router) -> None:
    assert router.changed(pod("Warehouse", "lake", "Observe")) == {WAREHOUSE, TABLE}


@pytest.mark.parametrize("owner", [("LoadJob", "unknown"), ("Deployment", "foreign")])
def test_a_pod_of_an_owner_that_is_not_known_concerns_nobody(router: Router, owner: tuple[str, str]) -> None:
    assert router.changed(pod(*owner)) == frozenset()


def test_a_pod_without_owner_concerns_nobody() -> None:
    assert Router().changed({"kind": "Pod", "metadata": {"namespace": "air", "name": "p"}}) == frozenset()


def test_a_deleted_job_concerns_its_table_and_is_forgotten(router: Router) -> None:
    job = Key("LoadJob", "air", "january")
    assert router.removed(job) == {TABLE}
    assert router.removed(job) == frozenset()


def test_a_driver_that_outlives_its_job_still_concerns_the_table_that_it_keeps_busy(router: Router) -> None:
    job, driver = Key("LoadJob", "air", "january"), Key("Pod", "air", "p-driver")
    router.changed(pod("LoadJob", "january"))
    assert router.removed(job) == {TABLE}
    assert router.changed(pod("LoadJob", "january")) == {TABLE}
    assert router.removed(driver) == {TABLE}
    assert router.removed(job) == {TABLE}
    assert router.removed(job) == frozenset()


def test_a_deleted_table_concerns_its_indexes_and_its_warehouse(router: Router) -> None:
    assert router.removed(TABLE) == {WAREHOUSE, TABLE, INDEX}
    assert router.changed(resource("Warehouse", "lake")) == {WAREHOUSE}


def test_a_deleted_warehouse_concerns_its_tables(router: Router) -> None:
    assert router.removed(WAREHOUSE) == {WAREHOUSE, TABLE, INDEX}


def test_an_index_that_moves_concerns_both_tables(router: Router) -> None:
    moved = router.changed(resource("SecondaryIndex", "i", tableRef="airports"))
    assert moved == {INDEX, TABLE, Key("Table", "air", "airports")}
    assert router.changed(resource("Table", "flights", warehouseRef="lake")) == {WAREHOUSE, TABLE}


def test_a_resource_without_a_reference_concerns_itself_only() -> None:
    assert Router().changed({"kind": "Table", "metadata": {"namespace": "air", "name": "flights"}}) == {TABLE}


def test_namespaces_are_kept_apart(router: Router) -> None:
    other = resource("Warehouse", "lake") | {"metadata": {"namespace": "sea", "name": "lake"}}
    assert router.changed(other) == {Key("Warehouse", "sea", "lake")}


def test_every_object_has_one_key_under_which_it_is_reconciled(router: Router) -> None:
    router.changed(pod("LoadJob", "january"))
    assert router.key_of(Key("Pod", "air", "p-driver")) == TABLE
    assert router.key_of(Key("LoadJob", "air", "january")) == TABLE
    assert router.key_of(INDEX) == INDEX
    assert router.key_of(Key("Pod", "air", "stranger")) is None


def test_pods_that_own_each_other_do_not_loop() -> None:
    router = Router()
    strange, stranger = pod("Pod", "q-driver"), pod("Pod", "p-driver")
    stranger["metadata"]["name"] = "q-driver"
    assert router.changed(strange) == router.changed(stranger) == frozenset()
    assert router.key_of(identity_of(strange)) is None


def test_a_merge_job_concerns_the_schedule_that_created_it_too() -> None:
    router, schedule = Router(), Key("MergeSchedule", "air", "hourly")
    owner = {"kind": "MergeSchedule", "name": "hourly", "uid": "u", "controller": True}
    job = resource("MergeJob", "hourly-29453040", tableRef="flights")
    job["metadata"]["ownerReferences"] = [owner]
    assert router.changed(resource("MergeSchedule", "hourly")) == {schedule}
    assert router.changed(job) == {TABLE, schedule}
    assert router.removed(identity_of(job)) == {TABLE, schedule}
    assert router.removed(identity_of(job)) == frozenset()
