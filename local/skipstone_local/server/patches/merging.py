"""Merge patches: RFC 7386, and the strategic ones that kubectl sends for Kubernetes' own kinds."""

from __future__ import annotations

from typing import Any

import jsonpatch

from skipstone_local.server.answers.refusals import Refusal, bad_request
from skipstone_local.server.patches.lists import Shape, key_of

DIRECTIVE = "$patch"
RETAIN = "$retainKeys"
ORDER = "$setElementOrder/"
DROP = "$deleteFromPrimitiveList/"


def apply_operations(obj: object, operations: Any) -> object:
    """``obj`` after the operations of a JSON Patch. Raises Refusal."""
    if not isinstance(operations, list):
        raise bad_request("a JSON Patch is a list of operations")
    try:
        return jsonpatch.apply_patch(obj, operations)
    except jsonpatch.JsonPatchTestFailed as error:
        raise Refusal(422, "Invalid", "the server rejected our request due to an error in our request") from error
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError, KeyError, AttributeError) as error:
        raise bad_request(f"the patch cannot be applied: {error}") from error


def merge(value: object, patch: object) -> object:
    """``value`` under a merge patch: maps field by field, null removes, everything else is replaced."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), change)
    return merged


def merge_strategically(value: object, patch: object, shape: Shape) -> object:
    """``value`` under a strategic merge patch: lists with keys are merged item by item."""
    if isinstance(patch, list):
        return _merge_list(value if isinstance(value, list) else [], patch, shape)
    if not isinstance(patch, dict):
        return patch
    if patch.get(DIRECTIVE) == "replace":
        return {name: change for name, change in patch.items() if name != DIRECTIVE}
    if patch.get(DIRECTIVE) == "delete":
        return {}
    merged = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if not name.startswith("$"):
            _merge_field(merged, name, change, shape.field(name))
    _follow_directives(merged, patch, shape)
    return merged


def _merge_field(merged: dict[str, object], name: str, change: object, shape: Shape) -> None:
    if change is None or (isinstance(change, dict) and change.get(DIRECTIVE) == "delete"):
        merged.pop(name, None)
    else:
        merged[name] = merge_strategically(merged.get(name), change, shape)


def _follow_directives(merged: dict[str, object], patch: dict[str, object], shape: Shape) -> None:
    for name, change in patch.items():
        listed = change if isinstance(change, list) else []
        if name == RETAIN:
            for field in [field for field in merged if field not in listed]:
                del merged[field]
        elif name.startswith(DROP):
            _drop(merged, name.removeprefix(DROP), listed)
        elif name.startswith(ORDER):
            field = name.removeprefix(ORDER)
            merged[field] = _ordered(merged.get(field), listed, shape.field(field))


def _drop(merged: dict[str, object], field: str, gone: list[object]) -> None:
    present = merged.get(field)
    if isinstance(present, list):
        merged[field] = [item for item in present if item not in gone]


def _merge_list(present: list[object], patch: list[object], shape: Shape) -> list[object]:
    if any(isinstance(item, dict) and item == {DIRECTIVE: "replace"} for item in patch):
        return [item for item in patch if item != {DIRECTIVE: "replace"}]
    keys = shape.keys([*present, *patch])
    if shape.is_set:
        return [*present, *(item for item in patch if item not in present)]
    if not keys:
        return patch
    merged = list(present)
    for item in patch:
        _merge_item(merged, item, keys, shape.item)
    return merged


def _merge_item(merged: list[object], item: object, keys: tuple[str, ...], shape: Shape) -> None:
    key = key_of(item, keys)
    if key is None or not isinstance(item, dict):
        raise bad_request(f"map: {item} does not contain declared merge key: {keys[0]}")
    at = next((number for number, each in enumerate(merged) if key_of(each, keys) == key), None)
    if item.get(DIRECTIVE) == "delete":
        if at is not None:
            del merged[at]
    elif at is None:
        merged.append(merge_strategically({}, item, shape))
    else:
        merged[at] = merge_strategically(merged[at], item, shape)


def _ordered(value: object, order: list[object], shape: Shape) -> object:
    """The items of a list in the order that a patch gives; others stay behind those that they stood behind."""
    if not isinstance(value, list):
        return value
    keys = shape.keys(value)
    places = {_place(item, keys): number for number, item in enumerate(order)}
    ranks, rank = [], -1
    for item in value:
        rank = places.get(_place(item, keys), rank)
        ranks.append(rank)
    return [item for _, item in sorted(zip(ranks, value, strict=True), key=lambda pair: pair[0])]


def _place(item: object, keys: tuple[str, ...]) -> object:
    return key_of(item, keys) if keys else str(item)
