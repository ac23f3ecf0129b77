"""From an object that changed to the keys that must be reconciled.

Used by the watch and the resync. Remembers who refers to whom as a hint that may be lost at any time: the resync
enqueues everything anyway. Pure apart from that memory: no API, no clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skipstone_core.contract.requests import RunKind

from skipstone_operator.labels import OPERATION_LABEL
from skipstone_operator.ports import Key

JOB_KINDS = ("LoadJob", "MergeJob")
SCHEDULE = "MergeSchedule"
#: Kinds that are reconciled under a key of their own.
KEY_KINDS = ("Warehouse", "Table", "SecondaryIndex", "MergeSchedule")
#: Field of the spec that names an object's parent, and the parent's kind.
PARENTS = {
    "Table": ("warehouseRef", "Warehouse"),
    "SecondaryIndex": ("tableRef", "Table"),
    "LoadJob": ("tableRef", "Table"),
    "MergeJob": ("tableRef", "Table"),
}


def identity_of(obj: Mapping[str, Any]) -> Key:
    """Kind, namespace and name of an object of the API."""
    metadata = obj.get("metadata") or {}
    return Key(str(obj.get("kind", "")), str(metadata.get("namespace", "")), str(metadata.get("name", "")))


def parent_of(obj: Mapping[str, Any]) -> Key | None:
    """What the object belongs to: a Table's Warehouse, an index's or a job's Table, a pod's owner."""
    me = identity_of(obj)
    if me.kind in PARENTS:
        reference, kind = PARENTS[me.kind]
        name = ((obj.get("spec") or {}).get(reference) or {}).get("name")
        return Key(kind, me.namespace, name) if name else None
    for owner in (obj.get("metadata") or {}).get("ownerReferences") or ():
        # Only our own kinds: whoever may create pods could otherwise make two of them own each other.
        if owner.get("controller") and owner.get("kind") in (*KEY_KINDS, *JOB_KINDS):
            return Key(owner["kind"], me.namespace, str(owner.get("name")))
    return None


def schedule_of(obj: Mapping[str, Any]) -> Key | None:
    """The MergeSchedule that created a MergeJob."""
    me = identity_of(obj)
    owners = (obj.get("metadata") or {}).get("ownerReferences") or ()
    names = (str(owner.get("name")) for owner in owners if owner.get("controller") and owner.get("kind") == SCHEDULE)
    return next((Key(SCHEDULE, me.namespace, name) for name in names if me.kind == "MergeJob"), None)


@dataclass
class Router:
    """Which keys a change concerns."""

    _parent: dict[Key, Key] = field(default_factory=dict)
    _children: defaultdict[Key, set[Key]] = field(default_factory=lambda: defaultdict(set))
    _schedules: dict[Key, Key] = field(default_factory=dict)

    def changed(self, obj: Mapping[str, Any]) -> frozenset[Key]:
        """Remember whom ``obj`` refers to; the keys that its change concerns (the old parent's too, if it moved)."""
        me, parent = identity_of(obj), parent_of(obj)
        before = self._concerned(me)
        self._remember(me, parent)
        if (schedule := schedule_of(obj)) is not None:
            self._schedules[me] = schedule
        return before | self._concerned(me) | self._observed_tables(obj)

    def removed(self, identity: Key) -> frozenset[Key]:
        """Forget a deleted object; the keys that its deletion concerns.

        A job whose driver is still there is forgotten later: the next writer waits for that driver's end.
        """
        concerned = self._concerned(identity)
        self._schedules.pop(identity, None)
        if identity.kind not in JOB_KINDS or not self._children_of(identity, "Pod"):
            self._remember(identity, None)
        return concerned

    def key_of(self, identity: Key) -> Key | None:
        """The one key under which an object itself is reconciled; None for one of unknown owner."""
        if identity.kind in KEY_KINDS:
            return identity
        parent = self._parent.get(identity)
        return None if parent is None else self.key_of(parent)

    def _concerned(self, me: Key) -> frozenset[Key]:
        schedule = self._schedules.get(me)
        return self._concerned_by_kind(me) | ({schedule} if schedule is not None else frozenset())

    def _concerned_by_kind(self, me: Key) -> frozenset[Key]:
        own = self.key_of(me)
        if own is None:
            return frozenset()
        if me.kind == "Warehouse":
            tables = self._children_of(me, "Table")
            return frozenset({own, *tables, *(i for t in tables for i in self._children_of(t, "SecondaryIndex"))})
        if me.kind == "Table":
            return frozenset({own, *self._children_of(me, "SecondaryIndex"), *self._parents_of(me)})
        if me.kind == "SecondaryIndex":
            return frozenset({own, *self._parents_of(me)})
        return frozenset({own})

    def _observed_tables(self, obj: Mapping[str, Any]) -> frozenset[Key]:
        labels = (obj.get("metadata") or {}).get("labels") or {}
        parent = self._parent.get(identity_of(obj))
        if parent is None or labels.get(OPERATION_LABEL) != RunKind.OBSERVE.value:
            return frozenset()
        return frozenset(self._children_of(parent, "Table"))

    def _remember(self, me: Key, parent: Key | None) -> None:
        old = self._parent.pop(me, None)
        if old is not None:
            self._children[old].discard(me)
            if not self._children[old]:
                del self._children[old]
        if parent is not None:
            self._parent[me] = parent
            self._children[parent].add(me)

    def _children_of(self, me: Key, kind: str) -> list[Key]:
        return [child for child in self._children.get(me, ()) if child.kind == kind]

    def _parents_of(self, me: Key) -> list[Key]:
        parent = self._parent.get(me)
        return [] if parent is None else [parent]
