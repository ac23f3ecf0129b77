"""What `helm test` asks for: exactly the rights of the chart's Roles, and every field of the CRDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from skipstone_operator.checking.rights import build_review, lease_rights, watched_rights
from skipstone_operator.checking.schemas import find_unknown_fields
from skipstone_operator.resources.kinds import GROUP, KINDS
from skipstone_operator.resources.publishing.crds import root_schema

from tests.unit.test_chart_rendered import EVERYTHING, granted, helm, objects, render

__all__ = ["helm"]


def served(*left_out: str) -> dict[str, Any]:
    """What an API server with the CRDs of this version answers, without some kinds."""
    marks = {name: [{"group": GROUP, "version": "v1alpha1", "kind": name}] for name in KINDS}
    schemas = {
        f"dev.skipstone.v1alpha1.{name}": root_schema(kind) | {"x-kubernetes-group-version-kind": marks[name]}
        for name, kind in KINDS.items()
        if name not in left_out
    }
    return {"components": {"schemas": schemas}}


def test_what_is_asked_for_is_what_the_chart_grants(helm: Path) -> None:
    roles = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in _roles(helm)}
    asked = {(right.group, right.resource, right.verb) for right in watched_rights()}
    assert asked == set(granted(roles["lake", "skipstone-operator"]))
    lease = {(right.group, right.resource, right.verb) for right in lease_rights("any")}
    assert lease == set(granted(roles["skipstone-system", "skipstone-lease"]))


def _roles(helm: Path) -> list[dict[str, Any]]:
    return objects(render(helm, *EVERYTHING), "Role")


def test_a_subresource_is_asked_for_as_one() -> None:
    (right,) = (one for one in watched_rights() if one.resource == "tables/status")
    review = build_review(right, "lake")["spec"]["resourceAttributes"]
    assert review == {
        "namespace": "lake", "group": GROUP, "resource": "tables", "subresource": "status", "verb": "update",
    }  # fmt: skip


def test_crds_of_this_version_lack_nothing() -> None:
    assert find_unknown_fields(served()) == {}


@pytest.mark.parametrize(
    ("path", "missing"),
    [
        (("spec", "maintenance"), "spec.maintenance"),
        (("status", "health"), "status.health"),
        (("spec", "columns", "[]", "type"), "spec.columns[].type"),
    ],
)
def test_a_field_that_an_older_crd_lacks_is_named(path: tuple[str, ...], missing: str) -> None:
    openapi = served()
    schema = openapi["components"]["schemas"]["dev.skipstone.v1alpha1.Table"]
    for name in path[:-1]:
        schema = schema["items"] if name == "[]" else schema["properties"][name]
    del schema["properties"][path[-1]]
    found = find_unknown_fields(openapi)
    assert set(found) == {"Table"}
    assert missing in found["Table"]
    assert all(field.startswith(missing) for field in found["Table"])


def test_fields_of_a_newer_crd_do_no_harm() -> None:
    openapi = served()
    schema = openapi["components"]["schemas"]["dev.skipstone.v1alpha1.Table"]
    schema["properties"]["spec"]["properties"]["ofTomorrow"] = {"type": "string"}
    assert find_unknown_fields(openapi) == {}


def test_a_kind_that_is_not_served_lacks_all_of_it() -> None:
    found = find_unknown_fields(served("MergeSchedule"))
    assert set(found) == {"MergeSchedule"}
    assert {"spec", "status"} <= set(found["MergeSchedule"])
