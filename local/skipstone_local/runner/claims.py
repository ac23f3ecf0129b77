"""PersistentVolumeClaims as folders of this machine: made, and told to be bound.

What a claim holds stays when the claim is deleted; a new claim of the same name finds it.
"""

from __future__ import annotations

from typing import Any

from skipstone_local.places import RootFolder
from skipstone_local.runner.api import MERGE_PATCH, ApiError, Client
from skipstone_local.runner.environment import JsonObject


def bind_claim(claim: JsonObject, root: RootFolder, client: Client) -> None:
    """Make the claim's folder, and say that it is bound. Raises ApiError and OSError."""
    metadata = claim["metadata"]
    if metadata.get("deletionTimestamp"):
        return
    root.claim(metadata["namespace"], metadata["name"]).mkdir(parents=True, exist_ok=True)
    status = build_claim_status(claim)
    before = claim.get("status") or {}
    if all(before.get(name) == value for name, value in status.items()):
        return
    path = f"/api/v1/namespaces/{metadata['namespace']}/persistentvolumeclaims/{metadata['name']}/status"
    answer = client.request("PATCH", path, {"metadata": {"uid": metadata["uid"]}, "status": status}, MERGE_PATCH)
    if not answer.ok and answer.status not in (404, 409):
        raise ApiError(f"claim {metadata['name']}: {answer.status} {answer.body.get('message', '')}")


def build_claim_status(claim: JsonObject) -> dict[str, Any]:
    """The status of a claim that got what it asks for."""
    spec = claim["spec"]
    requested = (spec.get("resources") or {}).get("requests") or {}
    return {"phase": "Bound", "accessModes": spec.get("accessModes") or [], "capacity": requested}
