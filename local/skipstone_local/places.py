"""Where a root folder keeps what: paths only, nothing is read or written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

DEFAULT = Path(".skipstone")
VARIABLE = "SKIPSTONE_LOCAL"


def find_root(given: Path | None = None) -> RootFolder:
    """Return the folder that a person named, else that of SKIPSTONE_LOCAL, else .skipstone; its path is absolute."""
    return RootFolder(Path(given or os.environ.get(VARIABLE) or DEFAULT).absolute())


@dataclass(frozen=True)
class RootFolder:
    """A folder that one server at a time serves. ``path`` is absolute."""

    path: Path

    @property
    def objects(self) -> Path:
        """The SQLite file of all objects."""
        return self.path / "objects.db"

    @property
    def kubeconfig(self) -> Path:
        """The address and the token of the server that runs, or ran last."""
        return self.path / "kubeconfig"

    @property
    def authority(self) -> Path:
        """The certificate by which clients know the server."""
        return self.path / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's certificate and its key."""
        return self.path / "server.pem"

    @property
    def origin(self) -> Path:
        """The file that says where the folder was when it was served first: tables name their files by that path."""
        return self.path / "origin"

    @property
    def lock(self) -> Path:
        """The file that the process which serves the folder holds locked."""
        return self.path / "lock"

    @property
    def log(self) -> Path:
        """Return the log file of the process that serves the folder."""
        return self.path / "log"

    def claim(self, namespace: str, name: str) -> Path:
        """The folder of a PersistentVolumeClaim."""
        return self.path / "claims" / namespace / name

    def pod(self, uid: str) -> Path:
        """The folder of a pod: its log, mounts, scratch and how it ended."""
        return self.path / "pods" / uid
