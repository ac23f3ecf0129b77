"""One request's transaction, with all that a write needs beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from skipstone_local.server.judging import Judge
from skipstone_local.server.kinds.served import Catalog, ServedKind
from skipstone_local.store import JsonObject, ObjectPlace, Transaction


@dataclass
class ApiSession:
    """``token`` is the server's; ``now`` is when the request is carried out; ``warnings`` are for its sender."""

    transaction: Transaction
    catalog: Catalog
    judge: Judge
    token: str = ""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    warnings: list[str] = field(default_factory=list)

    @property
    def timestamp(self) -> str:
        """Now, in whole seconds, as metadata has it."""
        return time_text(self.now)

    def kind_of(self, place: ObjectPlace) -> ServedKind:
        """The kind of what is stored there."""
        return self.catalog.of_resource(place.resource)

    def get(self, place: ObjectPlace) -> JsonObject | None:
        """The object, or None."""
        return self.transaction.get(place)


def with_metadata(obj: JsonObject, **changes: object) -> JsonObject:
    """The object with other metadata; a field that holds nothing is left out."""
    metadata = {**obj["metadata"], **changes}
    return {**obj, "metadata": {name: value for name, value in metadata.items() if value not in (None, {}, [])}}


def time_text(time: datetime) -> str:
    """A time in whole seconds as Kubernetes writes it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def place_of(kind: ServedKind, obj: JsonObject) -> ObjectPlace:
    """Where the store has an object."""
    metadata = obj["metadata"]
    return ObjectPlace(kind.resource, metadata.get("namespace", ""), metadata["name"])
