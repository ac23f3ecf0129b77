"""Hand built images from buildah to containerd, moving only what containerd lacks.

Called by the command line after `image_build`. containerd takes an OCI archive that leaves out the layers it
holds, so a code change moves a few kilobytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from tests.cluster.errors import ClusterError
from tests.cluster.layers import load_manifest, open_layer
from tests.cluster.layout import StateDir
from tests.cluster.node import ctr
from tests.cluster.shell import run, stage

IMAGE_NAME = "io.containerd.image.name"


def import_images(state: StateDir, tags: Mapping[str, str]) -> None:
    """Make containerd hold each image under localhost/<name>:dev. `tags` gives the built tag of each name."""
    present = _list_images(state)
    for name, tag in tags.items():
        reference = f"localhost/{name}:dev"
        manifest = load_manifest(tag)
        if present.get(reference) != _digest(manifest.text):
            with stage(f"import image {name}"):
                _import(state, reference, tag)


def _import(state: StateDir, reference: str, tag: str) -> None:
    manifest = load_manifest(tag)
    held = set(run([*ctr(state), "content", "list", "--quiet"]).split())
    with _archive_to(state, reference) as archive:
        entry = {"mediaType": manifest.document["mediaType"], "annotations": {IMAGE_NAME: reference}}
        entry |= {"digest": _digest(manifest.text), "size": len(manifest.text.encode())}
        _add_text(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}))
        _add_text(archive, "index.json", json.dumps({"schemaVersion": 2, "manifests": [entry]}))
        for text in (manifest.text, manifest.config):
            _add_text(archive, _blob_path(_digest(text)), text)
        for layer in manifest.document["layers"]:
            if layer["digest"] not in held:
                header = _header(_blob_path(layer["digest"]), layer["size"])
                archive.addfile(header, open_layer(layer["digest"]))


@contextmanager
def _archive_to(state: StateDir, reference: str) -> Iterator[tarfile.TarFile]:
    """Give an archive that containerd reads while it is written."""
    command = [str(word) for word in [*ctr(state), "images", "import", "-"]]
    pipe, quiet = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(command, stdin=pipe, stdout=quiet, stderr=pipe) as reader:
        stream: IO[bytes] | None = reader.stdin
        try:
            with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                yield archive
        except BrokenPipeError:
            # The reader has given up: what it says below is the reason.
            stream = None
        words = reader.communicate()[1].decode().strip()
    if reader.returncode != 0 or stream is None:
        raise ClusterError(f"containerd did not take {reference}: {words}")


def _add_text(archive: tarfile.TarFile, name: str, text: str) -> None:
    archive.addfile(_header(name, len(text.encode())), io.BytesIO(text.encode()))


def _header(name: str, size: int) -> tarfile.TarInfo:
    header = tarfile.TarInfo(name)
    header.size = size
    return header


def _digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _blob_path(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def _list_images(state: StateDir) -> dict[str, str]:
    """Return the manifest digest of each image that containerd holds, by its name."""
    lines = run([*ctr(state), "images", "list"]).splitlines()[1:]
    return {words[0]: words[2] for words in (line.split() for line in lines) if len(words) > 2}
