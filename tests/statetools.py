"""The programs that judge our objects for others: the kstatus library, and the health checks of Argo CD.

Built from the pinned modules of those projects; each takes one object a line and answers by one line. With
`SKIPSTONE_STATE_TOOLS=real`, as in `make soak-operability`, the unit tests of states ask them.
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.cluster.toolchain import build_tools

Obj = Mapping[str, Any]
REAL = os.environ.get("SKIPSTONE_STATE_TOOLS", "") == "real"


class Judge:
    """A program that is asked about one object after another; it ends with the test run."""

    def __init__(self, program: Path, *arguments: str) -> None:
        """Start it."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([program, *arguments], stdin=pipe, stdout=pipe, text=True)
        atexit.register(self.end)

    def end(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)

    def ask(self, obj: Obj) -> str:
        """Its line about ``obj``. Raises RuntimeError when it ended instead; it has said why on standard error."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(obj) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with exit code {self._process.wait()}")
        return line.strip()


@cache
def kstatus_library() -> Judge:
    """``sigs.k8s.io/cli-utils/pkg/kstatus``: answers by a status."""
    return Judge(build_tools(["kstatus"])["kstatus"])


@cache
def argocd_health(scripts: str) -> Judge:
    """Argo CD's module ``util/lua``: answers by JSON with status and message.

    ``scripts``: JSON of the scripts by group and kind, such as ``skipstone.dev/Table``.
    """
    return Judge(build_tools(["argocdhealth"])["argocdhealth"], scripts)
