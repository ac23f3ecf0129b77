"""PersistentVolumeClaims: access modes and a size, which alone may change. Pure but for defaults."""

from __future__ import annotations

from skipstone_local.admission.builtin.shapes import AMOUNTS, ANY, TEXT
from skipstone_local.admission.failures import (
    FORBIDDEN,
    INVALID,
    REQUIRED,
    Failures,
    FieldFailure,
    JsonObject,
    unsupported,
)
from skipstone_local.admission.quantities import parse_quantity

CLAIM = {
    "metadata": ANY,
    "spec": {
        "accessModes": [TEXT],
        "resources": {"requests": AMOUNTS, "limits": AMOUNTS},
        **dict.fromkeys(("storageClassName", "volumeMode", "volumeName"), TEXT),
    },
    "status": {},
}
_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_SIZE = "spec.resources[storage]"
_FIXED = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def complete_claim(obj: JsonObject) -> None:
    """Set the volume mode and the phase of a new claim."""
    spec = obj.setdefault("spec", {}) or {}
    obj["spec"] = {"volumeMode": "Filesystem"} | spec
    obj.setdefault("status", {"phase": "Pending"})


def check_claim(obj: JsonObject, old: JsonObject | None) -> Failures:
    """Return what is wrong with a PersistentVolumeClaim."""
    spec = obj["spec"]
    modes = spec.get("accessModes") or []
    failures = (
        [] if modes else [FieldFailure(REQUIRED, "spec.accessModes", detail="at least 1 access mode is required")]
    )
    failures += [unsupported("spec.accessModes", mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and len(set(modes) & set(_MODES)) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        failures.append(FieldFailure(FORBIDDEN, "spec.accessModes", detail=detail))
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is None:
        failures.append(FieldFailure(REQUIRED, _SIZE))
    elif parse_quantity(str(size)) <= 0:
        failures.append(FieldFailure(INVALID, _SIZE, str(size), "must be greater than zero"))
    if spec["volumeMode"] not in ("Block", "Filesystem"):
        failures.append(unsupported("spec.volumeMode", spec["volumeMode"], ("Block", "Filesystem")))
    changeable = {"volumeName"} if old and not old.get("spec", {}).get("volumeName") else set()
    changeable |= {"resources"} if old and (old.get("status") or {}).get("phase") == "Bound" else set()
    if old is not None and _fixed_part(spec, changeable) != _fixed_part(old.get("spec", {}), changeable):
        failures.append(FieldFailure(FORBIDDEN, "spec", detail=_FIXED))
    return failures


def _fixed_part(spec: JsonObject, changeable: set[str]) -> JsonObject:
    return {name: value for name, value in spec.items() if name not in changeable}
