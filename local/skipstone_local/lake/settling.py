"""Applies an object and waits until it is settled: done, or failed for good."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from skipstone_cli.errors import CliError, NotFound, Refused, Unreachable
from skipstone_cli.kinds import API_VERSION, INDEX, JOB_KINDS, TABLE, WAREHOUSE, ResourceKind
from skipstone_cli.reading import JsonObject, entries_of, name_of, number_of, text_of
from skipstone_cli.views.standings import Assessment, State, conditions_of, is_stale, judge
from skipstone_core.errors import LakeError, LakeTimeout
from skipstone_core.reasons import Reason
from skipstone_core.remedies import find_remedy

from skipstone_local.client.objects import Objects, Selection
from skipstone_local.client.resources import Resource
from skipstone_local.lake.serving import NOT_SERVED, LakeService

#: Seconds between two looks at an object, and between two looks at what it waits for.
PAUSE, LOOK_PAUSE = 0.1, 2.0
#: Statuses of an API server that refuses what is asked for as it stands.
INVALID = (400, 422)
Done = Callable[[JsonObject], bool]
Answer = TypeVar("Answer")


@dataclass
class Requests:
    """The objects of a lake. ``connect``: gives a client of whoever serves them; ``namespace``: in which they are."""

    service: LakeService
    namespace: str
    connect: Callable[[], Objects]
    objects: Objects = field(init=False)

    def __post_init__(self) -> None:
        """Connect. Raises LakeError."""
        self.objects = self.connect()

    def close(self) -> None:
        """Close the connections and serve the folder no longer; further calls do nothing."""
        self.objects.transport.close()
        self.service.stop()

    def resource(self, kind: ResourceKind) -> Resource:
        """The kind as it is served."""
        return self._answered(lambda: self.objects.resources.find_kind(API_VERSION, kind.name))

    def apply(self, kind: ResourceKind, name: str, spec: JsonObject) -> JsonObject:
        """The object after it was created or changed. Raises LakeError."""
        return self.apply_manifest(
            {"apiVersion": API_VERSION, "kind": kind.name, "metadata": {"name": name}, "spec": spec}
        )

    def apply_manifest(self, manifest: JsonObject) -> JsonObject:
        """The object of a manifest after it was created or changed. Raises LakeError."""
        return self._answered(lambda: self.objects.apply(manifest)[1])

    def list_objects(self, kind: ResourceKind, selection: Selection) -> JsonObject:
        """All objects that are selected. Raises LakeError."""
        return self._answered(lambda: self.objects.list_objects(self.resource(kind), selection))

    def delete(self, kind: ResourceKind, name: str, seconds: float | None = None) -> None:
        """Delete an object and wait until it is gone. Raises LakeError."""
        obj = self.find(kind, name)
        if obj is None:
            return
        self._answered(lambda: self.objects.delete(self.resource(kind), self.namespace, name))
        end = None if seconds is None else time.monotonic() + seconds
        while obj is not None:
            if end is not None and time.monotonic() >= end:
                standing = judge(kind, obj)
                raise LakeTimeout(
                    standing.reason, f"{kind.name} {name} is not gone after {seconds:g} seconds ({standing.message})"
                )
            time.sleep(PAUSE)
            obj = self.find(kind, name)

    def create(self, kind: ResourceKind, name: str, spec: JsonObject) -> JsonObject:
        """The object after it was created. Raises LakeError."""
        metadata = {"name": name, "namespace": self.namespace}
        manifest = {"apiVersion": API_VERSION, "kind": kind.name, "metadata": metadata, "spec": spec}
        asked = 0

        def create() -> JsonObject:
            nonlocal asked
            asked += 1
            resource = self.resource(kind)
            try:
                return self.objects.create(resource, manifest)
            except Refused as error:
                if asked > 1 and error.reason == "AlreadyExists":
                    # The server died behind the first request, whose answer was lost.
                    return self.objects.get(resource, self.namespace, name)
                raise

        return self._answered(create)

    def patch(self, kind: ResourceKind, name: str, change: JsonObject) -> JsonObject:
        """The object after a merge patch. Raises LakeError."""
        return self._answered(lambda: self.objects.patch(self.resource(kind), self.namespace, name, change))

    def find(self, kind: ResourceKind, name: str) -> JsonObject | None:
        """The object; None if there is none."""
        try:
            return self._answered(lambda: self.objects.get(self.resource(kind), self.namespace, name))
        except NotFound:
            return None

    def wait(
        self, kind: ResourceKind, obj: JsonObject, done: Done | None = None, seconds: float | None = None
    ) -> JsonObject:
        """The object when it is ``done``, by default as its spec asks.

        Raises LakeError when it never will be, and LakeTimeout when nobody answers any more.
        """
        done = done or (lambda seen: is_done(kind, seen))
        name, end, next_look = name_of(obj), None if seconds is None else time.monotonic() + seconds, 0.0
        while not done(obj):
            standing = judge(kind, obj)
            if standing.failed and not is_stale(obj):
                raise failure(kind, name, standing)
            now = time.monotonic()
            if now >= next_look and standing.state is State.WAITING:
                self._look_around(kind, obj)
                next_look = now + LOOK_PAUSE
            if end is not None and now >= end:
                progress = f"{standing.reason}: {standing.message}".removesuffix(": ") or "it has not begun"
                raise LakeTimeout(
                    standing.reason or "Pending",
                    f"{kind.name} {name} is not done after {seconds:g} seconds ({progress})",
                    "it goes on while the lake is open; wait longer by timeout=",
                )
            time.sleep(PAUSE)
            obj = self._look_again(kind, name)
        return obj

    def wait_or_delete(
        self, kind: ResourceKind, obj: JsonObject, done: Done | None = None, seconds: float | None = None
    ) -> JsonObject:
        """``wait`` for an object that is new: one that never will be done is taken back."""
        try:
            return self.wait(kind, obj, done, seconds)
        except LakeTimeout:
            raise
        except LakeError:
            with suppress(LakeError):
                self.delete(kind, name_of(obj), seconds)
            raise

    def _look_again(self, kind: ResourceKind, name: str) -> JsonObject:
        """The object as it is now. Raises LakeError if it is gone, LakeTimeout if nobody can be asked."""
        try:
            obj = self.find(kind, name)
        except LakeError as error:
            raise LakeTimeout(
                error.reason,
                f"nobody can say how far {kind.name} {name} is ({error.sentence})",
                "it goes on when the folder is opened again",
            ) from error
        if obj is None:
            raise LakeError("NotFound", f"{kind.name} {name} was deleted", "ask again")
        return obj

    def _look_around(self, kind: ResourceKind, obj: JsonObject) -> None:
        """Raise LakeError for a Table or Warehouse that has failed: what needs it would wait for ever."""
        for other, path in ((TABLE, "tableRef"), (WAREHOUSE, "warehouseRef")):
            name = text_of(obj, "spec", path, "name")
            needed = self.find(other, name) if name and other is not kind else None
            if needed is not None:
                standing = judge(other, needed)
                if standing.failed and not is_stale(needed) and conditions_of(needed)["Ready"].status != "True":
                    raise failure(other, name, standing)
                self._look_around(other, needed)

    def _answered(self, ask: Callable[[], Answer]) -> Answer:
        """Return the answer of ``ask``; start the server again if it is gone. Raises LakeError, NotFound."""
        self.service.check_open()
        try:
            try:
                return ask()
            except Unreachable:
                self.service.keep()
                # Whoever serves the folder now may do so at another address.
                self.objects.transport.close()
                self.objects = self.connect()
                return ask()
        except NotFound:
            raise
        except Refused as error:
            reason = Reason.INVALID_SPEC if error.status in INVALID else error.reason
            raise LakeError(reason, error.answer, find_remedy(reason)) from error
        except CliError as error:
            raise LakeError(NOT_SERVED, str(error)) from error


def is_done(kind: ResourceKind, obj: JsonObject) -> bool:
    """Return whether the object is as its spec asks: a Table stays Ready while its newest spec is applied."""
    if is_stale(obj):
        return False
    state = judge(kind, obj).state
    if kind in JOB_KINDS:
        return state is State.COMPLETE
    ready = [entry for entry in entries_of(obj, "status", "conditions") if text_of(entry, "type") == "Ready"]
    generation = number_of(obj, "metadata", "generation") or 0
    return state is State.READY and all(
        (number_of(condition, "observedGeneration") or 0) >= generation for condition in ready
    )


def failure(kind: ResourceKind, name: str, standing: Assessment) -> LakeError:
    """The error for an object that has failed."""
    return LakeError(standing.reason, f"{kind.name} {name}: {standing.message}", find_remedy(standing.reason))


def is_synced(index: JsonObject) -> bool:
    """Return whether the index holds all that its table has."""
    if is_stale(index) or not is_done(INDEX, index):
        return False
    conditions = entries_of(index, "status", "conditions")
    return any(
        text_of(condition, "type") == "Synced" and text_of(condition, "status") == "True" for condition in conditions
    )
