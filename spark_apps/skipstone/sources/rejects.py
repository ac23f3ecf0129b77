"""Where rows that were left out are kept for people to read: JSON lines with file, reason and record.

Called by the load run. Folder: ``.skipstone/rejected/<job uid>/<run id>`` of the Warehouse. A part has a hidden name
until the load accepts it.
"""

from __future__ import annotations

from collections.abc import Sequence

from skipstone_core.contract.requests import JobRequest

from skipstone.storage.opening import open_storage

REJECT_DIRECTORY = ".skipstone/rejected"


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
