"""An operator with a cache before an API server in memory: news reach the cache as late as a test wants.

A crash loses the cache; the next operator fills its own by a LIST.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skipstone_operator.adapters.cached import CACHED_KINDS, CachedKube, RememberingKube, selector_of, slim
from skipstone_operator.ports import JsonObject, Key, Ports

from tests.unit.kube_double import MemoryKube
from tests.unit.operator_double import World


@dataclass
class TellingKube(MemoryKube):
    """Keeps what a watch would deliver, and counts what is read."""

    news: list[tuple[str, JsonObject]] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        self.reads.append(f"get {kind}")
        return await super().get(kind, namespace, name)

    async def list(self, kind: str, namespace: str, **selectors: Any) -> tuple[JsonObject, ...]:
        self.reads.append(f"list {kind}")
        return await super().list(kind, namespace, **selectors)

    def drop(self, kind: str, namespace: str, name: str) -> None:
        gone = self.objects.get((kind, namespace, name))
        if gone is not None:
            self._version += 1
            last = copy.deepcopy(gone)
            last["metadata"]["resourceVersion"] = str(self._version)
            self.news.append(("DELETED", last))
        super().drop(kind, namespace, name)

    def _store(self, obj: JsonObject) -> None:
        super()._store(obj)
        self.news.append(("MODIFIED", copy.deepcopy(obj)))


@dataclass
class CachedWorld(World):
    """``lag(kind)`` is how many news of a kind the watch is behind when passes begin."""

    kube: TellingKube = field(default_factory=TellingKube)
    lag: Callable[[str], int] = lambda _kind: 0
    _told: int = 0
    _waiting: dict[str, list[tuple[str, JsonObject]]] = field(default_factory=dict)
    _seen_crashes: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.restart()

    def restart(self) -> None:
        """A new operator: an empty cache, filled by a LIST."""
        self.remembering = RememberingKube(self.kube)
        self._waiting, self._told = {}, len(self.kube.news)
        for kind, namespace in itertools.product(CACHED_KINDS, self.namespaces):
            objects = self.kube.objects.items()
            found = [o for (k, n, _), o in objects if (k, n) == (kind, namespace) and _selected(kind, o)]
            self.remembering.cache.shard(kind, namespace).replace(
                [slim(copy.deepcopy(obj)) for obj in found], self.kube._version
            )

    def deliver(self) -> None:
        """The watch delivers what is not held back."""
        for what, obj in self.kube.news[self._told :]:
            self._waiting.setdefault(obj["kind"], []).append((what, obj))
        self._told = len(self.kube.news)
        for kind, waiting in self._waiting.items():
            ready = max(0, len(waiting) - self.lag(kind))
            for what, obj in waiting[:ready]:
                self._take(kind, what, obj)
            del waiting[:ready]

    def _take(self, kind: str, what: str, obj: JsonObject) -> None:
        if kind in CACHED_KINDS and _selected(kind, obj):
            shard = self.remembering.cache.shard(kind, "lake")
            (shard.drop if what == "DELETED" else shard.put)(slim(obj))

    def reconcile(self, key: Key) -> None:
        self.deliver()
        super().reconcile(key)

    def reconcile_all(self) -> None:
        self.deliver()
        super().reconcile_all()

    def _ports(self) -> Ports:
        if self.crashes != self._seen_crashes:
            self._seen_crashes = self.crashes
            self.restart()
        ports = super()._ports()
        ports.kube = self.remembering
        ports.cached = CachedKube(self.remembering, self.remembering.cache)
        return ports

    def held(self) -> Mapping[tuple[str, str], JsonObject]:
        """What the cache holds, by kind and name."""
        shards = {kind: self.remembering.cache.shard(kind, "lake") for kind in CACHED_KINDS}
        return {(kind, o["metadata"]["name"]): o for kind, shard in shards.items() for o in shard.select([])}


def _selected(kind: str, obj: JsonObject) -> bool:
    found = obj["metadata"].get("labels") or {}
    return selector_of(kind).items() <= found.items()
