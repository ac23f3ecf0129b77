"""One Kubernetes node on this machine: control plane, scheduler, containerd, kubelet, kube-proxy and the enforcer.

Called by the command line. `start_node` may be called in any state: what runs is left alone, what died is started
again, etcd's data is kept. Traffic stays on the loopback address and on the bridge made here.
"""

from __future__ import annotations

import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster import residue
from tests.cluster.controlplane import (
    PROGRAMS,
    ControlPlane,
    Endpoints,
    find_free_endpoints,
    start_control_plane,
)
from tests.cluster.errors import ClusterError
from tests.cluster.layout import REPOSITORY, SOURCES, StateDir
from tests.cluster.pki import Subject, issue_certificate, issue_kubeconfig
from tests.cluster.prerequisites import NODE_PACKAGES, check_cgroups, check_path_length, check_root, install_packages
from tests.cluster.processes import Program, is_running, read_log_end, start_program, stop_program
from tests.cluster.shell import Words, run, stage, succeeds, wait_until
from tests.cluster.toolchain import find_tool

BRIDGE = "skipstone0"
BRIDGE_IP = "10.244.0.1"
POD_RANGE = "10.244.0.0/24"
API_PORT = 6443
NODE_NAME = "skipstone-node"
PAUSE_IMAGE = "localhost/skipstone-pause:dev"
# Stop order: what starts pods first, what runs them last.
NODE_PROGRAMS = ("kubelet", "kube-proxy", "kube-scheduler", "enforcer")
NODE_READY_SECONDS = 900.0


def start_runtime(state: StateDir) -> None:
    """Start containerd, so that images can be imported. Raises ClusterError while another checkout's node runs.

    Only Debian's programs are needed.
    """
    check_root()
    _check_machine_free(state)
    check_path_length(state.root)
    check_cgroups()
    install_packages(NODE_PACKAGES, state.logs / "apt.log")
    if not is_running(state, "containerd"):
        with stage("start containerd"):
            _start_containerd(state)


def _start_containerd(state: StateDir) -> None:
    _write_config(state, "containerd.toml", state.root / "containerd.toml")
    start_program(state, Program("containerd", ["containerd", "--config", state.root / "containerd.toml"]))
    wait_until(
        lambda: not is_running(state, "containerd") or succeeds([*ctr(state), "version"]),
        seconds=30,
        failure=f"containerd does not answer: look into {state.logs / 'containerd.log'}",
    )
    if not is_running(state, "containerd"):
        words = read_log_end(state, "containerd")
        raise ClusterError(f"containerd ended while starting: run 'make cluster-down' and try again ({words})")
    if not is_running(state, "kubelet"):
        _remove_pods(state)


def start_node(state: StateDir) -> ControlPlane:
    """Start everything else and return the control plane when the node is Ready.

    containerd must run, and every program must be built.
    """
    with stage("start the Kubernetes API"):
        residue.remember_settings(state)
        run(["sysctl", "--quiet", "--write", "net.ipv4.ip_forward=1"])
        _make_bridge(state)
        free = find_free_endpoints()
        ends = Endpoints(BRIDGE_IP, API_PORT, free.etcd, free.etcd_peer)
        plane = start_control_plane(state.root, endpoints=ends, die_with_parent=False)
    with stage("start the node"):
        _write_node_files(plane)
        started = "" if is_running(state, "kubelet") else datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for program in (_scheduler(plane), _kube_proxy(plane), _enforcer(plane), _kubelet(plane)):
            start_program(state, program)
        wait_until(
            lambda: not is_running(state, "enforcer") or succeeds(["nft", "list", "table", *residue.POLICY_TABLE]),
            seconds=NODE_READY_SECONDS,
            failure=f"no NetworkPolicy is enforced: look into {state.logs / 'enforcer.log'}",
        )
        wait_until(
            lambda: not is_running(state, "kubelet") or _is_ready(plane, started),
            seconds=NODE_READY_SECONDS,
            failure=f"the node is not Ready after {NODE_READY_SECONDS:.0f} s: look into {state.logs / 'kubelet.log'}",
        )
    for name in NODE_PROGRAMS:
        if not is_running(state, name):
            words = read_log_end(state, name)
            raise ClusterError(f"{name} ended while starting: look into {state.logs / name}.log (last line: {words})")
    return plane


def stop_node(state: StateDir) -> None:
    """Stop every program, pod, mount, interface and rule of the node. Files stay."""
    check_root()
    with stage("stop the node"):
        stop_program(state, "kubelet")
        _end_pods(state)
        for name in (*NODE_PROGRAMS, *PROGRAMS, "containerd"):
            stop_program(state, name)
        residue.clear(state, BRIDGE)


def reset_node(state: StateDir) -> None:
    """Forget the cluster's objects, certificates, volumes and logs. Programs and images stay. The node must be down."""
    for folder in (state.etcd, state.pki, state.kubelet, state.cni, state.run, state.volumes, state.logs):
        shutil.rmtree(folder, ignore_errors=True)
    state.kubeconfig.unlink(missing_ok=True)


def ctr(state: StateDir) -> Words:
    """Return the command of containerd's client for the cluster's images and containers."""
    return ["ctr", "--address", state.containerd_socket, "--namespace", "k8s.io"]


def _end_pods(state: StateDir) -> None:
    """Remove the pods through containerd, which is started for it when it died before they did."""
    if not is_running(state, "containerd") and residue.find_processes(state):
        _start_containerd(state)
    elif is_running(state, "containerd"):
        _remove_pods(state)


def _remove_pods(state: StateDir) -> None:
    """Kill and forget every container, so that nothing of them is left when containerd starts again."""
    client = ctr(state)
    for container in run([*client, "containers", "list", "--quiet"]).split():
        succeeds([*client, "tasks", "delete", "--force", container])
        succeeds([*client, "containers", "delete", container])


def _check_machine_free(state: StateDir) -> None:
    rival = residue.find_rival(state, BRIDGE)
    if rival is not None:
        raise ClusterError(f"the cluster of {rival} is running: stop it first by 'make cluster-down' in that checkout")
    taken = find_listener(API_PORT) if shutil.which("ss") and not is_running(state, "kube-apiserver") else ""
    if taken:
        raise ClusterError(f"{taken} is in use and the cluster needs that port: end the program that listens there")


def find_listener(port: int) -> str:
    """Return the local address of a listener on the TCP port, '' when there is none."""
    listening = run(["ss", "--tcp", "--listening", "--numeric", "--no-header", f"sport = :{port}"]).split()
    return listening[3] if listening else ""


def _make_bridge(state: StateDir) -> None:
    if not Path(f"/sys/class/net/{BRIDGE}").exists():
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
    prefix = POD_RANGE.partition("/")[2]
    run(["ip", "address", "replace", f"{BRIDGE_IP}/{prefix}", "dev", BRIDGE])
    run(["ip", "link", "set", BRIDGE, "up", "alias", str(state.root)])
    # Traffic between pods passes the rules, too.
    run(["ip", "link", "set", BRIDGE, "type", "bridge", "nf_call_iptables", "1"])


def _write_node_files(plane: ControlPlane) -> None:
    state, url = plane.state, plane.url
    names = [f"DNS:{NODE_NAME}", f"IP:{BRIDGE_IP}"]
    issue_certificate(state, Subject("kubelet", f"system:node:{NODE_NAME}", ("system:nodes",), names))
    issue_kubeconfig(state, Subject("kubelet", f"system:node:{NODE_NAME}", ("system:nodes",)), url=url)
    issue_kubeconfig(state, Subject("scheduler", "system:kube-scheduler"), url=url)
    issue_kubeconfig(state, Subject("proxy", "system:kube-proxy"), url=url)
    state.cni.mkdir(parents=True, exist_ok=True)
    # Pods reach nothing outside of the bridge, so they are given no name server.
    (state.cni / "resolv.conf").write_text("")
    _write_config(state, "10-bridge.conflist", state.cni / "10-bridge.conflist")
    _write_config(state, "kubelet.yaml", state.root / "kubelet.yaml")


def _write_config(state: StateDir, name: str, target: Path) -> None:
    values = {
        "STATE_DIR": str(state.root),
        "BRIDGE_NAME": BRIDGE,
        "BRIDGE_IP": BRIDGE_IP,
        "POD_RANGE": POD_RANGE,
        "PAUSE_IMAGE": PAUSE_IMAGE,
    }
    text = (SOURCES / "config" / name).read_text()
    for placeholder, value in values.items():
        text = text.replace(placeholder, value)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def _is_ready(plane: ControlPlane, started: str) -> bool:
    """Return whether the node said that it is Ready at or after `started`, a time as Kubernetes writes it."""
    listed = json.loads(plane.kubectl("get", "nodes", "--output", "json"))
    conditions = [each for node in listed["items"] for each in node["status"].get("conditions", [])]
    ready = [each for each in conditions if each["type"] == "Ready" and each["status"] == "True"]
    return any(each["lastHeartbeatTime"] >= started for each in ready)


def _scheduler(plane: ControlPlane) -> Program:
    kubeconfig = plane.state.pki / "scheduler.kubeconfig"
    command: list[str | Path] = [
        find_tool("kube-scheduler"),
        f"--kubeconfig={kubeconfig}",
        "--secure-port=0",
        "--leader-elect=false",
    ]
    return Program("kube-scheduler", command)


def _kube_proxy(plane: ControlPlane) -> Program:
    return Program("kube-proxy", [
        find_tool("kube-proxy"),
        f"--kubeconfig={plane.state.pki / 'proxy.kubeconfig'}",
        "--proxy-mode=nftables",
        f"--hostname-override={NODE_NAME}",
        f"--cluster-cidr={POD_RANGE}",
        "--masquerade-all",
        "--healthz-bind-address=127.0.0.1",
        # The machine's own limits stay as they are.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ])  # fmt: skip


def _enforcer(plane: ControlPlane) -> Program:
    program: list[str | Path] = [sys.executable, "-m", residue.ENFORCER, plane.kubeconfig_admin]
    return Program("enforcer", ["env", f"PYTHONPATH={REPOSITORY}", *program])


def _kubelet(plane: ControlPlane) -> Program:
    state = plane.state
    return Program("kubelet", [
        find_tool("kubelet"),
        f"--config={state.root / 'kubelet.yaml'}",
        f"--kubeconfig={state.pki / 'kubelet.kubeconfig'}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={BRIDGE_IP}",
        f"--root-dir={state.kubelet}",
    ])  # fmt: skip
