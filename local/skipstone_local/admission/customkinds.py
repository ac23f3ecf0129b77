"""Objects of a CRD: what the API server's strategy for custom resources does with them, step by step."""

from __future__ import annotations

import copy
from typing import Any

from skipstone_local.admission.failures import (
    BLOCKING,
    INVALID,
    Admitted,
    Failures,
    FieldFailure,
    JsonObject,
    invalid,
    undecodable,
    unknown_fields,
    without_version,
)
from skipstone_local.admission.metadata.checking import check_metadata, check_update, finalizer_warnings
from skipstone_local.admission.metadata.decoding import DecodingError, decode_metadata
from skipstone_local.admission.metadata.names import subdomain_problems
from skipstone_local.admission.rules.judging import Judgement, judge
from skipstone_local.admission.rules.trees import collect_rules
from skipstone_local.admission.schemas.checking import check
from skipstone_local.admission.schemas.correlation import ABSENT, is_same
from skipstone_local.admission.schemas.nodes import parse_schema
from skipstone_local.admission.schemas.shaping import prune_nulls, prune_unknown, set_defaults
from skipstone_local.admission.schemas.uniqueness import find_duplicates

_NOT_CHECKED = FieldFailure(
    INVALID,
    "",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


class CustomKind:
    """One version of a CRD."""

    def __init__(self, spec: JsonObject, version: JsonObject) -> None:
        """Parse the schema of ``version`` of a CRD's ``spec``; raises UnknownKeywordError or UnsupportedRuleError."""
        self.group, self.version = spec["group"], version["name"]
        self.kind, self.plural = spec["names"]["kind"], spec["names"]["plural"]
        self.root = parse_schema(version["schema"]["openAPIV3Schema"])
        self.rules = collect_rules(self.root)

    def admit(self, obj: JsonObject, old: JsonObject | None, subresource: str, field_validation: str) -> Admitted:
        """Return ``obj`` as it is stored; may change it. Raises Rejected."""
        warnings = self.decode(obj, field_validation)
        if old is None:
            return self._created(obj, warnings)
        if not obj["metadata"].get("resourceVersion"):
            raise without_version(self.group, self.plural, old["metadata"]["name"])
        before = copy.deepcopy(old)
        self.complete(before)
        if subresource == "status":
            return self._status_replaced(obj, before, warnings)
        return self._replaced(obj, before, warnings)

    def complete(self, obj: JsonObject) -> None:
        """Prune and default a stored object by the schema of today, as a read of it does."""
        prune_unknown(obj, self.root)
        prune_nulls(obj, self.root)
        set_defaults(obj, self.root)

    def decode(self, obj: JsonObject, field_validation: str) -> tuple[str, ...]:
        """Prune and default ``obj``, and return the warnings of unknown fields. Raises Rejected."""
        try:
            metadata, unknown = decode_metadata(obj.get("metadata"))
        except DecodingError as error:
            raise undecodable(self.version, self.kind, str(error)) from error
        unknown += prune_unknown(obj, self.root)
        prune_nulls(obj, self.root)
        obj["metadata"] = metadata
        set_defaults(obj, self.root)
        return unknown_fields(self.version, self.kind, unknown, field_validation)

    def _created(self, obj: JsonObject, warnings: tuple[str, ...]) -> Admitted:
        obj.pop("status", None)
        metadata = obj["metadata"]
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
            metadata.pop(name, None)
        metadata["generation"] = 1
        failures = (
            check_metadata(metadata, subdomain_problems) + check(obj, self.root) + find_duplicates(obj, self.root)
        )
        judged = self._judged(obj, ABSENT, failures)
        self._refuse(metadata, failures + judged.failures)
        set_defaults(obj, self.root)
        return Admitted(obj, (*warnings, *finalizer_warnings(metadata, {})))

    def _replaced(self, obj: JsonObject, old: JsonObject, warnings: tuple[str, ...]) -> Admitted:
        if "status" in old:
            obj["status"] = old["status"]
        else:
            obj.pop("status", None)
        metadata = obj["metadata"]
        _keep_metadata(metadata, old["metadata"])
        if not is_same(_without_metadata(obj), _without_metadata(old)):
            metadata["generation"] = old["metadata"].get("generation", 0) + 1
        updated = check_update(metadata, old["metadata"])
        failures = [*check_metadata(metadata, subdomain_problems), *updated, *updated, *check(obj, self.root, old=old)]
        return self._judge_update(obj, old, failures, (*warnings, *finalizer_warnings(metadata, old["metadata"])))

    def _status_replaced(self, obj: JsonObject, old: JsonObject, warnings: tuple[str, ...]) -> Admitted:
        replaced = {**copy.deepcopy(old), "status": obj.get("status")}
        managers = obj["metadata"].get("managedFields")
        replaced["metadata"] |= {"managedFields": managers} if managers else {}
        node, failures = self.root.properties.get("status"), []
        if "status" not in obj:
            del replaced["status"]
        elif node is not None:
            failures = check(obj["status"], node, old=old.get("status", ABSENT), under="status")
        return self._judge_update(replaced, old, failures, warnings)

    def _judge_update(
        self, obj: JsonObject, old: JsonObject, failures: Failures, warnings: tuple[str, ...]
    ) -> Admitted:
        if not find_duplicates(old, self.root):
            failures = failures + find_duplicates(obj, self.root)
        judged = self._judged(obj, old, failures)
        self._refuse(obj["metadata"], failures + judged.failures)
        set_defaults(obj, self.root)
        return Admitted(obj, (*map(str, judged.warnings), *warnings))

    def _judged(self, obj: JsonObject, old: Any, failures: Failures) -> Judgement:
        if any(failure.reason in BLOCKING for failure in failures):
            return Judgement([_NOT_CHECKED])
        return judge(self.rules, obj, old)

    def _refuse(self, metadata: JsonObject, failures: Failures) -> None:
        if failures:
            raise invalid(self.group, self.kind, metadata.get("name", ""), failures)


def _without_metadata(obj: JsonObject) -> JsonObject:
    return {name: value for name, value in obj.items() if name != "metadata"}


def _keep_metadata(metadata: JsonObject, old: JsonObject) -> None:
    """Set what a client cannot change; ``metadata`` is changed."""
    metadata["generation"] = old.get("generation", 0)
    metadata.setdefault("uid", old.get("uid", ""))
    for name in ("creationTimestamp", "deletionTimestamp"):
        if name in old:
            metadata[name] = old[name]
    if "deletionGracePeriodSeconds" in old:
        metadata.setdefault("deletionGracePeriodSeconds", old["deletionGracePeriodSeconds"])
    for name in ("uid", "generation"):
        if not metadata[name]:
            del metadata[name]
