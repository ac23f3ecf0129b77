"""What judges an object before it is stored, as the server sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skipstone_local.store import JsonObject


class Admissible(Protocol):
    """An object that may be stored: pruned, with defaults; ``warnings`` are for whoever sent it."""

    @property
    def obj(self) -> JsonObject:
        """The object as it is stored."""

    @property
    def warnings(self) -> Sequence[str]:
        """Sentences."""


class Judge(Protocol):
    """Admits objects: implemented by ``skipstone_local.admission``."""

    def decode(self, obj: JsonObject, *, field_validation: str = "Warn") -> Sequence[str]:
        """Warnings of unknown fields in what a client sent. Raises Rejected, also for types of metadata."""

    def admit(
        self, obj: JsonObject, *, old: JsonObject | None = None, subresource: str = "", field_validation: str = "Warn"
    ) -> Admissible:
        """The object as it may be stored. Raises Rejected."""
