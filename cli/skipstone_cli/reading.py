"""Reads fields of objects as the API server gave them, whatever their type turns out to be.

A field that is absent or of another type reads as empty: one odd object never keeps the others from being shown. Pure.
"""

from __future__ import annotations

from typing import Any

JsonObject = dict[str, Any]


def field_of(obj: object, *path: str) -> object:
    """The value at ``path``, or None."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, dict) else None
    return obj


def text_of(obj: object, *path: str) -> str:
    """The text at ``path``, or an empty one."""
    value = field_of(obj, *path)
    return value if isinstance(value, str) else ""


def number_of(obj: object, *path: str) -> int | None:
    """The whole number at ``path``, or None."""
    value = field_of(obj, *path)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_set(obj: object, *path: str) -> bool:
    """Return whether the value at ``path`` is true."""
    return field_of(obj, *path) is True


def is_dry_run(obj: object) -> bool:
    """Return whether the object is a MergeJob that writes nothing."""
    return text_of(obj, "kind") in ("", "MergeJob") and is_set(obj, "spec", "dryRun")


def entries_of(obj: object, *path: str) -> tuple[JsonObject, ...]:
    """The objects in the list at ``path``."""
    value = field_of(obj, *path)
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, list) else ()


def texts_of(obj: object, *path: str) -> tuple[str, ...]:
    """The items of the list at ``path``, as text."""
    value = field_of(obj, *path)
    return tuple(str(item) for item in value if isinstance(item, str | int)) if isinstance(value, list) else ()


def name_of(obj: object) -> str:
    """The object's name."""
    return text_of(obj, "metadata", "name")


def namespace_of(obj: object) -> str:
    """The object's namespace."""
    return text_of(obj, "metadata", "namespace")


def uid_of(obj: object) -> str:
    """The object's uid."""
    return text_of(obj, "metadata", "uid")
