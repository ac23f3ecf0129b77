"""What a process remembers of files: byte-budgeted, least recently used first out, keyed by immutable identity.

Used by index lookup and for footers of index and data files. A key names content that never changes (a metadata
location, a file's path and size, a digest of what was read), so nothing in here ever has to be invalidated. Must not
hold anything that depends on credentials or connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, TypeVar

from cachetools import LRUCache

_DIGEST_BYTES = 32
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


@dataclass(frozen=True)
class CacheCounts:
    """How a cache has served this process so far."""

    name: str
    hits: int
    misses: int
    bytes: int
    budget: int

    def text(self) -> str:
        """For explain."""
        return f"{self.name} {self.hits} hits, {self.misses} misses, {self.bytes:,} of {self.budget:,} bytes"


_all: list[ByteCache[Any, Any]] = []


def cache_counts() -> tuple[CacheCounts, ...]:
    """How all caches have served this process so far, by name."""
    return tuple(sorted((cache.counts() for cache in _all), key=lambda counts: counts.name))


def content_key(content: bytes, form: str = "") -> bytes:
    """The key of what is made of ``content``, read as ``form``: what a file holds counts, not how it is named."""
    return blake2b(content, digest_size=_DIGEST_BYTES, person=form.encode()[: blake2b.PERSON_SIZE]).digest()


class ByteCache(Generic[Key, Value]):
    """A thread-safe LRU cache that holds at most ``budget`` bytes; larger values pass through."""

    def __init__(self, name: str, budget: int, size_of: Callable[[Value], int]) -> None:
        """``size_of`` says how many bytes a value takes."""
        self.name = name
        self._size_of = size_of
        self._kept: LRUCache[Key, Value] = LRUCache(budget, getsizeof=size_of)
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        _all.append(self)

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of ``key``; ``make`` makes it when it is not there, and what that raises is not remembered."""
        with self._lock:
            found = self._kept.get(key)
            self._hits += found is not None
            self._misses += found is None
        if found is not None:
            return found
        made = make()
        with self._lock:
            if self._size_of(made) <= self._kept.maxsize:
                self._kept[key] = made
        return made

    def counts(self) -> CacheCounts:
        """How it has served so far."""
        with self._lock:
            return CacheCounts(self.name, self._hits, self._misses, int(self._kept.currsize), int(self._kept.maxsize))
