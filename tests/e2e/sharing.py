"""One installation for all processes of a test run: the first one makes it, the last one removes it.

Every process holds a shared lock on a file while it takes part, and the kernel releases the lock of a process that
dies. So nobody has to count, and nobody waits for a process that is gone.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO


@dataclass(frozen=True)
class Share:
    """The part of one process in the installation. ``folder`` is the same for all processes of the machine."""

    folder: Path
    users: IO[str]

    @staticmethod
    def take(folder: Path) -> Share:
        """Take part from now on, before the installation is made."""
        share = Share(folder, (folder / "e2e.users").open("a"))
        with share._turn():
            fcntl.flock(share.users, fcntl.LOCK_SH)
        return share

    def begin(self, run: str, make: Callable[[], None]) -> None:
        """Call ``make`` unless a process of the same test run has done so."""
        made = self.folder / "e2e.run"
        with self._turn():
            if not made.exists() or made.read_text() != run:
                made.unlink(missing_ok=True)
                make()
                made.write_text(run)

    def leave(self, remove: Callable[[], None]) -> None:
        """Take part no longer; call ``remove`` if nobody else does and the installation was made."""
        made = self.folder / "e2e.run"
        with self._turn():
            if self._is_only_user() and made.exists():
                remove()
                made.unlink()
            self.users.close()

    def is_alone(self) -> bool:
        """Whether every other process has left."""
        with self._turn():
            alone = self._is_only_user()
            fcntl.flock(self.users, fcntl.LOCK_SH)
            return alone

    def _is_only_user(self) -> bool:
        """The shared lock is lost by asking. To be called in turn."""
        try:
            fcntl.flock(self.users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with (self.folder / "e2e.turn").open("a") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            yield
