"""Finds entry files of an index that are gone or damaged, and tells whose entries they held.

Called by coverage (so that status counts those files as missing) and by the reindex run before it builds. Looks at
size and footer only: damage within pages is found by their checksums, by whoever reads them. Must not change anything
and must not take a storage that does not answer for a damaged file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO

from skipstone.indexes.definition import FILE_ID_FIELD, entry_schema
from skipstone.indexes.scans import schema_problem
from skipstone.indexes.tables import IndexFile, IndexTable
from skipstone.tables.parquetfiles import metadata_of, read_tail, size_of_open

_CHUNK_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class DamagedFile:
    """An entry file that cannot be read, and how it is (a clause: ``is gone``); ``what`` it is, for people."""

    path: str
    problem: str
    what: str = "index file"

    def __str__(self) -> str:
        """A clause for status and logs."""
        return f"{self.what} {self.path} {self.problem}"


def find_damage(index: IndexTable, files: Sequence[IndexFile] | None = None) -> tuple[DamagedFile, ...]:
    """The entry files that are gone, of another size than committed, or without a footer that fits.

    ``files``: some entry files; None: all. Costs two small reads per file. Raises OSError when the storage does not
    answer.
    """
    schema = entry_schema(index.definition)
    looked_at = index.entries if files is None else files
    problems = ((file, _problem(index.table.io, file, schema)) for file in looked_at)
    return tuple(DamagedFile(file.path, problem) for file, problem in problems if problem)


def _problem(io: FileIO, file: IndexFile, schema: pa.Schema) -> str | None:
    try:
        with io.new_input(file.path).open() as stream:
            size = size_of_open(stream)
            if size != file.size:
                return f"has {size} bytes instead of {file.size}"
            tail = read_tail(stream)
    except FileNotFoundError:
        return "is gone"
    return _footer_problem(tail, file.records, schema)


def _footer_problem(tail: bytes, records: int, schema: pa.Schema) -> str | None:
    """Judged on bytes in memory, so that whatever is raised here comes from what they are."""
    try:
        footer = metadata_of(tail)
    except (OSError, pa.ArrowException) as error:
        return f"is damaged: {error}"
    if footer.num_rows != records:
        return f"has {footer.num_rows} entries instead of {records}"
    return schema_problem(footer.schema.to_arrow_schema(), schema)


def is_fully_readable(io: FileIO, path: str) -> bool:
    """Return whether the storage gives every byte of a file: a failure to parse these bytes is then damage."""
    try:
        with io.new_input(path).open() as stream:
            while stream.read(_CHUNK_BYTES):
                pass
    except OSError:
        return False
    return True


@dataclass(frozen=True)
class Withdrawal:
    """The files that have to leave an index because some entry files are damaged.

    ``entries``: all entry files of the commits that wrote the damaged ones, since entries without coverage are of no
    use. ``is_covered``: one boolean per cover row, whether its entries stay.
    """

    entries: tuple[IndexFile, ...]
    is_covered: npt.NDArray[np.bool_]


def plan_withdrawal(index: IndexTable, covers: pa.Table, damage: Sequence[DamagedFile]) -> Withdrawal:
    """Whose entries are lost with ``damage``; ``covers`` are the cover rows of ``index``.

    The entries of one commit are some of a range of file ids, and all of that range is given up. Merges take runs of a
    size together, whichever commits lie between them, so other commits may have entries in it: these go as well, since
    the files that they are of are built again. Where a range is not known, everything goes.
    """
    paths, commits = {file.path for file in damage}, _commits(index.entries)
    ids = covers["file_id"].to_numpy()
    ranges = [_file_ids(index, files) for files in commits]
    known = [span for span in ranges if span is not None]
    if len(known) < len(ranges):
        return Withdrawal(index.entries, np.zeros(len(ids), np.bool_))
    lost = {number for number, files in enumerate(commits) if any(file.path in paths for file in files)}
    while more := {n for n, span in enumerate(known) if n not in lost and any(_meet(span, known[m]) for m in lost)}:
        lost |= more
    gone = np.zeros(len(ids), np.bool_)
    for number in lost:
        gone |= (ids >= known[number][0]) & (ids <= known[number][1])
    return Withdrawal(tuple(file for number in sorted(lost) for file in commits[number]), ~gone)


def _commits(entries: Sequence[IndexFile]) -> list[list[IndexFile]]:
    """Entry files by the commit that wrote them."""
    by_commit: dict[tuple[int, int], list[IndexFile]] = {}
    for file in entries:
        by_commit.setdefault((file.level, file.sequence), []).append(file)
    return list(by_commit.values())


def _meet(first: tuple[int, int], other: tuple[int, int]) -> bool:
    return first[0] <= other[1] and other[0] <= first[1]


def _file_ids(index: IndexTable, files: Sequence[IndexFile]) -> tuple[int, int] | None:
    """The least and greatest file id in ``files`` by their bounds; None when one of them has none."""
    bounds = index.files.bounds(FILE_ID_FIELD)
    ends = [(bounds.lower[file.ordinal].as_py(), bounds.upper[file.ordinal].as_py()) for file in files]
    if any(None in pair for pair in ends):
        return None
    return min(first for first, _ in ends), max(last for _, last in ends)
