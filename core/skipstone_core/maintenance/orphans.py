"""Which files below a table's location are orphans: old, of no run that may still commit, and named by no metadata.

Used by the data plane's search. An orphan is deleted only when an earlier run wrote it down and it has not changed
since.
Must not list or read files: only what is known of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from skipstone_core.errors import ContractViolation
from skipstone_core.ids import is_run_of

#: Orphans that one record holds; the others are written down by a later run.
MOST_RECORDED = 200_000
#: What tables of other catalogs find their metadata by; it is named by nothing.
_NAMELESS = frozenset({"version-hint.text"})
_SUM = ".crc"
_ENDS_PATH = re.compile("[#?]")


@dataclass(frozen=True, order=True, kw_only=True)
class FileMark:
    """A file and what tells that it was replaced. ``path`` is relative to the Warehouse's root."""

    path: str
    size: int
    version: str


@dataclass(frozen=True, kw_only=True)
class FoundFile:
    """A file that is there. ``touched_ms``: when it last changed by the storage's clock, since 1970."""

    mark: FileMark
    touched_ms: int


@dataclass(frozen=True)
class Reached:
    """The files that metadata names: ``paths`` relative to the root, and ``names_meant`` by all names in any form.

    Engines write locations in several forms. A file whose name is that of one in use is therefore never an orphan,
    wherever it lies.
    """

    paths: frozenset[str]
    names: frozenset[str]

    def has(self, path: str) -> bool:
        """Return whether the file at ``path`` may be one that metadata names, or the checksum of one."""
        name = name_of(path)
        return path in self.paths or name in self.names or _summed(name) in self.names


def plan_orphans(
    files: Iterable[FoundFile], reached: Reached, older_than_ms: int, spared_owners: Sequence[str], runs: Sequence[str]
) -> list[FileMark]:
    """The orphans among ``files``, sorted. ``older_than_ms``: a moment since 1970.

    ``spared_owners``: uids whose runs may still commit; ``runs``: names of runs that are spared too.
    """
    return sorted(
        file.mark
        for file in files
        if file.touched_ms < older_than_ms
        and not reached.has(file.mark.path)
        and name_of(file.mark.path) not in _NAMELESS
        and not _is_spared(name_of(file.mark.path), spared_owners, runs)
    )


def name_of(path: str) -> str:
    """The last part of a path or location."""
    return path.rpartition("/")[2]


def names_meant(path: str) -> frozenset[str]:
    """The names of the files that engines mean by a path or location: some end it where the path of an address ends."""
    ends = _ENDS_PATH.search(path)
    cut = "" if ends is None else name_of(path[: ends.start()])
    return frozenset(name for name in (name_of(path), cut) if name)


def _summed(name: str) -> str:
    """The file whose checksum Hadoop's local file system keeps in the file ``name``; empty when it is another file."""
    return name[1 : -len(_SUM)] if name.startswith(".") and name.endswith(_SUM) else ""


def _is_spared(name: str, owners: Sequence[str], runs: Sequence[str]) -> bool:
    """Return whether a run that is spared wrote the file ``name``: such names begin with that of the run."""
    return any(is_run_of(name, uid) for uid in owners) or any(name.startswith(f"{run}-") for run in runs)


@dataclass(frozen=True, kw_only=True)
class OrphanRecord:
    """The files that one run found."""

    run_id: str
    marks: tuple[FileMark, ...]

    def encode(self) -> bytes:
        """As it is written down."""
        rows = [[mark.path, mark.size, mark.version] for mark in self.marks]
        return json.dumps({"run": self.run_id, "files": rows}, separators=(",", ":")).encode()

    @staticmethod
    def decode(content: bytes) -> OrphanRecord:
        """Raises ContractViolation for anything else."""
        try:
            raw: Mapping[str, object] = json.loads(content)
            rows = raw["files"]
            if not isinstance(rows, list):
                raise TypeError("files")
            marks = tuple(FileMark(path=str(path), size=int(size), version=str(tag)) for path, size, tag in rows)
            return OrphanRecord(run_id=str(raw["run"]), marks=marks)
        except (ValueError, KeyError, TypeError) as error:
            raise ContractViolation(f"a list of orphan files cannot be read: {error}") from error
