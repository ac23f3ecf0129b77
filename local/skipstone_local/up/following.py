"""Follows the objects of an API server: shows what changes, and tells when nothing is left to wait for."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from skipstone_cli.kinds import API_VERSION, KINDS
from skipstone_cli.views.standings import State

from skipstone_local.runner.api import LISTED_ALL, News, ServerAccess, Watcher
from skipstone_local.runner.supervise import timestamp
from skipstone_local.up.roots import Tell
from skipstone_local.up.standing import Board, Outlook, SeenObject

#: Nothing may have changed for so long, and no pod may run, before what is seen counts as settled.
QUIET_SECONDS = 1.0
LOOK_SECONDS = 0.25
NAMESPACES = "/api/v1/namespaces"
#: Of the API server itself.
_SYSTEM = ("kube-system", "kube-public", "kube-node-lease")
_PATHS = {f"/apis/{API_VERSION}/{kind.plural}": kind for kind in KINDS}


@dataclass
class Follower:
    """The known state of all objects. ``tell`` prints a line; ``count_running``: pods that have not ended."""

    login: ServerAccess
    tell: Tell
    count_running: Callable[[], int]
    board: Board = field(default_factory=Board)
    _namespaces: dict[str, str] = field(default_factory=dict)
    _shown: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Nothing is asked yet."""
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._watchers = [Watcher(self.login, path, self._news) for path in (NAMESPACES, *_PATHS)]
        self._unlisted = {NAMESPACES, *_PATHS}
        self._changed = time.monotonic()
        self._is_done: bool | None = None

    def start(self) -> None:
        """Begin to watch."""
        for watcher in self._watchers:
            watcher.start()

    def stop(self) -> None:
        """Watch no more."""
        for watcher in self._watchers:
            watcher.stop()

    def take_news(self) -> None:
        """Wait a moment, and take in all that is known by then."""
        try:
            news = self._news.get(timeout=LOOK_SECONDS)
            while True:
                self._take(news)
                news = self._news.get_nowait()
        except queue.Empty:
            return

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Those that people use."""
        return choose_namespaces(self._namespaces.values())

    def is_settled(self) -> bool:
        """Return whether there is nothing left to wait for."""
        quiet = time.monotonic() - self._changed >= QUIET_SECONDS
        if not quiet or self._unlisted or self.count_running():
            return False
        if self._is_done is None:
            self._is_done = all(standing is not Outlook.OPEN for _, standing in self.board.judge_all(timestamp()))
        return self._is_done

    def find_failures(self) -> list[SeenObject]:
        """The objects that have failed, and those that wait for one that has, or for one that does not exist."""
        wrong = (Outlook.FAILED, Outlook.BLOCKED)
        return [judged for judged, standing in self.board.judge_all(timestamp()) if standing in wrong]

    def sum_up(self) -> str:
        """How many objects are as their manifests ask."""
        total = len(self.board.objects)
        return f"{total - len(self.find_failures())} of {total} objects are as their manifests ask"

    def expect_changes(self) -> None:
        """Whatever was seen until now says nothing about what has just been applied."""
        self._changed, self._is_done = time.monotonic(), None

    def _take(self, news: News) -> None:
        change, path, obj = news.change, news.path, news.object
        if change == LISTED_ALL:
            self._unlisted.discard(path)
            return
        if path == NAMESPACES:
            self._take_namespace(change, obj)
            return
        self.expect_changes()
        if change == "DELETED":
            self.board.drop(obj)
        else:
            self._show(self.board.put(_PATHS[path], obj))

    def _take_namespace(self, change: str, obj: dict[str, Any]) -> None:
        self._namespaces.pop(obj["metadata"]["uid"], None)
        if change != "DELETED":
            self._namespaces[obj["metadata"]["uid"]] = obj["metadata"]["name"]

    def _show(self, judged: SeenObject) -> None:
        """Print how an object stands, if that is news; nothing of what the operator has not looked at yet."""
        uid, assessment = judged.obj["metadata"]["uid"], judged.assessment
        text = f"{assessment.state} {assessment.reason} {assessment.message if assessment.failed else ''}"
        if assessment.state is not State.UNKNOWN and self._shown.get(uid) != text:
            self._shown[uid] = text
            self.tell(judged.line)


def choose_namespaces(names: Any) -> tuple[str, ...]:
    """The namespaces that the operator watches: all but those of the API server itself."""
    return tuple(sorted({"default", *names} - set(_SYSTEM)))
