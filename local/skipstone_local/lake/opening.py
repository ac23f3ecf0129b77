"""Opens a folder as a lake: who serves it, its Warehouse, and the data plane that reads."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path

from skipstone_cli.cluster.kubeconfig import Access, load_login
from skipstone_cli.cluster.transport import Transport
from skipstone_cli.errors import CliError
from skipstone_cli.kinds import API_VERSION, WAREHOUSE
from skipstone_cli.reading import JsonObject, entries_of, name_of, text_of
from skipstone_core.errors import LakeError

from skipstone_local.client.manifests import read_manifests
from skipstone_local.client.objects import Objects, Selection
from skipstone_local.lake.lakes import Lake, LakeParts, make_lake
from skipstone_local.lake.reading import TableReader
from skipstone_local.lake.serving import NOT_SERVED, WAY_OUT, LakeService
from skipstone_local.lake.settling import Requests
from skipstone_local.places import RootFolder
from skipstone_local.up.roots import BadRoot, check_root

NAMESPACE = "default"
#: The Warehouse and its claim in a folder that has none.
DEFAULT_NAME = "lake"
CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": DEFAULT_NAME},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Ti"}}},
}
#: Cores that its drivers use at most, and bytes of the machine's memory for each of them.
MOST_CORES, CORE_BYTES = 8, 2 * 1024**3


def open_lake(
    path: str | os.PathLike[str], reader: TableReader, *, warehouse: str = "", namespace: str = NAMESPACE
) -> Lake:
    """The lake in a folder, which is made if it is not there. Raises LakeError.

    ``warehouse``: a name, or the path of a manifest; empty: the only one, or a new one with SQLite. ``namespace``: of
    all objects.
    """
    root = RootFolder(Path(path).expanduser().absolute())
    try:
        check_root(root)
    except BadRoot as error:
        raise LakeError("InvalidSpec", error.sentence, "open another folder") from error
    except OSError as error:
        raise LakeError(NOT_SERVED, f"{path} cannot be served: {error}", WAY_OUT) from error
    with ExitStack() as failing:
        service = LakeService(root)
        service.start()
        failing.callback(service.stop)
        requests = Requests(service, namespace, lambda: _connect(service, namespace))
        failing.callback(requests.close)
        ready = requests.wait(WAREHOUSE, _find_warehouse(requests, warehouse))
        failing.pop_all()
    return make_lake(LakeParts(root, requests, reader, ready))


def _connect(service: LakeService, namespace: str) -> Objects:
    try:
        login = load_login(Access(kubeconfig=str(service.kubeconfig), namespace=namespace))
        return Objects(Transport(login), namespace)
    except CliError as error:
        raise LakeError(NOT_SERVED, str(error)) from error


def _find_warehouse(requests: Requests, wanted: str) -> JsonObject:
    """The Warehouse that is asked for, applied first if it is a manifest's or a new one. Raises LakeError."""
    if wanted and Path(wanted).is_file():
        return _apply_manifests(requests, wanted)
    known = entries_of(requests.list_objects(WAREHOUSE, Selection(namespace=requests.namespace)), "items")
    matches = [warehouse for warehouse in known if not wanted or name_of(warehouse) == wanted]
    if len(matches) == 1:
        return matches[0]
    names = ", ".join(map(name_of, known))
    if wanted:
        raise LakeError(
            "WarehouseNotFound",
            f"there is no Warehouse {wanted!r} in the folder" + (f", which has {names}" if names else ""),
            "name one that is there, or the path of a manifest",
        )
    if matches:
        raise LakeError("InvalidSpec", f"the folder has several Warehouses, {names}", "name one by warehouse=")
    requests.apply_manifest(CLAIM)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return requests.apply_manifest(build_warehouse(driver_cores(cores, memory)))


def driver_cores(cores: int, memory: int) -> int:
    """How many of the ``cores`` of a machine with so many bytes of memory drivers use."""
    return max(1, min(cores, memory // CORE_BYTES, MOST_CORES))


def build_warehouse(cores: int) -> JsonObject:
    """The Warehouse of a folder that has none, whose drivers use so many cores."""
    return {
        "apiVersion": API_VERSION,
        "kind": WAREHOUSE.name,
        "metadata": {"name": DEFAULT_NAME},
        "spec": {
            "catalog": {"type": "Sql"},
            "spark": {"driver": {"cores": cores}},
            "storage": {"pvc": {"claimName": DEFAULT_NAME}},
        },
    }


def _apply_manifests(requests: Requests, file: str) -> JsonObject:
    """The only Warehouse of the file, after all objects in it were applied."""
    try:
        manifests = read_manifests([file])
    except CliError as error:
        raise LakeError("InvalidSpec", str(error)) from error
    applied = [requests.apply_manifest(manifest.body) for manifest in manifests]
    warehouses = [obj for obj in applied if text_of(obj, "kind") == WAREHOUSE.name]
    if len(warehouses) != 1:
        raise LakeError(
            "InvalidSpec",
            f"{file} holds {len(warehouses)} Warehouses",
            "write one into it, with its claim and its Secrets",
        )
    return warehouses[0]
