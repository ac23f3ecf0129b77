"""The process that serves a folder for as long as a Python program has it open.

A process of its own, because a server, a runner and an operator have threads, signals and logs that a notebook must not
get. It ends when its standard input does, so it never outlives the program.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from skipstone_core.errors import LakeError

from skipstone_local.owners import UnfitFolder, make_folder
from skipstone_local.places import RootFolder

SERVES, SERVED = "serves", "served by another process"
#: The reason of errors about a folder that nobody serves.
NOT_SERVED = "NotServed"
WAY_OUT = "open a folder that you can write to"
CHILD = "skipstone_local.lake.child"
#: How long the process gets to end by itself.
END_SECONDS = 30.0


@dataclass
class LakeService:
    """The process that serves a folder; None if another one does."""

    root: RootFolder
    process: subprocess.Popen[str] | None = None
    is_closed: bool = False

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the server."""
        return self.root.kubeconfig

    def start(self) -> None:
        """Serve the folder, or find who does. Raises LakeError."""
        try:
            process = self._begin()
        except UnfitFolder as error:
            raise LakeError(NOT_SERVED, error.sentence, WAY_OUT) from error
        except OSError as error:
            raise LakeError(NOT_SERVED, f"{self.root.path} cannot be served: {error}", WAY_OUT) from error
        answer = process.stdout.readline().strip() if process.stdout else ""
        if answer == SERVES:
            self.process = process
            return
        process.communicate()
        if answer != SERVED:
            why = answer or "it ended at once"
            raise LakeError(NOT_SERVED, f"{self.root.path} cannot be served: {why}", f"see {self.root.log}")

    def _begin(self) -> subprocess.Popen[str]:
        make_folder(self.root)
        with self.root.log.open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", CHILD, str(self.root.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Ctrl-C is for the program.
                start_new_session=True,
            )

    def keep(self) -> None:
        """Serve the folder again if whoever served it has ended, this process or another one. Raises LakeError."""
        self.check_open()
        if self.process is None or self.process.poll() is not None:
            self._end()
            self.start()

    def check_open(self) -> None:
        """Raise LakeError if the lake was closed."""
        if self.is_closed:
            again = f"open it again by skipstone.open({str(self.root.path)!r})"
            raise LakeError(NOT_SERVED, "the lake is closed", again)

    def stop(self) -> None:
        """End the process and what it runs, for good; a cut off run goes on when the folder is served again."""
        self.is_closed = True
        self._end()

    def _end(self) -> None:
        if self.process is None:
            return
        process, self.process = self.process, None
        try:
            process.communicate(timeout=END_SECONDS)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            process.kill()
            process.communicate()
