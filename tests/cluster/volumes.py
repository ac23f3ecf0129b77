"""Storage for the test cluster: static PersistentVolumes that are folders of this machine.

Called by the command line and by end-to-end tests. There is no provisioner: a claim names its volume.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from tests.cluster.controlplane import ControlPlane
from tests.cluster.errors import ClusterError

APPLICATION_USER = 10001


def create_volume(plane: ControlPlane, name: str, *, size: str = "20Gi", empty: bool = False) -> Path:
    """Create the PersistentVolume `name`, or find it, and return its folder on this machine.

    The folder belongs to the user that the project's images run as (hostPath ignores fsGroup). With `empty` the
    folder's content is removed first. A claim takes the volume by storageClassName "" and volumeName `name`, or by
    nothing but its size. The volume is for one node: a shared one is no place for an SQLite catalog.
    Raises ClusterError for a name that Kubernetes would not take.
    """
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise ClusterError(f"the volume name {name!r} must be 1 to 63 lower-case letters, digits or dashes")
    folder = plane.state.volumes / name
    if empty:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.chown(folder, APPLICATION_USER, APPLICATION_USER)
    folder.chmod(0o777)
    plane.kubectl("apply", "--filename", "-", text_input=json.dumps(_render_volume(name, size, folder)))
    return folder


def delete_volume(plane: ControlPlane, name: str) -> None:
    """Delete the PersistentVolume `name` and its folder."""
    plane.kubectl("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")
    shutil.rmtree(plane.state.volumes / name, ignore_errors=True)


def _render_volume(name: str, size: str, folder: Path) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "hostPath": {"path": str(folder), "type": "Directory"},
        },
    }
