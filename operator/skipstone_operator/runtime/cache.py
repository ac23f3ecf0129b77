"""What the watches told, kept: objects as the API server had them, each at its resourceVersion.

Filled from watch events, from LISTs and from the answers to our own writes, in whatever order they arrive. Pure: no
API, no clock, knows no kind. What it hands out is shared: callers must not change it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
#: A name and a value by which objects are found, for example a label.
Term = tuple[str, str]
Terms = Callable[[Object], Iterable[Term]]


class Unordered(Exception):
    """A resourceVersion that is no number: which of two states is the newer one cannot be told."""


def version_of(obj: Mapping[str, Any]) -> int:
    """The resourceVersion of an object or a list. Raises Unordered."""
    return as_version(str((obj.get("metadata") or {}).get("resourceVersion", "")))


def as_version(text: str) -> int:
    """The resourceVersion that is written so. Raises Unordered."""
    if not (text.isascii() and text.isdigit()):
        raise Unordered(f"the resourceVersion {text!r} is no number")
    return int(text)


@dataclass(frozen=True)
class _Held:
    version: int
    object: Object
    terms: frozenset[Term]


@dataclass
class Shard:
    """Objects of one kind in one namespace, by name.

    ``floor`` is the resourceVersion of the last complete LIST: what is absent then and not newer does not exist.
    ``None`` before the first one, while the shard must not be read.
    """

    terms: Terms
    floor: int | None = None
    _held: dict[str, _Held] = field(default_factory=dict)
    #: Deleted since the last LIST, and when.
    _gone: dict[str, int] = field(default_factory=dict)
    _names: defaultdict[Term, set[str]] = field(default_factory=lambda: defaultdict(set))

    def put(self, obj: Object) -> bool:
        """Take ``obj`` unless something newer is known; whether it was taken. Raises Unordered."""
        name, version = str(obj["metadata"]["name"]), version_of(obj)
        held = self._held.get(name)
        known = held.version if held is not None else max(self._gone.get(name, 0), self.floor or 0)
        if version <= known:
            return False
        self._store(name, version, obj)
        return True

    def drop(self, obj: Object) -> bool:
        """Forget ``obj``, deleted at its resourceVersion, unless a newer one exists. Raises Unordered."""
        name, version = str(obj["metadata"]["name"]), version_of(obj)
        held = self._held.get(name)
        if held is not None and held.version > version:
            return False
        self._gone[name] = max(version, self._gone.get(name, 0))
        return self._remove(name)

    def replace(self, objects: Collection[Object], version: int) -> frozenset[str]:
        """Take a complete LIST made at ``version``; the names that vanished without an event. Raises Unordered.

        LISTs come one after the other, so one that is older than the last means that the API server itself went back,
        as after a restore of etcd: nothing that was known before counts then.
        """
        if self.went_back(version):
            self._clear()
        return self.revise({str(obj["metadata"]["name"]) for obj in objects}, objects, version)

    def went_back(self, version: int) -> bool:
        """Return whether a LIST made at ``version`` shows that the API server went back: only whole LISTs tell."""
        return self.floor is not None and version < self.floor

    def lacking(self, listed: Mapping[str, int]) -> frozenset[str]:
        """The names of a LIST whose objects are not known yet at the version listed, nor at a newer one."""
        return frozenset(name for name, version in listed.items() if version > self._known(name))

    def revise(self, listed: Collection[str], objects: Collection[Object], version: int) -> frozenset[str]:
        """Take the names of a complete LIST made at ``version``, with the objects that were lacking.

        The names that vanished without an event. What was read after the LIST may be newer than it; what was gone by
        then is not among ``listed``. Raises Unordered.
        """
        for obj, at in [(obj, version_of(obj)) for obj in objects]:
            name = str(obj["metadata"]["name"])
            if at > self._known(name):
                self._store(name, at, obj)
        vanished = {name for name, held in self._held.items() if name not in listed and held.version <= version}
        for name in vanished:
            self._remove(name)
        self._gone = {name: at for name, at in self._gone.items() if at > version}
        self.floor = version
        return frozenset(vanished)

    def get(self, name: str) -> Object | None:
        """The object, or None."""
        held = self._held.get(name)
        return None if held is None else held.object

    def select(self, terms: Iterable[Term]) -> list[Object]:
        """The objects with all these terms, by name."""
        wanted = list(terms)
        names = min((self._names.get(term, set()) for term in wanted), key=len, default=self._held.keys())
        entries = ((name, self._held[name]) for name in sorted(names))
        return [held.object for _, held in entries if held.terms.issuperset(wanted)]

    def __len__(self) -> int:
        """How many objects are held."""
        return len(self._held)

    def _known(self, name: str) -> int:
        """The version at which a LIST finds nothing new of ``name``: that of the object, or of its deletion."""
        held = self._held.get(name)
        return held.version if held is not None else self._gone.get(name, 0)

    def _store(self, name: str, version: int, obj: Object) -> None:
        self._remove(name)
        self._gone.pop(name, None)
        held = _Held(version, obj, frozenset(self.terms(obj)))
        self._held[name] = held
        for term in held.terms:
            self._names[term].add(name)

    def _remove(self, name: str) -> bool:
        held = self._held.pop(name, None)
        for term in held.terms if held is not None else ():
            self._names[term].discard(name)
            if not self._names[term]:
                del self._names[term]
        return held is not None

    def _clear(self) -> None:
        self._held.clear()
        self._gone.clear()
        self._names.clear()


@dataclass
class ObjectCache:
    """Shards by kind and namespace. ``terms`` answers by what an object of a kind can be found."""

    terms: Callable[[str, Object], Iterable[Term]]
    _shards: dict[tuple[str, str], Shard] = field(default_factory=dict)

    def shard(self, kind: str, namespace: str) -> Shard:
        """The shard, empty and unreadable at first."""
        key = (kind, namespace)
        if key not in self._shards:
            self._shards[key] = Shard(lambda obj: self.terms(kind, obj))
        return self._shards[key]

    def readable(self, kind: str, namespace: str) -> Shard | None:
        """The shard once a LIST has filled it; None while only the API server knows."""
        shard = self._shards.get((kind, namespace))
        return shard if shard is not None and shard.floor is not None else None

    def forget(self, kind: str, namespace: str) -> None:
        """Know nothing of this kind here any more, until the next LIST."""
        self._shards.pop((kind, namespace), None)

    def __len__(self) -> int:
        """How many objects are held."""
        return sum(map(len, self._shards.values()))
