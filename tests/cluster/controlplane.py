"""A Kubernetes API without a node: etcd, kube-apiserver and kube-controller-manager on one address.

Tests of the operator against a real API start their own with `start_control_plane`; `node` builds on the same parts.
RBAC and Pod Security admission are on, every request is in the audit log (level Metadata, one JSON object a line).
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import SOURCES, StateDir
from tests.cluster.pki import Subject, build_authority, issue_certificate, issue_kubeconfig, write_kubeconfig
from tests.cluster.prerequisites import CONTROL_PLANE_PACKAGES, check_path_length, install_packages
from tests.cluster.processes import Program, is_running, read_log_end, start_program, stop_program
from tests.cluster.shell import run, succeeds, wait_until
from tests.cluster.toolchain import STORE_AND_CLIENT, build_api_server, build_tools, find_tool

LOOPBACK = "127.0.0.1"
SERVICE_RANGE = "10.96.0.0/16"
SERVICE_IP = "10.96.0.1"
READY_SECONDS = 900.0
# Stop order: who writes to the API first, the API, its store.
PROGRAMS = ("kube-controller-manager", "kube-apiserver", "etcd")


@dataclass(frozen=True)
class Endpoints:
    """The address that the API server listens on, and the ports of the API server and of etcd (client, peer)."""

    host: str
    api: int
    etcd: int
    etcd_peer: int

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.api}"

    @property
    def etcd_url(self) -> str:
        return f"http://{LOOPBACK}:{self.etcd}"


@dataclass(frozen=True)
class ControlPlane:
    """A running control plane. Every path is absolute."""

    state: StateDir
    endpoints: Endpoints

    @property
    def url(self) -> str:
        return self.endpoints.url

    @property
    def ca(self) -> Path:
        return self.state.pki / "ca.crt"

    @property
    def kubeconfig_admin(self) -> Path:
        return self.state.kubeconfig

    @property
    def audit_log(self) -> Path:
        return self.state.audit_log

    def kubectl(self, *arguments: str, text_input: str | None = None, kubeconfig: Path | None = None) -> str:
        """Return what kubectl prints, as the administrator or with another `kubeconfig`. Raises ClusterError."""
        config = kubeconfig or self.kubeconfig_admin
        return run([find_tool("kubectl"), "--kubeconfig", config, *arguments], text_input=text_input)

    def user_kubeconfig(self, name: str, *, groups: Sequence[str] = ()) -> Path:
        """Return a kubeconfig of the user `name`, by client certificate; without rules in RBAC it may do nothing."""
        file = "-".join(["user", name, *groups]).replace(":", "-").replace("/", "-")
        return issue_kubeconfig(self.state, Subject(file, name, groups), url=self.url)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig of an existing service account, by a token that is valid for a day."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", "24h").strip()
        path = self.state.pki / f"serviceaccount-{namespace}-{name}.kubeconfig"
        return write_kubeconfig(path, url=self.url, ca=self.ca, user={"token": token})

    def read_audit(self) -> list[dict[str, object]]:
        """Return the requests answered so far, oldest first, as audit.k8s.io/v1 Events."""
        text = self.audit_log.read_text()
        complete = text[: text.rfind("\n") + 1]  # the last line may be half written
        return [json.loads(line) for line in complete.splitlines()]

    def stop(self) -> None:
        """Stop the programs; the state folder stays."""
        stop_control_plane(self.state)


def start_control_plane(
    root: Path, *, endpoints: Endpoints | None = None, die_with_parent: bool = True, release: str = ""
) -> ControlPlane:
    """Start a private control plane with its state below `root`, and return it when it answers.

    Without `endpoints` it listens on free ports of the loopback address. With `die_with_parent` its programs end with
    the thread that called, so that a killed test run leaves none. `release` is one of Kubernetes, such as 1.31, for
    the API server and its controllers instead of the cluster's. Raises ClusterError.
    """
    state = StateDir(root.resolve())
    check_path_length(state.root)
    install_packages(CONTROL_PLANE_PACKAGES, state.logs / "apt.log")
    build_tools(STORE_AND_CLIENT)
    programs = build_api_server(release)
    plane = ControlPlane(state, settle_endpoints(state, endpoints))
    issue_server_files(plane)
    for program in (_etcd(plane), _api_server(plane, programs)):
        start_program(state, program, die_with_parent=die_with_parent)
    _wait_for_api_server(plane)
    # The controllers end for good when the API server refuses them for 10 s, as it does until it has made its roles.
    start_program(state, _controller_manager(plane, programs), die_with_parent=die_with_parent)
    _wait_for_controllers(plane)
    return plane


@contextmanager
def control_plane(root: Path, *, release: str = "") -> Iterator[ControlPlane]:
    """Give a private control plane and remove it with its state at the end."""
    plane = start_control_plane(root, release=release)
    try:
        yield plane
    finally:
        plane.stop()
        shutil.rmtree(plane.state.root)


def stop_control_plane(state: StateDir) -> None:
    """Stop whatever runs of the control plane with this state; nothing happens when nothing runs."""
    for name in PROGRAMS:
        stop_program(state, name)


def find_control_plane(root: Path) -> ControlPlane:
    """Return the control plane whose state lies below `root` and whose programs run. Raises ClusterError."""
    state = StateDir(root.resolve())
    endpoints = _read_endpoints(state)
    if endpoints is None or not is_running(state, "kube-apiserver"):
        raise ClusterError(
            f"no control plane runs with its state in {state.root}: run 'make kube-up' or 'make cluster'"
        )
    return ControlPlane(state, endpoints)


def settle_endpoints(state: StateDir, wanted: Endpoints | None) -> Endpoints:
    """Return where the programs listen: as they do if some run, else as `wanted`, else on free ports. Remembered."""
    running = any(is_running(state, name) for name in PROGRAMS)
    endpoints = (_read_endpoints(state) if running else None) or wanted or find_free_endpoints()
    state.root.mkdir(parents=True, exist_ok=True)
    _endpoints_file(state).write_text(json.dumps(asdict(endpoints)))
    return endpoints


def _endpoints_file(state: StateDir) -> Path:
    return state.root / "endpoints.json"


def _read_endpoints(state: StateDir) -> Endpoints | None:
    path = _endpoints_file(state)
    return Endpoints(**json.loads(path.read_text())) if path.exists() else None


def find_free_endpoints() -> Endpoints:
    """Return free ports of the loopback address."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(3)]
    api, etcd, peer = (opened.getsockname()[1] for opened in sockets)
    for opened in sockets:
        opened.close()
    return Endpoints(LOOPBACK, api, etcd, peer)


def issue_server_files(plane: ControlPlane) -> None:
    """Make the certificates and kubeconfig files that the control plane starts with."""
    state, url = plane.state, plane.url
    build_authority(state)
    names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
    addresses = sorted({LOOPBACK, SERVICE_IP, plane.endpoints.host})
    alternatives = [f"DNS:{name}" for name in names] + [f"IP:{address}" for address in addresses]
    issue_certificate(state, Subject("apiserver", "kube-apiserver", (), alternatives))
    issue_certificate(state, Subject("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",)))
    issue_kubeconfig(state, Subject("admin", "admin", ("system:masters",)), url=url, path=state.kubeconfig)
    issue_kubeconfig(state, Subject("controller-manager", "system:kube-controller-manager"), url=url)


def _wait_for_api_server(plane: ControlPlane) -> None:
    """Return when the API server is ready, its own roles included. Raises ClusterError with its last words."""
    context = ssl.create_default_context(cafile=str(plane.ca))
    _wait_for(plane, "kube-apiserver", lambda: _answers(plane, context))


def _wait_for_controllers(plane: ControlPlane) -> None:
    """Return when the controllers work. Raises ClusterError with their last words."""
    _wait_for(plane, "kube-controller-manager", lambda: _controllers_work(plane))


def _wait_for(plane: ControlPlane, name: str, works: Callable[[], bool]) -> None:
    slow = f"the control plane is not ready after {READY_SECONDS:.0f} s: look into {plane.state.logs}"
    wait_until(lambda: not is_running(plane.state, name) or works(), seconds=READY_SECONDS, failure=slow)
    if not is_running(plane.state, name):
        words = read_log_end(plane.state, name)
        plane.stop()
        raise ClusterError(f"{name} ended while starting: look into {plane.state.logs} (last line: {words})")


def _controllers_work(plane: ControlPlane) -> bool:
    # The first thing that the controllers do for anybody: the default service account.
    kubectl: list[str | Path] = [find_tool("kubectl"), "--kubeconfig", plane.kubeconfig_admin]
    return succeeds([*kubectl, "get", "serviceaccount", "default", "--namespace", "default"])


def _answers(plane: ControlPlane, context: ssl.SSLContext) -> bool:
    try:
        with urllib.request.urlopen(f"{plane.url}/readyz", context=context, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _etcd(plane: ControlPlane) -> Program:
    ends = plane.endpoints
    peer = f"http://{LOOPBACK}:{ends.etcd_peer}"
    return Program("etcd", [
        find_tool("etcd"),
        f"--data-dir={plane.state.etcd}",
        f"--listen-client-urls={ends.etcd_url}",
        f"--advertise-client-urls={ends.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ])  # fmt: skip


def _api_server(plane: ControlPlane, programs: Mapping[str, Path]) -> Program:
    pki, ends = plane.state.pki, plane.endpoints
    plane.state.logs.mkdir(parents=True, exist_ok=True)
    reconciler = "none" if ends.host == LOOPBACK else "lease"
    return Program("kube-apiserver", [
        programs["kube-apiserver"],
        f"--etcd-servers={ends.etcd_url}",
        f"--bind-address={ends.host}",
        f"--advertise-address={ends.host}",
        f"--secure-port={ends.api}",
        f"--endpoint-reconciler-type={reconciler}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction,OwnerReferencesPermissionEnforcement",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--audit-policy-file={SOURCES / 'config' / 'audit.yaml'}",
        f"--audit-log-path={plane.state.audit_log}",
        "--audit-log-maxsize=1000",
        "--audit-log-maxbackup=2",
        "--shutdown-delay-duration=0s",
    ])  # fmt: skip


def _controller_manager(plane: ControlPlane, programs: Mapping[str, Path]) -> Program:
    pki = plane.state.pki
    kubeconfig = pki / "controller-manager.kubeconfig"
    return Program("kube-controller-manager", [
        programs["kube-controller-manager"],
        f"--kubeconfig={kubeconfig}",
        "--secure-port=0",
        f"--service-account-private-key-file={pki / 'sa.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        f"--cluster-signing-cert-file={pki / 'ca.crt'}",
        f"--cluster-signing-key-file={pki / 'ca.key'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ])  # fmt: skip
