"""Whether this replica can plan now: its catalog answered a moment ago, and it is not about to end.

Must not know which catalog it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from skipstone.scrubbing import scrubbed

#: Between two questions to the catalog, and how long an answer counts.
ASK_SECONDS: Final = 5.0
GOOD_SECONDS: Final = 16.0
_log = logging.getLogger(__name__)


class Readiness:
    """``ask`` raises when the catalog does not answer."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        self._ask = ask
        self._answered: float | None = None
        self.is_ending = False

    @property
    def is_ready(self) -> bool:
        """Return whether requests should come here."""
        known = self._answered is not None and time.monotonic() - self._answered < GOOD_SECONDS
        return known and not self.is_ending

    async def watch(self) -> None:
        """Ask the catalog again and again, until canceled."""
        while True:
            await self.look()
            await asyncio.sleep(ASK_SECONDS if self._answered is not None else ASK_SECONDS / 10)

    async def look(self) -> None:
        """Ask the catalog once."""
        was_ready = self.is_ready
        try:
            await self._ask()
            self._answered = time.monotonic()
        except Exception as error:  # noqa: BLE001 - whatever it is, the catalog gave no answer
            _log.warning("the catalog does not answer: %s", scrubbed(str(error)))
        if self.is_ready and not was_ready:
            _log.info("the catalog answers, so this server is ready")
