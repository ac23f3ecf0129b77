"""Which lists are merged item by item, and by which keys: as schemas say, and as Kubernetes' own kinds have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from skipstone_local.store import JsonObject

#: Lists of Kubernetes' own kinds: the fields that tell items apart. All other lists are replaced whole.
KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "ephemeralContainers": ("name",),
    "volumes": ("name",),
    "env": ("name",),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "imagePullSecrets": ("name",),
    "secrets": ("name",),
    "hostAliases": ("ip",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
}
SETS = frozenset({"finalizers"})
#: Of metadata, whatever the kind.
METADATA = frozenset({"finalizers", "ownerReferences"})


@dataclass(frozen=True)
class Shape:
    """The shape of a value: its schema if the kind has one, and the name of its field."""

    schema: JsonObject
    name: str = ""

    def field(self, name: str) -> Shape:
        """The shape of a field of a map."""
        if not self.schema or (not self.name and name == "metadata"):
            return Shape({}, name)
        properties = self.schema.get("properties") or {}
        inner = properties.get(name) or self.schema.get("additionalProperties")
        # What the schema does not describe is taken whole, but for metadata, which no schema describes.
        return Shape(inner if isinstance(inner, dict) else {"x-kubernetes-preserve-unknown-fields": True}, name)

    @property
    def item(self) -> Shape:
        """The shape of an item of a list."""
        items = self.schema.get("items")
        return Shape(items if isinstance(items, dict) else {}, "")

    def keys(self, items: list[object]) -> tuple[str, ...]:
        """The fields that tell items of a list apart; none for a list that is not a map."""
        if self.schema:
            is_map = self.schema.get("x-kubernetes-list-type") == "map"
            return tuple(self.schema.get("x-kubernetes-list-map-keys", ())) if is_map else ()
        if self.name == "ports":
            by = (
                "containerPort" if any(isinstance(each, dict) and "containerPort" in each for each in items) else "port"
            )
            return (by,)
        return KEYS.get(self.name, ())

    @property
    def is_set(self) -> bool:
        """Return whether a list holds each value once, in no order that matters."""
        return self.schema.get("x-kubernetes-list-type") == "set" if self.schema else self.name in SETS

    @property
    def is_atomic(self) -> bool:
        """Return whether a map is replaced whole."""
        return self.schema.get("x-kubernetes-map-type") == "atomic"


def key_of(item: object, keys: tuple[str, ...]) -> tuple[object, ...] | None:
    """Return the key of an item, None if it lacks one of the fields; a port without protocol is TCP."""
    if not isinstance(item, dict) or not all(key in item for key in keys):
        return None
    return tuple(item[key] for key in keys)
