"""One manifest before two judges: a kube-apiserver and the Admission of `skipstone local`. Both give a verdict.

A verdict is what a client can see: the status, the reason, each cause, the warnings, and the object that is stored.
"""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from kubernetes import client
from skipstone_local.admission import Admission, Rejected

JsonObject = dict[str, Any]
#: The key that a sentence names as one that is not accepted.
_CHOSEN = re.compile(r"(?<=does not accept )'[^']*'")
#: What a server sets by itself; admission does not.
OF_THE_SERVER = ("uid", "creationTimestamp", "managedFields", "resourceVersion")
PLURALS = {
    "ConfigMap": "configmaps",
    "Secret": "secrets",
    "Pod": "pods",
    "PersistentVolumeClaim": "persistentvolumeclaims",
}
PLURALS |= {"Warehouse": "warehouses", "Table": "tables", "SecondaryIndex": "secondaryindexes", "LoadJob": "loadjobs"}
PLURALS |= {"Sample": "samples", "MergeJob": "mergejobs", "MergeSchedule": "mergeschedules"}


@dataclass(frozen=True)
class Verdict:
    """What becomes of one manifest. ``causes`` are in order, as maps in Go have none."""

    status: int
    reason: str = ""
    message: str = ""
    causes: tuple[tuple[str, str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    obj: JsonObject | None = None


@dataclass(frozen=True)
class Judges:
    """Both judges."""

    api: client.ApiClient
    admission: Admission

    def create(self, obj: JsonObject, field_validation: str = "Warn") -> tuple[Verdict, Verdict]:
        """Have both judge the creation of ``obj``, which names its namespace."""
        path = self._path(obj)
        by_server = self._ask("POST", path, obj, field_validation)
        return by_server, self._judge(obj, None, "", field_validation)

    def replace(
        self, obj: JsonObject, old: JsonObject, subresource: str = "", field_validation: str = "Warn"
    ) -> tuple[Verdict, Verdict]:
        """Have both judge ``obj`` in the place of ``old``, which the server has stored."""
        path = f"{self._path(old)}/{old['metadata']['name']}" + (f"/{subresource}" if subresource else "")
        by_server = self._ask("PUT", path, obj, field_validation)
        return by_server, self._judge(obj, old, subresource, field_validation)

    def store(self, obj: JsonObject, status: JsonObject | None = None) -> JsonObject:
        """Have the server store ``obj``; return it as the server has it."""
        stored = self._send("POST", self._path(obj), obj)[0]
        if status is not None:
            path = f"{self._path(obj)}/{obj['metadata']['name']}/status"
            stored = self._send("PUT", path, {**stored, "status": status})[0]
        return stored

    def _path(self, obj: JsonObject) -> str:
        group = "apis" if "/" in obj["apiVersion"] else "api"
        return f"/{group}/{obj['apiVersion']}/namespaces/{obj['metadata']['namespace']}/{PLURALS[obj['kind']]}"

    def _ask(self, verb: str, path: str, obj: JsonObject, field_validation: str) -> Verdict:
        query = urlencode({"dryRun": "All", "fieldValidation": field_validation})
        answer, warnings = self._send(verb, f"{path}?{query}", obj)
        if answer["kind"] == "Status":
            return _of_status(answer)
        return Verdict(200, warnings=tuple(sorted(warnings)), obj=_without_server(answer))

    def _send(self, verb: str, path: str, obj: JsonObject) -> tuple[JsonObject, list[str]]:
        """The JSON of the answer, and the texts of its warnings."""
        kinds = {"Content-Type": "application/json", "Accept": "application/json"}
        auth = self.api.configuration.auth_settings().get("BearerToken")
        kinds |= {auth["key"]: auth["value"]} if auth else {}
        url = f"{self.api.configuration.host}{path}"
        answer = self.api.rest_client.request(verb, url, headers=kinds, body=obj)
        found = json.loads(answer.read())
        return found, [_unquoted(text.split(" ", 2)[2]) for text in answer.getheaders().getlist("Warning")]

    def _judge(self, obj: JsonObject, old: JsonObject | None, subresource: str, field_validation: str) -> Verdict:
        given = copy.deepcopy((obj, old))
        try:
            admitted = self.admission.admit(obj, old=old, subresource=subresource, field_validation=field_validation)
        except Rejected as refused:
            status = {"code": refused.status, "reason": refused.reason, "message": refused.message}
            return _of_status({**status, "details": refused.details})
        finally:
            assert (obj, old) == given, "admission changed its arguments"
        return Verdict(200, warnings=tuple(sorted(admitted.warnings)), obj=_without_server(admitted.obj))


def _of_status(status: JsonObject) -> Verdict:
    found = (status.get("details") or {}).get("causes") or []
    causes = tuple(sorted((cause["reason"], cause["message"], cause["field"]) for cause in found))
    return Verdict(status["code"], status["reason"], _in_order(status["message"], causes), causes)


def _in_order(message: str, causes: tuple[tuple[str, str, str], ...]) -> str:
    """Return the message with its parts, which follow the order of maps in Go, in the order of the causes."""
    head, separator, _ = message.partition(" is invalid: ")
    if not separator or not causes:
        return message
    parts = list(dict.fromkeys(f"{field}: {body}" for _, body, field in causes))
    assert all(part in message for part in parts), message
    return f"{head}{separator}{', '.join(parts)}"


def without_choice(verdict: Verdict) -> Verdict:
    """Return the verdict without the names of keys of which a server picks any: maps in Go have no order."""
    causes = tuple(sorted((reason, _CHOSEN.sub("'?'", message), at) for reason, message, at in verdict.causes))
    return replace(verdict, message=_in_order(_CHOSEN.sub("'?'", verdict.message), causes), causes=causes)


def _unquoted(warning: str) -> str:
    return warning[1:-1].replace('\\"', '"').replace("\\\\", "\\")


def _without_server(obj: JsonObject) -> JsonObject:
    metadata = {name: value for name, value in obj["metadata"].items() if name not in OF_THE_SERVER}
    return {**obj, "metadata": metadata}
