"""Credentials that a catalog vends for the files of one table: told with the table, and good for a while only.

Used by ``tables`` for their FileIO. A driver asks for others when half of their time is over, so that what it sends
to tasks is good for a while; tasks keep what they got. Must not know how to ask.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock

from skipstone_core.errors import UserError

logger = logging.getLogger(__name__)
#: What keeps secret; the token is there only if the credentials end.
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "s3.access-key-id", "s3.secret-access-key", "s3.session-token"
EXPIRES_AT = "s3.session-token-expires-at-ms"
_SECRETS = (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN)
#: How long credentials are used whose end the catalog does not tell: the shortest that S3 gives end after 15 minutes.
_UNTOLD_SECONDS = 300.0
#: How long after a vain question it is asked again.
_AGAIN_SECONDS = 30.0


def vended_secrets(properties: Mapping[str, str], known: Mapping[str, str]) -> tuple[str, ...]:
    """The credentials in ``properties`` of a table that are not those of its catalog, ``known``."""
    return tuple(value for name in _SECRETS if (value := properties.get(name)) and value != known.get(name))


@dataclass
class Vending:
    """Whoever gives other credentials: ``ask`` gives the properties of a FileIO, or None to go on as before."""

    ask: Callable[[], Mapping[str, str] | None]
    properties: Mapping[str, str] = field(repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)
    _due: float = field(init=False)

    def __post_init__(self) -> None:
        """They were given now."""
        self._due = self._half_time()

    def renew(self, take: Callable[[Mapping[str, str]], None]) -> None:
        """Let ``take`` have other properties if it is time for them, before any other thread goes on.

        Who cannot be asked is asked again later while the credentials are good; then it raises as ``ask`` does.
        """
        if time.time() < self._due or not self._lock.acquire(blocking=not self._are_good()):
            return  # whoever holds the lock is asking
        try:
            if time.time() >= self._due and (properties := self._asked()) is not None:
                self.properties = properties
                self._due = self._half_time()
                take(properties)
        finally:
            self._lock.release()

    def _asked(self) -> Mapping[str, str] | None:
        try:
            properties = self.ask()
        except Exception as error:
            if not self._are_good():
                raise
            reason = error if isinstance(error, UserError) else type(error).__name__  # other errors may show an answer
            logger.warning("no other credentials came, so the old ones are used as long as they are good: %s", reason)
            properties = None
        self._due = min(time.time() + _AGAIN_SECONDS, self._end())
        return properties

    def _are_good(self) -> bool:
        return time.time() < self._end()

    def _half_time(self) -> float:
        now = time.time()
        end = self._end()
        return now + (_UNTOLD_SECONDS if end == math.inf else (end - now) / 2)

    def _end(self) -> float:
        """When they end; never, as far as anybody knows, if the catalog does not tell: the storage does then."""
        try:
            return int(self.properties[EXPIRES_AT]) / 1000
        except (KeyError, ValueError):
            return math.inf
