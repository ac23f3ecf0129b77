"""Looks at an object until something that is waited for is seen in it, and tells how it gets on.

Called by the commands that wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from skipstone_cli.cluster.api import Api
from skipstone_cli.errors import CliError, NotFound, OutcomeFailed, Unreachable
from skipstone_cli.kinds import Target
from skipstone_cli.output.screen import Screen
from skipstone_cli.reading import JsonObject, uid_of
from skipstone_cli.views.standings import conditions_of

#: Seconds between two looks at an object that is waited for.
PAUSE = 1.0
#: So many looks in a row may fail.
PATIENCE = 10
Found = TypeVar("Found")


@dataclass
class Waiter:
    """Waits for ``target`` until ``seconds`` from its creation have passed; None is without bound."""

    api: Api
    screen: Screen
    target: Target
    seconds: float | None = None

    def __post_init__(self) -> None:
        """The clock runs from here."""
        self._ends = None if self.seconds is None else time.monotonic() + self.seconds
        self._last = ""

    def wait(self, seen: JsonObject, find: Callable[[JsonObject], Found | None]) -> Found:
        """Wait until ``find`` returns a result for the object, which was ``seen`` last.

        Raises CliError when the object goes, when time is up, or when nobody runs what is waited for.
        """
        if self.api.starter:
            raise CliError(f"nobody runs what is asked for: start '{self.api.starter}' beside this, and ask again")
        obj = seen
        while (result := find(obj)) is None:
            self._tell(obj)
            if self._ends is not None and time.monotonic() >= self._ends:
                last = self._last or "no progress"
                raise OutcomeFailed(f"{self.target} has not ended after {self.seconds:g} seconds ({last})")
            time.sleep(PAUSE)
            obj = self._look()
            if uid_of(obj) != uid_of(seen):
                raise NotFound(f"{self.target} was deleted and created again: ask again")
        return result

    def _tell(self, obj: JsonObject) -> None:
        progress = conditions_of(obj).get("Progressing")
        text = f"{progress.reason}: {progress.message}".removesuffix(": ") if progress is not None else ""
        if text and text != self._last:
            self.screen.note(text)
        self._last = text

    def _look(self) -> JsonObject:
        """The object, though the API server may be away for a while. Raises CliError."""
        for _ in range(PATIENCE - 1):
            try:
                return self.api.get(self.target)
            except Unreachable:
                time.sleep(PAUSE)
        return self.api.get(self.target)
