"""What ``apply`` changes: a merge patch out of what was applied last, what is applied now, and what there is.

Pure. As kubectl does it, by the same annotation, so that both may be used on the same objects.
"""

from __future__ import annotations

import json

from skipstone_cli.reading import JsonObject, text_of

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

#: Characters that Go's JSON escapes: the annotation is compared as text.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def with_last_applied(manifest: JsonObject) -> JsonObject:
    """The manifest with an annotation that holds it, as it was before."""
    metadata = manifest.get("metadata") or {}
    kept = {name: text for name, text in (metadata.get("annotations") or {}).items() if name != LAST_APPLIED}
    plain = {**manifest, "metadata": {**metadata, "annotations": kept}}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).translate(_ESCAPES) + "\n"
    return {**plain, "metadata": {**metadata, "annotations": {**kept, LAST_APPLIED: text}}}


def plan_patch(applied: JsonObject, current: JsonObject) -> JsonObject:
    """The merge patch that makes ``current`` what ``applied`` says; empty if it is so already.

    ``applied`` has been through ``with_last_applied``. Fields that were applied before and are no longer are removed;
    fields that others set stay.
    """
    # Of labels, those of others stay though the manifest has none any longer.
    wanted = {**applied, "metadata": {"labels": {}, **applied["metadata"]}}
    return _joined(_changes(current, applied), _removals(_last_applied(current), wanted, current))


def _last_applied(current: JsonObject) -> JsonObject:
    try:
        before = json.loads(text_of(current, "metadata", "annotations", LAST_APPLIED))
    except ValueError:
        return {}
    return before if isinstance(before, dict) else {}


def _changes(current: JsonObject, wanted: JsonObject) -> JsonObject:
    """Return the fields of ``wanted`` that differ from ``current``."""
    patch: JsonObject = {}
    for name, value in wanted.items():
        present = current.get(name)
        if isinstance(value, dict) and isinstance(present, dict):
            if inner := _changes(present, value):
                patch[name] = inner
        elif value != present:
            patch[name] = value
    return patch


def _removals(before: JsonObject, wanted: JsonObject, current: JsonObject) -> JsonObject:
    """Nulls for what was ``wanted`` before, is no longer, and is there."""
    patch: JsonObject = {}
    for name, value in before.items():
        if name not in wanted:
            if name in current:
                patch[name] = None
            continue
        inner = [part if isinstance(part, dict) else None for part in (value, wanted[name], current.get(name))]
        if all(part is not None for part in inner) and (removed := _removals(*inner)):  # type: ignore[arg-type]
            patch[name] = removed
    return patch


def _joined(changes: JsonObject, removals: JsonObject) -> JsonObject:
    patch = dict(changes)
    for name, value in removals.items():
        both = isinstance(value, dict) and isinstance(patch.get(name), dict)
        patch[name] = _joined(patch[name], value) if both else value
    return patch
