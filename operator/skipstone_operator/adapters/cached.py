"""Reads from the cache, writes to the API server: implements ``ports.KubeApi`` on what the watches told.

Kinds that no LIST has filled yet are read from the API server, so an answer may be old but never made up. Called by
``cachedpass`` through ``Ports.cached``, filled by ``feed``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from skipstone_operator import labels as names
from skipstone_operator.manifests.names import DRIVER_SELECTOR
from skipstone_operator.ports import (
    Conflict,
    CreateAnswer,
    Created,
    DeleteAnswer,
    JsonObject,
    KubeApi,
    UpdateAnswer,
    Updated,
)
from skipstone_operator.resources.kinds import KINDS
from skipstone_operator.runtime.cache import ObjectCache, Term, Unordered


@dataclass(frozen=True)
class ForeignKind:
    """A kind of others: where the API server has it, and the labels by which its objects are watched."""

    plural: str
    labels: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    version: str = "v1"


#: What this operator makes, besides drivers, has this label.
_OWN = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
#: Kinds of others that are watched; those of ours are watched whole.
FOREIGN: Mapping[str, ForeignKind] = {
    "Pod": ForeignKind("pods", DRIVER_SELECTOR),
    "ConfigMap": ForeignKind("configmaps", _OWN),
    "PersistentVolumeClaim": ForeignKind("persistentvolumeclaims"),
    "ServiceAccount": ForeignKind("serviceaccounts", _OWN),
    "Service": ForeignKind("services", _OWN),
    "Deployment": ForeignKind("deployments", _OWN, group="apps"),
    "NetworkPolicy": ForeignKind("networkpolicies", _OWN, group="networking.k8s.io"),
    "PodDisruptionBudget": ForeignKind("poddisruptionbudgets", _OWN, group="policy"),
}
CACHED_KINDS = (*KINDS, *FOREIGN)
INDEXED_LABELS = frozenset(
    {names.OWNER_UID_LABEL, names.TABLE_UID_LABEL, names.WAREHOUSE_UID_LABEL, names.OPERATION_LABEL, *DRIVER_SELECTOR}
)


def selector_of(kind: str) -> Mapping[str, str]:
    """The labels by which objects of ``kind`` are watched; those of ours have none."""
    return FOREIGN[kind].labels if kind in FOREIGN else {}


def find_terms(kind: str, obj: JsonObject) -> Iterable[Term]:
    """By what an object is found: the fields by which its kind can be selected, and our labels."""
    for path in KINDS[kind].selectable if kind in KINDS else ():
        yield path, _value(obj, path)
    object_labels = obj["metadata"].get("labels") or {}
    yield from ((label, str(object_labels[label])) for label in INDEXED_LABELS if label in object_labels)


def new_cache() -> ObjectCache:
    """A cache of the kinds that the operator reads."""
    return ObjectCache(find_terms)


def slim(obj: Mapping[str, Any]) -> JsonObject:
    """``obj`` without what nobody reads: who wrote which field, and the request in a ConfigMap."""
    kept = {name: value for name, value in obj.items() if name not in ("metadata", "data", "binaryData")}
    return {**kept, "metadata": {name: value for name, value in obj["metadata"].items() if name != "managedFields"}}


@dataclass(frozen=True)
class RememberingKube:
    """Implements ``ports.KubeApi`` on another one; what its writes answer is in the cache when they return."""

    kube: KubeApi
    cache: ObjectCache = field(default_factory=new_cache)

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object as the API server has it now, or None."""
        return await self.kube.get(kind, namespace, name)

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[JsonObject, ...]:
        """All objects with these labels and fields as the API server has them now."""
        return await self.kube.list(kind, namespace, labels=labels, fields=fields)

    async def is_terminating(self, namespace: str) -> bool:
        """Return whether ``namespace`` is being deleted, or gone."""
        return await self.kube.is_terminating(namespace)

    async def create(self, obj: JsonObject) -> CreateAnswer:
        """Create ``obj``."""
        answer = await self.kube.create(obj)
        if isinstance(answer, Created):
            self._remember(obj["kind"], answer.object)
        return answer

    async def replace(self, obj: JsonObject) -> UpdateAnswer:
        """PUT ``obj``."""
        return await self._updated(obj, await self.kube.replace(obj))

    async def replace_status(self, obj: JsonObject) -> UpdateAnswer:
        """PUT the status of ``obj``."""
        return await self._updated(obj, await self.kube.replace_status(obj))

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str) -> DeleteAnswer:
        """Delete the object with this uid; the watch tells when it is gone."""
        return await self.kube.delete(kind, namespace, name, uid=uid)

    async def _updated(self, obj: JsonObject, answer: UpdateAnswer) -> UpdateAnswer:
        if isinstance(answer, Updated):
            self._remember(obj["kind"], answer.object)
        elif isinstance(answer, Conflict):
            await self._look_again(obj)
        return answer

    async def _look_again(self, obj: JsonObject) -> None:
        """The API server has a newer version: the next pass must not judge the old one again."""
        # When it cannot be read now, the watch tells of it later.
        with suppress(OSError):
            newer = await self.kube.get(obj["kind"], obj["metadata"]["namespace"], obj["metadata"]["name"])
            if newer is not None:
                self._remember(obj["kind"], newer)

    def _remember(self, kind: str, obj: JsonObject) -> None:
        shard = self.cache.readable(kind, obj["metadata"].get("namespace", ""))
        # The last write of a finalizer answers with an object that is gone by then; the watch tells.
        ended = obj["metadata"].get("deletionTimestamp") and not obj["metadata"].get("finalizers")
        if shard is None or ended or kind not in CACHED_KINDS:
            return
        try:
            shard.put(slim(obj))
        except Unordered:
            self.cache.forget(kind, obj["metadata"]["namespace"])


@dataclass(frozen=True)
class CachedKube(RememberingKube):
    """Reads what the watches told, as far as they were asked to tell it."""

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object as the watch told it last, or None; a kind of others only where it has our labels."""
        shard = self.cache.readable(kind, namespace) if kind in CACHED_KINDS else None
        return await self.kube.get(kind, namespace, name) if shard is None else shard.get(name)

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[JsonObject, ...]:
        """All objects with these labels and fields as the watch told them last."""
        shard = self.cache.readable(kind, namespace) if _is_held(kind, labels or {}, fields or {}) else None
        if shard is None:
            return await self.kube.list(kind, namespace, labels=labels, fields=fields)
        return tuple(shard.select((*(labels or {}).items(), *(fields or {}).items())))


def _is_held(kind: str, wanted: Mapping[str, str], fields: Mapping[str, str]) -> bool:
    """Return whether the cache holds every object that this selects, under terms that it knows."""
    if kind not in CACHED_KINDS or not wanted.keys() <= INDEXED_LABELS:
        return False
    selectable = KINDS[kind].selectable if kind in KINDS else ()
    return set(fields) <= set(selectable) and selector_of(kind).items() <= wanted.items()


def _value(obj: JsonObject, path: str) -> str:
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return str(value)
