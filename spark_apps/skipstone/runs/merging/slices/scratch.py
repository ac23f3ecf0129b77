"""Where a merge keeps its changes: a folder of this process alone, among the records of the job.

Called by the merge run. What the driver works on by itself stays in its memory if it is small. Of the rest, a small
slice travels with the tasks; others are files on a volume or objects in a bucket.
What an earlier attempt of the same job left is removed by the next one, and at last by the Table's maintenance.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pyarrow as pa
from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import UserError
from skipstone_core.ids import RUNS_DIRECTORY

from skipstone.kernels.changes import HELD_BYTES, ChangeSlice, SortRule, in_file, in_storage, sorted_slice
from skipstone.storage.opening import open_storage
from skipstone.storage.port import Storage
from skipstone.storage.volume import Volume

_ATTEMPT = re.compile(r"-(\d+)-[0-9a-f]{8}$")


@dataclass(frozen=True)
class Scratch:
    """A folder of ``storage``, called ``name``."""

    storage: Storage
    folder: str

    @property
    def name(self) -> str:
        """Return a name that no other process uses."""
        return PurePosixPath(self.folder).name

    @property
    def where(self) -> str:
        """As people call it."""
        return self.storage.where(self.folder)

    def write(self, changes: pa.Table, rule: SortRule, name: str) -> ChangeSlice:
        """One slice that any process can read. Raises as ``sorted_slice`` does."""
        return self._put(self._sorted(changes, rule, name))

    def keep(self, changes: pa.Table, rule: SortRule, name: str) -> ChangeSlice:
        """One slice for this process, in its memory unless it is large. Raises as ``sorted_slice`` does."""
        made = self._sorted(changes, rule, name)
        return made if made.held <= HELD_BYTES else self._put(made)

    def shared(self, slices: Iterable[ChangeSlice]) -> tuple[ChangeSlice, ...]:
        """``slices``, of which those that are in the memory of this process become files that any process can read."""
        return tuple(part if part.table is None else self._put(part) for part in slices)

    def _sorted(self, changes: pa.Table, rule: SortRule, name: str) -> ChangeSlice:
        return sorted_slice(changes, rule, self.storage.where(f"{self.folder}/{name}.parquet"))

    def _put(self, made: ChangeSlice) -> ChangeSlice:
        if isinstance(self.storage, Volume):
            return in_file(made)
        return in_storage(made, self.storage, f"{self.folder}/{PurePosixPath(made.path).name}")


@contextmanager
def open_scratch(request: JobRequest) -> Iterator[Scratch]:
    """Gone afterwards."""
    above = f"{RUNS_DIRECTORY}/{request.owner_uid}"
    scratch = Scratch(open_storage(request.warehouse), f"{above}/{request.run_id}-{secrets.token_hex(4)}")
    if request.attempt > 1:
        _remove_earlier(scratch.storage, above, request.attempt)
    if isinstance(scratch.storage, Volume):
        Path(scratch.storage.where(scratch.folder)).mkdir(parents=True)
    try:
        yield scratch
    finally:
        _remove(scratch.storage, scratch.folder)


def _remove_earlier(storage: Storage, above: str, attempt: int) -> None:
    """Remove the folders of attempts before ``attempt``: their pods are gone."""
    names = {PurePosixPath(entry.path).relative_to(above).parts[0] for entry in storage.list(above)}
    for name in names:
        match = _ATTEMPT.search(name)
        if match and int(match[1]) < attempt:
            _remove(storage, f"{above}/{name}")


def _remove(storage: Storage, folder: str) -> None:
    with suppress(UserError):  # the next attempt tries again
        storage.delete_folder(folder)
