"""`skipstone local` in the place of a control plane: its server as a process, with what tests ask of the other one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from skipstone_local.places import RootFolder

from tests.cluster.shell import run, wait_until
from tests.cluster.toolchain import find_tool

REPOSITORY = Path(__file__).resolve().parents[2]
#: Serves a folder; every request is in its audit log as a kube-apiserver's audit log at the level Metadata has it.
PROGRAM = (sys.executable, "-m", "tests.kube.localserver")


@dataclass
class LocalPlane:
    """A server of a root folder."""

    root: RootFolder

    @property
    def url(self) -> str:
        return str(self._kubeconfig()["clusters"][0]["cluster"]["server"])

    @property
    def token(self) -> str:
        return str(self._kubeconfig()["users"][0]["user"]["token"])

    @property
    def ca(self) -> Path:
        return self.root.authority

    @property
    def kubeconfig_admin(self) -> Path:
        return self.root.kubeconfig

    @property
    def audit_log(self) -> Path:
        return self.root.path / "audit.log"

    def kubectl(self, *arguments: str, text_input: str | None = None, kubeconfig: Path | None = None) -> str:
        """Return what kubectl prints. Raises ClusterError."""
        config = kubeconfig or self.kubeconfig_admin
        return run([find_tool("kubectl"), "--kubeconfig", config, *arguments], text_input=text_input)

    def user_kubeconfig(self, name: str, *, groups: Sequence[str] = ()) -> Path:
        """There are no users."""
        pytest.skip("skipstone local has no users: whoever has the token may do everything")

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig of an existing service account, by a token that the server gives for it."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration", "24h").strip()
        config = self._kubeconfig()
        config["users"][0]["user"]["token"] = token
        path = self.root.path / f"serviceaccount-{namespace}-{name}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return path

    def read_audit(self) -> list[dict[str, object]]:
        """Return the requests answered so far, oldest first."""
        text = self.audit_log.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def start(self) -> None:
        """Start the server, and return when it answers."""
        with (self.root.path / "server.log").open("ab") as log:
            words = [*PROGRAM, str(self.root.path)]
            self.process = subprocess.Popen(words, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=log, stderr=log)
        marker = self.root.path / "served"
        wait_until(
            lambda: (
                self.process.poll() is not None or (marker.exists() and marker.read_text() == str(self.process.pid))
            ),
            seconds=120,
            failure="the local server did not start",
        )
        assert self.process.poll() is None, (self.root.path / "server.log").read_text()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.send_signal(signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """End the server; the folder stays."""
        self.process.terminate()
        self._end()

    def _end(self) -> None:
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def _kubeconfig(self) -> dict[str, list[dict[str, dict[str, str]]]]:
        found: dict[str, list[dict[str, dict[str, str]]]] = yaml.safe_load(self.root.kubeconfig.read_text())
        return found


@contextmanager
def local_plane(root: Path) -> Iterator[LocalPlane]:
    """Give a local server of a new folder, which ends with the block."""
    plane = LocalPlane(RootFolder(root / "local"))
    plane.root.path.mkdir(mode=0o700)
    plane.start()
    try:
        yield plane
    finally:
        plane.stop()
