"""Build the Kubernetes programs, and the servers that tests need, from their pinned Go modules.

Called by the command line and by `controlplane`. A program is built once per user and pinned version: the folder of a
build is named after a digest of its go.mod, go.sum and flags, and checkouts link to it. The API server and its
controllers are pinned for more releases of Kubernetes than the one that the cluster runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import CACHE, SOURCES, find_shared_cache
from tests.cluster.prerequisites import BUILD_GIB, check_disk, check_go
from tests.cluster.shell import run_logged, stage


@dataclass(frozen=True)
class Tool:
    """One program: its name, the folder below tools/ that pins it, and its Go package.

    `release` is that of Kubernetes, empty for the programs of the cluster.
    """

    name: str
    pin: str
    package: str
    cold: str
    release: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.name}-{self.release}" if self.release else self.name

    @property
    def source(self) -> Path:
        return SOURCES / "tools" / (f"{self.pin}-{self.release}" if self.release else self.pin)


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
    Tool("versitygw", "versitygw", "github.com/versity/versitygw/cmd/versitygw", "3 min"),
    Tool("kstatus", "kstatus", ".", "1 min"),
    Tool("argocdhealth", "argocdhealth", ".", "5 min"),
    Tool("registry", "registry", ".", "1 min"),
    Tool("cosign", "cosign", "github.com/sigstore/cosign/v3/cmd/cosign", "10 min"),
)
STORE_AND_CLIENT = ("etcd", "kubectl")
API_SERVER = ("kube-apiserver", "kube-controller-manager")
FOR_TESTS = ("versitygw",)
#: Built by the soak targets that use them.
FOR_SOAKS = ("kstatus", "argocdhealth", "registry", "cosign")
ALL = tuple(tool.name for tool in TOOLS if tool.name not in (*FOR_TESTS, *FOR_SOAKS))


def build_tools(names: Sequence[str]) -> dict[str, Path]:
    """Return the path of each named program, building those that no checkout of this user has built."""
    return {name: _build(tool) for name in names for tool in TOOLS if tool.name == name}


def build_api_server(release: str) -> dict[str, Path]:
    """Return the API server and its controllers of a `release` such as 1.31, built; '' is that of the cluster."""
    return {tool.name: _build(_of_release(tool, release)) for tool in TOOLS if tool.name in API_SERVER}


def read_releases() -> dict[str, str]:
    """Return the version of Kubernetes that is pinned for each release, the cluster's own under ''."""
    folders = sorted((SOURCES / "tools").glob("kubernetes*"))
    return {folder.name.removeprefix("kubernetes").removeprefix("-"): _read_kubernetes(folder) for folder in folders}


def _of_release(tool: Tool, release: str) -> Tool:
    known = read_releases()
    if release not in known:
        others = ", ".join(name for name in known if name)
        raise ClusterError(f"Kubernetes {release} is not pinned below tests/cluster/tools: choose one of {others}")
    return replace(tool, release=release)


def _read_kubernetes(folder: Path) -> str:
    return read_pin(folder / "go.mod", KUBERNETES)


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
    _link(CACHE / "bin" / tool.full_name, target)
    return target


def _compile(tool: Tool, target: Path) -> None:
    half = target.with_name(f".{tool.name}.partial")
    log = CACHE / "log" / f"build-{tool.full_name}.log"
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
    with stage(f"build {tool.full_name} (about {tool.cold} the first time)"):
        run_logged(command, log, cwd=tool.source, env=env)
    half.replace(target)


def _flags(tool: Tool) -> str:
    if not tool.package.startswith(KUBERNETES):
        return "-s -w"
    version = _read_kubernetes(tool.source)
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
    digest = hashlib.sha256(f"{platform.machine()} {_flags(tool)}".encode())
    for path in sorted(tool.source.glob("*.*")):
        digest.update(path.read_bytes())
    return find_shared_cache() / "bin" / f"{tool.source.name}-{digest.hexdigest()[:12]}" / tool.name


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
