"""What kstatus computes for a resource of a kind that it does not know, by its documented rules.

Written from the documentation of ``sigs.k8s.io/cli-utils/pkg/kstatus``: deletion, then the observed generation, then
the first of Reconciling and Stalled that is True, then Ready; whatever has none of these is Current. `make
soak-operability` asks the library itself instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.statetools import REAL, kstatus_library

TERMINATING, IN_PROGRESS, FAILED, CURRENT = "Terminating", "InProgress", "Failed", "Current"
_ABNORMAL = {"Reconciling": IN_PROGRESS, "Stalled": FAILED}


def compute(obj: Mapping[str, Any]) -> str:
    """The status of ``obj`` as the API server stores it."""
    return kstatus_library().ask(obj) if REAL else _compute(obj)


def _compute(obj: Mapping[str, Any]) -> str:
    metadata, status = obj["metadata"], obj.get("status") or {}
    if metadata.get("deletionTimestamp"):
        return TERMINATING
    if "generation" in metadata and status.get("observedGeneration", metadata["generation"]) != metadata["generation"]:
        return IN_PROGRESS
    conditions: Iterable[Mapping[str, Any]] = status.get("conditions") or ()
    for condition in conditions:
        if condition["status"] == "True" and condition["type"] in _ABNORMAL:
            return _ABNORMAL[condition["type"]]
    ready = next((condition["status"] for condition in conditions if condition["type"] == "Ready"), "True")
    return CURRENT if ready == "True" else IN_PROGRESS
