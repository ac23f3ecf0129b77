"""What the API server says when it refuses: Status objects with the words of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from skipstone_local.server.kinds.served import ServedKind
from skipstone_local.store import JsonObject

MOST_BYTES = 3 * 1024 * 1024
#: What one object may have, as in etcd.
MOST_OBJECT_BYTES = 1536 * 1024
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
OLD_CONTINUE = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)


@dataclass
class Refusal(Exception):
    """A request that is not carried out: HTTP status, reason, sentence and details of the Status."""

    code: int
    reason: str
    message: str
    details: JsonObject = field(default_factory=dict)

    def status(self) -> JsonObject:
        """The Status object."""
        return build_status("Failure", self.message, reason=self.reason, details=self.details, code=self.code)


def build_status(status: str, message: str = "", **more: object) -> JsonObject:
    """A Status object; ``more``: reason, details, code."""
    optional = {"message": message} if message else {}
    kept = {name: value for name, value in more.items() if value not in ("", None, {})}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status, **optional, **kept}


def details_of(kind: ServedKind, name: str, **more: object) -> JsonObject:
    """The details of a Status about an object."""
    group = {"group": kind.group} if kind.group else {}
    return {**({"name": name} if name else {}), **group, "kind": kind.plural, **more}


def not_found(kind: ServedKind, name: str) -> Refusal:
    """There is no such object."""
    return Refusal(404, "NotFound", f'{kind.qualified} "{name}" not found', details_of(kind, name))


def already_exists(kind: ServedKind, name: str) -> Refusal:
    """The name is taken."""
    return Refusal(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', details_of(kind, name))


def conflict(kind: ServedKind, name: str, why: str = MODIFIED) -> Refusal:
    """The write is based on another version, or on another object."""
    message = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return Refusal(409, "Conflict", message, details_of(kind, name))


def forbidden(kind: ServedKind, name: str, why: str, causes: Iterable[Mapping[str, str]] = ()) -> Refusal:
    """The object may not be written now."""
    listed = list(causes)
    details = details_of(kind, name, **({"causes": listed} if listed else {}))
    return Refusal(403, "Forbidden", f'{kind.qualified} "{name}" is forbidden: {why}', details)


def invalid(kind: ServedKind, name: str, field_path: str, why: str, reason: str = "FieldValueInvalid") -> Refusal:
    """One field of the object is wrong."""
    causes = [{"reason": reason, "message": why, "field": field_path}]
    group = f".{kind.group}" if kind.group else ""
    details = {**details_of(kind, name), "kind": kind.name, "causes": causes}
    return Refusal(422, "Invalid", f'{kind.name}{group} "{name}" is invalid: {field_path}: {why}', details)


def bad_request(message: str) -> Refusal:
    """The request itself makes no sense."""
    return Refusal(400, "BadRequest", message)


def expired(message: str) -> Refusal:
    """Return the refusal of a version that was forgotten: list again."""
    return Refusal(410, "Expired", message)


def no_such_method() -> Refusal:
    """The path does not know this method."""
    return Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def no_such_resource() -> Refusal:
    """The group knows no resource of that name."""
    return Refusal(404, "NotFound", "the server could not find the requested resource")


def unknown_media(accepted: Iterable[str]) -> Refusal:
    """The body has a type that is not read."""
    types = ", ".join(accepted)
    text = f"the body of the request was in an unknown format - accepted media types include: {types}"
    return Refusal(415, "UnsupportedMediaType", text)


def too_large() -> Refusal:
    """The body is longer than is read."""
    return Refusal(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MOST_BYTES}")


def unauthorized() -> Refusal:
    """The token is missing or wrong."""
    return Refusal(401, "Unauthorized", "Unauthorized")
