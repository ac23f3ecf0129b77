"""What one pass has read is one reading: what a later read shows, an earlier list shows too."""

from __future__ import annotations

from typing import Any

from skipstone_operator.reconcilers.passes.passview import PassView

from tests.unit.kube_double import MemoryKube
from tests.unit.operator_double import run_now


def pod(name: str, phase: str, owner: str = "one") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "lake", "labels": {"owner": owner}},
        "status": {"phase": phase},
    }


def phases(view: PassView, owner: str = "one") -> dict[str, str]:
    found = run_now(view.list("Pod", "lake", labels={"owner": owner}))
    return {each["metadata"]["name"]: each["status"]["phase"] for each in found}


def test_a_pod_that_ends_between_a_list_and_a_get_has_ended_in_both() -> None:
    kube = MemoryKube()
    kube.add(pod("a", "Running"))
    kube.add(pod("b", "Running"))
    kube.add(pod("other", "Running", "two"))
    view = PassView(kube)
    assert phases(view) == {"a": "Running", "b": "Running"}
    assert phases(view, "two") == {"other": "Running"}
    kube.edit("Pod", "a", lambda o: o["status"].update(phase="Succeeded"))
    kube.edit("Pod", "b", lambda o: o["status"].update(phase="Succeeded"))
    assert (run_now(view.get("Pod", "lake", "a")) or {})["status"]["phase"] == "Succeeded"
    assert phases(view) == {"a": "Succeeded", "b": "Running"}
    assert phases(view, "two") == {"other": "Running"}
