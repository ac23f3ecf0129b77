"""Where runs keep tables and read sources: from the spec of a Warehouse to requests, pods and waiting runs."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from skipstone_core.contract.places import S3Ref, SourceLocationRef
from skipstone_core.contract.requests import JobRequest
from skipstone_core.reasons import Reason
from skipstone_operator.manifests import build_run
from skipstone_operator.reconcilers.runs.requests import RunPlan, build_manifest, plan_check_run, plan_job_run
from skipstone_operator.reconcilers.table import decide as decide_table
from skipstone_operator.reconcilers.warehouse import decide
from skipstone_operator.worlds.identity import catalog_identity
from skipstone_operator.worlds.steps import PutStatus
from skipstone_operator.worlds.subjects import ClaimFacts, LocationClaim, Subject

from tests.unit import objects
from tests.unit.job_cases import waits
from tests.unit.table_cases import going, released
from tests.unit.world_cases import (
    SETTING,
    good_table,
    good_warehouse,
    job_world,
    place,
    subject,
    table_world,
    warehouse_world,
    written_condition,
)

Obj = dict[str, Any]
S3: Obj = {"bucket": "lake", "prefix": "prod", "region": "eu", "endpoint": "https://s3", "pathStyleAccess": True}
REST: Obj = {"catalog": {"type": "Rest", "uri": "https://catalog"}}
BUCKET: Obj = {
    **REST,
    "storage": {"s3": {**S3, "credentialsSecretRef": {"name": "lake-keys"}}},
    "credentialsSecretRef": {"name": "catalog", "keys": ["SKIPSTONE_CATALOG_TOKEN"]},
}
LANDING: Obj = {"name": "erp-landing", "s3": {"bucket": "landing", "credentialsSecretRef": {"name": "landing-keys"}}}
SHARED_KEYS: Obj = {"name": "shared", "s3": {"bucket": "shared"}}
DROP: Obj = {"name": "drop", "pvc": {"claimName": "drop-claim"}}
LOCATIONS: Obj = {"sourceLocations": [LANDING, SHARED_KEYS, DROP]}
TWO: Obj = {"spark": {"executor": {"instances": 2}}}


def load_plan(location: str | None = None, **spec: Any) -> RunPlan:
    """A load from ``location`` in a Warehouse of this spec."""
    source = {"format": "Csv", "paths": ["a.csv"], **({"location": location} if location else {})}
    warehouse = good_warehouse(**spec)
    there = place(warehouse=warehouse, claim=None)
    return plan_job_run(subject(objects.load("jan", source=source)), there, good_table(), warehouse, SETTING)


def check_plan(**spec: Any) -> RunPlan:
    return plan_check_run(good_warehouse(**spec), None, SETTING)


def built(plan: RunPlan) -> tuple[JobRequest, list[Obj], str]:
    """The request, the pods (the driver, and the template of executors if there are any), and the ConfigMap's text."""
    conf, pod = build_run(build_manifest(plan, plan.intent(1, "x")))
    data = conf["data"]
    template = data.get("executor-pod-template.yaml")
    pods = [pod, *([yaml.safe_load(template)] if template else [])]
    return JobRequest.from_json(data["request.json"]), pods, "".join(data.values())


def variables(pod: Obj) -> Obj:
    (container,) = pod["spec"]["containers"]
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container["env"]}


def keys(secret: str, prefix: str = "") -> Obj:
    """The variables of a bucket's Secret."""

    def reference(key: str, **more: Any) -> Obj:
        return {f"{prefix}{key}": {"secretKeyRef": {"name": secret, "key": key, **more}}}

    required = {**reference("AWS_ACCESS_KEY_ID"), **reference("AWS_SECRET_ACCESS_KEY")}
    return {**required, **reference("AWS_SESSION_TOKEN", optional=True)}


def claims(pod: Obj) -> Obj:
    """What pods mount of claims: the path and the claim."""
    (container,) = pod["spec"]["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    found = {}
    for volume in pod["spec"]["volumes"]:
        if claim := volume.get("persistentVolumeClaim"):
            mount = mounts[volume["name"]]
            found[mount["mountPath"]] = (claim["claimName"], claim.get("readOnly", False), mount.get("readOnly", False))
    return found


def test_a_run_of_a_warehouse_in_a_bucket_mounts_no_claim_anywhere() -> None:
    request, pods, _ = built(load_plan(**BUCKET, **TWO))
    assert request.warehouse.root == ""
    assert request.warehouse.s3 == S3Ref(
        bucket="lake", prefix="prod", region="eu", endpoint="https://s3", path_style_access=True
    )
    assert len(pods) == 2
    for pod in pods:
        assert claims(pod) == {}
        assert "affinity" not in pod["spec"]
        assert keys("lake-keys").items() <= variables(pod).items()
    assert "SKIPSTONE_CATALOG_TOKEN" in variables(pods[0])
    assert "SKIPSTONE_CATALOG_TOKEN" not in variables(pods[1])


def test_without_a_secret_credentials_are_those_of_the_account() -> None:
    spec = {**REST, "storage": {"s3": S3}}
    _, pods, _ = built(load_plan(**spec, **TWO))
    assert [name for pod in pods for name in variables(pod) if "AWS" in name] == []


def test_a_check_reads_all_locations_and_a_load_the_one_that_it_names() -> None:
    request, pods, _ = built(check_plan(**BUCKET, **LOCATIONS))
    assert [one.name for one in request.warehouse.locations] == ["erp-landing", "shared", "drop"]
    assert keys("landing-keys", "SKIPSTONE_LOCATION_ERP_LANDING_").items() <= variables(pods[0]).items()
    request, pods, _ = built(load_plan(**BUCKET, **LOCATIONS, **TWO))
    assert request.warehouse.locations == ()
    assert [name for pod in pods for name in variables(pod) if name.startswith("SKIPSTONE_LOCATION_")] == []


def test_keys_of_a_location_have_a_name_of_their_own_in_driver_and_executors() -> None:
    request, pods, _ = built(load_plan("erp-landing", **BUCKET, **LOCATIONS, **TWO))
    prefix = "SKIPSTONE_LOCATION_ERP_LANDING_"
    landing = S3Ref(bucket="landing", credentials_prefix=prefix)
    assert request.warehouse.locations == (SourceLocationRef(name="erp-landing", s3=landing),)
    assert request.load is not None
    assert request.load.source.location == "erp-landing"
    for pod in pods:
        assert {**keys("lake-keys"), **keys("landing-keys", prefix)}.items() <= variables(pod).items()


def test_a_location_without_a_secret_is_read_as_the_warehouse_is() -> None:
    request, pods, _ = built(load_plan("shared", **BUCKET, **LOCATIONS))
    assert request.warehouse.locations == (SourceLocationRef(name="shared", s3=S3Ref(bucket="shared")),)
    assert [name for name in variables(pods[0]) if name.startswith("SKIPSTONE_LOCATION_")] == []


@pytest.mark.parametrize(("spec", "own"), [(BUCKET, {}), ({}, {"/skipstone/main": ("lake-data", False, False)})])
def test_a_claim_of_a_location_is_mounted_where_it_is_read_and_nothing_writes_it(spec: Obj, own: Obj) -> None:
    request, pods, _ = built(load_plan("drop", **spec, **LOCATIONS, **TWO))
    assert request.warehouse.locations == (SourceLocationRef(name="drop", root="/skipstone-sources/drop"),)
    for pod in pods:
        assert claims(pod) == {**own, "/skipstone-sources/drop": ("drop-claim", True, True)}


def test_authorities_are_mounted_in_driver_and_executors() -> None:
    _, pods, _ = built(load_plan(**BUCKET, **TWO, caBundleRef={"name": "authorities", "key": "bundle.pem"}))
    for pod in pods:
        assert variables(pod)["SKIPSTONE_CA_BUNDLE"] == "/etc/skipstone-ca/ca.crt"
        (container,) = pod["spec"]["containers"]
        (mount,) = (one for one in container["volumeMounts"] if one["mountPath"] == "/etc/skipstone-ca")
        (volume,) = (one for one in pod["spec"]["volumes"] if one["name"] == mount["name"])
        assert mount["readOnly"] is True
        items = [{"key": "bundle.pem", "path": "ca.crt"}]
        assert volume["configMap"] == {"name": "authorities", "items": items}
    assert "SKIPSTONE_CA_BUNDLE" not in variables(built(load_plan())[1][0])


def test_credentials_are_references_to_secrets_and_no_settings_of_spark() -> None:
    _, pods, text = built(load_plan("erp-landing", **BUCKET, **LOCATIONS, **TWO))
    for pod in pods:
        given = [value for name, value in variables(pod).items() if "AWS_" in name]
        assert len(given) == 6
        assert all(set(value) == {"secretKeyRef"} for value in given)
    settings = [line for line in text.splitlines() if line.startswith("spark.")]
    assert [line for line in settings if "aws" in line.lower() or "secret" in line.lower()] == []


def test_a_location_that_a_run_does_not_read_makes_no_other_run_of_it() -> None:
    hashes = {load_plan(**BUCKET).inputs_hash, load_plan(**BUCKET, **LOCATIONS).inputs_hash}
    assert len(hashes) == 1
    moved = {"sourceLocations": [{"name": "drop", "pvc": {"claimName": "other"}}]}
    reads = {load_plan("drop", **BUCKET, **LOCATIONS).inputs_hash, load_plan("drop", **BUCKET, **moved).inputs_hash}
    assert len(reads | hashes) == 3


def test_files_of_another_location_are_not_consumed_yet() -> None:
    def consumer(location: str | None) -> str:
        source = {"format": "Csv", "paths": ["in"], "consume": "New", **({"location": location} if location else {})}
        warehouse = good_warehouse(**LOCATIONS)
        job = subject(objects.load("jan", source=source))
        request = built(plan_job_run(job, place(warehouse=warehouse), good_table(), warehouse, SETTING))[0]
        assert request.load is not None
        return request.load.source.consumer

    assert len({consumer(None), consumer("drop"), consumer("shared")}) == 3


def test_a_job_waits_for_its_location() -> None:
    source = {"format": "Csv", "paths": ["a.csv"], "location": "erp-landing"}
    job = objects.load("jan", source=source)
    assert waits(job_world(job)) == ("False", Reason.SOURCE_LOCATION_NOT_FOUND)
    ready = place(warehouse=good_warehouse(**LOCATIONS))
    assert waits(job_world(job, place=ready)) == ("True", Reason.RUN_INTENDED)


def ready_message(**facts: Any) -> tuple[str, str, str]:
    spec = facts.pop("spec", {})
    step = decide(warehouse_world(spec, **facts))
    assert isinstance(step, PutStatus)
    (ready,) = (one for one in step.status["conditions"] if one["type"] == "Ready")
    return ready["status"], ready["reason"], ready["message"]


def test_a_warehouse_in_a_bucket_needs_no_claim() -> None:
    step = decide(warehouse_world(BUCKET, claim=None))
    assert written_condition(step, "Progressing") == ("True", Reason.RUN_INTENDED)
    assert isinstance(step, PutStatus)
    assert step.status["storage"] == "s3://lake/prod"


@pytest.mark.parametrize(
    ("modes", "spec", "reason", "says"),
    [
        (None, {}, Reason.CLAIM_NOT_FOUND, "there is no PersistentVolumeClaim 'drop-claim' here; create it"),
        (("ReadWriteOnce",), {**BUCKET, **TWO}, Reason.INVALID_SPEC, "executors on several nodes cannot read from"),
        (("ReadWriteOnce",), {**BUCKET}, Reason.CHECK_PENDING, ""),
        (("ReadWriteOnce",), {**TWO}, Reason.CHECK_PENDING, ""),
        (("ReadOnlyMany",), {**BUCKET, **TWO}, Reason.CHECK_PENDING, ""),
    ],
    ids=["no claim", "one node, many executors", "no executors", "all on one node", "many nodes"],
)
def test_a_claim_of_a_location_must_be_there_for_all_pods(
    modes: tuple[str, ...] | None, spec: Obj, reason: Reason, says: str
) -> None:
    facts = ClaimFacts("drop-claim", modes) if modes else None
    located = (LocationClaim("drop", "drop-claim", facts),)
    own = {"claim": None} if "storage" in spec else {}
    status, found, message = ready_message(spec={**spec, **LOCATIONS}, location_claims=located, **own)
    assert (status, found) == ("False", reason)
    assert says in message
    if says:
        assert message.startswith("spec.sourceLocations[drop].pvc.claimName: ")


def test_a_table_in_a_bucket_is_dropped_without_a_claim() -> None:
    there = place(warehouse=good_warehouse(**BUCKET), claim=None)
    step = decide_table(table_world(going(), place=there))
    assert isinstance(step, PutStatus)
    assert step.status["currentRun"]["kind"] == "Drop"
    kept, _ = released(decide_table(table_world(going(), place=place(claim=None))))
    assert kept == ("other",)


def test_warehouses_share_the_tables_of_one_catalog_whatever_their_storage() -> None:
    def identity(name: str, spec: Obj) -> tuple[str, ...]:
        made: Subject[Any, Any] = subject(objects.warehouse(name, **spec))
        return catalog_identity(made)

    assert identity("a", BUCKET) == identity("b", {**REST})
    assert identity("a", {}) == identity("b", {})
    assert identity("a", {}) != identity("b", {"storage": {"pvc": {"claimName": "other"}}})
