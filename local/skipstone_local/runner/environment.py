"""The variables of a container, resolved as kubelet does it. Only ``lookup`` reads: Secrets and ConfigMaps."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

JsonObject = Mapping[str, Any]
#: Kind (Secret or ConfigMap) and name to the object, or None.
Lookup = Callable[[str, str], JsonObject | None]

_REFERENCE = re.compile(r"\$\$|\$\(([^)$]+)\)")
_KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_FIELDS = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
    "metadata.uid": ("metadata", "uid"),
    "spec.nodeName": ("spec", "nodeName"),
    "spec.serviceAccountName": ("spec", "serviceAccountName"),
}
#: Everything is on this machine.
ADDRESS = "127.0.0.1"
_ADDRESSES = ("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs")


class CannotMake(Exception):
    """The container cannot be made as the pod asks, now or ever; the text is one sentence."""


@dataclass(frozen=True)
class Variable:
    """``literal``: the pod itself says the value, so it may name paths of the pod."""

    name: str
    value: str
    literal: bool


def resolve(container: JsonObject, pod: JsonObject, lookup: Lookup) -> tuple[Variable, ...]:
    """The variables of ``container`` in its order; of equal names the last counts. Raises CannotMake."""
    if container.get("envFrom"):
        raise CannotMake("envFrom is not supported here: name each variable in env")
    known: dict[str, str] = {}
    resolved: list[Variable] = []
    for entry in container.get("env") or ():
        variable = _resolve_entry(entry, pod, lookup, known)
        if variable is not None:
            known[variable.name] = variable.value
            resolved.append(variable)
    return tuple(resolved)


def expand(text: str, known: Mapping[str, str]) -> str:
    """``text`` with ``$(NAME)`` replaced by known variables; ``$$`` is a dollar sign, unknown names stay."""

    def replace(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else known.get(match[1], match[0])

    return _REFERENCE.sub(replace, text)


def read_values(obj: JsonObject) -> dict[str, bytes]:
    """Return the values of a Secret or a ConfigMap by key."""
    if obj.get("kind") == "Secret":
        return {key: base64.b64decode(value) for key, value in (obj.get("data") or {}).items()}
    texts = {key: value.encode() for key, value in (obj.get("data") or {}).items()}
    return texts | {key: base64.b64decode(value) for key, value in (obj.get("binaryData") or {}).items()}


def _resolve_entry(entry: JsonObject, pod: JsonObject, lookup: Lookup, known: Mapping[str, str]) -> Variable | None:
    name, source = entry["name"], entry.get("valueFrom")
    if not source:
        return Variable(name, expand(entry.get("value") or "", known), literal=True)
    if field := source.get("fieldRef"):
        return Variable(name, _read_field(pod, field.get("fieldPath", "")), literal=False)
    for kind, key in (("Secret", "secretKeyRef"), ("ConfigMap", "configMapKeyRef")):
        if reference := source.get(key):
            value = _read_key(kind, reference, pod, lookup)
            return None if value is None else Variable(name, value, literal=False)
    raise CannotMake(f"env[{name}].valueFrom: {', '.join(source)} is not supported here: write the value")


def _read_field(pod: JsonObject, path: str) -> str:
    if path in _ADDRESSES:
        return ADDRESS
    if match := _KEYED.fullmatch(path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    if path in _FIELDS:
        part, name = _FIELDS[path]
        return str((pod.get(part) or {}).get(name, ""))
    raise CannotMake(f"fieldPath {path} is not supported here: write the value")


def _read_key(kind: str, reference: JsonObject, pod: JsonObject, lookup: Lookup) -> str | None:
    name, key, optional = reference.get("name", ""), reference["key"], bool(reference.get("optional"))
    obj = lookup(kind, name)
    if obj is None:
        if optional:
            return None
        raise CannotMake(f'{kind.lower()} "{name}" not found')
    value = read_values(obj).get(key)
    if value is not None:
        return value.decode(errors="surrogateescape")
    if optional:
        return None
    raise CannotMake(f"couldn't find key {key} in {kind} {pod['metadata']['namespace']}/{name}")
