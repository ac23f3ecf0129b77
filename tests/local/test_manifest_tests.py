"""``skipstone local test`` on the project's own example, and on one that does not do what is expected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "orders" / "test"


def run_test(place: Path, junit: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skipstone_cli", "local", "test", str(place), "--junit", str(junit)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.soak
def test_the_example_does_what_its_test_says(tmp_path: Path) -> None:
    done = run_test(EXAMPLE, tmp_path / "junit.xml")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("7 of 7 expectations are met\n")


def test_what_is_otherwise_fails_the_test(tmp_path: Path) -> None:
    """Manifests that are refused, or wait for nothing, need no run."""
    test = tmp_path / "test"
    test.mkdir()
    (test / "table.yaml").write_text("""
apiVersion: skipstone.dev/v1alpha1
kind: Table
metadata: {name: orders}
spec:
  warehouseRef: {name: lake}
  identifier: {namespace: sales, name: orders}
  columns: [{name: id, type: long}]
---
apiVersion: skipstone.dev/v1alpha1
kind: Table
metadata: {name: refused}
spec: {warehouseRef: {name: lake}}
""")
    (test / "skipstone-test.yaml").write_text("""
steps:
- apply: table.yaml
  expect:
  - {refused: spec.identifier}
  - {object: tbl/orders, state: Waiting, reason: WarehouseNotFound}
  - {object: tbl/orders, state: Ready}
""")
    done = run_test(test, tmp_path / "junit.xml")
    assert done.returncode == 1, done.stderr
    assert "state is Waiting, not Ready" in done.stdout
    assert done.stdout.endswith("3 of 4 expectations are met\n")
    assert ElementTree.parse(tmp_path / "junit.xml").getroot().get("failures") == "1"
