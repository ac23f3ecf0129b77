"""Keeps the log of Spark's events of a run beside the tables, for a history server, and deletes old ones.

Called by the frame of every application when the run is over and told. A run that did without Spark has no log.
Whatever fails here is a line in the driver's log: no run fails for it.
"""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections.abc import Callable

from skipstone_core.contract.requests import JobRequest
from skipstone_core.ids import EVENT_LOG_DIRECTORY

from skipstone.jvm import event_log_folder
from skipstone.storage.opening import open_storage
from skipstone.storage.port import Storage

#: Old logs are looked for once in so many runs, by chance: a listing takes longer the more of them there are.
_RUNS_PER_SWEEP = 20
_log = logging.getLogger(__name__)


def keep_event_log(request: JobRequest, *, chance: Callable[[], float] = random.random) -> None:
    """Keep the log of the run that ends, if its session wrote one; ends the session. Raises no Exception.

    ``chance``: a number from 0 to 1; old logs are deleted when it is small.
    """
    seconds = request.spark.event_log_seconds
    if seconds is None:
        return
    try:
        storage = open_storage(request.warehouse)
        _keep(request, storage)
        if chance() * _RUNS_PER_SWEEP < 1:
            _sweep(storage, before_ns=time.time_ns() - seconds * 10**9)
    except Exception:  # noqa: BLE001 - the run is over and told
        _log.warning("the log of Spark's events is not kept", exc_info=True)


def _keep(request: JobRequest, storage: Storage) -> None:
    folder = event_log_folder(request.run_id)
    if not folder.is_dir():
        return
    from skipstone.session import finish_event_log  # it takes time that runs without Spark do not have

    finish_event_log(request)
    try:
        for path in folder.iterdir():
            if not path.name.startswith("."):  # Hadoop's checksums
                name = f"{request.run_id}.{path.name.partition('.')[2]}"  # Spark's name may be that of another run
                unfinished = f"{EVENT_LOG_DIRECTORY}/.{name}"  # a history server reads what it sees
                storage.keep_copy(unfinished, path)
                storage.move(unfinished, f"{EVENT_LOG_DIRECTORY}/{name}")
    finally:
        shutil.rmtree(folder)


def _sweep(storage: Storage, before_ns: int) -> None:
    for entry in storage.list(EVENT_LOG_DIRECTORY):
        if entry.written_ns < before_ns:
            storage.delete(entry.path)
