"""The objects of the demonstration: what its pods may do, where they keep what they hold, and how they get keys."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.kinds import parse

from demo import s3
from demo.kube import Images, Kube, KubeError
from demo.storages import InBucket, OnClaim, Storage, bucket_warehouse, choose_storage
from tests.cluster.traffic import read_set

KUBE = Kube(
    kubectl="kubectl",
    helm="helm",
    environment={},
    images=Images(operator="o", spark="s", demo="d", pull_policy="Never", versitygw="gateway", nessie="catalog"),
    embedded=True,
)
WAREHOUSES = {"flights": "s3://lake/prod", "other": "s3://second"}


@pytest.fixture(params=["server", "catalog"])
def server(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The Deployment of each server."""
    if request.param == "server":
        return s3.s3_server(KUBE, ["lake", "second"])
    return s3.rest_catalog(KUBE, "http://10.96.0.7:7070", WAREHOUSES)


def test_servers_are_restricted_and_keep_everything_in_their_pods(server: dict[str, Any]) -> None:
    pod = server["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert [{*volume} for volume in pod["volumes"]] == [{"name", "emptyDir"}] * len(pod["volumes"])
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}


def test_servers_get_keys_by_reference_only(server: dict[str, Any]) -> None:
    assert s3.SECRET_KEY not in json.dumps(server)
    (container,) = server["spec"]["template"]["spec"]["containers"]
    held = s3.keys_secret(s3.SECRET)["stringData"]
    references = [one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one]
    assert {(one["name"], one["key"]) for one in references} == {(s3.SECRET, key) for key in held}


def test_each_bucket_is_there_from_the_start() -> None:
    (container,) = s3.s3_server(KUBE, ["lake", "second"])["spec"]["template"]["spec"]["containers"]
    assert {"/buckets/lake", "/buckets/second"} <= {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_catalog_knows_the_server_and_its_warehouses() -> None:
    (container,) = s3.rest_catalog(KUBE, "http://10.96.0.7:7070", WAREHOUSES)["spec"]["template"]["spec"]["containers"]
    settings = container["env"][0]["value"].split()
    assert "-Dnessie.catalog.service.s3.default-options.endpoint=http://10.96.0.7:7070" in settings
    assert "-Dnessie.catalog.default-warehouse=flights" in settings
    assert "-Dnessie.catalog.warehouses.other.location=s3://second" in settings


@pytest.fixture(params=[OnClaim, InBucket])
def storage(request: pytest.FixtureRequest) -> Storage:
    """Each storage."""
    made: Storage = request.param()
    return made


def test_programs_reach_a_bucket_without_a_claim_and_a_claim_without_keys(storage: Storage) -> None:
    pod = storage.task(KUBE, "demo-lay", ["python", "-m", "demo.lay", storage.root])["spec"]
    claims = [volume for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
    (container,) = pod["containers"]
    keys = {one["name"] for one in container["env"] if "valueFrom" in one}
    assert (len(claims), keys) == ((1, set()) if storage.root.startswith("/") else (0, {*s3.KEYS}))
    assert s3.SECRET_KEY not in json.dumps(pod)


def test_the_warehouse_in_a_bucket_is_valid_and_names_no_claim() -> None:
    declared = bucket_warehouse(s3.Endpoints(s3="http://10.96.0.7:7070", catalog="http://10.96.0.8:19120/iceberg"))
    assert validate_spec("Warehouse", parse(declared).spec) is None
    assert {*declared["spec"]["storage"]} == {"s3"}


def test_a_storage_that_is_not_there_is_refused_in_a_sentence() -> None:
    with pytest.raises(KubeError, match="STORAGE is 'tape': choose volume or s3"):
        choose_storage(KUBE, "tape")
    with pytest.raises(KubeError, match="needs the embedded cluster"):
        choose_storage(replace(KUBE, embedded=False), "s3")


def test_calls_to_addresses_outside_are_named() -> None:
    """As nft prints a set that the kernel filled, and one that is empty."""
    listed = {"name": "outside", "elem": [{"concat": ["203.0.113.1", "tcp", 9]}, {"concat": ["10.1.1.1", "udp", 53]}]}
    said = {"nftables": [{"metainfo": {"version": "1.0.6"}}, {"set": listed}]}
    assert read_set(json.dumps(said)) == ["10.1.1.1 udp 53", "203.0.113.1 tcp 9"]
    del listed["elem"]
    assert read_set(json.dumps(said)) == []
