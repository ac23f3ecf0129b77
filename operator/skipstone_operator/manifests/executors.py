"""The pod template that the driver's Spark makes executors from.

Spark fills in image, command, ports and resources; what it leaves open (security, claim, credentials) is set here.
Called by ``run``; pure.
"""

from __future__ import annotations

from typing import Any

from skipstone_operator.manifests.names import EXECUTOR_CONTAINER, shared_labels
from skipstone_operator.manifests.pods import (
    CONTAINER_SECURITY,
    credentials_env,
    pod_spec,
    shared_mounts,
    shared_volumes,
)
from skipstone_operator.manifests.shape import PYTHON, SCRATCH, PodShape
from skipstone_operator.manifests.templates import merge_pod_template


def build_executor_template(shape: PodShape) -> dict[str, Any]:
    """A Pod without a name. Executors never talk to the API server or to the catalog: no token, no login."""
    template = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": shared_labels(shape.request, shape.warehouse_uid)},
        "spec": {
            **pod_spec(shape, executor_container(shape)),
            "automountServiceAccountToken": False,
            "volumes": shared_volumes(shape),
        },
    }
    return merge_pod_template(template, shape.template)


def executor_container(shape: PodShape) -> dict[str, Any]:
    """The container that Spark completes."""
    return {
        "name": EXECUTOR_CONTAINER,
        "image": shape.image,
        "imagePullPolicy": shape.pull_policy,
        "workingDir": SCRATCH,
        "env": [
            *credentials_env(shape, catalog=False),
            {"name": "PYSPARK_PYTHON", "value": PYTHON},
            {"name": "HOME", "value": SCRATCH},
        ],
        "securityContext": CONTAINER_SECURITY,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": shared_mounts(shape),
    }
