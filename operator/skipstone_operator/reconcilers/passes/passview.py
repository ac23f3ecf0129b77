"""What one pass has read, with its own writes in it: writes that follow from each other need one reading.

Made by the entry for each pass that acts, and gone with it. Implements ``ports.KubeApi`` on the API server's. What a
pass has not asked for yet is read when it is asked for, so the pod of a run that was intended a moment ago is looked
for after its intent was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skipstone_operator.ports import (
    CreateAnswer,
    Created,
    DeleteAnswer,
    Deleted,
    JsonObject,
    KubeApi,
    UpdateAnswer,
    Updated,
)


@dataclass(frozen=True)
class _Query:
    """A LIST: what it selects, by equality."""

    kind: str
    namespace: str
    labels: frozenset[tuple[str, str]]
    fields: frozenset[tuple[str, str]]

    def selects(self, obj: JsonObject) -> bool:
        object_labels = obj["metadata"].get("labels") or {}
        by_labels = all(object_labels.get(name) == value for name, value in self.labels)
        return by_labels and all(_value(obj, path) == value for path, value in self.fields)


@dataclass
class PassView:
    """Answers each read once. ``landed``: the last write is known to have landed, so this is what there is now."""

    kube: KubeApi
    landed: bool = False
    _found: dict[tuple[str, str, str], JsonObject | None] = field(default_factory=dict)
    _listed: dict[_Query, tuple[JsonObject, ...]] = field(default_factory=dict)

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object as this pass knows it, or None."""
        place = (kind, namespace, name)
        if place not in self._found:
            obj = await self.kube.get(kind, namespace, name)
            self._found[place] = obj
            if obj is not None:
                # A LIST that was read before may show a pod running that this one shows ended.
                self._list_again(kind, obj)
        return self._found[place]

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[JsonObject, ...]:
        """All objects with these labels and fields as this pass knows them."""
        if any(path.endswith("!") for path in fields or {}):
            # Whether a write of this pass belongs here is the API server's to say.
            return await self.kube.list(kind, namespace, labels=labels, fields=fields)
        query = _Query(kind, namespace, frozenset((labels or {}).items()), frozenset((fields or {}).items()))
        if query not in self._listed:
            self._listed[query] = await self.kube.list(kind, namespace, labels=labels, fields=fields)
        return self._listed[query]

    async def is_terminating(self, namespace: str) -> bool:
        """Return whether ``namespace`` is being deleted, or gone."""
        return await self.kube.is_terminating(namespace)

    async def create(self, obj: JsonObject) -> CreateAnswer:
        """Create ``obj``. A name that is taken is read again."""
        self.landed = False
        answer = await self.kube.create(obj)
        if isinstance(answer, Created):
            self._take(obj["kind"], answer.object)
        else:
            self._forget(obj["kind"], obj["metadata"]["namespace"])
        return answer

    async def replace(self, obj: JsonObject) -> UpdateAnswer:
        """PUT ``obj``."""
        self.landed = False
        return self._updated(obj, await self.kube.replace(obj))

    async def replace_status(self, obj: JsonObject) -> UpdateAnswer:
        """PUT the status of ``obj``."""
        self.landed = False
        return self._updated(obj, await self.kube.replace_status(obj))

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str) -> DeleteAnswer:
        """Delete the object with this uid. What is left of it is read again."""
        self.landed = False
        answer = await self.kube.delete(kind, namespace, name, uid=uid)
        self._forget(kind, namespace)
        self.landed = isinstance(answer, Deleted)
        return answer

    def _updated(self, obj: JsonObject, answer: UpdateAnswer) -> UpdateAnswer:
        ended = obj["metadata"].get("deletionTimestamp")
        if isinstance(answer, Updated) and not ended:
            self._take(obj["kind"], answer.object)
        else:
            # The last write of a finalizer answers with an object that is gone by then.
            self._forget(obj["kind"], obj["metadata"]["namespace"])
        return answer

    def _take(self, kind: str, obj: JsonObject) -> None:
        self._found[kind, obj["metadata"].get("namespace", ""), obj["metadata"]["name"]] = obj
        self._list_again(kind, obj)
        self.landed = True

    def _list_again(self, kind: str, obj: JsonObject) -> None:
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"]["name"]
        for query, listed in self._listed.items():
            if (query.kind, query.namespace) == (kind, namespace):
                others = [each for each in listed if each["metadata"]["name"] != name]
                now = [*others, obj] if query.selects(obj) else others
                self._listed[query] = tuple(sorted(now, key=lambda each: str(each["metadata"]["name"])))

    def _forget(self, kind: str, namespace: str) -> None:
        self._found = {place: obj for place, obj in self._found.items() if place[:2] != (kind, namespace)}
        self._listed = {q: listed for q, listed in self._listed.items() if (q.kind, q.namespace) != (kind, namespace)}


def _value(obj: JsonObject, path: str) -> object:
    value: object = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
