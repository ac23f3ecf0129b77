"""What a watch on one resource sees: every status that the API server sends, with the time at which it came.

A watch misses no state that was written, however short; asking again and again does.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from demo.kube import Kube, KubeError

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Sight:
    """One status, and the wall clock time in seconds at which the watch told it."""

    time: float
    status: JsonObject


@dataclass
class Watch:
    """All that a watch has told so far. Made by ``watching``."""

    what: str
    _seen: list[Sight] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _ended: str | None = None

    @property
    def seen(self) -> list[Sight]:
        """The statuses in the order in which they came."""
        with self._news:
            return list(self._seen)

    def until(self, what: str, done: Callable[[JsonObject], bool], *, before: float) -> Sight:
        """The first sight for which ``done`` holds.

        Raises KubeError with the last status when none came ``before`` that wall clock time, or when the watch ended.
        """
        looked = 0
        with self._news:
            while True:
                for sight in self._seen[looked:]:
                    if sight.time <= before and done(sight.status):
                        return sight
                looked = len(self._seen)
                if self._ended is not None or not self._news.wait(before - time.time()):
                    raise KubeError(self._failure(what))

    def follow(self, kubectl: subprocess.Popen[str]) -> None:
        """Take in what ``kubectl`` prints until it ends."""
        for line in kubectl.stdout or ():
            with self._news:
                self._seen.append(Sight(time.time(), json.loads(line.strip() or "{}")))
                self._news.notify_all()
        with self._news:
            self._ended = (kubectl.stderr.read() if kubectl.stderr else "").strip() or "the stream ended"
            self._news.notify_all()

    def _failure(self, what: str) -> str:
        last = json.dumps(self._seen[-1].status) if self._seen else "none"
        ended = f" (the watch ended: {self._ended})" if self._ended is not None else ""
        return f"a watch on {self.what} did not see in time: {what}{ended}; the last status is {last}"


@contextmanager
def watching(kube: Kube, kind: str, name: str) -> Iterator[Watch]:
    """Watch the status of a resource that exists, from its present state on."""
    command = [kube.kubectl, "--namespace", kube.namespace, "get", kind, name, "--watch", "-o"]
    kubectl = subprocess.Popen(
        [*command, 'jsonpath={.status}{"\\n"}'],
        env=dict(kube.environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watch = Watch(f"{kind}/{name}")
    with kubectl:
        follower = threading.Thread(target=watch.follow, args=(kubectl,))
        follower.start()
        try:
            watch.until("its present state", lambda status: True, before=time.time() + 60)
            yield watch
        finally:
            kubectl.terminate()
            follower.join()
