"""Decoded manifests kept in a folder of this machine, so that the next process need not decode them.

Called by manifests. A manifest never changes, so a decode is valid as long as the manifest is named. Several processes
share the folder. A file that is not exactly what was written for the same manifest is as good as none, and whatever
goes wrong here only costs time. Must not trust a folder or a file that another user could have written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import stat
import sys
import tempfile
import uuid
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from io import RawIOBase
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
from pyiceberg.manifest import ManifestFile

from skipstone.compat.lineage.reading import manifest_row_id
from skipstone.tables.decoding.entries import ENTRY_SCHEMA, DataManifest, Partition, canonical_partition

logger = logging.getLogger(__name__)

#: Names the folder in which decodes are kept.
FOLDER_VARIABLE = "SKIPSTONE_CACHE_DIR"
#: Bytes on disk above which the longest unused decodes are removed.
FOLDER_BYTES = 512 * 1024 * 1024
#: What a decode counts for at least: listing the folder takes as long as there are files, however small they are.
FILE_BYTES = 64 * 1024
#: Listing a full folder costs as much as many decodes: it is trimmed once in so many bytes that are saved, by chance,
#: whoever saves them.
_BYTES_PER_TRIM = 256 * FILE_BYTES
#: Rises with every change of what is stored or of how manifests are decoded.
_LAYOUT = 5
_CHECKSUM_BYTES = 4
_TAGGED: dict[str, Callable[[str], Any]] = {"bytes": bytes.fromhex, "decimal": Decimal, "uuid": uuid.UUID}
_KEY, _PARTITIONS = b"skipstone.manifest", b"skipstone.partitions"


@dataclass(frozen=True)
class ManifestKey:
    """All that the live entries of a manifest depend on: the file, and what entries inherit from the manifest list."""

    path: str
    length: int
    sequence_number: int | None
    added_snapshot_id: int | None
    spec_id: int
    first_row_id: int | None = None

    @classmethod
    def of(cls, manifest: ManifestFile) -> Self:
        """The key of ``manifest``."""
        return cls(
            manifest.manifest_path,
            manifest.manifest_length,
            manifest.sequence_number,
            manifest.added_snapshot_id,
            manifest.partition_spec_id,
            manifest_row_id(manifest),
        )

    def text(self) -> str:
        """The key as a file says it."""
        return json.dumps({"layout": _LAYOUT, **vars(self)}, sort_keys=True)


def pack(key: ManifestKey, manifest: DataManifest, sink: Any) -> None:
    """Write the manifest to ``sink`` as an Arrow IPC file that says whose decode it is."""
    partitions = json.dumps([[_to_json(value) for value in partition] for partition in manifest.partitions])
    schema = ENTRY_SCHEMA.with_metadata({_KEY: key.text(), _PARTITIONS: partitions})
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(manifest.entries.replace_schema_metadata(schema.metadata))


def compacted(key: ManifestKey, manifest: DataManifest) -> DataManifest:
    """The same in memory of its own: manifests that were decoded together share theirs."""
    sink = pa.BufferOutputStream()
    pack(key, manifest, sink)
    return unpack(key, sink.getvalue())


def unpack(key: ManifestKey, packed: pa.Buffer) -> DataManifest:
    """The manifest over the memory of ``packed``. Raises ValueError when it is not the decode of ``key``."""
    reader = pa.ipc.open_file(packed)
    metadata = reader.schema.metadata or {}
    if metadata.get(_KEY) != key.text().encode() or not reader.schema.equals(ENTRY_SCHEMA):
        raise ValueError("this is the decode of another manifest")
    partitions = json.loads(metadata[_PARTITIONS])
    entries = reader.get_batch(0).replace_schema_metadata(None)
    return DataManifest(key.spec_id, entries, tuple(_from_json_partition(values) for values in partitions))


def _to_json(value: Any) -> Any:
    """Plain JSON for what JSON has, else an object that names the type."""
    match value:
        case bytes():
            return {"bytes": value.hex()}
        case Decimal():
            return {"decimal": str(value)}
        case uuid.UUID():
            return {"uuid": str(value)}
        case None | bool() | int() | float() | str():
            return value
    raise ValueError(f"a partition value of type {type(value).__name__} cannot be kept")


def _from_json_partition(values: list[Any]) -> Partition:
    return canonical_partition(_from_json(value) if isinstance(value, dict) else value for value in values)


def _from_json(tagged: Mapping[str, str]) -> Any:
    ((kind, text),) = tagged.items()
    return _TAGGED[kind](text)


class DecodeFolder:
    """Decodes as files of one folder, which is private to this user (see ``open_folder``)."""

    def __init__(self, folder: Path, budget: int = FOLDER_BYTES) -> None:
        """``budget``: bytes that ``trim`` leaves, where each file counts for ``FILE_BYTES`` at least."""
        self._folder = folder
        self._budget = budget

    def load(self, key: ManifestKey) -> DataManifest | None:
        """The decode of ``key``; None when there is none to rely on."""
        path = self._path(key)
        try:
            decoded = unpack(key, _verified(path))
            os.utime(path)
        except (OSError, ValueError, LookupError, TypeError, ArithmeticError, pa.ArrowException):
            return None
        return decoded

    def save(self, key: ManifestKey, manifest: DataManifest) -> None:
        """Keep the decode of ``key``; whoever looks sees all of it or nothing. What cannot be written is not kept.

        Now and then this trims the folder, so that it never holds much more than its budget.
        """
        unfinished = self._folder / f"{uuid.uuid4().hex}.unfinished"
        try:
            with open(unfinished, "xb", opener=_private) as file:
                summed = _Summed(file)
                pack(key, manifest, pa.PythonFile(summed, "w"))
                file.write(summed.checksum())
                size = file.tell()
            unfinished.replace(self._path(key))
            if random.random() * _BYTES_PER_TRIM < _counted(size):
                self.trim()
        except OSError as error:
            _say_once(self._folder, str(error))
            with suppress(OSError):
                unfinished.unlink()

    def trim(self) -> None:
        """Remove the longest unused files, those left unfinished among them, until the rest fits the budget."""
        with suppress(OSError):
            files = [(entry.stat(follow_symlinks=False), Path(entry.path)) for entry in os.scandir(self._folder)]
            excess = sum(_counted(info.st_size) for info, _ in files) - self._budget
            for info, path in sorted(files, key=lambda each: each[0].st_mtime_ns):
                if excess <= 0:
                    break
                path.unlink(missing_ok=True)
                excess -= _counted(info.st_size)

    def _path(self, key: ManifestKey) -> Path:
        return self._folder / f"{hashlib.sha256(key.text().encode()).hexdigest()}.arrow"


def _counted(size: int) -> int:
    return max(size, FILE_BYTES)


def open_folder() -> DecodeFolder | None:
    """The folder for decodes; None when this user cannot have one that nobody else may write."""
    if sys.platform == "win32":
        return None
    folder = _base() / f"skipstone-{os.geteuid()}"
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        _check_private(folder.lstat(), stat.S_ISDIR, 0o077)
    except OSError as error:
        _say_once(folder, str(error))
        return None
    return DecodeFolder(folder)


def _base() -> Path:
    named = os.environ.get(FOLDER_VARIABLE) or os.environ.get("XDG_CACHE_HOME")
    return Path(named or tempfile.gettempdir())


@cache
def _say_once(folder: Path, why: str) -> None:
    logger.warning("decoded manifests are not kept in %s (set %s to choose a folder): %s", folder, FOLDER_VARIABLE, why)


def _check_private(info: os.stat_result, is_kind: Callable[[int], bool], others: int) -> None:
    if not is_kind(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & others:
        raise PermissionError("it is not of this user alone")


def _verified(path: Path) -> pa.Buffer:
    """What ``save`` was given, mapped if it is large. Raises OSError or ValueError when it is not that, or not this
    user's.

    The buffer keeps no file open: a process has as many of these as it knows manifests.
    """
    info = path.lstat()  # nobody else can exchange it meanwhile: the folder is private
    _check_private(info, stat.S_ISREG, 0o022)
    if info.st_size < FILE_BYTES:
        stored = pa.py_buffer(path.read_bytes())
    else:
        with pa.memory_map(str(path)) as file:
            stored = file.read_buffer()
    packed = stored.slice(0, max(stored.size - _CHECKSUM_BYTES, 0))
    if _checksum(zlib.crc32(packed)) != stored.slice(packed.size).to_pybytes():
        raise ValueError("the file is damaged")
    return packed


class _Summed(RawIOBase):
    """Writes to ``file`` and sums up what it wrote."""

    def __init__(self, file: BinaryIO) -> None:
        """Nothing is written yet."""
        self._file = file
        self._sum = 0

    def write(self, data: Any) -> int:
        """Write and sum up ``data``."""
        self._sum = zlib.crc32(data, self._sum)
        return self._file.write(data)

    def writable(self) -> bool:
        """Yes."""
        return True

    def checksum(self) -> bytes:
        """The sum as it stands at the end of the file."""
        return _checksum(self._sum)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _checksum(total: int) -> bytes:
    return total.to_bytes(_CHECKSUM_BYTES, "big")
