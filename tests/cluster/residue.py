"""What a node leaves on the machine beside its files: find it, remove it, prove that it is gone.

Called by `node` and by the command line. Only things that the test cluster made are touched: mounts below its own
folders, its own bridge and what hangs on it, its own tables and control groups, processes that name its state folder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cluster.layout import StateDir
from tests.cluster.processes import end_process, is_running
from tests.cluster.shell import run, succeeds

#: The table of `traffic`.
WATCH_TABLE = ("ip", "skipstone-watch")
#: The table of `policies`.
POLICY_TABLE = ("ip", "skipstone-policies")
RULE_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"), WATCH_TABLE, POLICY_TABLE)
PROGRAM_NAMES = (b"etcd", b"kube", b"containerd")
#: The node's one program in Python, as its command line names it.
ENFORCER = "tests.cluster.enforcer"
CGROUP_ROOT = Path("/sys/fs/cgroup")
CGROUPS = ("kubepods", "k8s.io")
OUTSIDE_FILES = ("/var/log/containers", "/var/lib/cni/results")
# The machine-wide settings that the kubelet, kube-proxy or the bridge change.
SETTINGS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "net/ipv4/conf/all/route_localnet",
    "net/ipv4/ip_forward",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def remember_settings(state: StateDir) -> None:
    """Keep the machine-wide settings as they are before the node changes them."""
    path = state.run / "settings.json"
    if path.exists():
        return
    found = {name: Path("/proc/sys", name) for name in SETTINGS}
    values = {name: file.read_text().strip() for name, file in found.items() if file.exists()}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def is_runtime_up(state: StateDir) -> bool:
    """Return whether containerd runs and images can be imported."""
    return is_running(state, "containerd")


def find_rival(state: StateDir, bridge: str) -> Path | None:
    """Return the state folder of another checkout whose node runs on this machine; the bridge's alias names it."""
    alias = Path("/sys/class/net") / bridge / "ifalias"
    owner = Path(alias.read_text().strip() or "/") if alias.exists() else state.root
    return owner if owner != state.root and is_running(StateDir(owner), "kube-apiserver") else None


def clear(state: StateDir, bridge: str) -> None:
    """Remove everything that `list_all` may name. Safe to call at any time while no program of the node runs."""
    machine_wide = find_rival(state, bridge) is None
    for pid in [*find_processes(state), *(find_pod_processes() if machine_wide else [])]:
        end_process(pid, grace=2.0)
    for mount in reversed(find_mounts(state)):
        succeeds(["umount", "--lazy", mount])
    for path in find_outside_files(state):
        path.unlink()
    shutil.rmtree(state.run / "addresses", ignore_errors=True)
    if machine_wide:
        _clear_machine(state, bridge)


def _clear_machine(state: StateDir, bridge: str) -> None:
    for interface in [*find_ports(bridge), *find_bridges(bridge)]:
        succeeds(["ip", "link", "delete", interface])
    for family, table in find_tables():
        run(["nft", "delete", "table", family, table])
    for group in find_cgroups():
        group.rmdir()
    _restore_settings(state)


def list_all(state: StateDir, bridge: str) -> list[str]:
    """Return one line for each thing that is left. What another checkout's running node needs does not count."""
    own = [
        *(f"process {pid}" for pid in find_processes(state)),
        *(f"mount {mount}" for mount in find_mounts(state)),
        *(f"file {path}" for path in find_outside_files(state)),
    ]
    if find_rival(state, bridge) is not None:
        return own
    return [
        *own,
        *(f"process {pid}" for pid in find_pod_processes()),
        *(f"interface {name}" for name in [*find_ports(bridge), *find_bridges(bridge)]),
        *(f"nftables table {family} {table}" for family, table in find_tables()),
        *(f"control group {group}" for group in find_cgroups()),
    ]


def find_pod_processes() -> list[int]:
    """Return whatever runs in the control groups of pods."""
    listed = [group / "cgroup.procs" for group in find_cgroups()]
    return sorted({int(pid) for file in listed if file.exists() for pid in file.read_text().split()})


def find_processes(state: StateDir) -> list[int]:
    """Return the node's programs, by the state folder in their command lines."""
    folders = (folder for folder in Path("/proc").iterdir() if folder.name.isdigit())
    return sorted(int(folder.name) for folder in folders if _is_program(folder, f"{state.root}/".encode()))


def _is_program(folder: Path, mark: bytes) -> bool:
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return False
    known = any(words[0].rpartition(b"/")[2].startswith(name) for name in PROGRAM_NAMES)
    return (known or ENFORCER.encode() in words) and any(mark in word for word in words[1:])


def find_mounts(state: StateDir) -> list[str]:
    """Return the mount points below the state folder, in the order they were mounted."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    points = [line.split()[1].encode().decode("unicode_escape") for line in lines]
    return [point for point in points if point.startswith(f"{state.root}/")]


def find_ports(bridge: str) -> list[str]:
    """Return the interfaces that hang on the bridge."""
    folder = Path("/sys/class/net") / bridge / "brif"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def find_bridges(bridge: str) -> list[str]:
    return [bridge] if (Path("/sys/class/net") / bridge).exists() else []


def find_tables() -> list[tuple[str, str]]:
    if shutil.which("nft") is None:
        return []
    listed = {tuple(line.split()[1:]) for line in run(["nft", "list", "tables"]).splitlines()}
    return [table for table in RULE_TABLES if table in listed]


def find_cgroups() -> list[Path]:
    """Return the control groups of pods, the innermost first."""
    tops = [top for pattern in CGROUPS for top in (*CGROUP_ROOT.glob(pattern), *CGROUP_ROOT.glob(f"*/{pattern}"))]
    groups = {path for top in tops for path in (top, *top.rglob("*")) if path.is_dir() and not top.is_symlink()}
    return sorted(groups, key=lambda path: (-len(path.parts), str(path)))


def find_outside_files(state: StateDir) -> list[Path]:
    """Return links to the cluster's logs and its network's records, which their programs keep in fixed places."""
    files = [path for folder in OUTSIDE_FILES for path in Path(folder).glob("*")]
    return [path for path in files if path.name.startswith("skipstone-") or _links_into(path, state.root)]


def _links_into(path: Path, root: Path) -> bool:
    return path.is_symlink() and str(path.readlink()).startswith(f"{root}/")


def _restore_settings(state: StateDir) -> None:
    path = state.run / "settings.json"
    if not path.exists():
        return
    for name, value in json.loads(path.read_text()).items():
        Path("/proc/sys", name).write_text(value)
    path.unlink()
