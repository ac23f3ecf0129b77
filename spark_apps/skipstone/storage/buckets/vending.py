"""Credentials that a catalog vends for the files of one table: told with the table, and good for a while only.

Used by ``tables`` for their FileIO. A driver asks for others when half of their time is over, so that what it sends
to tasks is good for a while; tasks keep what they got. Must not know how to ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock

#: What keeps secret; the token is there only if the credentials end.
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "s3.access-key-id", "s3.secret-access-key", "s3.session-token"
EXPIRES_AT = "s3.session-token-expires-at-ms"
_SECRETS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
#: How long credentials are used whose end the catalog does not tell: the shortest that S3 gives end after 15 minutes.
_UNTOLD_SECONDS = 300.0


def vended_secrets(properties: Mapping[str, str], known: Mapping[str, str]) -> tuple[str, ...]:
    """The credentials in ``properties`` of a table that are not those of its catalog, ``known``."""
    return tuple(value for name in _SECRETS if (value := properties.get(name)) and value != known.get(name))


@dataclass
class Vending:
    """Whoever gives other credentials: ``ask`` gives the properties of a FileIO, or None to go on as before."""

    ask: Callable[[], Mapping[str, str] | None]
    properties: Mapping[str, str] = field(repr=False)
    _since: float = field(default_factory=lambda: time.time())
    _lock: Lock = field(default_factory=Lock, repr=False)

    def renewed(self) -> Mapping[str, str] | None:
        """Other properties if it is time for them."""
        with self._lock:
            if time.time() < self._due() or (found := self.ask()) is None:
                return None
            self.properties, self._since = found, time.time()
            return found

    def _due(self) -> float:
        try:
            end = int(self.properties[EXPIRES_AT]) / 1000
        except (KeyError, ValueError):
            return self._since + _UNTOLD_SECONDS
        return self._since + (end - self._since) / 2
