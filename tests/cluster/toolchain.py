"""Provide the Kubernetes programs, and the servers that tests need, as their pins say.

Called by the command line and by `controlplane`. A program is built once per user and pinned version: the folder of a
build is named after a digest of its pins and flags, and checkouts link to it. The programs of one pin are compiled by
one call of Go, which compiles what they share once; those that a package brings ready for this machine are taken from
there. The API server and its controllers are pinned for more releases of Kubernetes than the one that the cluster runs.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import CACHE, SOURCES, find_shared_cache
from tests.cluster.prerequisites import BUILD_GIB, check_disk, check_go
from tests.cluster.shell import run_logged, stage
from tests.cluster.shipped import unpack_program


@dataclass(frozen=True)
class Tool:
    """One program: its name, the folder below tools/ that pins it, and its Go package.

    `release` is that of Kubernetes, empty for the programs of the cluster.
    """

    name: str
    pin: str
    package: str
    release: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.name}-{self.release}" if self.release else self.name

    @property
    def source(self) -> Path:
        return SOURCES / "tools" / (f"{self.pin}-{self.release}" if self.release else self.pin)

    @property
    def executable(self) -> str:
        """What Go calls the program: by the last part of its package that is not a major version."""
        parts = [part for part in self.package.split("/") if not re.fullmatch(r"v\d+", part)]
        return self.source.name if self.package == "." else parts[-1]

    @property
    def requirement(self) -> Path:
        """The file that pins the package that brings the program for this kind of machine, if there is one."""
        return self.source / f"{self.name}.{platform.machine()}.txt"


KUBERNETES = "k8s.io/kubernetes"
TOOLS = (
    Tool("etcd", "kubernetes", "go.etcd.io/etcd/server/v3"),
    Tool("kube-apiserver", "kubernetes", f"{KUBERNETES}/cmd/kube-apiserver"),
    Tool("kubectl", "kubernetes", f"{KUBERNETES}/cmd/kubectl"),
    Tool("kube-controller-manager", "kubernetes", f"{KUBERNETES}/cmd/kube-controller-manager"),
    Tool("kube-scheduler", "kubernetes", f"{KUBERNETES}/cmd/kube-scheduler"),
    Tool("kubelet", "kubernetes", f"{KUBERNETES}/cmd/kubelet"),
    Tool("kube-proxy", "kubernetes", f"{KUBERNETES}/cmd/kube-proxy"),
    Tool("helm", "helm", "helm.sh/helm/v4/cmd/helm"),
    Tool("pause", "pause", "."),
    Tool("versitygw", "versitygw", "github.com/versity/versitygw/cmd/versitygw"),
    Tool("kstatus", "kstatus", "."),
    Tool("argocdhealth", "argocdhealth", "."),
    Tool("registry", "registry", "."),
    Tool("cosign", "cosign", "github.com/sigstore/cosign/v3/cmd/cosign"),
)
#: How long two cores take to compile the programs of a pin when nothing is cached.
COLD = {"kubernetes": "5 min", "helm": "2 min", "pause": "5 s", "argocdhealth": "5 min", "cosign": "10 min"}
STORE_AND_CLIENT = ("etcd", "kubectl")
API_SERVER = ("kube-apiserver", "kube-controller-manager")
FOR_TESTS = ("versitygw",)
#: Built by the soak targets that use them.
FOR_SOAKS = ("kstatus", "argocdhealth", "registry", "cosign")
ALL = tuple(tool.name for tool in TOOLS if tool.name not in (*FOR_TESTS, *FOR_SOAKS))


def build_tools(names: Sequence[str]) -> dict[str, Path]:
    """Return the path of each named program, building those that no checkout of this user has built."""
    return _provide([tool for name in names for tool in TOOLS if tool.name == name])


def split_tools(names: Sequence[str]) -> list[list[str]]:
    """Return `names` in groups that can be built at once: what packages bring, and what is compiled."""
    brought = {tool.name for tool in TOOLS if tool.requirement.exists()}
    groups = [[name for name in names if name in brought], [name for name in names if name not in brought]]
    return [group for group in groups if group]


def build_api_server(release: str) -> dict[str, Path]:
    """Return the API server and its controllers of a `release` such as 1.31, built; '' is that of the cluster."""
    return _provide([_of_release(tool, release) for tool in TOOLS if tool.name in API_SERVER])


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


def _provide(tools: Sequence[Tool]) -> dict[str, Path]:
    for source in dict.fromkeys(tool.source for tool in tools):
        _build([tool for tool in tools if tool.source == source])
    paths = {tool: _shared_path(tool) for tool in tools}
    for tool, path in paths.items():
        _link(CACHE / "bin" / tool.full_name, path)
    return {tool.name: path for tool, path in paths.items()}


def _build(tools: Sequence[Tool]) -> None:
    """Provide those of `tools`, which one folder pins, that are not there."""
    for tool in _missing(tools):
        if tool.requirement.exists():
            with _only_one(tool, f".{tool.name}.lock"):
                if _missing([tool]):
                    _unpack(tool, _shared_path(tool))
    compiled = _missing(tools)
    if compiled:
        check_go()
        with _only_one(compiled[0], ".lock"):
            if compiled := _missing(compiled):
                _compile(compiled, _shared_path(compiled[0]).parent)


def _unpack(tool: Tool, target: Path) -> None:
    with stage(f"download {tool.full_name}"):
        unpack_program(tool.requirement, tool.name, target, _log(tool.full_name))


def _missing(tools: Sequence[Tool]) -> list[Tool]:
    return [tool for tool in tools if not _shared_path(tool).exists()]


def _compile(tools: Sequence[Tool], folder: Path) -> None:
    """Compile `tools` of one pin into `folder`."""
    half = folder / ".partial"
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    source = tools[0].source
    options = ["-trimpath", "-buildvcs=false", "-ldflags", _flags(source)]
    command = ["go", "build", *options, "-o", f"{half}/", *(tool.package for tool in tools)]
    what = tools[0].full_name if len(tools) == 1 else f"{len(tools)} programs of {source.name}"
    with stage(f"build {what} (about {COLD.get(tools[0].pin, '1 min')} the first time)"):
        run_logged(command, _log(source.name), cwd=source, env={**os.environ, "CGO_ENABLED": "0"})
    for tool in tools:
        (half / tool.executable).replace(folder / tool.name)
    half.rmdir()


def _log(name: str) -> Path:
    return CACHE / "log" / f"build-{name}.log"


def _flags(source: Path) -> str:
    """Return what the linker is told for the programs that `source` pins."""
    if not source.name.startswith("kubernetes"):
        return "-s -w"
    version = _read_kubernetes(source)
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
    digest = hashlib.sha256(f"{platform.machine()} {_flags(tool.source)}".encode())
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
def _only_one(tool: Tool, lock: str) -> Iterator[None]:
    """Make the folder of `tool`, and keep other checkouts and threads from doing there what `lock` stands for."""
    folder = _shared_path(tool).parent
    check_disk(folder, BUILD_GIB)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / lock).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
