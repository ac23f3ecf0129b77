"""Which cluster the demonstration and the end-to-end tests talk to.

`embedded` is the test cluster of this checkout, `current` is whatever the user's own kubectl points at. Called by the
command line and by tests; it only looks, it starts nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane import find_control_plane
from tests.cluster.errors import ClusterError
from tests.cluster.layout import NODE
from tests.cluster.toolchain import find_tool


@dataclass(frozen=True)
class Context:
    """The programs to use and the kubeconfig to give them; '' leaves the choice of the file to kubectl."""

    kubectl: Path
    helm: Path
    kubeconfig: str

    def render_shell(self) -> str:
        """Return assignments for a shell's `eval`."""
        values = {"KUBECTL": str(self.kubectl), "HELM": str(self.helm), "KUBECONFIG": self.kubeconfig}
        return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in values.items() if value)


def find_context(which: str) -> Context:
    """Return the programs and kubeconfig of the cluster `embedded` or `current`. Raises ClusterError."""
    if which == "embedded":
        plane = find_control_plane(NODE.root)
        return Context(find_tool("kubectl"), find_tool("helm"), str(plane.kubeconfig_admin))
    return Context(_find_installed("kubectl"), _find_installed("helm"), os.environ.get("KUBECONFIG", ""))


def _find_installed(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise ClusterError(f"{name} is not on the PATH: install it, or use the project's own cluster")
    return Path(found)
