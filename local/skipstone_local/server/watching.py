"""Watches: what changed since a version, told while it happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from skipstone_local.server.answers.refusals import Refusal
from skipstone_local.server.answers.showing import Form
from skipstone_local.server.desk import Desk
from skipstone_local.server.requests.calls import ApiCall
from skipstone_local.server.requests.selectors import SelectedBy
from skipstone_local.server.writing.session import ApiSession
from skipstone_local.store import Compacted, JsonObject, StoredChange

#: Seconds after which a watch ends when the client does not say, and between two signs of life.
LONGEST = 1800.0
BOOKMARKS = 30.0
#: The annotation of the sign that all objects that existed have been told.
INITIAL_END = "k8s.io/initial-events-end"


@dataclass
class Hub:
    """Wakes the watches of a resource when it has changed; of the thread of one event loop."""

    loop: asyncio.AbstractEventLoop
    waiting: dict[str, set[asyncio.Event]] = field(default_factory=dict)
    is_ending: bool = False

    def tell(self, resources: frozenset[str]) -> None:
        """Wake those who wait for one of these resources; from any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._wake, resources)

    def end(self) -> None:
        """End all watches and followed logs; from any thread."""
        self.is_ending = True
        self.tell(frozenset(self.waiting))

    def _wake(self, resources: frozenset[str]) -> None:
        for resource in resources:
            for event in self.waiting.get(resource, ()):
                event.set()

    @contextmanager
    def subscription(self, resource: str) -> Iterator[asyncio.Event]:
        """An event that is set when the resource has changed."""
        event = asyncio.Event()
        self.waiting.setdefault(resource, set()).add(event)
        try:
            yield event
        finally:
            self.waiting[resource].discard(event)


@dataclass
class Watch:
    """One watch. ``version``: the last one that was told."""

    desk: Desk
    call: ApiCall
    form: Form
    selection: SelectedBy
    version: int = 0
    headed: bool = True

    async def lines(self, hub: Hub) -> AsyncIterator[bytes]:
        """The events of the watch, one JSON object a line, until its time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + float(self.call.number("timeoutSeconds") or LONGEST)
        with hub.subscription(self.call.kind.resource) as changed:
            for line in await self.desk.run(self._begin):
                yield line
            while (left := end - loop.time()) > 0 and not hub.is_ending:
                changed.clear()
                try:
                    lines = await self.desk.run(self._catch_up)
                except Refusal as refusal:
                    yield _line("ERROR", refusal.status())
                    return
                for line in lines:
                    yield line
                is_changed = await _set_within(changed, min(left, BOOKMARKS))
                if not is_changed and left > BOOKMARKS and self.wants_bookmarks:
                    yield await self.desk.run(self._bookmark)
            if self.wants_bookmarks:
                yield await self.desk.run(self._bookmark)

    @property
    def wants_bookmarks(self) -> bool:
        """Return whether the client takes signs of life."""
        return self.call.flag("allowWatchBookmarks")

    def _begin(self, session: ApiSession) -> list[bytes]:
        """Where the watch begins: at a version, or with all that exists now."""
        current, asked = session.transaction.version, self.call.number("resourceVersion") or 0
        initial = self.call.query.get("sendInitialEvents", "")
        if asked and initial != "true":
            # A version of the future is one of another store, or of this one before it was made again.
            self.version = asked if asked <= current else -1
            return []
        self.version = current
        if initial == "false":
            return []
        target = self.call.target
        objects = session.transaction.select(target.kind.resource, target.namespace)
        lines = [self._event_line("ADDED", obj) for obj in objects if self.selection.matches(obj)]
        if initial == "true" and self.wants_bookmarks:
            lines.append(self._mark({INITIAL_END: "true"}))
        return lines

    def _catch_up(self, session: ApiSession) -> list[bytes]:
        current = session.transaction.version
        try:
            changes = session.transaction.changes(self.call.kind.resource, self.call.target.namespace, self.version)
        except Compacted as error:
            old = max(self.version, 0)
            raise Refusal(410, "Expired", f"too old resource version: {old} ({current})") from error
        self.version = current
        return list(self._events(changes))

    def _events(self, changes: Iterable[StoredChange]) -> Iterator[bytes]:
        for change in changes:
            before = change.before if change.before and self.selection.matches(change.before) else None
            after = change.after if change.after and self.selection.matches(change.after) else None
            if after is not None:
                yield self._event_line("ADDED" if before is None else "MODIFIED", after)
            elif before is not None:
                metadata = {**before["metadata"], "resourceVersion": str(change.version)}
                yield self._event_line("DELETED", {**before, "metadata": metadata})

    def _event_line(self, type_: str, obj: JsonObject) -> bytes:
        if self.form.form != "Table":
            return _line(type_, self.form.one(obj))
        headed, self.headed = self.headed, False
        version = {"resourceVersion": obj["metadata"]["resourceVersion"]}
        return _line(type_, self.form.table([obj], version, headed=headed))

    def _bookmark(self, session: ApiSession) -> bytes:
        return self._mark({})

    def _mark(self, annotations: JsonObject) -> bytes:
        kind = self.call.kind
        metadata: JsonObject = {"resourceVersion": str(self.version), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        if self.form.form == "Table":
            return _line("BOOKMARK", {**self.form.table([], metadata, headed=False), "rows": []})
        shown = {"kind": kind.name, "apiVersion": kind.api_version}
        if self.form.form:
            shown = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        return _line("BOOKMARK", {**shown, "metadata": metadata})


async def _set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _line(type_: str, obj: JsonObject) -> bytes:
    return json.dumps({"type": type_, "object": obj}, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
