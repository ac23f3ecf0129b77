"""The cache holds what the server had at a resourceVersion, in whatever order and with whatever gaps it was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skipstone_operator.memory import KEPT, Memory
from skipstone_operator.runtime.cache import ObjectCache, Unordered

NAMES = ("a", "b", "c")
OWNERS = ("x", "y")
KIND, PLACE = "Pod", "lake"
Obj = dict[str, Any]


def make(name: str, owner: str, version: int | str) -> Obj:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "owner": owner}


def new_cache() -> ObjectCache:
    return ObjectCache(lambda _kind, obj: [("owner", obj["owner"])])


@dataclass
class Server:
    """Objects with one counter of versions; ``told`` is what a watch delivers, in order."""

    version: int = 0
    objects: dict[str, Obj] = field(default_factory=dict)
    told: list[tuple[str, Obj]] = field(default_factory=list)

    def write(self, name: str, owner: str) -> Obj:
        self.version += 1
        self.objects[name] = make(name, owner, self.version)
        self.told.append(("put", self.objects[name]))
        return self.objects[name]

    def delete(self, name: str) -> None:
        if name in self.objects:
            self.version += 1
            self.told.append(("drop", {**self.objects.pop(name), "metadata": make(name, "", self.version)["metadata"]}))


@dataclass
class Watched:
    """A server and a cache that is told late, early by our own writes, or not at all."""

    server: Server = field(default_factory=Server)
    cache: ObjectCache = field(default_factory=new_cache)
    told: int = 0
    answers: list[Obj] = field(default_factory=list)
    listing: tuple[list[Obj], int] | None = None
    names: tuple[dict[str, int], int] | None = None
    reads: dict[str, Obj | None] | None = None
    newest: dict[str, int] = field(default_factory=dict)

    def step(self, what: str, name: str, owner: str) -> None:
        """One thing happens."""
        {
            "other writes": lambda: self.server.write(name, owner),
            "own write is sent": lambda: self.answers.append(self.server.write(name, owner)),
            "answer arrives": lambda: self._take(self.answers.pop(0) if self.answers else None),
            "delete": lambda: self.server.delete(name),
            "event": self._deliver,
            "gap": self._skip,
            "list is sent": self._send_list,
            "list arrives": self._list,
            "list of names is sent": self._send_names,
            "what it shows is read": self._read_lacking,
            "list of names arrives": self._list_names,
        }[what]()
        self._never_back()

    def _take(self, obj: Obj | None) -> None:
        if obj is not None:
            self.shard.put(obj)

    def _deliver(self) -> None:
        if self.told < len(self.server.told):
            what, obj = self.server.told[self.told]
            self.told += 1
            (self.shard.put if what == "put" else self.shard.drop)(obj)

    def _skip(self) -> None:
        """410: the watch begins again with what exists now; what vanished meanwhile is told by nobody."""
        self.told = len(self.server.told)
        for obj in self.server.objects.values():
            self.shard.put(obj)

    def _send_list(self) -> None:
        if self.names is None:
            self.listing = (list(self.server.objects.values()), self.server.version)

    def _list(self) -> None:
        if self.listing is not None:
            self.shard.replace(*self.listing)
            self.listing = None

    def _send_names(self) -> None:
        # The operator's LISTs come one after the other, and only a filled shard is compared with names.
        if self.listing is None and self.shard.floor is not None:
            versions = {name: int(obj["metadata"]["resourceVersion"]) for name, obj in self.server.objects.items()}
            self.names, self.reads = (versions, self.server.version), None

    def _read_lacking(self) -> None:
        if self.names is not None:
            self.reads = {name: self.server.objects.get(name) for name in self.shard.lacking(self.names[0])}

    def _list_names(self) -> None:
        if self.names is None:
            return
        if self.reads is None:
            self._read_lacking()
        reads = self.reads or {}
        there = [name for name in self.names[0] if reads.get(name, "known") is not None]
        self.shard.revise(there, [obj for obj in reads.values() if obj is not None], self.names[1])
        self.names = None

    @property
    def shard(self) -> Any:
        return self.cache.shard(KIND, PLACE)

    def _never_back(self) -> None:
        for obj in self.shard.select([]):
            name, version = obj["metadata"]["name"], int(obj["metadata"]["resourceVersion"])
            assert version >= self.newest.get(name, 0)
            self.newest[name] = version


WHOLE_LIST = ("list is sent", "list arrives")
NAMES_LIST = ("list of names is sent", "what it shows is read", "list of names arrives")
STEPS = st.sampled_from(
    ["other writes", "own write is sent", "answer arrives", "delete", "event", "gap", *WHOLE_LIST, *NAMES_LIST]
)


@pytest.mark.parametrize("last", [WHOLE_LIST, NAMES_LIST], ids=["whole", "names"])
@given(steps=st.lists(st.tuples(STEPS, st.sampled_from(NAMES), st.sampled_from(OWNERS)), max_size=60))
def test_after_one_list_and_all_that_the_watch_tells_the_cache_is_the_server(
    last: tuple[str, ...], steps: list[tuple[str, str, str]]
) -> None:
    watched = Watched()
    for what in WHOLE_LIST if last == NAMES_LIST else ():
        watched.step(what, "", "")
    for step in steps:
        watched.step(*step)
    # What is still under way arrives first: LISTs come one after the other.
    for what in ("list arrives", "list of names arrives", *last):
        watched.step(what, "", "")
    # What was under way comes late: old events, old answers. None of it may undo what is known.
    while watched.told < len(watched.server.told):
        watched.step("event", "", "")
    while watched.answers:
        watched.step("answer arrives", "", "")
    expected = sorted(watched.server.objects.values(), key=lambda obj: obj["metadata"]["name"])
    assert watched.shard.select([]) == expected
    for owner in OWNERS:
        assert watched.shard.select([("owner", owner)]) == [obj for obj in expected if obj["owner"] == owner]
    for name in NAMES:
        assert watched.shard.get(name) == watched.server.objects.get(name)


@given(st.lists(st.tuples(STEPS, st.sampled_from(NAMES), st.sampled_from(OWNERS)), max_size=60))
def test_our_own_writes_are_read_at_once(steps: list[tuple[str, str, str]]) -> None:
    watched = Watched()
    watched.step("list is sent", "", "")
    watched.step("list arrives", "", "")
    for step in steps:
        watched.step(*step)
    answer = watched.server.write("mine", "x")
    watched.shard.put(answer)
    assert watched.shard.get("mine") == answer
    watched.step("list arrives", "", "")
    assert watched.shard.get("mine") == answer, "a LIST from before the write must not undo it"


def test_nothing_is_read_before_the_first_list() -> None:
    cache = new_cache()
    cache.shard(KIND, PLACE).put(make("a", "x", 1))
    assert cache.readable(KIND, PLACE) is None
    cache.shard(KIND, PLACE).replace([], 0)
    shard = cache.readable(KIND, PLACE)
    assert shard is not None
    assert shard.get("a") == make("a", "x", 1)
    cache.forget(KIND, PLACE)
    assert cache.readable(KIND, PLACE) is None


def test_what_vanished_in_a_gap_is_named_once() -> None:
    shard = new_cache().shard(KIND, PLACE)
    shard.replace([make("a", "x", 1), make("b", "x", 2)], 2)
    assert shard.replace([make("b", "x", 2)], 5) == {"a"}
    assert shard.replace([make("b", "x", 2)], 6) == frozenset()


def test_a_server_that_went_back_is_believed() -> None:
    shard = new_cache().shard(KIND, PLACE)
    shard.replace([make("a", "x", 90), make("b", "y", 95)], 100)
    shard.replace([make("a", "y", 40)], 50)
    assert shard.select([]) == [make("a", "y", 40)]
    assert shard.select([("owner", "x")]) == []


def test_names_tell_what_is_lacking_what_vanished_and_that_the_server_went_back() -> None:
    shard = new_cache().shard(KIND, PLACE)
    shard.replace([make("a", "x", 10), make("b", "x", 20)], 50)
    shard.put(make("c", "x", 60))
    assert not shard.went_back(50)
    assert shard.went_back(49)
    listed = {"a": 10, "b": 55, "c": 58, "d": 56}
    assert shard.lacking(listed) == {"b", "d"}, "the watch was ahead of c"
    assert shard.revise(["b", "c", "d"], [make("b", "y", 55), make("d", "y", 56)], 59) == {"a"}
    assert shard.select([]) == [make("b", "y", 55), make("c", "x", 60), make("d", "y", 56)]
    assert not shard.put(make("a", "x", 10)), "what comes late does not bring back what vanished"


@pytest.mark.parametrize("version", ["", "abc", "12x", "²"])
def test_versions_without_an_order_are_refused(version: str) -> None:
    with pytest.raises(Unordered, match="is no number"):
        new_cache().shard(KIND, PLACE).put(make("a", "x", version))


def test_what_was_made_of_an_object_is_made_again_of_the_next_version_of_it() -> None:
    memory, made = Memory(), list[str]()

    def read(obj: Mapping[str, Any]) -> str:
        made.append(obj["metadata"]["resourceVersion"])
        return made[-1]

    first, second = make("a", "x", 1), make("a", "x", 2)
    assert [memory.recall(obj, "facts", read) for obj in (first, first, second, second)] == ["1", "1", "2", "2"]
    assert memory.recall(first, "other facts", lambda _: "other") == "other"
    for number in range(KEPT):
        memory.recall(make("b", "x", number + 3), "facts", lambda _: "")
    assert memory.recall(first, "facts", read) == "1"
    assert made == ["1", "2", "1"]
