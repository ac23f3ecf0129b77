"""Every example is taken as it stands, by the API server and by the operator's re-validation."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from skipstone_local.client.manifests import TEST_FILE
from skipstone_operator.manifests.templates import check_pod_template
from skipstone_operator.resources.checks import validate_spec
from skipstone_operator.resources.kinds import API_VERSION, parse
from skipstone_operator.resources.warehouse import WarehouseSpec

from tests.cluster.controlplane import ControlPlane

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: But for tests of manifests, which are no manifests.
FILES = sorted(path for path in EXAMPLES.rglob("*.yaml") if path.name != TEST_FILE)


def named(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def test_there_are_examples_of_every_kind() -> None:
    found = {obj["kind"] for path in FILES for obj in yaml.safe_load_all(path.read_text())}
    assert found >= {"Warehouse", "Table", "SecondaryIndex", "LoadJob", "MergeJob", "MergeSchedule"}


def test_api_server_takes_the_examples(control_plane: ControlPlane) -> None:
    said = control_plane.kubectl("apply", "--dry-run=server", *(f"--filename={path}" for path in FILES))
    objects = [obj for path in FILES for obj in yaml.safe_load_all(path.read_text()) if obj]
    assert said.count("(server dry run)") == len(objects)


@pytest.mark.parametrize("path", FILES, ids=named)
def test_operator_finds_nothing_wrong_with_the_example(path: Path) -> None:
    for obj in yaml.safe_load_all(path.read_text()):
        if obj["apiVersion"] != API_VERSION:
            continue
        resource = parse(obj)
        assert validate_spec(resource.kind, resource.spec) is None
        if isinstance(resource.spec, WarehouseSpec):
            check_pod_template(resource.spec.spark.pod_template)
