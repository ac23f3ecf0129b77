"""Where the test cluster keeps its files.

Used by every module here. Only paths: nothing is created or read. Everything lies under the git-ignored `.cache`
of the checkout, apart from what many checkouts share (built programs, image layers), which is kept per user.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).resolve().parent
CACHE = REPOSITORY / ".cache" / "cluster"
LONGEST_STATE_PATH = 47
KUBE_ROOT = REPOSITORY / ".cache" / "kube"


def find_shared_cache() -> Path:
    """Return the per-user folder that every checkout of the project on this machine shares."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "skipstone"


def find_state_root(cache: Path) -> Path:
    """Return where a node whose files belong below `cache` keeps its state: there, or under a short name.

    Unix sockets bound the length of paths, so a checkout that lies deep gets a folder below /var/tmp of its own.
    """
    if len(str(cache)) <= LONGEST_STATE_PATH:
        return cache
    return Path("/var/tmp") / f"skipstone-{hashlib.sha256(str(cache).encode()).hexdigest()[:8]}"


@dataclass(frozen=True)
class StateDir:
    """The folders of one control plane or node. `root` is absolute."""

    root: Path

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def logs(self) -> Path:
        return self.root / "log"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def etcd(self) -> Path:
        return self.root / "etcd"

    @property
    def containerd(self) -> Path:
        return self.root / "containerd"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd.sock"

    @property
    def kubelet(self) -> Path:
        return self.root / "kubelet"

    @property
    def cni(self) -> Path:
        return self.root / "cni"

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"


NODE = StateDir(CACHE)
KUBE = StateDir(KUBE_ROOT)
