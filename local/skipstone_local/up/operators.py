"""The operator's process: started early, told its variables when the API server answers, started again when it ends."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

#: The name by which the operator holds its Lease: one that comes after a kill takes it at once.
IDENTITY = "skipstone-local"
LEASE, LEASE_NAMESPACE = "skipstone-operator", "default"
#: Runs are processes of this machine, which has whatever they need.
IMAGE = "skipstone-local"
END_SECONDS = 10.0
#: An operator that ends sooner than this has not worked at all.
SHORT_SECONDS = 10.0
MAX_SHORT_LIVES = 5
_log = logging.getLogger(__name__)


class OperatorFails(Exception):
    """The operator ends again and again as soon as it is started."""


@dataclass
class OperatorProcess:
    """One operator at a time. ``log``: the file that it logs to."""

    log: Path
    _process: subprocess.Popen[bytes] | None = None
    _environment: Mapping[str, str] = field(default_factory=dict)
    _begun: float = 0.0
    _short_lives: int = 0

    def prepare(self) -> None:
        """Start a process that imports all it needs, and waits."""
        program = [sys.executable, "-P", "-m", "skipstone_local.up.control"]
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("SKIPSTONE_", "POD_"))}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                program, stdin=subprocess.PIPE, stdout=log, stderr=log, env=kept, start_new_session=True
            )

    def begin(self, kubeconfig: Path, namespaces: tuple[str, ...]) -> None:
        """Let the operator work in ``namespaces``."""
        self._environment = {
            "KUBECONFIG": str(kubeconfig),
            "POD_NAME": IDENTITY,
            "SKIPSTONE_NAMESPACES": ",".join(namespaces),
            "SKIPSTONE_OPERATOR_NAMESPACE": LEASE_NAMESPACE,
            "SKIPSTONE_LEASE_NAME": LEASE,
            "SKIPSTONE_SPARK_IMAGE": IMAGE,
            "SKIPSTONE_EXECUTORS": "off",
            "SKIPSTONE_KEEPS_DRIVERS": "off",
            "SKIPSTONE_PROBE_PORT": "0",
            "SKIPSTONE_METRICS_PORT": "0",
        }
        self._tell()

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Where it works."""
        return tuple(self._environment.get("SKIPSTONE_NAMESPACES", "").split(","))

    def change(self, namespaces: tuple[str, ...]) -> None:
        """Let it work in other namespaces."""
        self.stop()
        self.prepare()
        self.begin(Path(self._environment["KUBECONFIG"]), namespaces)

    def keep(self) -> None:
        """Start the operator again if it has ended. Raises OperatorFails."""
        if self._process is None or self._process.poll() is None:
            return
        lived = time.monotonic() - self._begun
        self._short_lives = self._short_lives + 1 if lived < SHORT_SECONDS else 0
        if self._short_lives >= MAX_SHORT_LIVES:
            raise OperatorFails(f"the operator ended with {self._process.returncode} again and again: see {self.log}")
        _log.warning("the operator ended with %s and is started again", self._process.returncode)
        self.prepare()
        self._tell()

    def stop(self) -> None:
        """End the operator after what it does now."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            with suppress(OSError), process.stdin as pipe:
                pipe.write(b"stop\n")
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _tell(self) -> None:
        self._begun = time.monotonic()
        if self._process is None or self._process.stdin is None:
            return
        with suppress(BrokenPipeError):  # it has ended, which is seen when it is looked after
            self._process.stdin.write(json.dumps(self._environment).encode() + b"\n")
            self._process.stdin.flush()
