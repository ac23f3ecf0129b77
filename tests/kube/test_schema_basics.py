"""What the API server and kubectl make of the kinds: names, texts, defaults, strictness, the status subresource."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiException, CustomObjectsApi
from skipstone_core.codec import encode
from skipstone_operator.resources.common import Condition, ConditionStatus
from skipstone_operator.resources.kinds import CATEGORY, GROUP, KINDS, VERSION, Kind, parse
from skipstone_operator.resources.table import TableStatus

from tests.cluster.controlplane import ControlPlane
from tests.cluster.errors import ClusterError
from tests.cluster.toolchain import read_releases
from tests.kube.cases import INDEX, LEFT_OUT, LOAD, MERGE, TABLE, WAREHOUSE, Case, manifest
from tests.kube.schedule_cases import ACCEPTED, SCHEDULE
from tests.unit import kstatus

SMALLEST = {
    "Warehouse": WAREHOUSE,
    "Table": TABLE,
    "SecondaryIndex": INDEX,
    "LoadJob": LOAD,
    "MergeJob": MERGE,
    "MergeSchedule": SCHEDULE,
}
HALVES = [(kind.singular, half) for kind in KINDS.values() for half in ("spec", "status")]
TIME = "2026-01-02T03:04:05Z"


def create(api: CustomObjectsApi, namespace: str, kind: str, name: str = "one") -> dict[str, Any]:
    created: dict[str, Any] = api.create_namespaced_custom_object(
        GROUP, VERSION, namespace, KINDS[kind].plural, manifest(kind, SMALLEST[kind], name)
    )
    return created


@pytest.mark.cluster("it is no release of Kubernetes")
def test_the_api_server_is_of_the_release_that_was_chosen(control_plane: ControlPlane) -> None:
    served = json.loads(control_plane.kubectl("get", "--raw", "/version"))["gitVersion"]
    assert served == read_releases()[os.environ.get("SKIPSTONE_KUBERNETES", "")]


def test_discovery_lists_every_kind_with_short_name_and_category(control_plane: ControlPlane) -> None:
    answer = json.loads(control_plane.kubectl("get", "--raw", f"/apis/{GROUP}/{VERSION}"))
    found = {entry["name"]: entry for entry in answer["resources"]}
    for kind in KINDS.values():
        assert found[kind.plural]["shortNames"] == [kind.short_name]
        assert found[kind.plural]["categories"] == [CATEGORY]
        assert found[kind.plural]["namespaced"]
        assert f"{kind.plural}/status" in found


def test_category_lists_objects_of_all_kinds(
    api: CustomObjectsApi, control_plane: ControlPlane, namespace: str
) -> None:
    for kind in KINDS:
        create(api, namespace, kind)
    names = control_plane.kubectl("get", CATEGORY, "--namespace", namespace, "--output", "name").split()
    assert sorted(names) == sorted(f"{kind.singular}.{GROUP}/one" for kind in KINDS.values())


@pytest.mark.parametrize(("kind", "half"), HALVES)
def test_explain_shows_text_below_every_field(control_plane: ControlPlane, kind: str, half: str) -> None:
    text = control_plane.kubectl("explain", f"{kind}.{half}").partition("FIELDS:")[2]
    entries = [entry.splitlines() for entry in text.strip("\n").split("\n\n") if entry.strip()]
    assert entries
    for entry in entries:
        sentences = [line.strip() for line in entry[1:] if not line.strip().startswith("enum:")]
        assert sentences and sentences[0] not in ("", "<no description>"), entry


def test_served_openapi_has_text_for_every_field(control_plane: ControlPlane) -> None:
    document = json.loads(control_plane.kubectl("get", "--raw", f"/openapi/v3/apis/{GROUP}/{VERSION}"))
    for kind in KINDS:
        schema = document["components"]["schemas"][f"dev.skipstone.{VERSION}.{kind}"]
        for half in ("spec", "status"):
            assert list(without_text(schema["properties"][half], f"{kind}.{half}")) == []


def without_text(schema: dict[str, Any], path: str) -> list[str]:
    """Paths of fields below ``schema`` that have no description."""
    found = [] if schema.get("description") else [path]
    for name, inner in schema.get("properties", {}).items():
        found += without_text(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            found += without_text(schema[word], f"{path}[]")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_of_the_server_are_those_of_the_typed_model(api: CustomObjectsApi, kind: str) -> None:
    bare = manifest(kind, SMALLEST[kind])
    served = api.create_namespaced_custom_object(GROUP, VERSION, "default", KINDS[kind].plural, bare, dry_run="All")
    assert parse(served).spec == parse(bare).spec


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("Warehouse", "catalog.name", "skipstone"),
        ("Warehouse", "maxConcurrentRuns", 2),
        ("Warehouse", "spark.executor.instances", 0),
        ("Table", "management", "Managed"),
        ("Table", "reclaimPolicy", "Retain"),
        ("SecondaryIndex", "type", "Lookup"),
        ("SecondaryIndex", "maintenance", "Auto"),
        ("SecondaryIndex", "reclaimPolicy", "Delete"),
        ("LoadJob", "source.duplicates", "Refuse"),
        ("LoadJob", "badRecords.policy", "Fail"),
        ("LoadJob", "timeZone", "UTC"),
        ("LoadJob", "suspend", False),
        ("LoadJob", "backoffLimit", 3),
        ("MergeJob", "pruning.strategy", "Auto"),
    ],
)
def test_server_fills_in_default(api: CustomObjectsApi, kind: str, path: str, value: object) -> None:
    body = manifest(kind, SMALLEST[kind])
    found = api.create_namespaced_custom_object(GROUP, VERSION, "default", KINDS[kind].plural, body, dry_run="All")
    assert value_at(found["spec"], path) == value


@pytest.mark.parametrize("kind", [kind for kind in KINDS.values() if kind.selectable], ids=lambda kind: kind.name)
def test_objects_are_selected_by_each_field_and_by_all(api: CustomObjectsApi, namespace: str, kind: Kind) -> None:
    def select(selector: str) -> list[str]:
        found = api.list_namespaced_custom_object(GROUP, VERSION, namespace, kind.plural, field_selector=selector)
        return [item["metadata"]["name"] for item in found["items"]]

    made = create(api, namespace, kind.name)
    wanted = [f"{path}={value_at(made, path)}" for path in kind.selectable]
    for selector in [*wanted, ",".join(wanted)]:
        assert select(selector) == ["one"]
        assert select(f"{selector}-other") == []


def value_at(found: dict[str, Any], path: str) -> Any:
    value: Any = found
    for part in path.split("."):
        value = value[part]
    return value


@pytest.mark.parametrize("kind", ["LoadJob", "MergeJob"])
def test_jobs_have_no_ttl_by_default(api: CustomObjectsApi, kind: str) -> None:
    body = manifest(kind, SMALLEST[kind])
    found = api.create_namespaced_custom_object(GROUP, VERSION, "default", KINDS[kind].plural, body, dry_run="All")
    assert "ttlSecondsAfterFinished" not in found["spec"]


@pytest.mark.parametrize("case", LEFT_OUT, ids=lambda case: case.name)
def test_kubectl_refuses_field_without_engine(control_plane: ControlPlane, case: Case) -> None:
    text = yaml.safe_dump(manifest(case.kind, case.changed))
    with pytest.raises(ClusterError, match=f'unknown field "spec.{case.says}"'):
        control_plane.kubectl("apply", "--dry-run=server", "--filename", "-", text_input=text)


def test_kubectl_shows_the_sentence_of_a_rule(control_plane: ControlPlane) -> None:
    text = yaml.safe_dump(manifest("Table", {**TABLE, "primaryKey": ["nope"]}))
    with pytest.raises(ClusterError, match=r"spec.primaryKey: .*primaryKey names a column that spec.columns does not"):
        control_plane.kubectl("apply", "--dry-run=server", "--filename", "-", text_input=text)


@pytest.mark.parametrize("kind", KINDS)
def test_status_is_a_subresource(api: CustomObjectsApi, namespace: str, kind: str) -> None:
    plural = KINDS[kind].plural
    created = create(api, namespace, kind)
    written = {**created, "spec": {**created["spec"], "suspend": True}, "status": {"observedGeneration": 7}}
    after_status = api.replace_namespaced_custom_object_status(GROUP, VERSION, namespace, plural, "one", written)
    assert after_status["status"] == {"observedGeneration": 7}
    assert after_status["spec"] == created["spec"]
    after_main = api.replace_namespaced_custom_object(
        GROUP, VERSION, namespace, plural, "one", {**after_status, "status": {"observedGeneration": 9}}
    )
    assert after_main["status"] == {"observedGeneration": 7}


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_no_operator_has_seen_is_in_progress(api: CustomObjectsApi, namespace: str, kind: str) -> None:
    assert kstatus.compute(create(api, namespace, kind)) == kstatus.IN_PROGRESS
    found = api.get_namespaced_custom_object(GROUP, VERSION, namespace, KINDS[kind].plural, "one")
    assert kstatus.compute(found) == kstatus.IN_PROGRESS
    assert parse(found).status.conditions == ()


def test_typed_status_comes_back_as_it_was_written(api: CustomObjectsApi, namespace: str) -> None:
    created = create(api, namespace, "Table")
    ready = Condition(
        type="Ready", status=ConditionStatus.TRUE, reason="Created", last_transition_time=TIME, observed_generation=1
    )
    status = TableStatus(conditions=(ready,), table_uuid="u", field_ids={"id": 1}, snapshot_id="9" * 19, rows=3)
    written = {**created, "status": encode(status)}
    answer = api.replace_namespaced_custom_object_status(GROUP, VERSION, namespace, "tables", "one", written)
    assert parse(answer).status == status


def test_conditions_are_a_map_by_type(api: CustomObjectsApi, namespace: str) -> None:
    created = create(api, namespace, "Table")
    twice = [{"type": "Ready", "status": "True", "reason": "Created", "lastTransitionTime": TIME}] * 2
    with pytest.raises(ApiException, match="Duplicate value"):
        api.replace_namespaced_custom_object_status(
            GROUP, VERSION, namespace, "tables", "one", {**created, "status": {"conditions": twice}}
        )


def test_edited_status_of_wrong_type_is_refused(api: CustomObjectsApi, namespace: str) -> None:
    created = create(api, namespace, "Table")
    with pytest.raises(ApiException, match=r"status\.rows"):
        api.replace_namespaced_custom_object_status(
            GROUP, VERSION, namespace, "tables", "one", {**created, "status": {"rows": "many"}}
        )


def test_large_annotation_is_kept_apart_from_the_spec(api: CustomObjectsApi) -> None:
    body = manifest("Table", TABLE)
    body["metadata"]["annotations"] = {"garbage": "x" * 200_000}
    created = api.create_namespaced_custom_object(GROUP, VERSION, "default", "tables", body, dry_run="All")
    assert parse(created).spec == parse(body).spec


def test_client_without_strict_validation_gets_unknown_fields_pruned(api: CustomObjectsApi) -> None:
    body = manifest("MergeJob", {**MERGE, "whatNobodyKnows": "target.a = 1"})
    created = api.create_namespaced_custom_object(GROUP, VERSION, "default", "mergejobs", body, dry_run="All")
    assert "whatNobodyKnows" not in created["spec"]


def test_accepted_cases_cover_every_kind() -> None:
    assert {case.kind for case in ACCEPTED} == set(KINDS)
