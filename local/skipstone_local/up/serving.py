"""The process that serves a folder: API server, runner and operator, until everything is settled or for good."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skipstone_cli.errors import CliError
from skipstone_cli.kinds import GROUP

from skipstone_local.client.manifests import Manifest, read_manifests
from skipstone_local.places import RootFolder
from skipstone_local.runner.api import ApiError, Client, ServerAccess
from skipstone_local.runner.kubelet import Runner
from skipstone_local.runner.plane.dataplane import DataPlane
from skipstone_local.server import serving
from skipstone_local.server.certificates import write_private
from skipstone_local.up.following import NAMESPACES, Follower, choose_namespaces
from skipstone_local.up.operators import LEASE, LEASE_NAMESPACE, OperatorFails, OperatorProcess
from skipstone_local.up.roots import Tell, UpOptions, check_root, prepared

EXIT_WELL, EXIT_FAILED, EXIT_STOPPED = 0, 1, 130
#: The log is begun again when it is longer than this.
MAX_LOG_BYTES = 32 << 20
#: The logger of the server's requests, of which there are many.
REQUESTS = "skipstone_local.requests"


@dataclass
class Service:
    """The parts that serve a folder, while they run. ``lease``: since when the operator before them held its Lease."""

    kubeconfig: Path
    login: ServerAccess
    operator: OperatorProcess
    runner: Runner
    follower: Follower
    lease: str
    led: bool = False

    def work(self, manifests: Sequence[Manifest], stopped: threading.Event, options: UpOptions) -> int:
        """Apply, then take what happens until told to stop or, once, until everything is settled; the exit code."""
        refused = _apply(self.kubeconfig, manifests, options.namespace, self.follower.tell)
        self.follower.expect_changes()
        settled = False
        while not stopped.is_set():
            self.look()
            if settled != (self.is_led() and self.follower.is_settled()):
                settled = not settled
                if settled:
                    _tell_settled(self.follower, "" if options.once else "; stop with Ctrl-C")
            if settled and options.once:
                return EXIT_FAILED if refused or self.follower.find_failures() else EXIT_WELL
        return EXIT_STOPPED if options.once else EXIT_WELL

    def is_led(self) -> bool:
        """Return whether the operator has begun to work: until then, statuses may be from before a kill."""
        if self.led:
            return True
        self.led = _read_lease(self.login) not in ("", self.lease)
        if self.led:
            self.follower.expect_changes()
        return self.led

    def look(self) -> None:
        """Take what happened in a moment, and look after the operator. Raises CliError when it cannot be kept."""
        self.follower.take_news()
        wanted = set(self.follower.namespaces)
        if wanted - set(self.operator.namespaces):
            self.operator.change(tuple(sorted(wanted)))
        try:
            self.operator.keep()
        except OperatorFails as error:
            raise CliError(str(error)) from error


@contextmanager
def serving_all(folder: RootFolder, options: UpOptions, tell: Tell, host: Mapping[str, str]) -> Iterator[Service]:
    """Serve ``folder`` inside the block with all that runs need; afterwards nothing of it runs.

    Raises AlreadyServed, BadRoot and OSError.
    """
    check_root(folder)
    with prepared(folder) as operator, serving_with(operator, folder, options, tell, host) as service:
        yield service


@contextmanager
def serving_with(
    operator: OperatorProcess, folder: RootFolder, options: UpOptions, tell: Tell, host: Mapping[str, str]
) -> Iterator[Service]:
    """``serving_all`` with an operator that is prepared already."""
    with _logging(folder.log), serving(folder.path) as kubeconfig:
        # For check_root.
        write_private(folder.origin, str(folder.path.resolve()).encode())
        login = ServerAccess.load(kubeconfig)
        runner = Runner(folder, login, DataPlane.find(options.python, host))
        follower = Follower(login, tell, runner.count_running)
        lease = _read_lease(login)
        try:
            operator.begin(kubeconfig, _find_namespaces(login))
            runner.start()
            follower.start()
            yield Service(kubeconfig, login, operator, runner, follower, lease)
        finally:
            follower.stop()
            operator.stop()
            runner.stop()


def follow(
    folder: RootFolder, manifests: Sequence[Manifest], stopped: threading.Event, options: UpOptions, tell: Tell
) -> int:
    """Apply to the process that serves the folder, and wait until everything is settled there."""
    tell(f"{folder.path} is served by another process: what is applied runs there")
    refused = _apply(folder.kubeconfig, manifests, options.namespace, tell)
    follower = Follower(ServerAccess.load(folder.kubeconfig), tell, lambda: 0)
    follower.start()
    try:
        while not stopped.is_set():
            follower.take_news()
            if follower.is_settled():
                _tell_settled(follower, "")
                return EXIT_FAILED if refused or follower.find_failures() else EXIT_WELL
        return EXIT_STOPPED
    finally:
        follower.stop()


def read_all(manifests: Sequence[str]) -> list[Manifest]:
    """The objects of files, of folders and of the standard input (-). Raises CliError."""
    return read_manifests(manifests) if manifests else []


def _apply(kubeconfig: Path, manifests: Sequence[Manifest], namespace: str, tell: Tell) -> int:
    """Apply all manifests, those of Kubernetes' own kinds first; how many were refused. Raises CliError."""
    if not manifests:
        return 0
    # The Kubernetes client takes long to load: the operator does that meanwhile, too.
    from skipstone_cli.cluster.kubeconfig import Access, load_login
    from skipstone_cli.cluster.transport import Transport

    from skipstone_local.client.objects import Objects

    login = load_login(Access(kubeconfig=str(kubeconfig), namespace=namespace))
    objects, refused = Objects(Transport(login, on_warning=tell), namespace), 0
    for manifest in sorted(manifests, key=_is_ours):
        try:
            objects.apply(manifest.body)
        except CliError as error:
            tell(f"refused: {manifest}: {error}")
            refused += 1
    return refused


def _is_ours(manifest: Manifest) -> bool:
    return str(manifest.body.get("apiVersion", "")).startswith(f"{GROUP}/")


def _tell_settled(follower: Follower, then: str) -> None:
    for judged in follower.find_failures():
        follower.tell(f"failed: {judged.line}")
    follower.tell(follower.sum_up() + then)


def _find_namespaces(login: ServerAccess) -> tuple[str, ...]:
    with closing(Client(login)) as client:
        items, _ = client.list(NAMESPACES)
    return choose_namespaces(item["metadata"]["name"] for item in items)


def _read_lease(login: ServerAccess) -> str:
    """When the Lease was taken last; empty if it never was, or if nobody holds it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases/{LEASE}"
    spec: dict[str, Any] = {}
    with suppress(ApiError), closing(Client(login)) as client:
        spec = (client.get(path) or {}).get("spec") or {}
    return str(spec.get("acquireTime", "")) if spec.get("holderIdentity") else ""


@contextmanager
def _logging(log: Path) -> Iterator[None]:
    """Log to the folder inside the block, not to the terminal."""
    if log.exists() and log.stat().st_size > MAX_LOG_BYTES:
        log.replace(log.with_name(f"{log.name}.1"))
    handler = logging.FileHandler(log)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.getLogger(REQUESTS).setLevel(logging.WARNING)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
