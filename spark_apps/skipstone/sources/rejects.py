"""Where rows that were left out are kept for people to read: JSON lines with file, reason and record.

Called by the load run. Directory: ``.skipstone/rejected/<job uid>/<run id>`` below the Warehouse's root.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from skipstone_core.contract.requests import JobRequest
from skipstone_core.errors import DependencyUnavailable
from skipstone_core.reasons import Reason

REJECT_DIRECTORY = ".skipstone/rejected"


def make_reject_directory(request: JobRequest) -> Path:
    """The absolute directory for the rejects of this run, made when it is not there.

    Raises DependencyUnavailable (STORAGE_UNAVAILABLE).
    """
    path = Path(request.warehouse.root).resolve() / _relative(request)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DependencyUnavailable(Reason.STORAGE_UNAVAILABLE, f"'{path}' cannot be made: {error}") from error
    return path


def keep_rejects(request: JobRequest, parts: Sequence[str]) -> str:
    """Give the accepted ``parts`` their final names, in order; returns the directory relative to the root."""
    for number, part in enumerate(parts):
        Path(part).replace(Path(part).with_name(f"part-{number:05d}.jsonl"))
    return _relative(request)


def discard_rejects(parts: Sequence[str]) -> None:
    """Remove parts that were not accepted."""
    for part in parts:
        Path(part).unlink(missing_ok=True)


def _relative(request: JobRequest) -> str:
    return f"{REJECT_DIRECTORY}/{request.owner_uid}/{request.run_id}"
