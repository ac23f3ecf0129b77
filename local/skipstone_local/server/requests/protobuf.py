"""Bodies that kubectl's own commands send in Kubernetes' binary form: the few messages that `kubectl create` needs."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from skipstone_local.server.answers.refusals import bad_request, unknown_media
from skipstone_local.store import JsonObject

MEDIA = "application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\x00"
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Field:
    """A field of a message: its name in JSON and its type: str, bytes, bool, int or the name of a message.

    ``shape``: one, many, or map of texts to the type.
    """

    name: str
    type: str = "str"
    shape: str = "one"


def _meta(**more: Field) -> dict[int, Field]:
    return {1: Field("metadata", "ObjectMeta"), **{int(number[1:]): field for number, field in more.items()}}


#: Fields by message and number. Fields that are not listed are left out.
MESSAGES: Mapping[str, Mapping[int, Field]] = {
    "Unknown": {1: Field("typeMeta", "TypeMeta"), 2: Field("raw", "raw")},
    "TypeMeta": {1: Field("apiVersion"), 2: Field("kind")},
    "ObjectMeta": {
        1: Field("name"), 2: Field("generateName"), 3: Field("namespace"), 11: Field("labels", shape="map"),
        12: Field("annotations", shape="map"), 13: Field("ownerReferences", "OwnerReference", "many"),
        14: Field("finalizers", shape="many"),
    },
    "OwnerReference": {
        1: Field("kind"), 3: Field("name"), 4: Field("uid"), 5: Field("apiVersion"), 6: Field("controller", "bool"),
        7: Field("blockOwnerDeletion", "bool"),
    },
    "Namespace": _meta(),
    "ConfigMap": _meta(
        _2=Field("data", shape="map"), _3=Field("binaryData", "bytes", "map"), _4=Field("immutable", "bool")
    ),
    "Secret": _meta(
        _2=Field("data", "bytes", "map"), _3=Field("type"), _4=Field("stringData", shape="map"),
        _5=Field("immutable", "bool"),
    ),
    "ServiceAccount": _meta(),
    "ResourceQuota": _meta(_2=Field("spec", "QuotaSpec")),
    "QuotaSpec": {1: Field("hard", "Quantity", "map")},
    "Quantity": {1: Field("string")},
    "Role": _meta(_2=Field("rules", "PolicyRule", "many")),
    "PolicyRule": {
        number: Field(name, shape="many")
        for number, name in enumerate(("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"), 1)
    },
    "RoleBinding": _meta(_2=Field("subjects", "Subject", "many"), _3=Field("roleRef", "RoleRef")),
    "Subject": {1: Field("kind"), 2: Field("apiGroup"), 3: Field("name"), 4: Field("namespace")},
    "RoleRef": {1: Field("apiGroup"), 2: Field("kind"), 3: Field("name")},
    "TokenRequest": _meta(_2=Field("spec", "TokenSpec")),
    "TokenSpec": {3: Field("boundObjectRef", "BoundObject"), 4: Field("expirationSeconds", "int")},
    "BoundObject": {1: Field("kind"), 2: Field("apiVersion"), 3: Field("name"), 4: Field("uid")},
    "SelfSubjectAccessReview": _meta(_2=Field("spec", "AccessSpec")),
    "SelfSubjectRulesReview": _meta(),
    "SelfSubjectReview": _meta(),
    "AccessSpec": {1: Field("resourceAttributes", "AccessAttributes")},
    "AccessAttributes": {1: Field("namespace"), 2: Field("verb"), 3: Field("group"), 5: Field("resource")},
    "DeleteOptions": {},
}  # fmt: skip


def read_message(body: bytes) -> JsonObject:
    """The object in a body. Raises Refusal for a kind that is not known here, and for a body that is cut."""
    if not body.startswith(MAGIC):
        raise bad_request("the body of the request is not in the binary form of Kubernetes")
    try:
        envelope = _message(body[len(MAGIC) :], "Unknown")
        about = envelope.get("typeMeta", {})
        if about.get("kind") not in MESSAGES:
            raise unknown_media(("application/json", "application/yaml"))
        return {**about, **_message(envelope.get("raw", b""), about["kind"])}
    except (IndexError, UnicodeDecodeError, ValueError) as error:
        raise bad_request(f"the body of the request could not be decoded: {error}") from error


def _message(data: bytes, name: str) -> JsonObject:
    message: JsonObject = {}
    for number, value in _pieces(data):
        field = MESSAGES[name].get(number)
        if field is None:
            continue
        if field.shape == "map" and isinstance(value, bytes):
            key, inner = _entry(value, field.type)
            message.setdefault(field.name, {})[key] = inner
        elif field.shape == "many":
            message.setdefault(field.name, []).append(_value(value, field.type))
        else:
            message[field.name] = _value(value, field.type)
    return message


def _entry(data: bytes, type_: str) -> tuple[str, object]:
    pieces = dict(_pieces(data))
    return str(_value(pieces.get(1, b""), "str")), _value(pieces.get(2, b""), type_)


def _value(value: int | bytes, type_: str) -> object:
    if isinstance(value, int):
        return bool(value) if type_ == "bool" else value
    if type_ == "str":
        return value.decode()
    if type_ == "bytes":
        return base64.b64encode(value).decode()
    if type_ == "raw":
        return value
    inner = _message(value, type_)
    return inner.get("string", "") if type_ == "Quantity" else inner


def _pieces(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number and value."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        length = {FIXED64: 8, FIXED32: 4}.get(kind)
        if kind == BYTES:
            length, at = _varint(data, at)
        if length is None or at + length > len(data):
            raise ValueError("a field of the message is cut")
        yield tag >> 3, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number of the message is too long")
