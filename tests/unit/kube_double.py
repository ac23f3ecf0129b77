"""An API server in memory: resourceVersions, uids, finalizers, owner references, selectors, and faults on demand.

Stands in for ``ports.KubeApi`` in unit tests of reconcilers; the same reconcilers meet a real one in tests/kube.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from skipstone_core.contract.keeping import kept_driver_uid
from skipstone_operator.ports import (
    AccessDenied,
    Conflict,
    CreateAnswer,
    Created,
    DeleteAnswer,
    Deleted,
    Exists,
    Gone,
    JsonObject,
    Refused,
    UpdateAnswer,
    Updated,
)

Place = tuple[str, str, str]
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
OWN_KINDS = frozenset({"Warehouse", "Table", "SecondaryIndex", "LoadJob", "MergeJob", "MergeSchedule"})


class Crash(BaseException):
    """The operator's process dies here."""


@dataclass
class ManualClock:
    """Time that moves only when told to."""

    time: datetime = START

    def now(self) -> datetime:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def text(self) -> str:
        return self.time.strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class MemoryKube:
    """Objects by kind, namespace and name. ``crash(n, moment)`` decides whether write ``n`` kills the caller.

    ``moment`` is ``before`` (nothing landed) or ``landed``; ``refuse`` may answer a create instead of the server.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    objects: dict[Place, JsonObject] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)
    crash: Callable[[int, str], bool] = lambda _number, _moment: False
    refuse: Callable[[JsonObject], Refused | None] = lambda _obj: None
    created: Callable[[JsonObject], None] = lambda _obj: None
    terminating: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)
    _version: int = 0
    _uids: int = 0

    async def is_terminating(self, namespace: str) -> bool:
        return namespace in self.terminating

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        self._require_readable(kind)
        return copied(self.objects.get((kind, namespace, name)))

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[JsonObject, ...]:
        self._require_readable(kind)
        found = (o for (k, ns, _), o in sorted(self.objects.items()) if (k, ns) == (kind, namespace))
        return tuple(copied(o) for o in found if _has_labels(o, labels or {}) and _has_fields(o, fields or {}))

    def _require_readable(self, kind: str) -> None:
        if kind in self.unreadable:
            raise AccessDenied(f"{kind} may not be read")

    async def create(self, obj: JsonObject) -> CreateAnswer:
        place = _place(obj)
        if (refusal := self.refuse(obj)) is not None:
            return refusal
        number = self._begin(f"create {obj['kind']}")
        if place in self.objects:
            answer: CreateAnswer = Exists()
        else:
            answer = Created(copied(self.add(obj)))
            self.created(obj)
        self._landed(number)
        return answer

    async def replace(self, obj: JsonObject) -> UpdateAnswer:
        return self._update(obj, "metadata")

    async def replace_status(self, obj: JsonObject) -> UpdateAnswer:
        return self._update(obj, "status")

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str) -> DeleteAnswer:
        found = self.objects.get((kind, namespace, name))
        number = self._begin(f"delete {kind}")
        if found is None:
            answer: DeleteAnswer = Gone()
        elif found["metadata"]["uid"] != uid:
            answer = Conflict()
        else:
            self.remove(kind, namespace, name)
            answer = Deleted()
        self._landed(number)
        return answer

    def add(self, obj: Mapping[str, Any]) -> JsonObject:
        """Store ``obj`` as a user's or a controller's create would; the status of Pods and claims is kept."""
        stored = copied(dict(obj))
        self._uids += 1
        metadata = stored.setdefault("metadata", {})
        metadata.setdefault("namespace", "lake")
        metadata.setdefault("uid", f"{self._uids:08x}-0000-4000-8000-000000000000")
        metadata.setdefault("creationTimestamp", self.clock.text())
        metadata.setdefault("generation", 1)
        if stored["kind"] == "Pod":
            stored.setdefault("status", {"phase": "Pending"})
        self._store(stored)
        return stored

    def edit(self, kind: str, name: str, change: Callable[[JsonObject], None], namespace: str = "lake") -> None:
        """Change an object as a user would; a changed spec moves the generation."""
        found = self.objects[kind, namespace, name]
        spec = copied(found.get("spec"))
        change(found)
        if found.get("spec") != spec:
            found["metadata"]["generation"] += 1
        self._store(found)

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Begin a deletion: finalizers and running containers hold the object; one that no node has goes at once."""
        found = self.objects[kind, namespace, name]
        if found["metadata"].get("finalizers") or (kind == "Pod" and is_running(found) and not kept_driver_uid(found)):
            found["metadata"].setdefault("deletionTimestamp", self.clock.text())
            self._store(found)
        else:
            self.drop(kind, namespace, name)

    def drop(self, kind: str, namespace: str, name: str) -> None:
        """The object is gone; what it owned goes after it."""
        gone = self.objects.pop((kind, namespace, name))["metadata"]["uid"]
        for place in [p for p, o in self.objects.items() if gone in _owners(o)]:
            if place in self.objects:
                self.remove(*place)

    def find(self, kind: str, **labels: str) -> Iterator[JsonObject]:
        """Objects of a kind whose labels (``operation="Load"`` is skipstone.dev/operation) fit."""
        wanted = {f"skipstone.dev/{name.replace('_', '-')}": value for name, value in labels.items()}
        for (found_kind, _, _), obj in sorted(self.objects.items()):
            if found_kind == kind and _has_labels(obj, wanted):
                yield obj

    def status(self, kind: str, name: str, namespace: str = "lake") -> JsonObject:
        """The status of an object."""
        return dict(self.objects[kind, namespace, name].get("status") or {})

    def condition(self, kind: str, name: str, type_: str) -> tuple[str, str]:
        """Status and reason of a condition; two empty strings when it is not there."""
        for found in self.status(kind, name).get("conditions", ()):
            if found["type"] == type_:
                return found["status"], found["reason"]
        return "", ""

    def _update(self, obj: JsonObject, part: str) -> UpdateAnswer:
        found = self.objects.get(_place(obj))
        number = self._begin(f"{part} {obj['kind']}")
        if found is None:
            answer: UpdateAnswer = Gone()
        elif found["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            answer = Conflict()
        else:
            parts = [name for name in obj if name != "status"] if part == "metadata" else [part]
            generation = found["metadata"].get("generation", 1) + (
                found.get("spec") != obj.get("spec", found.get("spec"))
            )
            found |= {name: copied(obj[name]) for name in parts}
            found["metadata"] = {"creationTimestamp": self.clock.text(), **found["metadata"], "generation": generation}
            self._store(found)
            answer = Updated(copied(found))
            if found["metadata"].get("deletionTimestamp") and not found["metadata"].get("finalizers"):
                self.drop(*_place(obj))
        self._landed(number)
        return answer

    def _store(self, obj: JsonObject) -> None:
        self._version += 1
        obj["metadata"]["resourceVersion"] = str(self._version)
        self.objects[_place(obj)] = obj

    def _begin(self, what: str) -> int:
        number = len(self.writes)
        self.writes.append(what)
        if self.crash(number, "before"):
            raise Crash(what)
        return number

    def _landed(self, number: int) -> None:
        if self.crash(number, "landed"):
            raise Crash(self.writes[number])


def copied(value: Any) -> Any:
    """A copy of JSON values that shares nothing with them; ``copy.deepcopy`` takes several times as long."""
    match value:
        case dict():
            return {key: copied(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(copied(item) for item in value)
    return value


def is_running(pod: Mapping[str, Any]) -> bool:
    """Whether a kubelet has to confirm the end of the pod: a container is running, or a node took the pod."""
    phase = pod.get("status", {}).get("phase")
    return bool(phase == "Running" or (phase == "Pending" and pod.get("spec", {}).get("nodeName")))


def _place(obj: Mapping[str, Any]) -> Place:
    return (obj["kind"], obj["metadata"].get("namespace", "lake"), obj["metadata"]["name"])


def _owners(obj: Mapping[str, Any]) -> set[str]:
    return {owner["uid"] for owner in obj["metadata"].get("ownerReferences", ())}


def _has_labels(obj: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    found = obj["metadata"].get("labels", {})
    return all(found.get(name) == value for name, value in wanted.items())


def _has_fields(obj: Mapping[str, Any], wanted: Mapping[str, str]) -> bool:
    return all((_field(obj, name.rstrip("!")) == value) is not name.endswith("!") for name, value in wanted.items())


def _field(obj: Mapping[str, Any], path: str) -> object:
    found: Any = obj
    for part in path.split("."):
        found = found.get(part, "") if isinstance(found, Mapping) else ""
    return found
