"""Creates a LoadJob or MergeJob and waits until it has ended. Used by the Airflow and the Dagster example beside it.

Needs the package `kubernetes`, and the rights of the Role `skipstone-user`.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Any

from kubernetes import client, watch

GROUP, VERSION = "skipstone.dev", "v1alpha1"
PLURALS = {"LoadJob": "loadjobs", "MergeJob": "mergejobs"}
#: What a job was made from, so that a task that is tried again finds its own job and no other one.
DIGEST = "example.com/spec-digest"
Manifest = dict[str, Any]


def run_job(api: client.CustomObjectsApi, namespace: str, manifest: Manifest, *, seconds: int = 3600) -> Manifest:
    """The status of the job when it is Complete.

    A job that is there already is waited for, so that the call may be repeated. Raises RuntimeError if the job failed,
    was deleted, or is there with another spec, and TimeoutError if it has not ended within ``seconds``;
    the job goes on then.
    """
    plural, name = PLURALS[manifest["kind"]], manifest["metadata"]["name"]
    digest = hashlib.sha256(json.dumps(manifest["spec"], sort_keys=True).encode()).hexdigest()
    body = {"apiVersion": f"{GROUP}/{VERSION}", **manifest}
    body["metadata"] = {**manifest["metadata"], "annotations": {DIGEST: digest}}
    try:
        api.create_namespaced_custom_object(GROUP, VERSION, namespace, plural, body)
    except client.ApiException as error:
        if error.status != 409:
            raise
    return _wait(api, (GROUP, VERSION, namespace, plural), name, digest, time.monotonic() + seconds)


def _wait(
    api: client.CustomObjectsApi, place: tuple[str, str, str, str], name: str, digest: str, until: float
) -> Manifest:
    while (left := int(until - time.monotonic())) > 0:
        listing = watch.Watch().stream(
            api.list_namespaced_custom_object,
            *place,
            field_selector=f"metadata.name={name}",
            timeout_seconds=min(left, 300),
        )
        for event in listing:
            job = event["object"]
            if event["type"] == "DELETED":
                raise RuntimeError(f"{name} was deleted before it ended: create it again")
            if job["metadata"].get("annotations", {}).get(DIGEST) != digest:
                raise RuntimeError(f"{name} is there with another spec: give each change of the spec a name of its own")
            status = job.get("status", {})
            held = {
                condition["type"]: condition
                for condition in status.get("conditions", [])
                if condition["status"] == "True"
            }
            if "Complete" in held:
                return status
            if "Failed" in held:
                raise RuntimeError(f"{name} failed: {held['Failed']['reason']}: {held['Failed']['message']}")
    raise TimeoutError(f"{name} has not ended in time: see `skipstone why` of it")
