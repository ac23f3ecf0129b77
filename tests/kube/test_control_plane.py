"""The control plane of the tests: the order in which its programs start."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane

CONTROLLERS = "system:kube-controller-manager"


@pytest.mark.cluster("it has no controllers")
def test_controllers_start_when_the_roles_are_there_that_let_them_in(control_plane: ControlPlane) -> None:
    events: list[dict[str, Any]] = control_plane.read_audit()
    answers = [event["responseStatus"]["code"] for event in events if event["user"].get("username") == CONTROLLERS]
    assert answers
    assert [code for code in answers[:20] if code == 403] == []
