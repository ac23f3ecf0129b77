"""The schema of spec.spark.podTemplate: open, except that restricted fields are refused by name.

Only fields that CEL must see are declared; everything else is kept and judged by ``checks``.
"""

from __future__ import annotations

from typing import Any

_REFUSED = {
    "hostNetwork": ("boolean", "Must be absent or false: pods of runs never use the node's network."),
    "hostPID": ("boolean", "Must be absent or false: pods of runs never see the node's processes."),
    "hostIPC": ("boolean", "Must be absent or false: pods of runs never share the node's memory."),
    "serviceAccountName": ("string", "Must be absent: spec.spark.serviceAccountName names the account."),
    "serviceAccount": ("string", "Must be absent: spec.spark.serviceAccountName names the account."),
    "nodeName": ("string", "Must be absent: use nodeSelector or affinity."),
}


def _refusal(name: str, kind: str, help_text: str) -> dict[str, str]:
    allowed = f"!has(self.{name}) || self.{name} == false" if kind == "boolean" else f"!has(self.{name})"
    return {
        "rule": allowed,
        "message": f"spark.podTemplate.spec.{name} is not allowed: {help_text.split(': ')[1]}",
        "fieldPath": f".{name}",
    }


def _field(kind: str, text: str) -> dict[str, Any]:
    bound = {"maxLength": 253} if kind == "string" else {}
    return {"type": kind, "description": text, **bound}


POD_TEMPLATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "spec": {
            "type": "object",
            "description": "The pod's spec. Fields that a run sets itself, and restricted ones, are refused.",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {name: _field(kind, text) for name, (kind, text) in _REFUSED.items()},
            "x-kubernetes-validations": [_refusal(name, kind, text) for name, (kind, text) in _REFUSED.items()],
        }
    },
}
