"""Every rule of the schemas, by the API server: what it takes, what it refuses and with which sentence."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kubernetes.client import ApiException, CustomObjectsApi
from skipstone_operator.resources.kinds import GROUP, KINDS, VERSION

from tests.kube.cases import BY_API_ONLY, POD_TEMPLATES, WAREHOUSE, Case, Edit, changed, manifest
from tests.kube.schedule_cases import ACCEPTED, EDITS, REJECTED, UNTYPED

BY_API = [case for case in REJECTED if not case.operator_only]


def submit(api: CustomObjectsApi, case: Case, name: str = "case", **options: str) -> dict[str, Any]:
    """Create the case's object in namespace default, by dry run unless said otherwise."""
    created: dict[str, Any] = api.create_namespaced_custom_object(
        GROUP, VERSION, "default", KINDS[case.kind].plural, manifest(case.kind, case.changed, name),
        **{"dry_run": "All", **options},
    )  # fmt: skip
    return created


def refusal(api: CustomObjectsApi, case: Case, name: str = "case") -> dict[str, str]:
    """Field to message of everything that the API server finds wrong with the case."""
    with pytest.raises(ApiException) as refused:
        submit(api, case, name)
    assert refused.value.status == 422, refused.value.body
    return causes(refused.value)


def causes(refused: ApiException) -> dict[str, str]:
    """Field to messages of a refusal."""
    found: dict[str, str] = {}
    for cause in json.loads(refused.body)["details"]["causes"]:
        found[cause["field"]] = found.get(cause["field"], "") + cause["message"]
    return found


@pytest.mark.parametrize("case", ACCEPTED, ids=lambda case: case.name)
def test_api_server_takes_valid_manifest(api: CustomObjectsApi, case: Case) -> None:
    assert submit(api, case)["spec"]


@pytest.mark.parametrize("case", [*BY_API, *BY_API_ONLY, *UNTYPED], ids=lambda case: case.name)
def test_api_server_refuses_naming_field_and_sentence(api: CustomObjectsApi, case: Case) -> None:
    found = refusal(api, case)
    at = next((field for field in found if field == case.at or field.startswith(case.at)), "")
    assert at, f"{case.at} is not among {sorted(found)}"
    assert case.says in found[at]


@pytest.mark.parametrize(("field", "value", "says"), POD_TEMPLATES, ids=lambda value: str(value)[:30])
def test_pod_template_may_not_name_restricted_field(
    api: CustomObjectsApi, field: str, value: object, says: str
) -> None:
    case = Case("pod-template", "Warehouse", WAREHOUSE, {"spark.podTemplate": {"spec": {field: value}}})
    found = refusal(api, case)
    assert says in found[f"spec.spark.podTemplate.spec.{field}"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_longest_name_is_taken_and_longer_is_refused(api: CustomObjectsApi, kind: str) -> None:
    case, longest = next(case for case in ACCEPTED if case.kind == kind), KINDS[kind].max_name
    assert submit(api, case, "n" * longest)
    said = refusal(api, case, "n" * (longest + 1))["metadata.name"]
    assert f"metadata.name may have at most {longest} characters" in said


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.name)
def test_edit_of_existing_object(api: CustomObjectsApi, namespace: str, edit: Edit) -> None:
    plural = KINDS[edit.kind].plural
    old = api.create_namespaced_custom_object(GROUP, VERSION, namespace, plural, manifest(edit.kind, edit.spec, "edit"))
    new = {**old, "spec": changed(old["spec"], edit.changes)}
    if not edit.says:
        edited = api.replace_namespaced_custom_object(GROUP, VERSION, namespace, plural, "edit", new)
        assert edited["metadata"]["generation"] == old["metadata"]["generation"] + 1
        return
    with pytest.raises(ApiException) as refused:
        api.replace_namespaced_custom_object(GROUP, VERSION, namespace, plural, "edit", new)
    assert edit.says in causes(refused.value)[edit.at]
