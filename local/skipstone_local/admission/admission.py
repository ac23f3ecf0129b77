"""The door of the store: what an API server prunes, defaults, warns of and refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from skipstone_local.admission.builtin.kinds import admit_builtin, decode_builtin
from skipstone_local.admission.customkinds import CustomKind
from skipstone_local.admission.definitions import load_definitions
from skipstone_local.admission.failures import Admitted, JsonObject
from skipstone_local.admission.gotext import INT64, normalize


class Admission:
    """Judges objects as a kube-apiserver with Skipstone's CRDs does. Holds no state; threads may share it."""

    def __init__(self, kinds: Mapping[str, CustomKind]) -> None:
        """Judge objects whose "apiVersion kind" is among ``kinds`` by their schemas, all others as Kubernetes' own."""
        self._kinds = kinds

    @classmethod
    def load(cls, definitions: tuple[JsonObject, ...] | None = None) -> Admission:
        """Return an Admission for CustomResourceDefinitions, those of this package unless others are given.

        Raises UnknownKeywordError and UnsupportedRuleError for a schema that it cannot enforce.
        """
        kinds = {}
        for definition in load_definitions() if definitions is None else definitions:
            spec = definition["spec"]
            for version in spec["versions"]:
                kind = CustomKind(spec, version)
                kinds[f"{kind.group}/{kind.version} {kind.kind}"] = kind
        return cls(kinds)

    def admit(
        self, obj: JsonObject, *, old: JsonObject | None = None, subresource: str = "", field_validation: str = "Warn"
    ) -> Admitted:
        """Return ``obj`` as it is to be stored, and what its client is warned of; the arguments stay as they are.

        Args:
            obj: the object as a client sent it, with its name, namespace and, for an update, resourceVersion.
            old: the stored object that it takes the place of; None when it is created.
            subresource: "status" when only the status is replaced.
            field_validation: Strict refuses unknown fields, Warn warns of them, Ignore drops them.

        Raises:
            Rejected: the object is refused; the exception holds the fields of a Status.
        """
        taken = _taken(obj)
        kind = self._kinds.get(f"{obj.get('apiVersion')} {obj.get('kind')}")
        if kind is None:
            admitted = admit_builtin(taken, old, subresource, field_validation)
        else:
            admitted = kind.admit(taken, old, subresource, field_validation)
        return Admitted(normalize(admitted.obj), admitted.warnings)

    def decode(self, obj: JsonObject, *, field_validation: str = "Warn") -> tuple[str, ...]:
        """Judge the types of metadata and unknown fields alone, in an object as its client sent it; return warnings.

        For a server that sets metadata before it asks ``admit``. Raises Rejected.
        """
        kind, taken = self._kinds.get(f"{obj.get('apiVersion')} {obj.get('kind')}"), _taken(obj)
        return kind.decode(taken, field_validation) if kind else decode_builtin(taken, field_validation)

    def complete(self, obj: JsonObject) -> JsonObject:
        """Return a stored object as a read gives it: pruned and defaulted by the schema of today."""
        kind = self._kinds.get(f"{obj.get('apiVersion')} {obj.get('kind')}")
        if kind is None:
            return obj
        completed: JsonObject = _taken(obj)
        kind.complete(completed)
        return completed


def _taken(value: Any) -> Any:
    """Return a copy in which numbers are as Go decodes them: whole ones of over 64 bits are floats."""
    if isinstance(value, dict):
        return {key: _taken(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_taken(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) and value not in INT64 else value
