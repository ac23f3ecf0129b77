"""Server-side apply: what a manager applies is merged, and what it no longer applies is removed.

Otherwise than in kube-apiserver only fields that were applied have owners: writes of other kinds own nothing, so they
neither conflict nor keep a field that its last applier gives up.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from skipstone_local.server.answers.refusals import Refusal, bad_request, details_of
from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.server.patches.fieldsets import (
    FieldSet,
    applied_fields,
    dotted,
    holds,
    leaves,
    remove_path,
    value_at,
    without,
)
from skipstone_local.server.patches.lists import Shape, key_of
from skipstone_local.store import JsonObject


@dataclass(frozen=True, kw_only=True)
class ApplyRequest:
    """The apply of a manager. ``force``: take fields from other managers."""

    kind: ServedKind
    obj: JsonObject
    manager: str
    time: str
    subresource: str = ""
    force: bool = False


def apply(live: JsonObject | None, applied: ApplyRequest) -> JsonObject:
    """The object after ``applied`` was applied to ``live``, which may not exist. Raises Refusal for a conflict."""
    if not applied.manager:
        raise bad_request(
            'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
        )
    if applied.obj.get("metadata", {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    shape = Shape(applied.kind.schema)
    base: JsonObject = copy.deepcopy(live) if live is not None else {"metadata": {}}
    entries: list[JsonObject] = list(base["metadata"].pop("managedFields", []))
    mine = [entry for entry in entries if _is_mine(entry, applied)]
    others = [entry for entry in entries if not _is_mine(entry, applied)]
    fields = applied_fields(applied.obj, shape)
    _settle(base, applied, fields, others)
    for path in (path for entry in mine for path in leaves(entry.get("fieldsV1", {}))):
        if not holds(fields, path) and not any(holds(entry.get("fieldsV1", {}), path) for entry in others):
            base = without(base, path)  # type: ignore[assignment]
    merged = _merged(base, applied.obj, shape)
    kept = [entry for entry in others if entry.get("fieldsV1")]
    metadata = {**merged.get("metadata", {}), "managedFields": [*kept, _entry(applied, fields, mine)]}
    return {**merged, "metadata": metadata}


def _is_mine(entry: JsonObject, applied: ApplyRequest) -> bool:
    manager = entry.get("manager"), entry.get("operation"), entry.get("subresource", "")
    return manager == (applied.manager, "Apply", applied.subresource)


def _entry(applied: ApplyRequest, fields: FieldSet, before: list[JsonObject]) -> JsonObject:
    """The record of the manager; its time stays when its fields do."""
    same = next((entry for entry in before if entry.get("fieldsV1") == fields), None)
    return same or {
        "manager": applied.manager,
        "operation": "Apply",
        "apiVersion": applied.kind.api_version,
        "time": applied.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
        **({"subresource": applied.subresource} if applied.subresource else {}),
    }


def _settle(base: JsonObject, applied: ApplyRequest, fields: FieldSet, others: list[JsonObject]) -> None:
    """Refuse values that differ from those of other managers; with force take the fields from them."""
    conflicts = []
    for path in leaves(fields):
        if path[-1] == "." or value_at(base, path) == value_at(applied.obj, path):
            continue
        for entry in (entry for entry in others if holds(entry.get("fieldsV1", {}), path)):
            conflicts.append({
                "reason": "FieldManagerConflict",
                "message": f'conflict with "{entry.get("manager")}"',
                "field": dotted(path),
            })  # fmt: skip
            if applied.force:
                remove_path(entry["fieldsV1"], path)
    if conflicts and not applied.force:
        named = ", ".join(f"{each['message']}: {each['field']}" for each in conflicts)
        many = "conflict" if len(conflicts) == 1 else "conflicts"
        message = f"Apply failed with {len(conflicts)} {many}: {named}"
        details = details_of(applied.kind, str(base["metadata"].get("name", "")), causes=conflicts)
        raise Refusal(409, "Conflict", message, details)


def _merged(base: JsonObject, applied: JsonObject, shape: Shape) -> JsonObject:
    return {name: value for name, value in {**base, **_merge_map(base, applied, shape)}.items() if value is not None}


def _merge(live: object, applied: object, shape: Shape) -> object:
    if isinstance(live, dict) and isinstance(applied, dict) and not shape.is_atomic:
        return {**live, **_merge_map(live, applied, shape)}
    if isinstance(live, list) and isinstance(applied, list):
        return _merge_list(live, applied, shape)
    return applied


def _merge_map(live: JsonObject, applied: JsonObject, shape: Shape) -> JsonObject:
    return {name: _merge(live.get(name), value, shape.field(name)) for name, value in applied.items()}


def _merge_list(live: list[object], applied: list[object], shape: Shape) -> list[object]:
    if shape.is_set:
        return [*live, *(item for item in applied if item not in live)]
    keys = shape.keys([*live, *applied])
    if not keys:
        return applied
    merged = list(live)
    for item in applied:
        key = key_of(item, keys)
        at = next((number for number, each in enumerate(merged) if key_of(each, keys) == key), None)
        if at is None or key is None:
            merged.append(item)
        else:
            merged[at] = _merge(merged[at], item, shape.item)
    return merged
