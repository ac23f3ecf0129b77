"""The pods of one namespace over HTTP, as far as a kept driver asks: LIST, WATCH, GET and PATCH."""

from __future__ import annotations

import json
import queue
import threading
import time
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Pod = dict[str, Any]
#: What a watch is to tell; None ends it.
Events = queue.SimpleQueue[Pod | None]
NAMESPACE = "lakes"
#: A bound against hangs.
SECONDS = 300.0


class PodServer(ThreadingHTTPServer):
    """Serves pods on a port of its own. ``refuse``: the status with which the next writes are answered.

    ``meanwhile``: what happens right before the next status is written. ``lost``: how many answers to writes get lost.
    ``mute``: watches bring nothing, and do not end. ``lists``: how many LISTs were answered.
    """

    daemon_threads = True

    def __init__(self) -> None:
        """Without a pod."""
        super().__init__(("127.0.0.1", 0), PodRequests)
        self.pods: dict[str, Pod] = {}
        self.changed = threading.Condition()
        self.refuse: list[int] = []
        self.meanwhile: Callable[[], object] | None = None
        self.lost = self.lists = 0
        self.mute = False
        self._version = 0
        self._watches: list[tuple[str, Events]] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def put(self, pod: Pod) -> Pod:
        """Store a pod and tell all watches."""
        with self.changed:
            self._version += 1
            metadata = {"uid": str(uuid.uuid4()), "namespace": NAMESPACE, **pod["metadata"]}
            known = metadata["name"] in self.pods
            metadata["resourceVersion"] = str(self._version)
            metadata.setdefault("creationTimestamp", f"2026-01-01T00:00:{self._version % 60:02d}Z")
            stored = {**pod, "metadata": metadata}
            self.pods[metadata["name"]] = stored
            self._tell("MODIFIED" if known else "ADDED", stored)
            self.changed.notify_all()
            return stored

    def remove(self, name: str) -> None:
        """Delete a pod at once, as one that no node has is deleted."""
        with self.changed:
            self._tell("DELETED", self.pods.pop(name))
            self.changed.notify_all()

    def watch(self, scheduler: str) -> tuple[list[Pod], Events]:
        """All events from now on."""
        with self.changed:
            events: Events = queue.SimpleQueue()
            self._watches.append((scheduler, events))
            return self.select(scheduler), events

    def end_watches(self) -> None:
        """End all watches, as the API server does after a while."""
        with self.changed:
            watches, self._watches = self._watches, []
            for _, events in watches:
                events.put(None)

    def select(self, scheduler: str) -> list[Pod]:
        """The pods of a scheduler."""
        return [pod for pod in self.pods.values() if pod["spec"].get("schedulerName") == scheduler]

    def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait for the pods to be as ``done`` wants."""
        end = time.monotonic() + SECONDS
        with self.changed:
            while not done():
                assert self.changed.wait(end - time.monotonic()), f"{what} did not come: {self.pods}"

    def _tell(self, change: str, pod: Pod) -> None:
        for scheduler, events in self._watches if not self.mute else ():
            if pod["spec"].get("schedulerName") == scheduler:
                events.put({"type": change, "object": pod})


class PodRequests(BaseHTTPRequestHandler):
    """One connection."""

    server: PodServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """LIST, WATCH or GET."""
        url = urlsplit(self.path)
        query, name = parse_qs(url.query), url.path.partition("/pods")[2].strip("/")
        if name:
            pod = self.server.pods.get(name)
            self._answer(404 if pod is None else 200, pod or {})
            return
        scheduler = query["fieldSelector"][0].partition("=")[2]
        if "watch" not in query:
            self.server.lists += 1
            self._answer(200, {"metadata": {"resourceVersion": "1"}, "items": self.server.select(scheduler)})
            return
        known, events = self.server.watch(scheduler)
        self.send_response(200)
        self.end_headers()
        for event in ({"type": "ADDED", "object": pod} for pod in known):
            self.wfile.write(json.dumps(event).encode() + b"\n")
        while (event := events.get()) is not None:
            self.wfile.write(json.dumps(event).encode() + b"\n")
            self.wfile.flush()
        self.close_connection = True

    def do_PATCH(self) -> None:
        """Merge the change into the pod, as the API server does if uid and resourceVersion fit."""
        change = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = self.path.partition("/pods/")[2].partition("/")[0]
        if self.server.refuse:
            self._answer(self.server.refuse.pop(), {"message": "not now"})
            return
        if self.path.endswith("/status") and (happens := self.server.meanwhile) is not None:
            self.server.meanwhile = None
            with self.server.changed:
                happens()
        pod = self.server.pods.get(name)
        if pod is None or not _fits(pod["metadata"], change["metadata"]):
            self._answer(404 if pod is None else 409, {})
            return
        stored = self.server.put(_merge(pod, change))
        if self.server.lost:
            self.server.lost -= 1
            self.close_connection = True
            return
        self._answer(200, stored)

    def _answer(self, status: int, body: Pod) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def _fits(metadata: Pod, change: Pod) -> bool:
    return all(change.get(name, metadata[name]) == metadata[name] for name in ("uid", "resourceVersion"))


def _merge(old: Any, change: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(change, dict):
        return change
    return {**old, **{name: _merge(old.get(name), value) for name, value in change.items()}}
