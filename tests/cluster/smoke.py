"""Prove that the cluster runs Spark: a driver pod with one executor pod, both under Pod Security "restricted".

Called by the command line; the objects are in config/smoke.yaml and are removed afterwards.
"""

from __future__ import annotations

from tests.cluster.controlplane import ControlPlane
from tests.cluster.errors import ClusterError
from tests.cluster.layout import SOURCES
from tests.cluster.shell import wait_until

NAMESPACE = "skipstone-smoke"
SECONDS = 180.0


def run_smoke(plane: ControlPlane) -> str:
    """Return the line that the driver prints. Raises ClusterError with the end of its log when it fails."""
    _remove(plane)
    plane.kubectl("apply", "--filename", str(SOURCES / "config" / "smoke.yaml"))
    ended = ("Succeeded", "Failed")
    slow = f"the driver pod has not ended after {SECONDS:.0f} s: look at 'kubectl --namespace {NAMESPACE} get events'"
    wait_until(lambda: _read_phase(plane) in ended, seconds=SECONDS, failure=slow, pause=0.5)
    phase, log = _read_phase(plane), plane.kubectl("logs", "driver", "--namespace", NAMESPACE).splitlines()
    if phase != "Succeeded":
        errors = [line for line in log if "Error" in line]
        raise ClusterError(f"the driver pod failed: {' '.join(errors[:1])}")
    _remove(plane)
    return next(line for line in log if line.startswith("sum "))


def _read_phase(plane: ControlPlane) -> str:
    return plane.kubectl("get", "pod", "driver", "--namespace", NAMESPACE, "--output", "jsonpath={.status.phase}")


def _remove(plane: ControlPlane) -> None:
    plane.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s")
