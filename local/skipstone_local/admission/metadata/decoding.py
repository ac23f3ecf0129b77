"""ObjectMeta as JSON: wrong types are refused, unknown fields are dropped and named, empty ones are dropped. Pure."""

from __future__ import annotations

import datetime
from typing import Any

from skipstone_local.admission.failures import JsonObject
from skipstone_local.admission.gotext import print_float

_TEXT, _NUMBER, _FLAG, _TIME, _RAW = "string", "int64", "bool", "Time", "raw"
_TEXTS = "map[string]string"
_OWNER = {"apiVersion": _TEXT, "kind": _TEXT, "name": _TEXT, "uid": _TEXT} | dict.fromkeys(
    ("controller", "blockOwnerDeletion"), _FLAG
)
_MANAGER = dict.fromkeys(("manager", "operation", "apiVersion", "fieldsType", "subresource"), _TEXT) | {
    "time": _TIME,
    "fieldsV1": _RAW,
}
_FIELDS: dict[str, Any] = {
    **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _TEXT),
    **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _NUMBER),
    **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _TIME),
    **dict.fromkeys(("labels", "annotations"), _TEXTS),
    "ownerReferences": [_OWNER],
    "finalizers": [_TEXT],
    "managedFields": [_MANAGER],
}
_STRUCTS = {id(_OWNER): "v1.OwnerReference", id(_MANAGER): "v1.ManagedFieldsEntry"}
#: Texts and numbers of these are kept when they are empty.
_KEPT = frozenset({"apiVersion", "kind", "name", "uid"})
_WANTED = {_TEXT: str, _FLAG: bool}


class DecodingError(ValueError):
    """A field of the metadata has a type that does not fit; the text is Go's."""


def decode_metadata(value: object, where: str = "ObjectMeta") -> tuple[JsonObject, list[str]]:
    """Return the metadata as it is stored, and the paths of unknown fields.

    Raises DecodingError, in which ``where`` is how Go calls the place.
    """
    unknown: list[str] = []
    if value is None:
        return {}, unknown
    if not isinstance(value, dict):
        raise DecodingError(f"json: cannot unmarshal {_json_type(value)} into Go value of type v1.ObjectMeta")
    return _object(value, _FIELDS, "metadata", where, unknown), unknown


def _object(members: JsonObject, fields: dict[str, Any], path: str, where: str, unknown: list[str]) -> JsonObject:
    result = {}
    for name, value in members.items():
        if name not in fields:
            unknown.append(f"{path}.{name}")
        elif value is not None:
            decoded = _value(value, fields[name], f"{path}.{name}", f"{where}.{name}", unknown)
            is_kept = fields is not _FIELDS and name in _KEPT
            if name != "selfLink" and (is_kept or decoded is False or decoded not in ("", 0, [], {})):
                result[name] = decoded
    return result


def _value(value: Any, wanted: Any, path: str, where: str, unknown: list[str]) -> Any:
    if isinstance(wanted, list):
        return _list(value, wanted[0], path, where, unknown)
    if wanted == _TEXTS:
        return _texts(value, where)
    if wanted == _NUMBER:
        return _number(value, where)
    if wanted == _TIME:
        return _time(value, where)
    if wanted == _RAW or isinstance(value, _WANTED[wanted]):
        return value
    raise _mismatch(value, where, wanted)


def _list(value: Any, wanted: Any, path: str, where: str, unknown: list[str]) -> list[Any]:
    if not isinstance(value, list):
        raise _mismatch(value, where, f"[]{_STRUCTS.get(id(wanted), wanted)}")
    if isinstance(wanted, str):
        return [_value("" if item is None else item, wanted, path, where, unknown) for item in value]
    items = []
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            raise _mismatch(item, where, _STRUCTS[id(wanted)])
        kept = {name: "" for name in wanted if name in _KEPT} if wanted is _OWNER else {}
        items.append(kept | _object(item or {}, wanted, f"{path}[{index}]", where, unknown))
    return items


def _texts(value: Any, where: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _mismatch(value, where, _TEXTS)
    for item in value.values():
        if item is not None and not isinstance(item, str):
            raise _mismatch(item, where, _TEXT)
    return {key: item or "" for key, item in value.items()}


def _number(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    shown = f"number {print_float(value)}" if isinstance(value, float) else _json_type(value)
    raise DecodingError(f"json: cannot unmarshal {shown} into Go struct field {where} of type {_NUMBER}")


def _time(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise DecodingError(f"json: cannot unmarshal {_json_type(value)} into Go value of type string")
    try:
        moment = datetime.datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise DecodingError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse "{value}" as "2006"')
    return f"{moment.astimezone(datetime.UTC).replace(microsecond=0, tzinfo=None).isoformat()}Z"


def _mismatch(value: Any, where: str, wanted: str) -> DecodingError:
    return DecodingError(f"json: cannot unmarshal {_json_type(value)} into Go struct field {where} of type {wanted}")


def _json_type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
