"""ConfigMaps and Secrets: keys, sizes, base64, and what never changes. Pure but for defaults."""

from __future__ import annotations

import base64
import binascii
import re

from skipstone_local.admission.builtin.shapes import ANY, FLAG, TEXT, TEXTS
from skipstone_local.admission.failures import FORBIDDEN, INVALID, Failures, FieldFailure, JsonObject, too_long
from skipstone_local.admission.metadata.decoding import DecodingError
from skipstone_local.admission.metadata.names import config_key_problems

CONFIG_MAP = {"data": TEXTS, "binaryData": TEXTS, "immutable": FLAG, "metadata": ANY}
SECRET = {"data": TEXTS, "stringData": TEXTS, "immutable": FLAG, "type": TEXT, "metadata": ANY}
_NOT_BASE64 = re.compile(r"[^A-Za-z0-9+/=\r\n]")
MOST = 1024 * 1024
_FIXED = "field is immutable when `immutable` is set"


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        wrong = _NOT_BASE64.search(value)
        raise DecodingError(f"illegal base64 data at input byte {wrong.start() if wrong else len(value)}") from error


def complete_config_map(obj: JsonObject) -> None:
    """Drop empty entries; raises DecodingError for binary data that is not base64."""
    _drop_nulls(obj, ("data", "binaryData"))
    for value in obj.get("binaryData", {}).values():
        _decoded(value)


def complete_secret(obj: JsonObject) -> None:
    """Move stringData into data and set the type; raises DecodingError for data that is not base64."""
    _drop_nulls(obj, ("data", "stringData"))
    for value in obj.get("data", {}).values():
        _decoded(value)
    plain = {key: base64.b64encode(text.encode()).decode() for key, text in obj.pop("stringData", {}).items()}
    if plain:
        obj["data"] = obj.get("data", {}) | plain
    obj["type"] = obj.get("type") or "Opaque"


def _drop_nulls(obj: JsonObject, names: tuple[str, ...]) -> None:
    for name in names:
        if not obj.get(name, True):
            del obj[name]
        elif name in obj:
            obj[name] = {key: value or "" for key, value in obj[name].items()}


def check_config_map(obj: JsonObject, old: JsonObject | None) -> Failures:
    """Return what is wrong with a ConfigMap."""
    data, binary = obj.get("data", {}), obj.get("binaryData", {})
    failures = _check_fixed(obj, old, ("data", "binaryData")) if old and old.get("immutable") else []
    for key in data:
        failures += _check_key("data", key)
        if key in binary:
            failures.append(FieldFailure(INVALID, f"data[{key}]", key, "duplicate of key present in binaryData"))
    for key in binary:
        failures += _check_key("binaryData", key)
    size = sum(len(text.encode()) for text in data.values())
    size += sum(len(_decoded(text)) for text in binary.values())
    return [*failures, too_long("[]", MOST)] if size > MOST else failures


def check_secret(obj: JsonObject, old: JsonObject | None) -> Failures:
    """Return what is wrong with a Secret."""
    data = obj.get("data", {})
    failures: Failures = []
    if old and obj["type"] != old.get("type"):
        failures.append(FieldFailure(INVALID, "type", obj["type"], "field is immutable"))
    failures += _check_fixed(obj, old, ("data",)) if old and old.get("immutable") else []
    for key in data:
        failures += _check_key("data", key)
    size = sum(len(_decoded(text)) for text in data.values())
    return [*failures, too_long("data", MOST)] if size > MOST else failures


def _check_key(field: str, key: str) -> Failures:
    return [FieldFailure(INVALID, f"{field}[{key}]", key, problem) for problem in config_key_problems(key)]


def _check_fixed(obj: JsonObject, old: JsonObject, names: tuple[str, ...]) -> Failures:
    changed = [] if obj.get("immutable") else ["immutable"]
    changed += [name for name in names if obj.get(name) != old.get(name)]
    return [FieldFailure(FORBIDDEN, name, detail=_FIXED) for name in changed]
