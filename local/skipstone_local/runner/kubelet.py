"""The runner: watches pods and claims, and does what is due for each, one after the other in a thread of its own."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from skipstone_local.places import RootFolder
from skipstone_local.runner.api import LISTED_ALL, ApiError, Client, News, ServerAccess, Watcher
from skipstone_local.runner.claims import bind_claim
from skipstone_local.runner.folders import PodFolder, Stage
from skipstone_local.runner.plane.dataplane import DataPlane
from skipstone_local.runner.pods import RETRY_SECONDS, PodWork, is_terminal

PODS, CLAIMS = "/api/v1/pods", "/api/v1/persistentvolumeclaims"
#: Seconds between two looks at processes that run.
TICK_SECONDS = 0.05
#: How long processes get to end when the runner stops.
STOP_SECONDS = 10.0
#: What a node writes when it is shut down: runs take it for a loss, which does not count, and begin again.
STOP_REASON = "Terminated"
STOP_MESSAGE = "skipstone local was stopped"
STOPPED = News("STOPPED", "")
_log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class _Held:
    """A pod as it was seen last, what its folder said then, and when it is looked at again whatever that says."""

    pod: dict[str, Any]
    seen: tuple[object, ...] | None = None
    due: float = 0.0


@dataclass
class Runner:
    """Runs the pods that the API server at ``login`` has, below ``root``. ``start`` it, then ``stop`` it."""

    root: RootFolder
    login: ServerAccess
    plane: DataPlane
    _pods: dict[str, _Held] = field(default_factory=dict, init=False)
    _claims: dict[str, dict[str, Any]] = field(default_factory=dict, init=False)
    _gone: set[str] = field(default_factory=set, init=False)
    #: Never taken again: a watch may tell of a pod that was seen to be gone.
    _dead: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        """Make the parts; nothing is asked yet."""
        self._news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._watchers = [Watcher(self.login, path, self._news) for path in (PODS, CLAIMS)]
        self._client = Client(self.login)
        self._work = PodWork(self.root, self._client, self.plane)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runner", daemon=True)

    def start(self) -> None:
        """Begin; processes that an earlier runner started are taken over."""
        for watcher in self._watchers:
            watcher.start()
        self._thread.start()

    def stop(self) -> None:
        """End all processes, tell how each ended, and stop; what cannot be told now is told by the next runner."""
        self._end.set()
        if not self._thread.is_alive():
            return
        self._news.put(STOPPED)
        for watcher in self._watchers:
            watcher.stop()
        self._thread.join()
        self._stop_processes()
        self._client.close()

    def count_running(self) -> int:
        """The pods that have not ended."""
        return sum(not is_terminal(held.pod) for held in list(self._pods.values()))

    def _run(self) -> None:
        while not self._end.is_set():
            try:
                self._take_news()
                self._look()
            except Exception:  # noqa: BLE001 - a fault in one look must not leave all other processes alone
                _log.exception("the runner goes on after a fault")
                self._end.wait(RETRY_SECONDS)

    def _take_news(self) -> None:
        """Wait until something happened or is due, and take all that is known by then."""
        with suppress(queue.Empty):
            news = self._news.get(timeout=self._pause())
            while True:
                self._take(news)
                news = self._news.get_nowait()

    def _take(self, news: News) -> None:
        change, path, obj = news.change, news.path, news.object
        if change == LISTED_ALL and path == PODS:
            self._find_strays()
        if not obj:
            return
        uid = obj["metadata"]["uid"]
        if path == CLAIMS:
            self._claims[uid] = obj
            if change == "DELETED":
                del self._claims[uid]
        elif change == "DELETED":
            self._bury(uid)
        elif uid not in self._dead and not self._is_older(obj):
            self._pods[uid] = _Held(pod=obj)

    def _bury(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._gone.add(uid)
        self._dead.add(uid)

    def _is_older(self, pod: Mapping[str, Any]) -> bool:
        held = self._pods.get(pod["metadata"]["uid"])
        return held is not None and _version(pod) < _version(held.pod)

    def _find_strays(self) -> None:
        """Folders of pods that went while no runner was there."""
        pods = self.root.pod("x").parent
        if pods.is_dir():
            self._gone |= {path.name for path in pods.iterdir()} - set(self._pods)

    def _pause(self) -> float | None:
        """Seconds until the next look is due; None: only news make one due."""
        if any(held.seen is None for held in self._pods.values()):
            return 0.0
        if self._gone or any(not is_terminal(held.pod) for held in self._pods.values()):
            return TICK_SECONDS
        return RETRY_SECONDS if self._claims else None

    def _look(self) -> None:
        for uid, claim in list(self._claims.items()):
            try:
                bind_claim(claim, self.root, self._client)
                del self._claims[uid]
            except OSError as error:
                _log.warning("claim %s is tried again: %s", claim["metadata"]["name"], error)
        for held in list(self._pods.values()):
            self._look_at(held)
        self._gone -= {uid for uid in self._gone if self._work.forget(uid)}

    def _look_at(self, held: _Held) -> None:
        uid = held.pod["metadata"]["uid"]
        seen = PodFolder(self.root.pod(uid), uid).look() if not is_terminal(held.pod) else ()
        now = time.monotonic()
        if seen == held.seen and (now < held.due or is_terminal(held.pod)):
            return
        held.seen, held.due = seen, now + RETRY_SECONDS
        try:
            pod = self._work.step(held.pod)
        except ApiError as error:
            _log.warning("tried again: %s", error)
            held.due = now + RETRY_SECONDS
            return
        if pod is None:
            self._bury(uid)
        elif pod is not held.pod:
            # More may be due for what is written now.
            held.pod, held.seen = dict(pod), None

    def _stop_processes(self) -> None:
        end = time.monotonic() + STOP_SECONDS + 2 * RETRY_SECONDS
        asked: set[str] = set()
        while time.monotonic() < end:
            live = [held.pod for held in self._pods.values() if self._work.is_live(held.pod)]
            if not live:
                break
            for pod in live:
                uid = pod["metadata"]["uid"]
                if uid not in asked and self._work.stop(pod, STOP_SECONDS, STOP_REASON, STOP_MESSAGE):
                    asked.add(uid)
            time.sleep(TICK_SECONDS)
        for held in self._pods.values():
            uid = held.pod["metadata"]["uid"]
            stage = PodFolder(self.root.pod(uid), uid).find_stage()
            if not is_terminal(held.pod) and stage is not Stage.NEW:
                with suppress(ApiError):
                    self._work.step(held.pod)


def _version(obj: Mapping[str, Any]) -> int:
    version = obj["metadata"].get("resourceVersion", "")
    return int(version) if version.isdigit() else 0
