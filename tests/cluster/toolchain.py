"""Build the Kubernetes programs from their pinned Go modules.

Called by the command line and by `controlplane`. A program is built once per user and pinned version: the folder of a
build is named after a digest of its go.mod, go.sum and flags, and checkouts link to it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import CACHE, SOURCES, find_shared_cache
from tests.cluster.prerequisites import BUILD_GIB, check_disk, check_go
from tests.cluster.shell import run_logged, stage


@dataclass(frozen=True)
class Tool:
    """One program: its name, the folder below tools/ that pins it, and its Go package."""

    name: str
    pin: str
    package: str
    cold: str


KUBERNETES = "k8s.io/kubernetes"
TOOLS = (
    Tool("etcd", "etcd", "go.etcd.io/etcd/server/v3", "1 min"),
    Tool("kube-apiserver", "kubernetes", f"{KUBERNETES}/cmd/kube-apiserver", "3 min"),
    Tool("kubectl", "kubernetes", f"{KUBERNETES}/cmd/kubectl", "20 s"),
    Tool("kube-controller-manager", "kubernetes", f"{KUBERNETES}/cmd/kube-controller-manager", "1 min"),
    Tool("kube-scheduler", "kubernetes", f"{KUBERNETES}/cmd/kube-scheduler", "10 s"),
    Tool("kubelet", "kubernetes", f"{KUBERNETES}/cmd/kubelet", "20 s"),
    Tool("kube-proxy", "kubernetes", f"{KUBERNETES}/cmd/kube-proxy", "10 s"),
    Tool("helm", "helm", "helm.sh/helm/v4/cmd/helm", "2 min"),
    Tool("pause", "pause", ".", "1 s"),
)
CONTROL_PLANE = ("etcd", "kube-apiserver", "kubectl", "kube-controller-manager")
ALL = tuple(tool.name for tool in TOOLS)


def build_tools(names: Sequence[str]) -> dict[str, Path]:
    """Return the path of each named program, building those that no checkout of this user has built."""
    return {name: _build(tool) for name in names for tool in TOOLS if tool.name == name}


def find_tool(name: str) -> Path:
    """Return the path of a program that is built. Raises ClusterError when it is not."""
    tool = next(tool for tool in TOOLS if tool.name == name)
    path = _shared_path(tool)
    if not path.exists():
        raise ClusterError(f"{name} is not built: run 'make cluster-tools' first")
    return path


def _build(tool: Tool) -> Path:
    target = _shared_path(tool)
    if not target.exists():
        check_go()
        check_disk(target, BUILD_GIB)
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent / f".{tool.name}.lock"):
            if not target.exists():
                _compile(tool, target)
    _link(CACHE / "bin" / tool.name, target)
    return target


def _compile(tool: Tool, target: Path) -> None:
    half = target.with_name(f".{tool.name}.partial")
    log = CACHE / "log" / f"build-{tool.name}.log"
    env = {**os.environ, "CGO_ENABLED": "0"}
    command: list[str | Path] = [
        "go",
        "build",
        "-trimpath",
        "-buildvcs=false",
        "-ldflags",
        _flags(tool),
        "-o",
        half,
        tool.package,
    ]
    with stage(f"build {tool.name} (about {tool.cold} the first time)"):
        run_logged(command, log, cwd=SOURCES / "tools" / tool.pin, env=env)
    half.replace(target)


def _flags(tool: Tool) -> str:
    if tool.pin != "kubernetes":
        return "-s -w"
    version = read_pin(SOURCES / "tools" / tool.pin / "go.mod", KUBERNETES)
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())])


def read_pin(go_mod: Path, module: str) -> str:
    """Return the version that `go_mod` requires of `module`."""
    found = re.search(rf"^(?:require )?\s*{re.escape(module)} (v\S+)", go_mod.read_text(), re.MULTILINE)
    if found is None:
        raise ClusterError(f"{go_mod} does not require {module}: restore the file from git")
    return found[1]


def _shared_path(tool: Tool) -> Path:
    folder = SOURCES / "tools" / tool.pin
    digest = hashlib.sha256(f"{platform.machine()} {_flags(tool)}".encode())
    for path in sorted(folder.glob("*.*")):
        digest.update(path.read_bytes())
    return find_shared_cache() / "bin" / f"{tool.pin}-{digest.hexdigest()[:12]}" / tool.name


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(target)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
