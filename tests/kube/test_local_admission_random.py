"""Random manifests before a kube-apiserver and the Admission of `skipstone local`: both judge alike."""

from __future__ import annotations

import copy

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubernetes import client
from skipstone_local.admission import Admission

from tests.examples import cases
from tests.kube.admission_cases import METADATA
from tests.kube.cases import manifest
from tests.kube.mutations import BASES, changed_parts
from tests.kube.test_columns_printed import STATUS
from tests.kube.twins import JsonObject, Judges, without_choice

CREATED = cases(100, 2000)
REPLACED = cases(40, 800)
REPORTED = cases(20, 400)
TRIED = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
)
METADATA_NAMES = st.sampled_from([""] * 60 + sorted(METADATA))
HOW = st.sampled_from(["Warn", "Warn", "Warn", "Ignore", "Strict"])


@pytest.fixture(scope="module")
def judges(api_client: client.ApiClient) -> Judges:
    """The API server and the package."""
    return Judges(api_client, Admission.load())


@given(data=st.data(), base=st.sampled_from(sorted(BASES)), of_all=METADATA_NAMES, how=HOW)
@settings(TRIED, max_examples=CREATED)
def test_random_objects_are_judged_alike(judges: Judges, data: st.DataObject, base: str, of_all: str, how: str) -> None:
    kind, spec = BASES[base].kind, BASES[base].changed
    obj = manifest(kind, data.draw(changed_parts(kind, "spec", spec)))
    obj["metadata"] |= {"namespace": "default"} | METADATA.get(of_all, {})
    by_server, by_admission = judges.create(obj, how)
    assert without_choice(by_admission) == without_choice(by_server)


@pytest.fixture(scope="module")
def stored(judges: Judges, api_client: client.ApiClient) -> list[JsonObject]:
    """Some valid objects, as the API server has them."""
    client.CoreV1Api(api_client).create_namespace({"metadata": {"name": "random-updates"}})
    objects = []
    for number, case in enumerate(list(BASES.values())[::10]):
        obj = manifest(case.kind, case.changed, f"case-{number}")
        obj["metadata"]["namespace"] = "random-updates"
        objects.append(judges.store(obj))
    return objects


@given(data=st.data(), number=st.integers(0, 10_000), how=HOW)
@settings(TRIED, max_examples=REPLACED)
def test_random_updates_are_judged_alike(
    judges: Judges, stored: list[JsonObject], data: st.DataObject, number: int, how: str
) -> None:
    old = stored[number % len(stored)]
    obj = {**copy.deepcopy(old), "spec": data.draw(changed_parts(old["kind"], "spec", old["spec"]))}
    by_server, by_admission = judges.replace(obj, old, field_validation=how)
    assert without_choice(by_admission) == without_choice(by_server)


@pytest.fixture(scope="module")
def reported(judges: Judges, stored: list[JsonObject]) -> list[JsonObject]:
    """An object of each kind with a status, as the API server has it."""
    namespace = stored[0]["metadata"]["namespace"]
    objects = []
    for kind, (spec, status, _) in STATUS.items():
        obj = manifest(kind, spec, "reported")
        obj["metadata"]["namespace"] = namespace
        objects.append(judges.store(obj, status))
    return objects


@given(data=st.data(), number=st.integers(0, len(STATUS) - 1), how=HOW)
@settings(TRIED, max_examples=REPORTED)
def test_random_statuses_are_judged_alike(
    judges: Judges, reported: list[JsonObject], data: st.DataObject, number: int, how: str
) -> None:
    old = reported[number]
    obj = {**copy.deepcopy(old), "status": data.draw(changed_parts(old["kind"], "status", old["status"]))}
    by_server, by_admission = judges.replace(obj, old, "status", how)
    assert without_choice(by_admission) == without_choice(by_server)
