"""A request as the API understands it: which kind, which object, what is asked of it, and its body."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import yaml

from skipstone_local.server.answers.refusals import (
    Refusal,
    bad_request,
    no_such_method,
    no_such_resource,
    unknown_media,
)
from skipstone_local.server.kinds.events import stored_path
from skipstone_local.server.kinds.served import Catalog, ServedKind
from skipstone_local.server.requests import protobuf
from skipstone_local.server.requests.selectors import (
    ALWAYS_SELECTABLE,
    FieldTerm,
    SelectedBy,
    parse_fields,
    parse_labels,
)
from skipstone_local.store import JsonObject, ObjectPlace

JSON = "application/json"
YAML = "application/yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TRUE = ("1", "t", "true", "True", "TRUE")


class NoSuchPath(Exception):
    """Nothing is served at that path."""


@dataclass(frozen=True)
class ApiTarget:
    """The target of a path: a collection (no ``name``), an object or one of its subresources."""

    kind: ServedKind
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def place(self) -> ObjectPlace:
        """Where the store has the object."""
        return ObjectPlace(self.kind.resource, self.namespace, self.name)


@dataclass(frozen=True)
class ApiCall:
    """One request. ``media``: the type of the body; ``accept``: as the header says."""

    method: str
    target: ApiTarget
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    media: str = JSON
    accept: str = ""

    @property
    def kind(self) -> ServedKind:
        """The kind that it is about."""
        return self.target.kind

    @property
    def is_watch(self) -> bool:
        """Return whether it asks for a watch."""
        return self.method == "GET" and not self.target.subresource and self.flag("watch")

    @property
    def is_dry(self) -> bool:
        """Return whether nothing is to be stored, as a parameter says or options of a deletion. Raises Refusal."""
        values = [self.query["dryRun"]] if self.query.get("dryRun") else []
        if self.method == "DELETE":
            asked = self.options().get("dryRun") or []
            values += asked if isinstance(asked, list) else [asked]
        if unknown := [value for value in values if value != "All"]:
            raise bad_request(f'invalid dryRun: "{unknown[0]}" is not All')
        return bool(values)

    def flag(self, name: str) -> bool:
        """Return whether a parameter is true."""
        return self.query.get(name, "") in TRUE

    def number(self, name: str) -> int | None:
        """A parameter that is a number, None when it is missing. Raises Refusal."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not text.isdecimal():
            raise bad_request(f'invalid {name}: strconv.ParseInt: parsing "{text}": invalid syntax')
        return int(text)

    @property
    def selection(self) -> SelectedBy:
        """Return the selection of the collection. Raises Refusal."""
        selectable = (*ALWAYS_SELECTABLE, *self.kind.selectable)
        terms = parse_fields(self.query.get("fieldSelector", ""), selectable)
        fields = [replace(term, path=stored_path(self.kind, term.path)) for term in terms]
        if self.target.name:
            fields.append(FieldTerm("metadata.name", self.target.name, equal=True))
        return SelectedBy(parse_labels(self.query.get("labelSelector", "")), tuple(fields))

    @property
    def field_validation(self) -> str:
        """How unknown fields are taken: Ignore, Warn or Strict. Raises Refusal."""
        value = self.query.get("fieldValidation", "") or "Warn"
        if value not in ("Ignore", "Warn", "Strict"):
            raise bad_request(f'invalid fieldValidation: "{value}" is not Ignore, Warn or Strict')
        return value

    def document(self) -> JsonObject:
        """The body as an object. Raises Refusal."""
        if self.media == protobuf.MEDIA:
            return protobuf.read_message(self.body)
        if self.media not in (JSON, YAML, ""):
            raise unknown_media((JSON, YAML))
        return read_object(self.body, is_yaml=self.media == YAML)

    def options(self) -> JsonObject:
        """The body as options, which may be missing."""
        return self.document() if self.body.strip() else {}


def read_object(body: bytes, *, is_yaml: bool = False) -> JsonObject:
    """The JSON or YAML object in a body. Raises Refusal."""
    value = read_value(body, is_yaml=is_yaml)
    if not isinstance(value, dict):
        raise bad_request("the body of the request is not an object")
    return value


def read_map(obj: JsonObject, name: str) -> JsonObject:
    """A field that holds a map; an empty one when it is missing. Raises Refusal."""
    value = obj.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise bad_request(f"{name} is not an object")
    return value


def read_value(body: bytes, *, is_yaml: bool = False) -> object:
    """The JSON or YAML value in a body. Raises Refusal."""
    try:
        text = body.decode()
        value: object = (
            yaml.safe_load(text) if is_yaml else json.loads(text, parse_constant=_no_constant, parse_float=_finite)
        )
        # What UTF-8 cannot say and what JSON does not know: half characters, and dates of YAML.
        if is_yaml or b"\\u" in body:
            value = json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace"))
    except (ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise bad_request(f"the body of the request could not be decoded: {error}") from error
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"invalid number {name}")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_constant(text)


def read_target(path: str, catalog: Catalog) -> ApiTarget:
    """Return the target of a path below /api or /apis. Raises NoSuchPath, Refusal."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise NoSuchPath(path)
    if not catalog.within(group, version):
        raise NoSuchPath(path)
    if rest[0] == "namespaces" and len(rest) >= 3 and not _is_own_subresource(catalog, group, version, rest):
        return _read_rest(rest[2:], rest[1], catalog.find(group, version, rest[2]))
    return _read_rest(rest, "", catalog.find(group, version, rest[0]))


def _is_own_subresource(catalog: Catalog, group: str, version: str, rest: list[str]) -> bool:
    namespaces = catalog.find(group, version, "namespaces")
    return namespaces is not None and len(rest) == 3 and rest[2] in namespaces.subresources


def _read_rest(rest: list[str], namespace: str, kind: ServedKind | None) -> ApiTarget:
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    if kind is None or len(rest) > 3 or (subresource and subresource not in kind.subresources):
        raise no_such_resource()
    if namespace and not kind.namespaced:
        raise no_such_resource()
    if name and kind.namespaced and not namespace:
        raise no_such_resource()
    return ApiTarget(kind, namespace, name, subresource)


def check_method(call: ApiCall) -> None:
    """Raise Refusal when the path does not know the method."""
    if call.method not in _methods(call.target):
        raise no_such_method()


def _methods(target: ApiTarget) -> tuple[str, ...]:
    if target.kind.name.startswith("SelfSubject") or target.subresource in ("binding", "eviction", "token"):
        return ("POST",)
    if target.subresource == "log":
        return ("GET",)
    if target.subresource:
        return ("GET", "PUT", "PATCH")
    if target.name:
        return ("GET", "PUT", "PATCH", "DELETE")
    return ("GET",) if target.kind.namespaced and not target.namespace else ("GET", "POST", "DELETE")


__all__ = [
    "APPLY_PATCH",
    "JSON",
    "JSON_PATCH",
    "MERGE_PATCH",
    "STRATEGIC_PATCH",
    "YAML",
    "ApiCall",
    "ApiTarget",
    "NoSuchPath",
    "Refusal",
    "check_method",
    "read_object",
    "read_target",
    "read_value",
]  # fmt: skip
