"""One namespace with an operator that can be killed at any write, driven plan by plan.

A plan: arm the proxy, apply one piece of work, let the operator die at its n-th write, start it again, wait until the
work has ended and the operator is quiet, judge. Processes are ended by their pid.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.controlplane import ControlPlane
from tests.kube.access import admin_access
from tests.kube.faults.driver import drive
from tests.kube.faults.kubelet import SimulatedKubelet
from tests.kube.faults.proxy import FaultProxy, Moment
from tests.kube.forked import ForkedOperator
from tests.ports import free_port

#: No more than a bound: a machine with much to do takes as long as it takes.
RECOVERY_SECONDS = 1200.0
QUIET_SECONDS = 1.5
#: On a machine with more to do than it can an operator may lose its Lease any number of times; other ends are a defect.
LATE_LEASE = "the lease is lost: not renewed"
MOST_ENDINGS = 5
KUBECONFIG = """apiVersion: v1
kind: Config
clusters: [{{name: lab, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: lab, user: {{token: none}}}}]
contexts: [{{name: lab, context: {{cluster: lab, user: lab}}}}]
current-context: lab
"""


@dataclass(frozen=True)
class Plan:
    """Die at write number ``at`` (0: never), at this moment of it."""

    at: int
    moment: Moment

    def __str__(self) -> str:
        return f"write {self.at} {self.moment}" if self.at else "undisturbed"


@dataclass
class Lab:
    """The parts of one namespace. ``folder`` stands for the claim of its Warehouse."""

    plane: ControlPlane
    namespace: str
    folder: Path
    pool: Executor
    proxy: FaultProxy = field(init=False)
    kubelet: SimulatedKubelet = field(init=False)
    operator: ForkedOperator | None = None
    #: Why the operator ended when nobody had killed it.
    endings: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Nothing runs yet."""
        access = admin_access(self.plane)
        self.proxy = FaultProxy(self.plane.url, access)
        self.kubelet = SimulatedKubelet(self.plane.url, access, self.namespace, self.pool, drive, str(self.folder))

    async def start(self) -> None:
        """Start proxy, kubelet and operator."""
        await self.proxy.start()
        self.kubelet.start()
        self.start_operator()

    async def stop(self) -> None:
        """End everything."""
        self.kill_operator()
        try:
            await self.kubelet.stop()
        finally:
            await self.proxy.stop()

    @property
    def log(self) -> Path:
        """What all the operator's processes wrote."""
        return self.folder.parent / f"{self.namespace}.operator.log"

    def start_operator(self) -> None:
        """A new operator process that sees the cluster through the proxy only."""
        config = self.folder.parent / f"{self.namespace}.kubeconfig"
        config.write_text(KUBECONFIG.format(port=self.proxy.port))
        environment = {
            **os.environ,
            "KUBECONFIG": str(config),
            "POD_NAME": "operator-0",
            "SKIPSTONE_NAMESPACES": self.namespace,
            "SKIPSTONE_OPERATOR_NAMESPACE": self.namespace,
            "SKIPSTONE_SPARK_IMAGE": "localhost/spark:none",
            "SKIPSTONE_PROBE_PORT": str(free_port()),
            "SKIPSTONE_METRICS_PORT": str(free_port()),
        }
        self._own_log = self.log.stat().st_size if self.log.exists() else 0
        self.operator = ForkedOperator(environment, self.log)

    def kill_operator(self) -> None:
        """SIGKILL, by pid."""
        if self.operator is not None and self.operator.poll() is None:
            os.kill(self.operator.pid, signal.SIGKILL)
            self.operator.wait()

    async def carry_out(self, plan: Plan, work: Callable[[], object], ended: Callable[[], bool]) -> int:
        """Run one plan to its end; returns the number of writes. Raises TimeoutError when the work does not end."""
        self.proxy.arm(plan.at, plan.moment, self.kill_operator)
        await asyncio.to_thread(work)
        await self.until(lambda: self.proxy.fired.is_set() or (self.is_quiet() and ended()), f"{plan}: the fault")
        self.revive_operator()
        await self.until(lambda: self.is_quiet() and ended(), f"{plan}: the end")
        self.proxy.disarm()
        self.revive_operator()
        return len(self.proxy.writes)

    def revive_operator(self) -> None:
        """Start it again if it was killed; a write that came late may have done that after all was quiet."""
        if self.operator is not None and self.operator.poll() is not None:
            self.start_operator()

    def stand_in_for_deployment(self) -> None:
        """Start an operator again that ended by itself, and keep its reason."""
        if self.operator is None or self.operator.poll() in (None, -signal.SIGKILL):
            return
        self.endings.append(f"exit code {self.operator.returncode}: {reasons(self.log, self._own_log)}")
        if len(self.unexplained) > MOST_ENDINGS:
            raise RuntimeError(f"{self.namespace}: the operator ends again and again: {self.unexplained}")
        self.start_operator()

    @property
    def unexplained(self) -> list[str]:
        """The ends that a machine with much to do does not account for."""
        return [one for one in self.endings if LATE_LEASE not in one]

    def is_quiet(self) -> bool:
        """Whether the operator has written nothing for a moment."""
        seen = (len(self.proxy.writes), id(self.operator))
        if seen != getattr(self, "_seen", None):
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since >= QUIET_SECONDS

    async def until(self, done: Callable[[], bool], what: str) -> None:
        """Wait, at most as long as a recovery may take."""
        end = time.monotonic() + RECOVERY_SECONDS
        while not await asyncio.to_thread(done):
            self.kubelet.check()
            self.stand_in_for_deployment()
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{self.namespace}: {what} was not reached in {RECOVERY_SECONDS:.0f} s; {tail(self.log)}"
                )
            await asyncio.sleep(0.25)


def reasons(log: Path, start: int) -> str:
    """The errors that an operator wrote to its log, whose lines begin at byte ``start``."""
    messages = []
    for line in log.read_bytes()[start:].decode().splitlines():
        with suppress(ValueError):
            record = json.loads(line)
            messages += [record["message"]] if record["level"] in ("error", "critical") else []
    return "; ".join(messages) or tail(log)


def tail(log: Path) -> str:
    """The end of a log."""
    return "the operator's log ends with\n" + log.read_text()[-4000:]
