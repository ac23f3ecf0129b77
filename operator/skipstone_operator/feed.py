"""What the watch and the resync tell: first into the cache, then as keys into the queue.

Called by ``__main__``'s watch and resync on one event loop. Decides nothing. The cache is always filled before a key is
put, so a pass never reads anything older than what woke it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from skipstone_operator.adapters.cached import CACHED_KINDS, selector_of, slim
from skipstone_operator.adapters.kube import KubeClient
from skipstone_operator.labels import ROLE_LABEL
from skipstone_operator.ports import AccessDenied, JsonObject, Key
from skipstone_operator.resources.kinds import IDENTIFIER_FIELD, TABLE
from skipstone_operator.routing import Router, identity_of
from skipstone_operator.runtime.cache import ObjectCache, Shard, Unordered, as_version, version_of
from skipstone_operator.runtime.resync import Deliveries

#: Up to so many objects of a kind are read one by one after a LIST of names; more by one LIST of whole objects.
MAX_SINGLE_READS = 16
logger = logging.getLogger(__name__)


class SeenMeter(Protocol):
    """What is measured of objects as they are seen; must not fail."""

    def seen(self, obj: Mapping[str, Any]) -> None:
        """``obj`` is so now."""
        ...

    def gone(self, identity: Key) -> None:
        """The object does not exist any more."""
        ...


def is_silent(obj: Mapping[str, Any]) -> bool:
    """Return whether changes of ``obj`` wake nobody: whatever depends on a claim or a run's ConfigMap polls it."""
    labels = obj["metadata"].get("labels") or {}
    return obj["kind"] == "PersistentVolumeClaim" or (obj["kind"] == "ConfigMap" and ROLE_LABEL in labels)


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Where news goes. ``put`` takes the keys to reconcile."""

    kube: KubeClient
    namespaces: tuple[str, ...]
    cache: ObjectCache
    router: Router
    deliveries: Deliveries[Key]
    meter: SeenMeter
    put: Callable[[Key], None]
    _listing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def changed(self, obj: Mapping[str, Any]) -> None:
        """The watch delivered ``obj``."""
        identity = identity_of(obj)
        self.deliveries.seen(identity, obj["metadata"]["resourceVersion"])
        kept = slim(obj)
        newest = self._newest(identity, lambda shard: shard.put(kept), kept)
        if newest is None:
            # It is known to be deleted, and whoever depends on it was told.
            return
        self.meter.seen(newest)
        if not is_silent(newest):
            self._wake(self.router.changed(newest) | self._rivals(newest))

    def removed(self, obj: Mapping[str, Any]) -> None:
        """The watch delivered the deletion of ``obj``."""
        identity = identity_of(obj)
        kept = slim(obj)
        if self._newest(identity, lambda shard: shard.drop(kept), None) is None:
            self.deliveries.gone(identity)
            self.forget([identity])
        self._wake(self._rivals(obj))

    def forget(self, identities: Collection[Key]) -> None:
        """These objects do not exist any more."""
        for identity in identities:
            self.meter.gone(identity)
            self._wake(self.router.removed(identity))

    def enqueue(self, identities: Collection[Key]) -> None:
        """Have everything reconciled that these objects belong to."""
        for identity in identities:
            if (key := self.router.key_of(identity)) is not None:
                self.put(key)

    async def list_all(self) -> Mapping[Key, str]:
        """All objects; a namespace that took the Role with it must not keep the resync from the others."""
        # The cache takes an older LIST that comes after a newer one for an API server that went back.
        async with self._listing:
            return await self._list_namespaces()

    async def _list_namespaces(self) -> Mapping[Key, str]:
        versions: dict[Key, str] = {}
        denied: list[AccessDenied] = []
        for namespace in self.namespaces:
            try:
                for kind in CACHED_KINDS:
                    versions |= await self._list(kind, namespace)
            except AccessDenied as denial:
                logger.warning("resync goes on without namespace %s: %s", namespace, denial)
                denied.append(denial)
                # Passes must find out by themselves: what they may not read they must not go on from.
                for kind in CACHED_KINDS:
                    self.cache.forget(kind, namespace)
        if denied and len(denied) == len(self.namespaces):
            raise denied[0]
        return versions

    async def _list(self, kind: str, namespace: str) -> dict[Key, str]:
        versions = await self._list_names(kind, namespace)
        return await self._list_whole(kind, namespace) if versions is None else versions

    async def _list_names(self, kind: str, namespace: str) -> dict[Key, str] | None:
        """Compare the cache with names and versions, and read what it lacks; None when only a whole LIST will do."""
        shard = self.cache.readable(kind, namespace)
        if shard is None:
            return None
        listing = await self.kube.listing(kind, namespace, labels=selector_of(kind))
        try:
            at = version_of(listing.head)
            if shard.went_back(at):
                # What the watch tells from now on counts, and nothing from before.
                self.cache.forget(kind, namespace)
                return None
            lacking = shard.lacking({name: as_version(text) for name, text in listing.versions.items()})
            if len(lacking) > MAX_SINGLE_READS:
                return None
            read = {name: await self._read(kind, namespace, name) for name in sorted(lacking)}
            there = {name: obj for name, obj in read.items() if obj is not None}
            versions = {name: text for name, text in listing.versions.items() if name in there or name not in read}
            vanished = shard.revise(versions.keys(), there.values(), at)
        except Unordered:
            # The whole LIST says so.
            return None
        self._know(filter(None, map(shard.get, versions)))
        self.forget([Key(kind, namespace, name) for name in sorted(vanished)])
        return {Key(kind, namespace, name): text for name, text in versions.items()}

    async def _read(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object, unless it is gone or lost the labels by which its kind is listed."""
        obj = await self.kube.get(kind, namespace, name)
        labels = {} if obj is None else obj["metadata"].get("labels") or {}
        return None if obj is None or not selector_of(kind).items() <= labels.items() else slim(obj)

    def _know(self, objects: Iterable[JsonObject]) -> None:
        """Whom these objects belong to, and what they are worth."""
        for obj in objects:
            if not is_silent(obj):
                self.router.changed(obj)
                self.meter.seen(obj)

    async def _list_whole(self, kind: str, namespace: str) -> dict[Key, str]:
        snapshot = await self.kube.snapshot(kind, namespace, labels=selector_of(kind))
        versions = {identity_of(obj): str(obj["metadata"]["resourceVersion"]) for obj in snapshot.objects}
        try:
            held = [slim(obj) for obj in snapshot.objects]
            shard = self.cache.shard(kind, namespace)
            vanished = shard.replace(held, version_of(snapshot.head))
        except Unordered as error:
            logger.warning("passes read %s of namespace %s from the API server: %s", kind, namespace, error)
            self.cache.forget(kind, namespace)
            self._know(snapshot.objects)
            return versions
        # The watch may have told of something newer while the list was on its way.
        self._know(filter(None, (shard.get(identity.name) for identity in versions)))
        self.forget([Key(kind, namespace, name) for name in sorted(vanished)])
        return versions

    def _newest(
        self, identity: Key, change: Callable[[Shard], bool], otherwise: JsonObject | None
    ) -> JsonObject | None:
        """What is known under this name after ``change``: kopf may tell of two objects of one name in any order.

        ``otherwise`` where the API server's resourceVersions have no order: the cache knows nothing then.
        """
        shard = self.cache.shard(identity.kind, identity.namespace)
        try:
            change(shard)
        except Unordered:
            self.cache.forget(identity.kind, identity.namespace)
            return otherwise
        return shard.get(identity.name)

    def _wake(self, keys: Collection[Key]) -> None:
        for key in keys:
            self.put(key)

    def _rivals(self, obj: Mapping[str, Any]) -> frozenset[Key]:
        """The Tables that claim the same table of a catalog: which of them owns it depends on all of them."""
        if obj.get("kind") != TABLE.name:
            return frozenset()
        name = str((((obj.get("spec") or {}).get("identifier")) or {}).get("name"))
        shards = (self.cache.readable(TABLE.name, namespace) for namespace in self.namespaces)
        rivals = (each for shard in shards if shard is not None for each in shard.select([(IDENTIFIER_FIELD, name)]))
        return frozenset(map(identity_of, rivals))
