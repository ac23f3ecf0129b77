"""Connections of callers: they send the head of a request in time and take the answer in time, or end.

Must not know requests.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: From the first byte of a request, or from the beginning of a connection, until its head is here.
HEAD_SECONDS: Final = 20.0
#: How long a caller may take no more of an answer.
READ_SECONDS: Final = 60.0


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, which by itself waits forever for a head, and for a caller who does not read."""

    _head: asyncio.TimerHandle | None = None
    _read: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; wait on when they are not all of a head."""
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()
        elif self._head is not None:
            self._head.cancel()
            self._head = None

    def on_response_complete(self) -> None:
        """Wait for the rest of a head that came with the last request."""
        super().on_response_complete()
        if self.conn.trailing_data[0]:
            self._await_head()

    def pause_writing(self) -> None:
        """Begin to wait for the caller to read."""
        super().pause_writing()
        self._read = self.loop.call_later(READ_SECONDS, self._end)

    def resume_writing(self) -> None:
        """Go on."""
        if self._read is not None:
            self._read.cancel()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        for timer in (self._head, self._read):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self._end)

    def _end(self) -> None:
        """At once: what waits to be sent would keep the connection."""
        self._head = None
        self.transport.abort()
