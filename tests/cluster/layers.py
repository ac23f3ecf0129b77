"""Read an image's layers straight from buildah's storage, byte for byte as their digests say.

Called by `transfer`. Pushing an image to a folder writes all of it again, gigabytes for one changed line of code; the
storage keeps, for each layer, the unpacked files and the tar headers between them (the tar-split format: a JSON object
a line, either a segment of the tar or a file whose content belongs there).
"""

from __future__ import annotations

import base64
import gzip
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.image_build import STORAGE, buildah
from tests.cluster.shell import run

SEGMENT = 2
CHUNK = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """An image's manifest and configuration as JSON text, and the descriptor of the manifest's layers."""

    text: str
    config: str

    @property
    def document(self) -> dict[str, Any]:
        return dict(json.loads(self.text))


def load_manifest(tag: str) -> Manifest:
    """Return what the storage says of the image `tag`."""
    found = json.loads(run(buildah("inspect", "--type", "image", tag)))
    return Manifest(text=found["Manifest"], config=found["Config"])


def open_layer(digest: str) -> io.BufferedReader:
    """Return the uncompressed tar of the layer with this digest, to be read once."""
    return io.BufferedReader(_Reader(_read_layer(_find_layer(digest))), CHUNK)


def layer_folders(tag: str) -> list[Path]:
    """Return where the unpacked layers of the image `tag` lie, the lowest first."""
    return [_folder(_find_layer(layer["digest"])) for layer in load_manifest(tag).document["layers"]]


def _find_layer(digest: str) -> str:
    listed = json.loads((STORAGE / "overlay-layers" / "layers.json").read_text())
    found = next((layer["id"] for layer in listed if layer.get("diff-digest") == digest), None)
    if found is None:
        raise ClusterError(
            f"{STORAGE} does not hold the layer {digest}: remove the folder and run 'make cluster' again"
        )
    return str(found)


def _folder(layer: str) -> Path:
    return STORAGE / "overlay" / layer / "diff"


def _read_layer(layer: str) -> Iterator[bytes]:
    files = _folder(layer)
    with gzip.open(STORAGE / "overlay-layers" / f"{layer}.tar-split.gz", "rt") as entries:
        for entry in map(json.loads, entries):
            if entry["type"] == SEGMENT:
                yield base64.b64decode(entry["payload"])
            elif entry.get("size", 0) > 0:
                yield from _read_file(files / _name(entry))


def _name(entry: dict[str, Any]) -> str:
    raw = base64.b64decode(entry.get("name_raw", "")).decode(errors="surrogateescape")
    return str(entry.get("name") or raw)


def _read_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as content:
        while chunk := content.read(CHUNK):
            yield chunk


class _Reader(io.RawIOBase):
    """A file over pieces of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
