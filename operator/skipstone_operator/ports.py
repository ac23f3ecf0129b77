"""What the operator needs from the outside, as Protocols, and the answers as values.

Reconcilers call these; adapters implement them, `__main__` wires them, tests bring their own.
Answers that a decision depends on (a conflict, a refusal, an object that exists) are values; a fault of the
network or of the API server is an exception, which the loop answers by backing off. No logic lives here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from skipstone_core.contract.requests import RunKind
from skipstone_core.reasons import Reason

from skipstone_operator.memory import Memory

JsonObject = dict[str, Any]


@dataclass(frozen=True, order=True)
class Key:
    """What one reconcile is about. Loads, merges and the table itself share the key of kind ``Table``."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """As logs show it."""
        return f"{self.kind}/{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Requeue:
    """When to look at the key again: ``after`` seconds, or only when something was seen (``None``)."""

    after: float | None = None

    @staticmethod
    def never() -> Requeue:
        """Look again only when a watch or the resync says so."""
        return Requeue(None)

    @staticmethod
    def now() -> Requeue:
        """Look again at once: this pass wrote, and the next one decides on what it finds."""
        return Requeue(0.0)


class AccessDenied(ConnectionError):
    """The API server forbids a read: the Role is not bound, or went with a namespace that is being deleted."""


@dataclass(frozen=True)
class Created:
    """The object was created; ``object`` is as the API server stored it."""

    object: JsonObject


@dataclass(frozen=True)
class Exists:
    """An object of that name is there already (409): compare its owner before taking it as ours."""


@dataclass(frozen=True)
class Updated:
    """The write landed; ``object`` carries the new resourceVersion."""

    object: JsonObject


@dataclass(frozen=True)
class Conflict:
    """The resourceVersion (or the uid of a delete) is not the current one: read again, decide again."""


@dataclass(frozen=True)
class Gone:
    """There is no such object (404)."""


@dataclass(frozen=True)
class Deleted:
    """The delete was accepted; the object may still be terminating."""


#: The reason of a pod that is not even asked for, while a driver on a dead node holds the claim that it would mount.
DEAD_NODE = "DeadNode"


@dataclass(frozen=True)
class Refused:
    """The API server said no and will say no again: 400, 403, 422, or 404 for a namespace that is gone.

    ``reason`` is the Status's reason (``Forbidden``, ``Invalid``), ``causes`` the reasons of its details
    (``NamespaceTerminating``).
    """

    status: int
    reason: str
    message: str
    causes: tuple[str, ...] = ()

    @property
    def by_quota(self) -> bool:
        """Return whether a ResourceQuota is used up."""
        return self.status == 403 and "exceeded quota" in self.message

    @property
    def by_dead_node(self) -> bool:
        """Return whether a dead node is in the way: a driver on it holds what the pod needs."""
        return self.reason == DEAD_NODE

    @property
    def namespace_terminating(self) -> bool:
        """Return whether nothing can be created any more because the namespace is going away."""
        return self.status in (403, 404) and (
            "NamespaceTerminating" in self.causes or "being terminated" in self.message
        )


CreateAnswer = Created | Exists | Refused
UpdateAnswer = Updated | Conflict | Gone | Refused
DeleteAnswer = Deleted | Conflict | Gone | Refused


class KubeApi(Protocol):
    """The API server. ``kind`` is the Kubernetes kind, for example ``Table``, ``Pod``, ``PersistentVolumeClaim``.

    Reads are quorum reads (no ``resourceVersion=0``). A forbidden read is AccessDenied; any other fault is raised.
    """

    async def get(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """The object as it is now, or None when there is none."""
        ...

    async def list(
        self,
        kind: str,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> tuple[JsonObject, ...]:
        """All objects in ``namespace`` with these labels; a field selector ``!=`` is written ``{"a!": "b"}``."""
        ...

    async def is_terminating(self, namespace: str) -> bool:
        """Return whether ``namespace`` is being deleted, or gone."""
        ...

    async def create(self, obj: JsonObject) -> CreateAnswer:
        """Create ``obj``; its kind, namespace and name are in it."""
        ...

    async def replace(self, obj: JsonObject) -> UpdateAnswer:
        """PUT ``obj`` (metadata: finalizers) with the resourceVersion in it."""
        ...

    async def replace_status(self, obj: JsonObject) -> UpdateAnswer:
        """PUT the ``status`` of ``obj`` with the resourceVersion in it."""
        ...

    async def delete(self, kind: str, namespace: str, name: str, *, uid: str) -> DeleteAnswer:
        """Delete in the background, only the object with this ``uid``."""
        ...


class Clock(Protocol):
    """Time, as data."""

    def now(self) -> datetime:
        """The current time, in UTC, with a time zone."""
        ...


class EventType(StrEnum):
    """The two types that Kubernetes knows."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, kw_only=True)
class EventRecord:
    """One Event about one object. ``regarding`` has apiVersion, kind, namespace, name and uid."""

    regarding: Mapping[str, str]
    type: EventType
    reason: Reason
    note: str


class Events(Protocol):
    """Where Events go. Losing one is allowed; failing because of one is not."""

    async def publish(self, record: EventRecord) -> None:
        """Post the Event; never raises."""
        ...


class Meter(Protocol):
    """What reconcilers count. Implemented by the metrics room; must not fail and must not block."""

    def run_finished(self, kind: RunKind, reason: Reason, *, seconds: float) -> None:
        """One run ended with ``reason``, ``seconds`` after its intent was written."""
        ...

    def launch_latency(self, phase: str, seconds: float) -> None:
        """``phase`` is ``submit`` (intent to pod), ``schedule`` (pod to started) or ``run`` (started to ended)."""
        ...

    def run_failed(self, kind: RunKind, reason: Reason) -> None:
        """One run that ended did not do what it was for, and was neither lost nor stopped."""
        ...

    def run_stages(self, kind: RunKind, seconds: Mapping[str, float]) -> None:
        """How long a run that ended was in each of its stages, by their names."""
        ...

    def job_committed(self, namespace: str, table: str, counts: Mapping[str, int]) -> None:
        """A job of ``table`` became Complete; ``counts`` of its rows and files by name."""
        ...

    def maintenance_work(self, step: str, counts: Mapping[str, int]) -> None:
        """What a step of a maintain run that ended counted, such as ``filesRewritten``."""
        ...


@dataclass(frozen=True, kw_only=True)
class RunDefaults:
    """What a Warehouse leaves open: from the chart's values.

    ``executors``: whether runs may have executor pods; else everything runs in the driver, whatever a Warehouse says.
    ``keeps_drivers``: whether drivers can be kept.
    """

    image: str
    service_account: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    executors: bool = True
    keeps_drivers: bool = True


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long things may take, in seconds. Tests shorten them.

    ``lost_after``: from when a deleted pod should be gone, its grace included, until its run is given up.
    ``silence_deadline``: from when the cluster does not hear of a driver's node until the driver is stopped.
    """

    backoff_base: float = 10.0
    backoff_cap: float = 360.0
    pending_deadline: float = 300.0
    lost_after: float = 300.0
    silence_deadline: float = 600.0
    drop_deadline: float = 600.0
    check_retry_cap: float = 300.0
    quota_poll: float = 10.0
    run_deadline: float = 86400.0
    service_run_deadline: float = 600.0


@dataclass(frozen=True)
class Reading:
    """What a pass has read: ``kube`` is the API server itself, ``begun`` when the pass began to read."""

    kube: KubeApi
    begun: datetime


@dataclass(kw_only=True)
class Ports:
    """Everything a reconcile may touch. ``namespaces``: all that this operator watches.

    Tables of all of them are compared, for two may claim one table of a catalog. ``cached`` reads what the watches
    told, which may be old; without it every pass reads the API server. ``memory`` holds what was made of its objects.
    ``reading`` is there in a pass whose ``kube`` answers what it has read. ``new_key`` gives a random text of 256 bits.
    """

    kube: KubeApi
    clock: Clock
    events: Events
    meter: Meter
    defaults: RunDefaults
    namespaces: tuple[str, ...]
    timing: Timing = field(default_factory=Timing)
    cached: KubeApi | None = None
    reading: Reading | None = None
    memory: Memory = field(default_factory=Memory)
    new_key: Callable[[], str] = field(default=lambda: secrets.token_urlsafe(32))
    slots: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
