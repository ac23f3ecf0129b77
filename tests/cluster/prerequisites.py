"""What the machine must have, said in one sentence each when it is missing.

Called first by the command line. Debian packages are installed when absent; nothing else is changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.cluster.errors import ClusterError
from tests.cluster.layout import LONGEST_STATE_PATH, SOURCES
from tests.cluster.shell import run_logged, stage, succeeds

CONTROL_PLANE_PACKAGES = ("openssl",)
NODE_PACKAGES = ("containerd", "runc", "containernetworking-plugins", "nftables", "iproute2", "mount", "kmod")
IMAGE_PACKAGES = ("buildah", "debootstrap", "openjdk-17-jre-headless")
BUILD_GIB = 6
NODE_GIB = 12
#: How long apt may wait for another program that installs packages.
APT_LOCK_SECONDS = 600
# A unix socket's path may have 107 characters; the longest that is made below the state folder has 60.


def check_root() -> None:
    if os.geteuid() != 0:
        raise ClusterError("the test cluster starts containers and a bridge: run this as root")


def check_go() -> None:
    """Raise ClusterError unless the Go toolchain is new enough for every pinned tool."""
    if shutil.which("go") is None:
        raise ClusterError("go is not installed: install Go to build the Kubernetes programs from their modules")
    found = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    needed = max(read_go_version(path.read_text()) for path in SOURCES.glob("tools/*/go.mod"))
    if read_version(found) < needed:
        wanted = ".".join(map(str, needed))
        raise ClusterError(f"{found or 'this go'} is too old: the pinned tools need Go {wanted} or later")


def read_go_version(go_mod: str) -> tuple[int, ...]:
    """Return the `go` directive of a go.mod text, e.g. (1, 26, 0)."""
    line = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    if line is None:
        raise ClusterError("a go.mod below tests/cluster/tools has no 'go' line: restore the file from git")
    return read_version(line[1])


def read_version(text: str) -> tuple[int, ...]:
    """Return the numbers of a version such as go1.26.8."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:3])


def check_disk(folder: Path, gib: int) -> None:
    """Raise ClusterError when the disk of `folder` has less than `gib` GiB free."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(nearest).free // 2**30
    if free < gib:
        raise ClusterError(f"{folder} has {free} GiB free and {gib} GiB are needed: free some disk space")


def check_path_length(state: Path) -> None:
    if len(str(state)) > LONGEST_STATE_PATH:
        raise ClusterError(
            f"the path {state} is too long for unix sockets: move the checkout so that it has "
            f"at most {LONGEST_STATE_PATH} characters"
        )


def check_cgroups() -> None:
    root = Path("/sys/fs/cgroup")
    if not (root / "memory").is_dir() and not (root / "cgroup.controllers").is_file():
        raise ClusterError(f"{root} has no cgroup controllers: mount them, containers cannot start without")


def install_packages(names: Iterable[str], log: Path) -> None:
    """Install those of `names` that the machine lacks. Raises ClusterError without apt."""
    missing = [name for name in names if not _is_installed(name)]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise ClusterError(f"apt-get is not there to install {' '.join(missing)}: install them by hand, or use Debian")
    check_root()
    with stage(f"install Debian packages: {' '.join(missing)}"):
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # A fresh machine may install its updates at this moment.
        apt = ["apt-get", "-o", f"DPkg::Lock::Timeout={APT_LOCK_SECONDS}"]
        install = [*apt, "install", "--yes", "--no-install-recommends", *missing]
        if not succeeds(["apt-cache", "show", *missing]):
            run_logged([*apt, "update"], log, env=env)
        try:
            run_logged(install, log, env=env)
        except ClusterError:
            # A stale package list names versions that the mirror no longer has.
            run_logged([*apt, "update"], log, env=env)
            run_logged(install, log, env=env)


def _is_installed(package: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", package]
    if shutil.which("dpkg-query") is None:
        return False
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout == "installed"
