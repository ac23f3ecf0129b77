"""Keeps the log of Spark's events of a run beside the tables, for a history server, and deletes old ones.

Called by the frame of every application when the run is over and told. A run that did without Spark has no log.
Whatever fails here is a line in the driver's log, and what hangs is left alone: no run fails for it.
"""

from __future__ import annotations

import heapq
import logging
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from threading import Thread

from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.ids import EVENT_LOG_DIRECTORY, is_named_by_run

from skipstone.jvm import event_log_folder
from skipstone.storage.opening import open_storage
from skipstone.storage.port import Entry, Storage

#: Old logs are looked for once in so many runs, by chance: a listing takes longer the more of them there are.
_RUNS_PER_SWEEP = 20
#: Logs that are deleted at once, and those that may refuse it: more than the runs between two sweeps leave.
_MOST_PER_SWEEP = 100
#: How long the storage may hold a run that is over. A store that does not answer is asked for minutes.
_MOST_SECONDS = 30
_log = logging.getLogger(__name__)


def keep_event_log(
    request: JobRequest, *, chance: Callable[[], float] = random.random, most_seconds: float = _MOST_SECONDS
) -> None:
    """Keep the log of the run that ends, if its session wrote one; ends the session. Raises no Exception.

    ``chance``: a number from 0 to 1; old logs are deleted when it is small. ``most_seconds``: for the storage.
    """
    seconds = request.spark.event_log_seconds
    if seconds is None:
        return
    with _failures_logged("the log of Spark's events may lack its end"):
        _finish(request)
    with _failures_logged("the log of Spark's events is not kept"):
        is_sweep = chance() * _RUNS_PER_SWEEP < 1
        # Nobody can end a request that hangs, but a process does not wait for its daemons
        work = Thread(target=_use_storage, args=(request, seconds if is_sweep else None), daemon=True)
        work.start()
        work.join(most_seconds)
        if work.is_alive():
            _log.warning(
                "the storage takes longer than %s s for logs of Spark's events: the rest is given up", most_seconds
            )


def _finish(request: JobRequest) -> None:
    if event_log_folder(request.run_id).is_dir():
        from skipstone.session import finish_event_log  # it takes time that runs without Spark do not have

        finish_event_log(request)


@contextmanager
def _failures_logged(what: str) -> Iterator[None]:
    try:
        yield
    except Exception:  # noqa: BLE001 - the run is over and told
        _log.warning(what, exc_info=True)


def _use_storage(request: JobRequest, sweep_seconds: int | None) -> None:
    """Keep the log, and delete those that are older than ``sweep_seconds``."""
    with _failures_logged("the log of Spark's events is not kept"):
        _keep(request)
    if sweep_seconds is not None:
        with _failures_logged("old logs of Spark's events are not deleted"):
            _sweep(open_storage(request.warehouse), before_ns=time.time_ns() - sweep_seconds * 10**9)


def _keep(request: JobRequest) -> None:
    folder = event_log_folder(request.run_id)
    if not folder.is_dir():
        return
    try:
        for path in folder.iterdir():
            if not path.name.startswith("."):  # Hadoop's checksums
                name = f"{request.run_id}.{path.name.partition('.')[2]}"  # Spark's name may be that of another run
                open_storage(request.warehouse).keep_copy(f"{EVENT_LOG_DIRECTORY}/{name}", path)
    finally:
        shutil.rmtree(folder)


def _sweep(storage: Storage, before_ns: int) -> None:
    """Delete old logs, the oldest first. One that cannot be deleted keeps no other one."""
    old = (log for log in storage.list(EVENT_LOG_DIRECTORY) if _is_log(log) and log.modified_ns < before_ns)
    deleted, refusals = 0, list[DependencyUnavailable]()
    for entry in heapq.nsmallest(2 * _MOST_PER_SWEEP, old, key=lambda log: log.modified_ns):
        if max(deleted, len(refusals)) == _MOST_PER_SWEEP:
            break
        try:
            storage.delete(entry.path)
            deleted += 1
        except DependencyUnavailable as error:
            refusals.append(error)
    if refusals:
        _log.warning("%d old logs of Spark's events cannot be deleted: %s", len(refusals), refusals[0])


def _is_log(entry: Entry) -> bool:
    """Return whether a run kept it, or died as it did; people may have others there."""
    path = PurePosixPath(entry.path)
    return str(path.parent) == EVENT_LOG_DIRECTORY and is_named_by_run(path.name)
