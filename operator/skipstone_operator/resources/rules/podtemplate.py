"""The schema of spec.spark.podTemplate: open, except that restricted fields are refused by name.

Only fields that CEL must see are declared; everything else is kept, and judged where pods are built.
"""

from __future__ import annotations

from typing import Any

_REFUSED: dict[str, tuple[str, str]] = {
    "hostNetwork": ("boolean", "Must be absent or false: pods of runs never use the node's network."),
    "hostPID": ("boolean", "Must be absent or false: pods of runs never see the node's processes."),
    "hostIPC": ("boolean", "Must be absent or false: pods of runs never share the node's memory."),
    "serviceAccountName": ("string", "Must be absent: spec.spark.serviceAccountName names the ServiceAccount."),
    "serviceAccount": ("string", "Must be absent: spec.spark.serviceAccountName names the ServiceAccount."),
    "nodeName": ("string", "Must be absent: use nodeSelector or affinity."),
    "securityContext": ("object", "Must be absent: pods of runs are always restricted."),
    "initContainers": ("array", "Must be absent: a run has one container."),
}


_REFUSED_VOLUMES = ("hostPath", "secret", "projected", "csi", "nfs", "iscsi", "flexVolume")
_OPEN = {"x-kubernetes-preserve-unknown-fields": True}


_PRIORITY = {
    "rule": "!has(self.priorityClassName) || !self.priorityClassName.startsWith('system-')",
    "message": "spark.podTemplate.spec.priorityClassName may not begin with system-: name a class for workloads",
    "fieldPath": ".priorityClassName",
}


def _refusal(name: str, kind: str, help_text: str) -> dict[str, str]:
    allowed = f"!has(self.{name}) || self.{name} == false" if kind == "boolean" else f"!has(self.{name})"
    return {
        "rule": allowed,
        "message": f"spark.podTemplate.spec.{name} is not allowed: {help_text.split(': ')[1][:-1]}",
        "fieldPath": f".{name}",
    }


def _field(kind: str, text: str) -> dict[str, Any]:
    open_object = {"type": "object", "description": "Refused.", **_OPEN}
    bounds: dict[str, dict[str, Any]] = {
        "string": {"maxLength": 253},
        "object": _OPEN,
        "array": {"maxItems": 64, "items": open_object},
    }
    return {"type": kind, "description": text, **bounds.get(kind, {})}


def _volumes() -> dict[str, Any]:
    refused = " || ".join(f"has(v.{name})" for name in _REFUSED_VOLUMES)
    return {
        "type": "array",
        "description": "Scratch volumes with another size or type.",
        "maxItems": 64,
        "items": {
            "type": "object",
            "description": "One volume.",
            "properties": {name: _field("object", "Must be absent.") for name in _REFUSED_VOLUMES},
            **_OPEN,
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.all(v, !({refused}))",
                "message": "spark.podTemplate.spec.volumes may not hold host paths, Secrets or network volumes: "
                "use emptyDir or ephemeral",
            }
        ],
    }


POD_TEMPLATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    **_OPEN,
    "properties": {
        "spec": {
            "type": "object",
            "description": "The pod's spec. Fields that a run sets itself, and restricted ones, are refused.",
            **_OPEN,
            "properties": {
                **{name: _field(kind, text) for name, (kind, text) in _REFUSED.items()},
                "priorityClassName": _field("string", "A priority class, but not a system class of the cluster."),
                "volumes": _volumes(),
            },
            "x-kubernetes-validations": [
                *(_refusal(name, kind, text) for name, (kind, text) in _REFUSED.items()),
                _PRIORITY,
            ],
        }
    },
}
