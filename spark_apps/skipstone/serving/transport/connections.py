"""Connections of callers: they send the head of a request in time, or end.

Must not know requests.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: From the first byte of a request, or from the beginning of a connection, until its head is here.
HEAD_SECONDS: Final = 20.0


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, which waits for the body of a request and for the next one, and for a head forever."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take bytes; wait on when they are not all of a head."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._watch()
        else:
            self._rest()

    def on_response_complete(self) -> None:
        """Wait for the rest of a head that came with the last request."""
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._rest()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._end)

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end(self) -> None:
        self._timer = None
        if not self.transport.is_closing():
            self.transport.abort()
