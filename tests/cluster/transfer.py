"""Hand built images from buildah to containerd, moving only what containerd lacks.

Called by the command line after `images`. The images pass through one OCI layout on disk, uncompressed, so that a
layer keeps its digest and is written and sent once, however often the code above it changes.
"""

from __future__ import annotations

import io
import json
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.images import buildah
from tests.cluster.layout import CACHE, StateDir
from tests.cluster.node import ctr
from tests.cluster.shell import run, stage

LAYOUT = CACHE / "oci"
REF_NAME = "org.opencontainers.image.ref.name"
IMAGE_NAME = "io.containerd.image.name"


def import_images(state: StateDir, tags: Mapping[str, str]) -> None:
    """Make containerd hold each image under localhost/<name>:dev. `tags` gives the built tag of each name."""
    present = dict(_list_images(state))
    marks = _read_marks(state)
    for name, tag in tags.items():
        reference = f"localhost/{name}:dev"
        if marks.get(reference) == tag and reference in present:
            continue
        with stage(f"import image {name}"):
            _import(state, reference, tag)
        marks[reference] = tag
        _marks_file(state).write_text(json.dumps(marks, indent=1))


def _import(state: StateDir, reference: str, tag: str) -> None:
    ref = tag.rpartition("/")[2]
    run(buildah("push", "--quiet", "--disable-compression", tag, f"oci:{LAYOUT}:{ref}"))
    manifest = _find_manifest(ref)
    held = set(run([*ctr(state), "content", "list", "--quiet"]).split())
    blobs = [blob for blob in [manifest["digest"], *_list_blobs(manifest)] if blob not in held]
    sender = subprocess.Popen(
        [str(word) for word in [*ctr(state), "images", "import", "-"]],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    if sender.stdin is None or sender.stderr is None:
        raise ClusterError("the image import has no pipe: run the same command again")
    try:
        _write_archive(sender.stdin, {**manifest, "annotations": {IMAGE_NAME: reference}}, blobs)
    except BrokenPipeError:
        pass
    words = sender.communicate()[1].decode().strip()
    if sender.returncode != 0:
        raise ClusterError(f"containerd did not take {reference}: {words}")


def _write_archive(target: Any, manifest: dict[str, Any], blobs: list[str]) -> None:
    index = {"schemaVersion": 2, "manifests": [manifest]}
    with tarfile.open(fileobj=target, mode="w|") as archive:
        _add_text(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}))
        _add_text(archive, "index.json", json.dumps(index))
        for blob in blobs:
            archive.add(_blob_path(blob), f"blobs/sha256/{blob.removeprefix('sha256:')}")


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(text.encode())
    archive.addfile(entry, io.BytesIO(text.encode()))


def _find_manifest(ref: str) -> dict[str, Any]:
    index = json.loads((LAYOUT / "index.json").read_text())
    for entry in index["manifests"]:
        if entry.get("annotations", {}).get(REF_NAME) == ref:
            return {key: entry[key] for key in ("mediaType", "digest", "size")}
    raise ClusterError(f"{LAYOUT} does not hold {ref}: remove the folder and run the same command again")


def _list_blobs(manifest: dict[str, Any]) -> list[str]:
    document = json.loads(_blob_path(manifest["digest"]).read_text())
    return [document["config"]["digest"], *(layer["digest"] for layer in document["layers"])]


def _blob_path(digest: str) -> Path:
    return LAYOUT / "blobs" / "sha256" / digest.removeprefix("sha256:")


def _list_images(state: StateDir) -> list[tuple[str, str]]:
    lines = run([*ctr(state), "images", "list"]).splitlines()[1:]
    return [(words[0], words[2]) for words in (line.split() for line in lines) if len(words) > 2]


def _marks_file(state: StateDir) -> Path:
    return state.containerd / "imported.json"


def _read_marks(state: StateDir) -> dict[str, str]:
    path = _marks_file(state)
    return dict(json.loads(path.read_text())) if path.exists() else {}
