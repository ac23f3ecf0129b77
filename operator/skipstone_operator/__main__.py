"""``python -m skipstone_operator``: builds the parts, takes the Lease, runs until told to stop.

The only module that knows every room. Exit codes: 0 told to stop, 1 anything else; the cluster then starts us again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from skipstone_core.errors import SkipstoneError

from skipstone_operator import logs
from skipstone_operator.adapters.cached import CachedKube, RememberingKube
from skipstone_operator.adapters.clock import SystemClock
from skipstone_operator.adapters.connection import ApiFault, Connection, connect
from skipstone_operator.adapters.events import KubeEvents
from skipstone_operator.adapters.kube import FencedClient, KubeClient, Unprepared
from skipstone_operator.adapters.leases import KubeLeaseStore
from skipstone_operator.dashboard import Dashboard
from skipstone_operator.feed import Feed
from skipstone_operator.metrics import Metrics
from skipstone_operator.ports import Key, Ports, RunDefaults
from skipstone_operator.reconcilers.entry import reconcile
from skipstone_operator.routing import KEY_KINDS, Router
from skipstone_operator.runtime.access import AccessGained, split_by_access, wait_for_access
from skipstone_operator.runtime.apart import run_apart
from skipstone_operator.runtime.lease import Lease, LeaseLost
from skipstone_operator.runtime.loop import ReconcileLoop
from skipstone_operator.runtime.queue import WorkQueue
from skipstone_operator.runtime.resync import Deliveries, Resync, ResyncTiming, WatchStalled
from skipstone_operator.settings import Settings, load_settings
from skipstone_operator.watch import Watch, run_watch

EXIT_STOPPED = 0
EXIT_FAILED = 1
#: How long an API server that does not answer is waited for at start, less than the liveness probe's patience.
START_SECONDS = 45.0
START_PAUSE_SECONDS = 3.0
#: How long reconciles in progress get to end after SIGTERM; less than the grace period of the pod.
DRAIN_SECONDS = 10.0
#: How long a failed operator gets to close its connections before it ends hard.
END_SECONDS = 10.0
#: Without a successful LIST for this long the operator counts as dead.
MAX_RESYNC_AGE = 600.0
DEFAULT_TIMING = ResyncTiming()
logger = logging.getLogger("skipstone_operator")


def main(environment: Mapping[str, str], resync: ResyncTiming = DEFAULT_TIMING) -> int:
    """Run the operator; the exit code."""
    logs.set_up("info")
    code = EXIT_STOPPED
    try:
        settings = load_settings(environment)
        logs.set_up(settings.log_level)
        asyncio.run(run(settings, resync))
    except* (SkipstoneError, OSError, LeaseLost, WatchStalled, AccessGained) as group:
        code = EXIT_FAILED
        for error in leaves(group):
            logger.error("ending: %s", error)
    return code


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors inside, whatever the nesting."""
    errors: list[BaseException] = []
    for error in group.exceptions:
        errors.extend(leaves(error) if isinstance(error, BaseExceptionGroup) else [error])
    return errors


async def run(settings: Settings, resync: ResyncTiming) -> None:
    """Check the cluster, take the Lease, work until SIGTERM."""
    connection = await connect()
    try:
        kube = KubeClient(connection)
        watched, barred = await wait_for_cluster(kube, settings.namespaces)
        if not watched:
            raise Unprepared("; ".join(barred.values()))
        for objection in barred.values():
            logger.warning("left out: %s", objection)
        operator = build_operator(replace(settings, namespaces=watched), connection, kube, resync)
        await operator.work(tuple(barred))
    finally:
        await connection.close()


async def wait_for_cluster(kube: KubeClient, namespaces: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, str]]:
    """The namespaces that can be watched, and why the others cannot.

    Waits a while for an API server that is down or that just learned our kinds, which costs less than starting again
    and again. Raises ApiFault when it stays down, Unprepared when it lacks our kinds.
    """
    loop = asyncio.get_running_loop()
    end = loop.time() + START_SECONDS
    while True:
        try:
            await kube.check_resources()
            return await split_by_access(namespaces, kube.find_objection)
        except ApiFault as fault:
            if loop.time() >= end:
                raise
            logger.warning("waiting for the API server: %s", fault)
        await asyncio.sleep(START_PAUSE_SECONDS)


def build_operator(settings: Settings, connection: Connection, kube: KubeClient, resync: ResyncTiming) -> Operator:
    """All parts, wired. Called inside the running event loop."""
    loop = asyncio.get_running_loop()
    identity = settings.identity or f"{socket.gethostname()}-{os.getpid()}"
    clock, metrics = SystemClock(), Metrics(KEY_KINDS)
    defaults = RunDefaults(
        image=settings.spark_image,
        service_account=settings.service_account,
        image_pull_policy=settings.image_pull_policy,
        image_pull_secrets=settings.image_pull_secrets,
        executors=settings.executors,
        keeps_drivers=settings.keeps_drivers,
    )
    lease = Lease(
        store=KubeLeaseStore(kube, settings.operator_namespace, settings.lease_name),
        identity=identity,
        now=clock.now,
        time=loop.time,
    )
    queue: WorkQueue[Key] = WorkQueue(timer=loop, lane=lambda key: key.namespace, meter=metrics)
    remembering = RememberingKube(FencedClient(connection, may_write=lambda: lease.is_held))
    return Operator(
        settings=settings,
        connection=connection,
        kube=kube,
        ports=Ports(
            kube=remembering,
            cached=CachedKube(remembering, remembering.cache),
            clock=clock,
            events=KubeEvents(connection, clock, identity),
            meter=metrics,
            defaults=defaults,
            namespaces=settings.namespaces,
        ),
        metrics=metrics,
        dashboard=Dashboard(
            namespaces=settings.namespaces, cache=remembering.cache, leads=lambda: lease.is_held, now=clock.now
        ),
        lease=lease,
        queue=queue,
        feed=Feed(
            kube=kube,
            namespaces=settings.namespaces,
            cache=remembering.cache,
            router=Router(),
            deliveries=Deliveries(loop.time),
            meter=metrics,
            put=queue.put,
        ),
        timing=resync,
    )


@dataclass(kw_only=True)
class Operator:
    """The running operator."""

    settings: Settings
    connection: Connection
    kube: KubeClient
    ports: Ports
    metrics: Metrics
    dashboard: Dashboard
    lease: Lease
    queue: WorkQueue[Key]
    feed: Feed
    timing: ResyncTiming

    def __post_init__(self) -> None:
        """Build the parts that call back into this one."""
        self._loop = ReconcileLoop(
            queue=self.queue,
            reconcile=lambda key: reconcile(key, self.ports),
            kind_of=lambda key: key.kind,
            meter=self.metrics,
            workers=self.settings.workers,
        )
        self._resync = Resync(
            list_all=self.feed.list_all,
            enqueue=self.feed.enqueue,
            forget=self.feed.forget,
            deliveries=self.feed.deliveries,
            meter=self.metrics,
            timing=self.timing,
        )

    async def work(self, barred: tuple[str, ...] = ()) -> None:
        """Hold the Lease and reconcile until SIGTERM. Raises LeaseLost, WatchStalled or what ends the watch.

        Raises AccessGained when one of the ``barred`` namespaces can be watched.
        """
        self.metrics.watch_operator(lambda: self.lease.is_held, self._measure_resync)
        if self.settings.metrics_port:
            self.metrics.serve(self.settings.metrics_port)
        try:
            if self.settings.dashboard_port:
                await self.dashboard.serve(self.settings.dashboard_port)
            await self.lease.acquire()
            try:
                async with asyncio.TaskGroup() as group:
                    await self._work_in(group, barred)
            finally:
                self.queue.close()
                await self.lease.release()
        finally:
            await self.dashboard.stop()

    async def _work_in(self, group: asyncio.TaskGroup, barred: tuple[str, ...]) -> None:
        workers = group.create_task(self._work_when_filled(), name="loop")
        guards = [
            group.create_task(run_apart(self._keep_lease, "lease"), name="lease"),
            group.create_task(self._resync.run(), name="resync"),
            group.create_task(wait_for_access(barred, self.kube.find_objection), name="access"),
        ]
        # kopf ends every task that is born after it: let ours be born first.
        await asyncio.sleep(0)
        watch = Watch(
            listed=self._resync.hurry,
            changed=self.feed.changed,
            removed=self.feed.removed,
            credentials=self.connection.credentials,
            problem=self.problem,
        )
        watching = group.create_task(run_watch(watch, self.settings.namespaces, self.settings.probe_port), name="watch")
        for task in (workers, *guards, watching):
            task.add_done_callback(self._part_ended)
        await watching
        logger.info("stopping: reconciles in progress get %g s to end", DRAIN_SECONDS)
        self.queue.close()
        await asyncio.wait([workers], timeout=DRAIN_SECONDS)
        for task in (workers, *guards):
            task.cancel()

    async def _work_when_filled(self) -> None:
        """Fill the cache by one LIST of each kind, then reconcile; without it passes read the API server."""
        try:
            self.feed.enqueue(await self.feed.list_all())
        except (OSError, TimeoutError) as error:
            logger.warning("the cache is filled later: %s", str(error) or type(error).__name__)
        await self._loop.run()

    async def _keep_lease(self) -> None:
        # On a loop of its own, and so with a connection of its own.
        before, connection = self.lease.store, await connect()
        try:
            namespace, name = self.settings.operator_namespace, self.settings.lease_name
            self.lease.store = KubeLeaseStore(KubeClient(connection), namespace, name)
            await self.lease.keep()
        finally:
            self.lease.store = before
            await connection.close()

    def _part_ended(self, task: asyncio.Task[None]) -> None:
        """When a vital part fails, no key is given out any more, and what does not end in time is ended hard."""
        if task.cancelled() or task.exception() is None:
            return
        logger.error("stopping, since the %s ended: %s", task.get_name(), task.exception())
        self.queue.close()
        end = threading.Timer(END_SECONDS, os._exit, (EXIT_FAILED,))
        end.daemon = True
        end.start()

    def problem(self) -> str | None:
        """Why the operator is not healthy, or None."""
        if not self.lease.is_held:
            return "the lease is not held"
        age = self.resync_age
        return f"no resync for {age:.0f} s" if age > MAX_RESYNC_AGE else None

    @property
    def resync_age(self) -> float:
        """Seconds since everything was listed."""
        return self.feed.deliveries.time() - self._resync.listed_at

    def _measure_resync(self) -> float:
        return self.resync_age if self._resync.listed_at else math.nan


if __name__ == "__main__":
    sys.exit(main(os.environ))
