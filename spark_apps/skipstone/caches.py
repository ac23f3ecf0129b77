"""What a process remembers of files: byte-budgeted, least recently used first out, keyed by immutable identity.

Used by index lookup and for footers of index and data files. A key names content that never changes (a metadata
location, a file's path and size, a digest of what was read), or whoever asks says which values fit it, so nothing in
here ever has to be invalidated. Must not hold anything that depends on credentials or connections.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from cachetools import LRUCache

#: How many bytes at both ends find a content: what is written into it last and first tells most of them apart.
_ENDS = 512
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

    def get(self, key: Key, make: Callable[[], Value], fits: Callable[[Value], bool] | None = None) -> Value:
        """The value of ``key``; ``make`` makes it when it is not there, and what that raises is not remembered.

        ``fits``: whether a value that is there is the one that is meant; it is made again when not.
        """
        with self._lock:
            value = self._kept.get(key)
        if value is not None and fits is not None and not fits(value):
            value = None
        with self._lock:
            self._hits += value is not None
            self._misses += value is None
        if value is not None:
            return value
        made = make()
        self.put(key, made)
        return made

    def peek(self, key: Key) -> Value | None:
        """The value of ``key`` if it is there."""
        with self._lock:
            return self._kept.get(key)

    def put(self, key: Key, value: Value) -> None:
        """Keep ``value`` from now on, in place of what is there."""
        with self._lock:
            self._kept.pop(key, None)
            if self._size_of(value) <= self._kept.maxsize:
                self._kept[key] = value

    def drop(self, is_meant: Callable[[Key], bool]) -> None:
        """Forget the values of keys that are meant."""
        with self._lock:
            for key in [key for key in self._kept if is_meant(key)]:
                self._kept.pop(key, None)

    def counts(self) -> CacheCounts:
        """How it has served so far."""
        with self._lock:
            return CacheCounts(self.name, self._hits, self._misses, int(self._kept.currsize), int(self._kept.maxsize))


class _Made(NamedTuple):
    content: bytes
    value: Any


class ContentCache(Generic[Value]):
    """What was made of contents that were read: what a file holds counts, not how it is named.

    A content is found by its length and both ends and then compared as a whole, many times faster than by a digest.
    """

    def __init__(self, name: str, budget: int, size_of: Callable[[Value], int]) -> None:
        """``size_of`` says how many bytes a value takes; its content counts too."""
        self._kept: ByteCache[tuple[str, int, bytes, bytes], _Made] = ByteCache(
            name, budget, lambda made: len(made.content) + size_of(made.value)
        )

    def get(self, content: bytes, make: Callable[[], Value], form: str = "") -> Value:
        """Return the value that ``make`` builds of ``content``, read as ``form``; an error is not remembered."""
        made = self._kept.get(
            _ends(content, form), lambda: _Made(content, make()), lambda known: bool(known.content == content)
        )
        value: Value = made.value
        return value

    def put(self, content: bytes, value: Value, form: str = "") -> None:
        """Know from now on what is made of ``content``."""
        self._kept.put(_ends(content, form), _Made(content, value))


def _ends(content: bytes, form: str) -> tuple[str, int, bytes, bytes]:
    return form, len(content), content[:_ENDS], content[-_ENDS:]
