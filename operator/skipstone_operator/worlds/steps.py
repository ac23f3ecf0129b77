"""Steps: what a decision may ask for. One is written at a time, and what follows is decided again.

Deciders return them, `reconcilers.passes.perform` carries them out. They hold complete objects, so that performing
decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from skipstone_operator.ports import EventRecord, Requeue

JsonObject = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Rest:
    """Write nothing."""

    requeue: Requeue = field(default_factory=Requeue.never)


@dataclass(frozen=True, kw_only=True)
class PutStatus:
    """PUT ``status`` of ``object`` with the resourceVersion it was read at; Events follow when it landed."""

    object: JsonObject
    status: Mapping[str, Any]
    events: tuple[EventRecord, ...] = ()
    requeue: Requeue = field(default_factory=Requeue.now)


@dataclass(frozen=True, kw_only=True)
class PutFinalizers:
    """PUT ``finalizers`` of ``object`` with the resourceVersion it was read at; Events follow when it landed."""

    object: JsonObject
    finalizers: tuple[str, ...]
    events: tuple[EventRecord, ...] = ()
    requeue: Requeue = field(default_factory=Requeue.now)


@dataclass(frozen=True, kw_only=True)
class Create:
    """Create a ConfigMap, Pod or MergeJob. ``slots``: a Pod only while fewer live runs of its Warehouse exist.

    ``grounds``: what the decision rests on, as it was read, the owner first: when it has changed since, nothing is
    created, and it is decided again. A Pod that is assigned to a kept driver is created only while that one takes it.
    """

    object: JsonObject
    slots: Slots | None = None
    grounds: tuple[Mapping[str, Any], ...] = ()
    requeue: Requeue = field(default_factory=Requeue.now)


@dataclass(frozen=True)
class Slots:
    """At most ``limit`` live driver pods of these ``operations`` labeled with ``warehouse_uid``; None is any number.

    ``bound`` says what sets the limit.
    ``one_node``: the Warehouse's claim is mounted on one node, so a pod that has it on a dead node keeps others out.
    """

    warehouse_uid: str
    limit: int | None
    operations: frozenset[str]
    one_node: bool = False
    bound: str = ""


@dataclass(frozen=True, kw_only=True)
class Apply:
    """Create ``object``, or PUT it when it has the resourceVersion it was read at.

    ``beforehand``: objects without which it cannot be used, created first where they are not there. Unlike a Create it
    does not wait for other writes, so whoever asks for it must not ask for one that is refused again at once.
    """

    object: JsonObject
    beforehand: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    requeue: Requeue = field(default_factory=Requeue.now)


@dataclass(frozen=True, kw_only=True)
class Delete:
    """Delete this very object (by uid).

    ``warehouse_uid``: of a kept driver, its Warehouse; it is deleted only while no run is assigned to it.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    warehouse_uid: str = ""
    requeue: Requeue = field(default_factory=Requeue.now)


Step = Rest | PutStatus | PutFinalizers | Create | Apply | Delete
