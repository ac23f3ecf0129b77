"""Where records that were left out are kept for people to read: JSON lines with file, reason and record.

Called by the load run and the merge run. Folder: ``.skipstone/rejected/<job uid>/<run id>`` of the Warehouse. A part
has a hidden name until the run accepts it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from skipstone_core.contract.badrecords import BadRecordPolicy, BadRecordsSpec
from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import UserError

from skipstone.storage.opening import open_storage
from skipstone.storage.port import Storage

REJECT_DIRECTORY = ".skipstone/rejected"


@dataclass(frozen=True)
class RejectPlace:
    """Where records that are left out are put: a folder of a storage."""

    storage: Storage
    folder: str


@dataclass
class RejectPart:
    """Rejected records of one task: on this machine until they are put as the part ``name``."""

    place: RejectPlace
    name: str
    _file: IO[str] | None = None

    def write(self, row: Mapping[str, str | int | None]) -> None:
        """Add a record: where it is, what is wrong with it, and itself."""
        if self._file is None:
            self._file = tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".jsonl")  # noqa: SIM115
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> str | None:
        """Put the part into the storage; its path when there is one."""
        if self._file is None:
            return None
        self._file.flush()
        path = f"{self.place.folder}/.{self.name}.jsonl"
        self.place.storage.keep_copy(path, Path(self._file.name))
        self._file.close()
        return path

    def abort(self) -> None:
        """Leave nothing."""
        if self._file is not None:
            self._file.close()


def reject_place(request: JobRequest, spec: BadRecordsSpec | None) -> RejectPlace | None:
    """Return where this run puts rejected records; None when it keeps none."""
    if spec is None or spec.policy is not BadRecordPolicy.REDIRECT:
        return None
    return RejectPlace(open_storage(request.warehouse), reject_folder(request))


def reject_folder(request: JobRequest) -> str:
    """The folder for the rejects of this run, relative to the Warehouse."""
    return f"{REJECT_DIRECTORY}/{request.owner_uid}/{request.run_id}"


def keep_rejects(request: JobRequest, parts: Sequence[str]) -> str:
    """Give the accepted ``parts`` their final names, in order; returns the folder.

    Raises DependencyUnavailable (STORAGE_UNAVAILABLE).
    """
    storage, folder = open_storage(request.warehouse), reject_folder(request)
    for number, part in enumerate(parts):
        storage.move(part, f"{folder}/part-{number:05d}.jsonl")
    return folder


def discard_rejects(request: JobRequest, parts: Sequence[str]) -> None:
    """Remove parts that were not accepted."""
    storage = open_storage(request.warehouse)
    for part in parts:
        storage.delete(part)


def clear_rejects(request: JobRequest) -> None:
    """Remove all that this run kept: nothing was committed."""
    open_storage(request.warehouse).delete_folder(reject_folder(request))


@contextmanager
def rejects_kept(request: JobRequest) -> Iterator[None]:
    """Remove all that this run kept if the block raises."""
    try:
        yield
    except BaseException:
        with suppress(UserError):
            clear_rejects(request)
        raise
