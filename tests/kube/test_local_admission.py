"""The Admission of `skipstone local` judges as a kube-apiserver does: verdict, sentences, causes, warnings, object."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client
from skipstone_local.admission import Admission
from skipstone_operator.resources.kinds import API_VERSION, KINDS

from tests.docs.blocks import blocks_of, pages
from tests.kube import cases
from tests.kube.admission_cases import (
    BUILTIN,
    BUILTIN_ACCEPTED,
    BUILTIN_UPDATES,
    METADATA,
    READY,
    SPECS,
    STATUSES,
    UPDATES,
)
from tests.kube.cases import TABLE, WAREHOUSE, changed, manifest
from tests.kube.schedule_cases import ACCEPTED, EDITS, REJECTED, UNTYPED
from tests.kube.twins import JsonObject, Judges, Verdict

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = sorted([*(ROOT / "examples").rglob("*.yaml"), *(ROOT / "demo").rglob("*.yaml")])
#: Several cases in each test: a failure names all that differ, and `make test` takes a quarter of the parts.
PARTS = 8
#: Cases that a server judges before admission does; that of `skipstone local` has other words for them.
OF_THE_SERVER = frozenset({"", "without-version", "times"} if os.environ.get("SKIPSTONE_API") == "local" else ())
Difference = tuple[str, Verdict, Verdict]


@pytest.fixture(scope="session")
def admission() -> Admission:
    """The rules of the package."""
    return Admission.load()


@pytest.fixture
def judges(api_client: client.ApiClient, admission: Admission) -> Judges:
    """The API server and the package."""
    return Judges(api_client, admission)


def placed(obj: JsonObject, namespace: str, **metadata: Any) -> JsonObject:
    """A copy of the object in a namespace."""
    return {**copy.deepcopy(obj), "metadata": {**obj["metadata"], "namespace": namespace, **metadata}}


def compare(name: str, verdicts: tuple[Verdict, Verdict]) -> list[Difference]:
    """Nothing, or the two verdicts when they differ."""
    return [] if verdicts[0] == verdicts[1] else [(name, *verdicts)]


@pytest.mark.parametrize("part", range(PARTS))
def test_every_rule_case_is_judged_alike(judges: Judges, part: int) -> None:
    found: list[Difference] = []
    for case in (*ACCEPTED, *REJECTED, *UNTYPED, *cases.BY_API_ONLY)[part::PARTS]:
        obj = placed(manifest(case.kind, case.changed), "default")
        found += compare(case.name, judges.create(obj))
    assert found == []


def test_pod_templates_are_judged_alike(judges: Judges) -> None:
    found: list[Difference] = []
    for field, value, _ in cases.POD_TEMPLATES:
        spec = changed(WAREHOUSE, {"spark.podTemplate": {"spec": {field: value}}})
        found += compare(field, judges.create(placed(manifest("Warehouse", spec), "default")))
    assert found == []


@pytest.mark.parametrize("field_validation", ["Strict", "Warn", "Ignore"])
def test_unknown_fields_are_refused_warned_of_or_dropped_alike(judges: Judges, field_validation: str) -> None:
    found: list[Difference] = []
    for case in cases.LEFT_OUT:
        obj = placed(manifest(case.kind, case.changed), "default")
        found += compare(case.name, judges.create(obj, field_validation))
    for name, obj in SPECS.items():
        found += compare(name, judges.create(placed(obj, "default"), field_validation))
    for name, metadata in METADATA.items():
        found += compare(name, judges.create(placed(manifest("Table", TABLE), "default", **metadata), field_validation))
    assert found == []


@pytest.mark.parametrize("kind", KINDS)
def test_names_are_judged_alike(judges: Judges, kind: str) -> None:
    case, longest = next(case for case in ACCEPTED if case.kind == kind), KINDS[kind].max_name
    found: list[Difference] = []
    names = {"n" * longest, "n" * (longest + 1), "n" * 253, "n" * 254, "A_b", "-a", "a.b", "a..b", ""}
    for name in sorted(names - OF_THE_SERVER):
        found += compare(name, judges.create(placed(manifest(kind, case.changed, name), "default")))
    assert found == []


def test_edits_are_judged_alike(judges: Judges, namespace: str) -> None:
    found: list[Difference] = []
    for edit in EDITS:
        old = judges.store(placed(manifest(edit.kind, edit.spec, edit.name.lower()), namespace))
        found += compare(edit.name, judges.replace({**old, "spec": changed(old["spec"], edit.changes)}, old))
    assert found == []


def test_updates_and_statuses_are_judged_alike(judges: Judges, namespace: str) -> None:
    obj = placed(manifest("Table", TABLE), namespace, finalizers=["example.org/stay"])
    old = judges.store(obj, {"conditions": [READY]})
    found: list[Difference] = []
    for name, changes in [(name, changes) for name, changes in UPDATES.items() if name not in OF_THE_SERVER]:
        found += compare(name, judges.replace(changed(old, changes), old))
    for name, status in STATUSES.items():
        new = {**old, "status": status, "spec": {"nobody": "looks"}}
        for field_validation in ("Warn", "Strict"):
            found += compare(name, judges.replace(new, old, "status", field_validation))
    without = {name: value for name, value in old.items() if name != "status"}
    found += compare("without-status", judges.replace(without, old, "status"))
    assert found == []


def test_finalizers_are_judged_alike_while_an_object_is_deleted(
    judges: Judges, api: client.CustomObjectsApi, namespace: str
) -> None:
    obj = placed(manifest("Table", TABLE, "going"), namespace, finalizers=["example.org/stay"])
    judges.store(obj)
    old = api.delete_namespaced_custom_object("skipstone.dev", "v1alpha1", namespace, "tables", "going")
    assert old["metadata"]["deletionTimestamp"]
    new = changed(old, {"metadata.finalizers": ["example.org/stay", "example.org/more"]})
    assert compare("added", judges.replace(new, old)) == []


def test_kinds_of_kubernetes_are_judged_alike(judges: Judges, namespace: str) -> None:
    found: list[Difference] = []
    for name, obj in BUILTIN.items():
        by_server, by_admission = judges.create(placed(obj, namespace))
        if by_server.obj and by_admission.obj and obj["kind"] == "Pod":
            continue
        found += compare(name, (by_server, by_admission))
    for name, obj in BUILTIN_ACCEPTED.items():
        by_server, by_admission = judges.create(placed(obj, namespace))
        assert by_server.obj and by_admission.obj, name
        spec = by_server.obj["spec"]
        assert {field: spec[field] for field in by_admission.obj["spec"] if field != "containers"} == {
            field: value for field, value in by_admission.obj["spec"].items() if field != "containers"
        }
    assert found == []


def test_updates_of_kinds_of_kubernetes_are_judged_alike(judges: Judges, namespace: str) -> None:
    for number, (obj, changes, is_taken) in enumerate(BUILTIN_UPDATES):
        old = judges.store(placed(obj, namespace, name=f"case-{number}"))
        by_server, by_admission = judges.replace(changed(old, changes), old)
        assert [by_server.status == 200, by_admission.status == 200] == [is_taken] * 2, (changes, by_server)
        shown = [[(reason, field) for reason, _, field in verdict.causes] for verdict in (by_server, by_admission)]
        assert shown[0] == shown[1]


def shipped() -> Iterator[tuple[str, JsonObject]]:
    """Every manifest of the examples, of the demonstration and of the pages, and where it is."""
    for path in WRITTEN:
        for obj in yaml.safe_load_all(path.read_text()):
            yield path.name, obj
    for block in (block for page in pages() for block in blocks_of(page) if block.language == "yaml"):
        for obj in yaml.safe_load_all(block.text):
            yield f"{block.page}:{block.line}", obj


def test_manifests_that_the_project_ships_are_taken_by_both(judges: Judges, namespace: str) -> None:
    found: list[Difference] = []
    looked_at = 0
    for where, obj in shipped():
        if isinstance(obj, dict) and obj.get("apiVersion") == API_VERSION:
            looked_at += 1
            by_server, by_admission = judges.create(placed(obj, namespace), "Strict")
            assert by_server.status == 200, (where, by_server.message)
            found += compare(where, (by_server, by_admission))
    assert looked_at > 30
    assert found == []
