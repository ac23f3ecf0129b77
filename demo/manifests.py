"""Objects that the demonstration and the end-to-end tests need around the resources: namespaces, storage, pods.

Pure: dictionaries out. Everything satisfies Pod Security `restricted`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

JsonObject = dict[str, Any]
USER = 10001
CONTAINER_SECURITY: JsonObject = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POD_SECURITY: JsonObject = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "fsGroup": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def namespace(name: str) -> JsonObject:
    """A namespace that enforces Pod Security `restricted`."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }


def volume(name: str, path: str, claim_namespace: str, claim: str, *, access: str = "ReadWriteOnce") -> JsonObject:
    """A static volume on the node's ``path``, bound to one claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "skipstone-demo"}},
        "spec": {
            "capacity": {"storage": "5Gi"},
            "accessModes": [access],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": path, "type": "Directory"},
            "claimRef": {"namespace": claim_namespace, "name": claim},
        },
    }


def claim(name: str, *, volume_name: str | None = None, access: str = "ReadWriteOnce") -> JsonObject:
    """A claim on ``volume_name``, or on the default storage class."""
    spec: JsonObject = {"accessModes": [access], "resources": {"requests": {"storage": "5Gi"}}}
    if volume_name:
        spec |= {"storageClassName": "", "volumeName": volume_name}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}


def task_pod(
    name: str, image: str, command: Sequence[str], *, env: Sequence[JsonObject] = (), **options: str
) -> JsonObject:
    """A pod that runs ``command`` once.

    With ``options['claim']``, it mounts that claim at ``options['mount']``. ``options['cpu']``: what it asks of the
    node; without it, it runs when nobody else wants the processor.
    """
    claims = {"warehouse": options["claim"]} if "claim" in options else {}
    container = {
        "name": "task",
        "image": image,
        "imagePullPolicy": options.get("pull_policy", "IfNotPresent"),
        "command": list(command),
        "resources": {"requests": {"cpu": options["cpu"]}} if "cpu" in options else {},
        "env": [{"name": "HOME", "value": "/tmp"}, *env],
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": [
            *({"name": volume, "mountPath": options["mount"]} for volume in claims),
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "spark", "mountPath": "/var/lib/skipstone"},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": POD_SECURITY,
            "containers": [container],
            "volumes": [
                *({"name": volume, "persistentVolumeClaim": {"claimName": held}} for volume, held in claims.items()),
                {"name": "scratch", "emptyDir": {}},
                {"name": "spark", "emptyDir": {}},
            ],
        },
    }
