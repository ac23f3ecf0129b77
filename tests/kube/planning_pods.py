"""Pods of planning servers where no kubelet runs: the controllers make them, and nobody starts them."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import NotFoundException

PODS = "app.kubernetes.io/component=planning"


class ServerPods:
    """What a kubelet would do for the servers' pods of a namespace."""

    def __init__(self, api_client: client.ApiClient, namespace: str) -> None:
        """Nothing is done yet."""
        self.core, self.namespace = client.CoreV1Api(api_client), namespace

    def get_ready(self) -> list[Any]:
        """Have all pods that there are be ready, and return them."""
        found: list[Any] = self.core.list_namespaced_pod(self.namespace, label_selector=PODS).items
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for pod in found:
            body = {"status": {"phase": "Running", "conditions": [ready]}}
            # A rollout may have taken it away since.
            with suppress(NotFoundException):
                self.core.patch_namespaced_pod_status(pod.metadata.name, self.namespace, body)
        return found
