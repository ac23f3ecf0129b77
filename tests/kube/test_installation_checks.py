"""What `helm test` runs, against a real API server: all is right, and each thing that can be wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.kube.test_runtime_operator import LEASE, Operator, environment, helm

__all__ = ["environment", "helm"]

#: The check as the chart runs it, but for how long it waits for the Lease.
PROGRAM = """
import os, sys
from skipstone_operator.checking.__main__ import main
from skipstone_operator.checking.checks import Patience
sys.exit(main(os.environ, Patience(lease={seconds}, pause=0.2)))
"""


def check(environment: dict[str, str], seconds: float = 300.0) -> tuple[int, list[str]]:
    """Exit code and lines of the check with the operator's own account."""
    command = [sys.executable, "-c", PROGRAM.format(seconds=seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout.splitlines()


@pytest.fixture
def operator(environment: dict[str, str], tmp_path: Path) -> Iterator[Operator]:
    """A running operator with the rights of the chart."""
    running = Operator(environment | {"POD_NAME": "operator-0"}, tmp_path / "operator.log")
    running.start()
    running.wait_healthy()
    yield running
    running.kill()


@pytest.mark.cluster("it has no users and no roles")
def test_a_right_installation_passes_and_a_missing_right_is_named(
    operator: Operator, environment: dict[str, str], control_plane: ControlPlane, namespace: str
) -> None:
    code, lines = check(environment)
    assert code == 0, lines
    assert lines == [
        "ok: the cluster serves the CustomResourceDefinitions of this version",
        f"ok: the operator has its rights in namespace {namespace}",
        f"ok: the operator has its rights on Lease {namespace}/{LEASE}",
        "ok: an operator works",
    ]
    drop = '[{"op": "replace", "path": "/rules/1/verbs", "value": ["get"]}]'
    control_plane.kubectl(
        "patch", "role", "skipstone-operator", "--namespace", namespace, "--type=json", "--patch", drop
    )
    code, lines = check(environment)
    assert code == 1
    (wrong,) = (line for line in lines if line.startswith("error: "))
    assert f"namespace {namespace}: the operator may not create mergejobs.skipstone.dev;" in wrong


def test_without_an_operator_the_log_to_read_is_named(environment: dict[str, str], namespace: str) -> None:
    code, lines = check(environment, seconds=1.0)
    assert code == 1
    assert lines[-1].startswith(f"error: no operator renewed Lease {namespace}/{LEASE} within 1 s: look at ")


def test_without_a_setting_the_variable_is_named(environment: dict[str, str]) -> None:
    code, lines = check({**environment, "SKIPSTONE_NAMESPACES": ""})
    assert code == 1
    assert lines == [next(line for line in lines if "SKIPSTONE_NAMESPACES" in line)]
