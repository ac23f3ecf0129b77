"""What is wrong with an object: one failure for each field, and the refusal that carries them all. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from skipstone_local.admission.gotext import print_value, quote, to_json

JsonObject = dict[str, Any]
NOT_FOUND = "FieldValueNotFound"
REQUIRED = "FieldValueRequired"
DUPLICATE = "FieldValueDuplicate"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
TYPE_INVALID = "FieldValueTypeInvalid"
#: Failures that keep rules from being judged.
BLOCKING = frozenset({NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID})
_TITLES = {
    NOT_FOUND: "Not found",
    REQUIRED: "Required value",
    DUPLICATE: "Duplicate value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    TYPE_INVALID: "Invalid value",
}
_WITHOUT_VALUE = frozenset({REQUIRED, FORBIDDEN, TOO_LONG})
#: What Go prints for a path that is not there.
NOWHERE = "<nil>"


class Verbatim(str):
    """A value that is shown as it is."""

    __slots__ = ()


class Cause(NamedTuple):
    """One cause in the details of a Status."""

    reason: str
    message: str
    field: str


@dataclass(frozen=True, slots=True)
class FieldFailure:
    """One thing that is wrong: ``reason`` as in a cause, ``field`` as a path."""

    reason: str
    field: str
    value: object = ""
    detail: str = ""

    @property
    def body(self) -> str:
        """The message without the field."""
        text = _TITLES[self.reason]
        if self.reason not in _WITHOUT_VALUE:
            text += f": {_shown(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        """The message with the field."""
        return f"{self.field or NOWHERE}: {self.body}"


Failures = list[FieldFailure]


def _shown(value: object) -> str:
    if isinstance(value, Verbatim):
        return value
    if isinstance(value, str):
        return quote(value)
    return print_value(value) if isinstance(value, bool | int | float) else to_json(value)


def too_long(path: str, limit: int) -> FieldFailure:
    """Return the failure of a text of more than ``limit`` characters."""
    return FieldFailure(TOO_LONG, path, detail=f"may not be more than {limit} byte{'' if limit == 1 else 's'}")


def too_many(path: str, actual: int, limit: int) -> FieldFailure:
    """Return the failure of a list or a map of more than ``limit`` items."""
    return FieldFailure(TOO_MANY, path, actual, f"must have at most {limit} item{'' if limit == 1 else 's'}")


def unsupported(path: str, value: object, supported: tuple[str, ...]) -> FieldFailure:
    """Return the failure of a value that is not among ``supported``."""
    return FieldFailure(NOT_SUPPORTED, path, value, f"supported values: {', '.join(map(quote, supported))}")


@dataclass(frozen=True)
class Admitted:
    """An object as it is stored, and what the client is warned of."""

    obj: JsonObject
    warnings: tuple[str, ...] = ()


@dataclass
class Rejected(Exception):
    """An object that is refused; the fields are those of a Status. ``causes`` are (reason, message, field)."""

    status: int
    reason: str
    message: str
    causes: tuple[Cause, ...] = ()
    group: str = ""
    kind: str = ""
    name: str = ""

    def __str__(self) -> str:
        """The message."""
        return self.message

    @property
    def details(self) -> JsonObject:
        """The details of the Status."""
        named = {"name": self.name, "group": self.group, "kind": self.kind}
        causes = [dict(zip(("reason", "message", "field"), cause, strict=True)) for cause in self.causes]
        details: JsonObject = {key: value for key, value in named.items() if value}
        return details | ({"causes": causes} if causes else {})


def invalid(group: str, kind: str, name: str, failures: Failures) -> Rejected:
    """Return the refusal of an object for ``failures``, which are not empty."""
    messages = list(dict.fromkeys(map(str, failures)))
    whole = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    qualified = f"{kind}.{group}" if group else kind
    causes = tuple(Cause(failure.reason, failure.body, failure.field or NOWHERE) for failure in failures)
    message = f"{qualified} {quote(name)} is invalid: {whole}"
    return Rejected(422, "Invalid", message, causes, group, kind, name)


def without_version(group: str, plural: str, name: str) -> Rejected:
    """Return the refusal of an update that does not say which version it changes."""
    failure = FieldFailure(INVALID, "metadata.resourceVersion", 0, "must be specified for an update")
    return invalid(group, plural, name, [failure])


def unknown_fields(api_version: str, kind: str, paths: list[str], field_validation: str) -> tuple[str, ...]:
    """Return what a client is warned of, as ``field_validation`` says; raises Rejected when that is Strict."""
    warnings = tuple(f'unknown field "{path}"' for path in paths)
    if warnings and field_validation == "Strict":
        raise undecodable(api_version, kind, f"strict decoding error: {', '.join(warnings)}")
    return warnings if field_validation == "Warn" else ()


def undecodable(api_version: str, kind: str, problem: str) -> Rejected:
    """Return the refusal of an object whose JSON does not fit its type."""
    version = api_version.rpartition("/")[2]
    message = f"{kind} in version {quote(version)} cannot be handled as a {kind}: {problem}"
    return Rejected(400, "BadRequest", message)
