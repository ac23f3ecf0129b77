"""The loop of a kept driver: takes one pod after the other that was assigned, and runs it in a process of its own.

Single-threaded, since it forks. It decides nothing about a run: it does what a node does for a pod, and in that order:
the status says that the run has begun before it begins, and how it ended as soon as it did.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from skipstone_core.contract.keeping import (
    CREDENTIALS_DIRECTORY,
    IDLE_VARIABLE,
    READY_REPORT,
    WAREHOUSE_VARIABLE,
    scheduler_name,
)
from skipstone_core.ids import REPORT_ANNOTATION

from skipstone.keeping.assigned import AssignedRun, Unusable, is_over, is_waiting, order_of, read_assigned
from skipstone.keeping.cluster import LISTED, OWN, RETRY_SECONDS, ApiServer, PodClient, Watcher
from skipstone.keeping.output import RunOutput
from skipstone.keeping.processes import (
    ChildOrder,
    RunFolder,
    adopt_orphans,
    build_environment,
    clear_folder,
    count_memory_kills,
    die_with_parent,
    exit_code_of,
    fork,
    kill_descendants,
    names_in,
)
from skipstone.keeping.statuses import (
    DEADLINE_MESSAGE,
    DEADLINE_REASON,
    RunEnd,
    ended_status,
    fit_message,
    fit_tail,
    refused_status,
    running_status,
)
from skipstone.keeping.writing import StatusWriter, describe

#: Seconds between two looks at clocks and at the report of the run in progress.
TICK_SECONDS = 0.5
#: A run in progress hears at least so often from the API server itself whether its pod is there: a watch may hang
#: without an error. One GET of one object costs less than watches that end sooner, each of which all drivers begin
#: again; small runs end before the first one, and the answer to a report of progress counts as well.
LOOK_SECONDS = 10.0
#: So often a run in progress shows how far it is: a small run ends before that, and its status has its report. Each
#: report costs the API server two writes and the operator a pass.
PROGRESS_SECONDS = 1.0
#: How long the run in progress may go on when the kept driver is told to stop; a pod has 30 seconds for all of it.
DRAIN_SECONDS = 20.0
STOP_REASON, STOP_MESSAGE = "Terminated", "the kept driver was stopped while the run was in progress"
EXIT_FINE, EXIT_FAULT = 0, 1
_log = logging.getLogger(__name__)
JsonObject = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class KeeperPlace:
    """Where a kept driver is and what it has. ``scratch``: folders that are emptied after each run.

    ``warehouse_uid``: the Warehouse whose runs it takes. ``idle_seconds``: how long it stays without a run; None is for
    ever. ``authorities``: a file that it was started with, and ends when that changes. ``programs``: the package with a
    module for each kind of run.
    """

    server: ApiServer
    name: str
    uid: str
    warehouse_uid: str
    work: Path
    credentials: Path = Path(CREDENTIALS_DIRECTORY)
    scratch: tuple[Path, ...] = ()
    idle_seconds: float | None = None
    authorities: Path | None = None
    programs: str = "skipstone.apps"
    look_seconds: float = LOOK_SECONDS
    progress_seconds: float = PROGRESS_SECONDS

    @staticmethod
    def from_environment(environment: Mapping[str, str], work: Path, scratch: tuple[Path, ...]) -> KeeperPlace:
        """As the operator's manifest tells it."""
        idle, authorities = environment.get(IDLE_VARIABLE), environment.get("SKIPSTONE_CA_BUNDLE")
        return KeeperPlace(
            server=ApiServer.from_environment(environment),
            name=environment["POD_NAME"],
            uid=environment["POD_UID"],
            warehouse_uid=environment[WAREHOUSE_VARIABLE],
            work=work,
            scratch=scratch,
            idle_seconds=float(idle) if idle else None,
            authorities=Path(authorities) if authorities else None,
        )

    def read_credential(self, name: str) -> str | None:
        """The value of a variable with a credential, as the Secret holds it now."""
        path = self.credentials / name
        return path.read_bytes().decode(errors="surrogateescape") if path.exists() else None


@dataclass
class _Running:
    """The run in progress. ``asked``: when its process was told to end, and ``why`` (a reason and a message).

    ``pod``: as the API server answered last, and ``looked`` when; ``gone``: it answered that there is no such pod.
    """

    run: AssignedRun
    pod: JsonObject
    folder: RunFolder
    process: int
    output: RunOutput
    started: str
    begun: float
    looked: float
    memory_kills: int
    gone: bool = False
    asked: float | None = None
    why: tuple[str, str] = ("", "")
    shown: str = ""


@dataclass
class Keeper:
    """One kept driver. ``clock``: seconds that never go back."""

    place: KeeperPlace
    clock: Callable[[], float] = time.monotonic
    _pods: dict[str, JsonObject] = field(default_factory=dict)
    #: Pods that were taken or refused: a watch may show one as it was before.
    _done: set[str] = field(default_factory=set)
    _running: _Running | None = None
    _stopping: float | None = None

    def __post_init__(self) -> None:
        """Nothing is started or asked yet."""
        self._client = PodClient(self.place.server)
        self._writer = StatusWriter(self._client)
        self._selector = selectors.DefaultSelector()
        self._inherited = dict(os.environ)
        self._kept = {folder: names_in(folder) for folder in self.place.scratch if folder.is_dir()}
        self._authorities = _content_of(self.place.authorities)
        self._lines = b""
        self._ready = self._is_listed = False
        self._told_last = -RETRY_SECONDS
        self._idle_since = self.clock()
        self._watcher = 0

    def keep(self) -> ChildOrder | int:
        """Take runs until this is told to stop; its exit code. In the process of a run: what that is to become."""
        adopt_orphans()
        self._start_watcher()
        self._listen_to_signals()
        while True:
            self._wait()
            self._tell_ready()
            self._follow_run()
            if self._running is not None:
                continue
            self._look_at_authorities()
            if self._stopping is not None:
                return self._end(EXIT_FINE)
            if (order := self._take_next()) is not None:
                return order
            if self._running is None:
                self._look_for_an_end()

    # -- what is heard

    def _start_watcher(self) -> None:
        hear, tell = os.pipe()
        self._watcher = fork()
        if self._watcher == 0:
            die_with_parent()
            os.close(hear)
            place, scheduler = self.place, scheduler_name(self.place.uid)
            Watcher(server=place.server, scheduler=scheduler, own=place.name, pipe=tell).watch_for_ever()
        os.close(tell)
        os.set_blocking(hear, False)
        self._events = hear
        self._selector.register(hear, selectors.EVENT_READ, self._hear)

    def _listen_to_signals(self) -> None:
        wake, self._wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake, False)
        self._selector.register(wake, selectors.EVENT_READ, lambda: os.read(wake, 4096))
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: self._stop())
        signal.signal(signal.SIGINT, lambda *_: self._stop())

    def _stop(self) -> None:
        if self._stopping is None:
            self._stopping = self.clock()

    def _wait(self) -> None:
        for key, _ in self._selector.select(TICK_SECONDS):
            key.data()

    def _hear(self) -> None:
        content = os.read(self._events, 1 << 20)
        if not content:
            raise RuntimeError("the process that watches the API server has ended")
        *lines, self._lines = (self._lines + content).split(b"\n")
        for line in lines:
            self._take_event(json.loads(line))

    def _take_event(self, event: JsonObject) -> None:
        if event["type"] == LISTED:
            self._pods = {pod["metadata"]["uid"]: pod for pod in event["items"]}
            self._done &= set(self._pods)
            self._is_listed = True
            return
        pod = event.get("object") or {}
        uid = (pod.get("metadata") or {}).get("uid", "")
        if event["type"] == OWN:
            self._look_at_owner(pod)
        elif event["type"] == "DELETED":
            self._pods.pop(uid, None)
            self._done.discard(uid)
        elif uid:
            self._pods[uid] = pod

    def _tell_ready(self) -> None:
        """Say once that runs are taken from now on."""
        now = self.clock()
        if self._ready or not self._is_listed or now < self._told_last + RETRY_SECONDS:
            return
        self._told_last = now
        _log.info("kept driver %s takes runs", self.place.name)
        change = {"metadata": {"uid": self.place.uid, "annotations": {REPORT_ANNOTATION: READY_REPORT}}}
        try:
            answer = self._client.patch(self.place.server.pods(self.place.name), change)
        except OSError as error:
            _log.warning("it is told again that this driver is ready: %s", error)
            return
        if answer.ok:
            self._ready = True
        else:
            _log.warning("the API server refused to be told that this driver is ready: %s", describe(answer))

    # -- one run

    def _take_next(self) -> ChildOrder | None:
        waiting = [pod for uid, pod in self._pods.items() if is_waiting(pod) and uid not in self._done]
        for pod in sorted(waiting, key=order_of):
            self._done.add(pod["metadata"]["uid"])
            if (order := self._begin(pod)) is not None or self._running is not None:
                return order
        return None

    def _begin(self, pod: JsonObject) -> ChildOrder | None:
        name = pod["metadata"]["name"]
        try:
            run = read_assigned(pod, self.place.warehouse_uid, self.place.read_credential)
        except (Unusable, OSError) as error:
            _log.warning("pod %s cannot be run here: %s", name, error)
            self._writer.write(pod, refused_status(name, str(error)), expects=is_waiting, gives_up=self._is_stopping)
            return None
        started = _now()
        status = running_status(run, started)
        begun = self._writer.write(pod, status, expects=is_waiting, gives_up=self._is_stopping)
        # None: it was deleted, or somebody else ended it.
        return None if begun is None else self._start(run, begun, started)

    def _start(self, run: AssignedRun, pod: JsonObject, started: str) -> ChildOrder | None:
        folder = RunFolder(self.place.work / run.uid)
        folder.make(run.files)
        environment = build_environment(run, folder, self._inherited)
        hear, tell = os.pipe()
        process = fork()
        if process == 0:
            return ChildOrder(run, folder, environment, tell, f"{self.place.programs}.{run.app}")
        os.close(tell)
        os.set_blocking(hear, False)
        output = RunOutput(hear, run.run_id)
        now = self.clock()
        self._running = _Running(
            run=run,
            pod=pod,
            folder=folder,
            process=process,
            output=output,
            started=started,
            begun=now,
            looked=now,
            memory_kills=count_memory_kills(),
        )
        self._selector.register(hear, selectors.EVENT_READ, output.forward)
        return None

    def _follow_run(self) -> None:
        running = self._running
        if running is None:
            return
        ended, status = os.waitpid(running.process, os.WNOHANG)
        if ended:
            self._conclude(running, exit_code_of(status))
            return
        self._show_progress(running)
        if self.clock() >= running.looked + self.place.look_seconds:
            self._ask_about(running, "GET")
        self._press(running)

    def _press(self, running: _Running) -> None:
        """Tell the process to end if it has to, and kill it if it does not."""
        now = self.clock()
        if running.asked is None and (why := self._find_stop(running, now)) is not None:
            running.asked, running.why = now, why
            os.kill(running.process, signal.SIGTERM)
        elif running.asked is not None and now >= running.asked + self._grace(running):
            os.kill(running.process, signal.SIGKILL)

    def _find_stop(self, running: _Running, now: float) -> tuple[str, str] | None:
        pod = self._pods.get(running.run.uid)
        if running.gone or pod is None or _is_ended(pod) or _is_ended(running.pod):
            return ("", "")  # somebody deleted or ended it
        if running.run.deadline is not None and now >= running.begun + running.run.deadline:
            return (DEADLINE_REASON, DEADLINE_MESSAGE)
        if self._is_drained():
            return (STOP_REASON, STOP_MESSAGE)
        return None

    def _grace(self, running: _Running) -> float:
        # The kept driver itself has to be gone when its own time is over.
        return running.run.grace if self._stopping is None else min(running.run.grace, 5.0)

    def _show_progress(self, running: _Running) -> None:
        if self.clock() < running.looked + self.place.progress_seconds:
            return
        report = _read(running.folder.report)
        if not report or report == running.shown:
            return
        running.shown = report
        change = {"metadata": {"uid": running.run.uid, "annotations": {REPORT_ANNOTATION: report}}}
        self._ask_about(running, "PATCH", change)

    def _ask_about(self, running: _Running, method: str, change: JsonObject | None = None) -> None:
        """Hear from the API server how the pod of the run in progress is."""
        running.looked = self.clock()
        try:
            answer = self._client.request(method, self.place.server.pods(running.run.name), change)
        except OSError as error:
            _log.warning("%s of the pod of %s: %s", method, running.run.run_id, error)
            return
        if answer.ok and answer.body["metadata"]["uid"] == running.run.uid:
            running.pod = answer.body
        elif answer.ok or answer.status in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            running.gone = True  # another pod may have its name

    def _conclude(self, running: _Running, exit_code: int) -> None:
        kill_descendants(frozenset({self._watcher}))
        self._selector.unregister(running.output.pipe)
        tail = running.output.finish()
        message = fit_message(running.folder.termination_log.read_bytes()) if _exists(running) else ""
        reason, text = running.why
        by_run = not reason and running.asked is None
        if exit_code != 0 and not message and by_run:
            message = fit_tail(tail)
        end = RunEnd(
            exit_code=exit_code,
            message=message,
            out_of_memory=exit_code == 128 + signal.SIGKILL and count_memory_kills() > running.memory_kills,
            pod_reason=reason,
            pod_message=text,
        )
        status, report = ended_status(running.run, end, running.started, _now()), _read(running.folder.report)
        if not self._clean(running.folder):
            _log.error("kept driver %s ends: files of run %s cannot be removed", self.place.name, running.run.run_id)
            self._stop()
        # What the operator has ended stays as it is.
        self._writer.write(running.pod, status, expects=_is_open, gives_up=self._is_drained, report=report)
        self._running = None
        self._idle_since = self.clock()

    def _clean(self, folder: RunFolder) -> bool:
        """Remove what the run left; whether nothing of it is left."""
        left = [scratch for scratch, kept in self._kept.items() if not clear_folder(scratch, kept)]
        return folder.remove() and not left

    def _is_stopping(self) -> bool:
        return self._stopping is not None

    def _is_drained(self) -> bool:
        return self._stopping is not None and self.clock() >= self._stopping + DRAIN_SECONDS

    # -- the end

    def _look_for_an_end(self) -> None:
        idle, limit = self.clock() - self._idle_since, self.place.idle_seconds
        if limit is not None and idle >= limit and self._ready:
            _log.info("kept driver %s ends: no run for %.0f seconds", self.place.name, idle)
            self._stop()

    def _look_at_owner(self, pod: JsonObject) -> None:
        """A driver whose Warehouse is gone has credentials that nobody asks it to have any more."""
        owners = (pod.get("metadata") or {}).get("ownerReferences") or ()
        if not any(owner.get("uid") == self.place.warehouse_uid for owner in owners):
            _log.info("kept driver %s ends: its pod does not belong to its Warehouse any more", self.place.name)
            self._stop()

    def _look_at_authorities(self) -> None:
        """Before each run: none begins with certificates that are no longer valid."""
        if _content_of(self.place.authorities) != self._authorities:
            _log.info("kept driver %s ends: the certificates of authorities have changed", self.place.name)
            self._stop()

    def _end(self, code: int) -> int:
        kill_descendants(frozenset())
        self._client.close()
        return code


def _is_open(pod: JsonObject) -> bool:
    return not is_over(pod)


def _is_ended(pod: JsonObject) -> bool:
    return is_over(pod) or bool(pod["metadata"].get("deletionTimestamp"))


def _exists(running: _Running) -> bool:
    return running.folder.termination_log.exists()


def _content_of(path: Path | None) -> bytes | None:
    return path.read_bytes() if path is not None and path.exists() else None


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
