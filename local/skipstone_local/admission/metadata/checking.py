"""Whether the metadata of an object is valid, by itself and against the metadata before an update. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skipstone_local.admission.failures import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    Failures,
    FieldFailure,
    JsonObject,
    Verbatim,
    too_long,
)
from skipstone_local.admission.gotext import to_json
from skipstone_local.admission.metadata.names import (
    label_problems,
    label_value_problems,
    mask_dash,
    qualified_name_problems,
)

NameRule = Callable[[str], list[str]]
MOST_ANNOTATIONS = 256 * 1024
_CONTROLS = 'Only one reference can have Controller set to true. Found "true" in references for {} and {}'
_OWNER_FIELDS = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_NEVER_CHANGES = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_STANDARD_FINALIZERS = frozenset({"orphan", "foregroundDeletion", "kubernetes"})


def check_metadata(metadata: JsonObject, name_rule: NameRule, *, namespaced: bool = True) -> Failures:
    """Return what is wrong with the metadata of an object that is created; ``name_rule`` judges its name."""
    return [
        *_check_names(metadata, name_rule),
        *_check_namespace(metadata.get("namespace", ""), namespaced=namespaced),
        *_check_generation(metadata.get("generation", 0)),
        *_check_attached(metadata),
        *_check_finalizers(metadata.get("finalizers", [])),
    ]


def check_update(metadata: JsonObject, old: JsonObject) -> Failures:
    """Return what is wrong with the metadata of an object that is replaced."""
    failures = []
    added = sorted(set(metadata.get("finalizers", [])) - set(old.get("finalizers", [])))
    if old.get("deletionTimestamp") and added:
        shown = ", ".join(f'"{name}"' for name in added)
        detail = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{shown}}}"
        )
        failures.append(FieldFailure(FORBIDDEN, "metadata.finalizers", detail=detail))
    for name in _NEVER_CHANGES:
        if metadata.get(name) != old.get(name):
            value = metadata.get(name, "" if name in ("name", "namespace", "uid") else None)
            failures.append(FieldFailure(INVALID, f"metadata.{name}", value, "field is immutable"))
    return failures + _check_attached(metadata)


def _check_names(metadata: JsonObject, name_rule: NameRule) -> Failures:
    prefix, name = metadata.get("generateName", ""), metadata.get("name", "")
    failures = [
        FieldFailure(INVALID, "metadata.generateName", prefix, problem)
        for problem in (name_rule(mask_dash(prefix)) if prefix else ())
    ]
    if not name and not prefix:
        return [FieldFailure(REQUIRED, "metadata.name", detail="name or generateName is required")]
    problems = name_rule(name) if name else []
    return failures + [FieldFailure(INVALID, "metadata.name", name, problem) for problem in problems]


def _check_namespace(namespace: str, *, namespaced: bool) -> Failures:
    at = "metadata.namespace"
    if not namespaced:
        return [FieldFailure(FORBIDDEN, at, detail="not allowed on this type")] if namespace else []
    if not namespace:
        return [FieldFailure(REQUIRED, at)]
    return [FieldFailure(INVALID, at, namespace, problem) for problem in label_problems(namespace)]


def _check_generation(generation: int) -> Failures:
    detail = "must be greater than or equal to 0"
    return [FieldFailure(INVALID, "metadata.generation", generation, detail)] if generation < 0 else []


def _check_attached(metadata: JsonObject) -> Failures:
    annotations, failures = metadata.get("annotations", {}), []
    for key, value in metadata.get("labels", {}).items():
        at = "metadata.labels"
        failures += [FieldFailure(INVALID, at, key, problem) for problem in qualified_name_problems(key)]
        failures += [FieldFailure(INVALID, at, value, problem) for problem in label_value_problems(value)]
    for key in annotations:
        problems = qualified_name_problems(key.lower())
        failures += [FieldFailure(INVALID, "metadata.annotations", key, problem) for problem in problems]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MOST_ANNOTATIONS:
        failures.append(too_long("metadata.annotations", MOST_ANNOTATIONS))
    return failures + _check_owners(metadata.get("ownerReferences", []))


def _check_owners(owners: list[Any]) -> Failures:
    at, failures, controller = "metadata.ownerReferences", Failures(), ""
    for owner in owners:
        version = str(owner["apiVersion"]).rpartition("/")[2]
        empty = {"apiVersion": "version must not be empty"} if not version else {}
        empty |= {name: "must not be empty" for name in ("kind", "name", "uid") if not owner[name]}
        failures += [FieldFailure(INVALID, f"{at}.{name}", owner[name], detail) for name, detail in empty.items()]
        if owner["apiVersion"] == "v1" and owner["kind"] == "Event":
            detail = "/v1, Kind=Event is disallowed from being an owner"
            failures.append(FieldFailure(INVALID, at, Verbatim(_owner_text(owner)), detail))
        if owner.get("controller"):
            called = f"{owner['kind']}/{owner['name']}"
            if controller:
                shown = Verbatim(f"[{','.join(map(_owner_text, owners))}]")
                failures.append(FieldFailure(INVALID, at, shown, _CONTROLS.format(controller, called)))
            controller = controller or called
    return failures


def _owner_text(owner: JsonObject) -> str:
    """An owner as JSON, its fields in the order of Go's type."""
    return f"{{{','.join(f'{to_json(name)}:{to_json(owner[name])}' for name in _OWNER_FIELDS if name in owner)}}}"


def _check_finalizers(finalizers: list[str]) -> Failures:
    at = "metadata.finalizers"
    failures = [FieldFailure(INVALID, at, name, text) for name in finalizers for text in qualified_name_problems(name)]
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        failures.append(FieldFailure(INVALID, at, finalizers, detail))
    return failures


def finalizer_warnings(metadata: JsonObject, old: JsonObject) -> tuple[str, ...]:
    """Return what a client is warned of when it adds finalizers without a domain."""
    added = sorted(set(metadata.get("finalizers", [])) - set(old.get("finalizers", [])))
    names = [name for name in added if "/" not in name and name not in _STANDARD_FINALIZERS]
    advice = "prefer a domain-qualified finalizer name{} to avoid accidental conflicts with other finalizer writers"
    return tuple(
        f'metadata.finalizers: "{name}": {advice.format(" including a path (/)" if "." in name else "")}'
        for name in names
    )
