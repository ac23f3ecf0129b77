"""What an object of the API says, whatever it holds: a value of the wrong type counts as absent.

Used by every section. Statuses may be partial, from another release, or written by anybody. Must not know what is
shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

GROUP = "skipstone.dev"
#: Names in the headings of the page, by kind.
PLURALS: Mapping[str, str] = {
    "Warehouse": "Warehouses",
    "Table": "Tables",
    "SecondaryIndex": "Secondary indexes",
    "LoadJob": "Load jobs",
    "MergeJob": "Merge jobs",
    "MergeSchedule": "Merge schedules",
}
JOB_KINDS = ("LoadJob", "MergeJob")
MAX_NUMBER = (1 << 63) - 1
#: Longest text of an object that is shown; the API server keeps messages of up to 4096 characters.
MAX_TEXT = 2000
#: Longest name in a mapping that is shown, such as that of a stage.
MAX_NAME = 64
#: Control characters, marks that turn the direction of what follows, and halves of characters.
_UNSHOWABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A whole number and where it is from, such as ``MergeJob/lake/orders#status.files.total``."""

    value: int
    source: str


@dataclass(frozen=True, kw_only=True)
class ConditionSeen:
    """One condition of an object; ``since`` is when its status last changed."""

    type: str
    status: str
    reason: str
    message: str
    since: datetime | None


@dataclass(frozen=True, kw_only=True)
class Entity:
    """One object. Paths are names with dots between, and positions in lists: ``status.funnel.0.filesIn``."""

    kind: str
    namespace: str
    name: str
    raw: Mapping[object, object]

    @property
    def key(self) -> str:
        """Kind, namespace and name."""
        return f"{self.kind}/{self.namespace}/{self.name}"

    def look(self, path: str) -> object:
        """Return the value at ``path``; None when there is none."""
        value: object = self.raw
        for part in path.split("."):
            if isinstance(value, Mapping):
                value = value.get(part)
            elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
                value = value[int(part)]
            else:
                return None
        return value

    def text(self, path: str) -> str:
        """The text at ``path``; empty when there is none."""
        return showable(self.look(path))

    def number(self, path: str) -> int | None:
        """The whole number at ``path``, from 0 to 2^63 - 1."""
        value = self.look(path)
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and 0 <= value <= MAX_NUMBER else None  # type: ignore[operator,return-value]

    def figure(self, path: str) -> Figure | None:
        """The whole number at ``path``, with where it is from."""
        value = self.number(path)
        return None if value is None else Figure(value=value, source=f"{self.key}#{path}")

    def moment(self, path: str) -> datetime | None:
        """The time at ``path``."""
        return read_time(self.look(path))

    def size(self, path: str) -> int:
        """How many items the list at ``path`` has."""
        value = self.look(path)
        return len(value) if isinstance(value, list) else 0

    def names(self, path: str) -> tuple[str, ...]:
        """The names in the mapping at ``path`` that can be part of a path and can be shown as they are."""
        value = self.look(path)
        names = value if isinstance(value, Mapping) else ()
        return tuple(name for name in names if isinstance(name, str) and _is_name(name))

    @property
    def table(self) -> str:
        """Name of the Table that it is about; of a Table its own."""
        if self.kind == "Table":
            return self.name
        return self.text("spec.tableRef.name") or self.text("spec.mergeTemplate.spec.tableRef.name")

    @property
    def created(self) -> datetime | None:
        """When it was created."""
        return self.moment("metadata.creationTimestamp")

    @property
    def conditions(self) -> tuple[ConditionSeen, ...]:
        """Its conditions, one of each type."""
        conditions = [self._condition(f"status.conditions.{at}") for at in range(self.size("status.conditions"))]
        return tuple({condition.type: condition for condition in conditions if condition.type}.values())

    def condition(self, type_: str) -> ConditionSeen | None:
        """The condition of this type."""
        paths = (f"status.conditions.{at}" for at in reversed(range(self.size("status.conditions"))))
        return next((self._condition(path) for path in paths if self.look(f"{path}.type") == type_), None)

    def is_so(self, type_: str) -> bool:
        """Return whether the condition of this type is True."""
        condition = self.condition(type_)
        return condition is not None and condition.status == "True"

    def _condition(self, path: str) -> ConditionSeen:
        return ConditionSeen(
            type=self.text(f"{path}.type"),
            status=self.text(f"{path}.status"),
            reason=self.text(f"{path}.reason"),
            message=self.text(f"{path}.message"),
            since=self.moment(f"{path}.lastTransitionTime"),
        )


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME and "." not in text and not _UNSHOWABLE.search(text)


def showable(value: object) -> str:
    """``value`` as text that cannot disturb the text around it; empty when it is none."""
    if not isinstance(value, str):
        return ""
    short = value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
    return _UNSHOWABLE.sub("\ufffd", short)


def read_time(value: object) -> datetime | None:
    """A point in time as Kubernetes writes it, in UTC; None for anything else."""
    if not isinstance(value, str) or not 10 <= len(value) <= 40:
        return None
    try:
        moment = datetime.fromisoformat(value)
        inside = moment.tzinfo is not None and 1970 < moment.year < 9999
        return moment.astimezone(UTC) if inside else None
    except (ValueError, OverflowError):
        return None


def find_objects(document: object) -> Iterator[Mapping[object, object]]:
    """The objects in a JSON document: those of a list, as ``kubectl get -o json`` writes it, or the one that it is."""
    if not isinstance(document, Mapping):
        return
    items = document.get("items")
    if isinstance(items, list):
        yield from (item for item in items if isinstance(item, Mapping))
    else:
        yield document


def read_entities(objects: Iterable[object]) -> tuple[Entity, ...]:
    """The objects of our kinds by kind, namespace and name; of those given twice the last. Others are left out."""
    by_key: dict[str, Entity] = {}
    for obj in objects:
        entity = _read_entity(obj) if isinstance(obj, Mapping) else None
        if entity is not None:
            by_key[entity.key] = entity
    return tuple(by_key[key] for key in sorted(by_key))


def _read_entity(obj: Mapping[object, object]) -> Entity | None:
    kind, version, metadata = obj.get("kind"), obj.get("apiVersion", GROUP), obj.get("metadata")
    ours = isinstance(kind, str) and kind in PLURALS and isinstance(version, str) and version.split("/")[0] == GROUP
    if not (ours and isinstance(metadata, Mapping)):
        return None
    name = showable(metadata.get("name"))
    namespace = showable(metadata.get("namespace"))
    return Entity(kind=str(kind), namespace=namespace, name=name, raw=obj) if name else None
