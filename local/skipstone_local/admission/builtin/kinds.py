"""Judges objects of Kubernetes' own kinds: metadata of all, more of a few."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from skipstone_local.admission.builtin.claims import CLAIM, check_claim, complete_claim
from skipstone_local.admission.builtin.configs import (
    CONFIG_MAP,
    SECRET,
    check_config_map,
    check_secret,
    complete_config_map,
    complete_secret,
)
from skipstone_local.admission.builtin.pods import POD, check_pod, complete_pod
from skipstone_local.admission.builtin.shapes import check_shape
from skipstone_local.admission.failures import Admitted, Failures, JsonObject, invalid, undecodable, unknown_fields
from skipstone_local.admission.metadata.checking import NameRule, check_metadata, check_update
from skipstone_local.admission.metadata.decoding import DecodingError, decode_metadata
from skipstone_local.admission.metadata.names import label_problems, service_name_problems, subdomain_problems

#: Fields that the server sets and an update cannot remove.
_KEPT = ("resourceVersion", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


def _nothing(_: JsonObject) -> None:
    """Default nothing."""


def _no_failures(_obj: JsonObject, _old: JsonObject | None) -> Failures:
    return []


@dataclass(frozen=True)
class BuiltinKind:
    """The checks of a kind of Kubernetes."""

    shape: Mapping[str, Any] = field(default_factory=dict)
    complete: Callable[[JsonObject], None] = _nothing
    check: Callable[[JsonObject, JsonObject | None], Failures] = _no_failures
    name_rule: NameRule = subdomain_problems
    namespaced: bool = True


_CLUSTER = BuiltinKind(namespaced=False)
KINDS: Mapping[str, BuiltinKind] = MappingProxyType(
    {
        "ConfigMap": BuiltinKind(CONFIG_MAP, complete_config_map, check_config_map),
        "Secret": BuiltinKind(SECRET, complete_secret, check_secret),
        "Pod": BuiltinKind(POD, complete_pod, check_pod),
        "PersistentVolumeClaim": BuiltinKind(CLAIM, complete_claim, check_claim),
        "Namespace": BuiltinKind(name_rule=label_problems, namespaced=False),
        "Service": BuiltinKind(name_rule=service_name_problems),
        **dict.fromkeys(
            ("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Node", "PriorityClass", "StorageClass"),
            _CLUSTER,
        ),
    }
)
_ANY = BuiltinKind()


def decode_builtin(obj: JsonObject, field_validation: str) -> tuple[str, ...]:
    """Clean the metadata of ``obj`` and look at the types of fields; return warnings. Raises Rejected."""
    name, api_version = obj.get("kind", ""), obj.get("apiVersion", "")
    try:
        obj["metadata"], unknown = decode_metadata(obj.get("metadata"), "ObjectMeta.metadata")
        check_shape(obj, dict(KINDS.get(name, _ANY).shape), name)
    except DecodingError as error:
        raise undecodable(api_version, name, str(error)) from error
    return unknown_fields(api_version, name, unknown, field_validation)


def admit_builtin(obj: JsonObject, old: JsonObject | None, subresource: str, field_validation: str) -> Admitted:
    """Return ``obj`` as it is stored; may change it. Raises Rejected."""
    warnings = decode_builtin(obj, field_validation)
    name, api_version = obj.get("kind", ""), obj.get("apiVersion", "")
    kind = KINDS.get(name, _ANY)
    try:
        _prepare(obj, old, subresource, kind)
    except DecodingError as error:
        raise undecodable(api_version, name, str(error)) from error
    metadata = obj["metadata"]
    failures = check_metadata(metadata, kind.name_rule, namespaced=kind.namespaced)
    if old is not None:
        failures += check_update(metadata, old["metadata"])
    if subresource != "status":
        failures += kind.check(obj, old)
    if failures:
        raise invalid(api_version.rpartition("/")[0], name, metadata.get("name", ""), failures)
    return Admitted(obj, warnings)


def _prepare(obj: JsonObject, old: JsonObject | None, subresource: str, kind: BuiltinKind) -> None:
    if old is None:
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            obj["metadata"].pop(name, None)
        if "status" in kind.shape:
            obj.pop("status", None)
    else:
        _keep_old(obj, old, only_status=subresource == "status")
    if subresource != "status":
        kind.complete(obj)


def _keep_old(obj: JsonObject, old: JsonObject, *, only_status: bool) -> None:
    """Set what a request cannot change: the status, or all but the status and the metadata."""
    for name in _KEPT:
        if name in old["metadata"]:
            obj["metadata"].setdefault(name, old["metadata"][name])
    changed = {"metadata", "status"} if only_status else (set(obj) | set(old)) - {"status"}
    for name in (set(obj) | set(old)) - changed:
        if name in old:
            obj[name] = copy.deepcopy(old[name])
        else:
            del obj[name]
