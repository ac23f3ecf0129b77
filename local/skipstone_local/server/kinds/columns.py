"""The columns that `kubectl get` prints of a kind, and the cells of an object."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from skipstone_local.store import JsonObject

Cell = str | int | float | bool | None
Reader = Callable[[JsonObject], object]
#: Pieces of a JSONPath: a field, an index, every item, or the items with a field of some value.
PIECE = re.compile(
    r"""\.(?P<field>[A-Za-z_][\w-]*)|\[(?P<index>\d+)\]|\[(?P<every>\*)\]"""
    r"""|\['(?P<quoted>[^']+)'\]|\[\?\(@\.(?P<where>[\w.]+)\s*==\s*(?P<quote>["'])(?P<value>.*?)(?P=quote)\)\]"""
)
INVALID = "<invalid>"
#: Up to which age, in seconds, an age is told in which way: as Kubernetes does.
MINUTE, HOUR, DAY, YEAR = 60, 3600, 86400, 86400 * 365


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column. ``read`` gives its value of an object; of type date it is a time and printed as an age."""

    name: str
    read: Reader
    type: str = "string"
    format: str = ""
    description: str = ""
    priority: int = 0

    def definition(self) -> JsonObject:
        """The column as a Table declares it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }

    def cell(self, obj: JsonObject, now: datetime) -> Cell:
        """Return the printed cell of an object."""
        try:
            value = self.read(obj)
        except (AttributeError, KeyError, TypeError, ValueError):
            # Fields that nothing checks may have any type.
            return INVALID
        if self.type == "date" and value is not None:
            return age_of(value, now)
        return _typed(value, self.type)


def follow(obj: object, path: str) -> list[object]:
    """All values at a JSONPath such as .status.conditions[?(@.type=="Ready")].status."""
    values: list[object] = [obj]
    at = 0
    while at < len(path):
        piece = PIECE.match(path, at)
        if piece is None:
            return []
        at = piece.end()
        values = [inner for value in values for inner in _step(value, piece)]
    return values


def _step(value: object, piece: re.Match[str]) -> list[object]:
    name = piece["field"] or piece["quoted"]
    if name:
        return [value[name]] if isinstance(value, Mapping) and name in value else []
    items = value if isinstance(value, list) else []
    if piece["index"]:
        return items[int(piece["index"]) :][:1]
    if piece["every"]:
        return list(items)
    return [item for item in items if _text(follow(item, f".{piece['where']}")) == piece["value"]]


def _text(values: list[object]) -> str:
    return str(values[0]) if values else ""


def at_path(path: str) -> Reader:
    """Reads the first value at a JSONPath, None when there is none."""

    def read(obj: JsonObject) -> object:
        return next(iter(follow(obj, path)), None)

    return read


def _typed(value: object, type_: str) -> Cell:
    if value is None or isinstance(value, bool):
        return value if type_ == "boolean" else None if value is None else str(value).lower()
    if type_ in ("integer", "number"):
        return value if isinstance(value, int | float) else None
    return str(value)


def age_of(value: object, now: datetime) -> str:
    """How long ago a time was, as Kubernetes writes it: 5s, 3m20s, 36y."""
    try:
        then = datetime.fromisoformat(str(value))
    except ValueError:
        return INVALID
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    return human_duration(int((now - then).total_seconds()))


def human_duration(seconds: int) -> str:
    """A duration in at most two units, the finer one only while the number is small."""
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    if seconds < 2 * MINUTE:
        return f"{seconds}s"
    if seconds < 3 * HOUR:
        return _units(seconds, MINUTE, "m", 10, "s")
    if seconds < 2 * DAY:
        return _units(seconds - seconds % MINUTE, HOUR, "h", 8, "m")
    if seconds < 2 * YEAR:
        return _units(seconds - seconds % HOUR, DAY, "d", 8, "h")
    return _units(seconds - seconds % DAY, YEAR, "y", 8, "d")


def _units(seconds: int, unit: int, letter: str, coarse_from: int, finer: str) -> str:
    whole, rest = divmod(seconds, unit)
    part = rest // {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY}[finer]
    return f"{whole}{letter}{part}{finer}" if whole < coarse_from and part else f"{whole}{letter}"


NAME = Column(name="Name", read=at_path(".metadata.name"), format="name", description="Name of the object.")
AGE = Column(name="Age", type="date", read=at_path(".metadata.creationTimestamp"), description="Time since creation.")
COMMON = (NAME, AGE)


def read_columns(printed: Iterable[JsonObject]) -> tuple[Column, ...]:
    """The columns of a CustomResourceDefinition, behind the name; without any, the age."""
    declared = tuple(
        Column(
            name=each["name"],
            type=each["type"],
            format=each.get("format", ""),
            description=each.get("description", ""),
            priority=each.get("priority", 0),
            read=at_path(each["jsonPath"]),
        )
        for each in printed
    )
    return (NAME, *declared) if declared else COMMON


def _statuses(pod: JsonObject) -> list[JsonObject]:
    return pod.get("status", {}).get("containerStatuses") or []


def _ready(pod: JsonObject) -> str:
    ready = sum(bool(status.get("ready")) for status in _statuses(pod))
    return f"{ready}/{len(pod['spec']['containers'])}"


def _pod_state(pod: JsonObject) -> str:
    if pod["metadata"].get("deletionTimestamp"):
        return "Terminating"
    state = pod.get("status", {}).get("reason") or pod.get("status", {}).get("phase", "Pending")
    for status in _statuses(pod):
        waiting, ended = (status.get("state", {}).get(name) or {} for name in ("waiting", "terminated"))
        state = waiting.get("reason") or ended.get("reason") or state
    return str(state)


def _restarts(pod: JsonObject) -> int:
    return sum(int(status.get("restartCount", 0)) for status in _statuses(pod))


def _entries(obj: JsonObject) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _modes(claim: JsonObject) -> str:
    short = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
    return ",".join(short.get(mode, mode) for mode in claim["spec"].get("accessModes") or ())


def _deployed(deployment: JsonObject) -> str:
    return f"{deployment.get('status', {}).get('readyReplicas', 0)}/{deployment['spec'].get('replicas', 1)}"


def _about(event: JsonObject) -> str:
    about = event.get("involvedObject") or {}
    return f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}"


def _last_seen(event: JsonObject) -> object:
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return next((time for time in times if time), event["metadata"].get("creationTimestamp"))


def _column(name: str, read: Reader | str, type_: str = "string", priority: int = 0) -> Column:
    return Column(name=name, read=at_path(read) if isinstance(read, str) else read, type=type_, priority=priority)


BUILT_IN: Mapping[str, tuple[Column, ...]] = {
    "Namespace": (NAME, _column("Status", ".status.phase"), AGE),
    "Pod": (
        NAME, _column("Ready", _ready), _column("Status", _pod_state), _column("Restarts", _restarts, "integer"), AGE,
        _column("IP", ".status.podIP", priority=1), _column("Node", ".spec.nodeName", priority=1),
    ),
    "ConfigMap": (NAME, _column("Data", _entries, "integer"), AGE),
    "Secret": (NAME, _column("Type", ".type"), _column("Data", _entries, "integer"), AGE),
    "PersistentVolumeClaim": (
        NAME, _column("Status", ".status.phase"), _column("Volume", ".spec.volumeName"),
        _column("Capacity", ".status.capacity.storage"), _column("Access Modes", _modes),
        _column("StorageClass", ".spec.storageClassName"), AGE,
    ),
    "Service": (NAME, _column("Type", ".spec.type"), _column("Cluster-IP", ".spec.clusterIP"), AGE),
    "Deployment": (
        NAME, _column("Ready", _deployed), _column("Up-to-date", ".status.updatedReplicas", "integer"),
        _column("Available", ".status.availableReplicas", "integer"), AGE,
    ),
    "Event": (
        _column("Last Seen", _last_seen, "date"), _column("Type", ".type"), _column("Reason", ".reason"),
        _column("Object", _about), _column("Message", ".message"),
    ),
    "Lease": (NAME, _column("Holder", ".spec.holderIdentity"), AGE),
}  # fmt: skip


def built_in_columns(name: str) -> tuple[Column, ...]:
    """The columns of a kind of Kubernetes."""
    return BUILT_IN.get(name, COMMON)
