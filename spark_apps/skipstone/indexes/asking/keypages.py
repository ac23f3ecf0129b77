"""Which pages of the first key of an entry file may hold an entry, by the bounds that the file keeps of them.

Used by ``probes`` and ``estimates``. An index is sorted, so a key is in one page of a row group or two, and what a file
says of its pages is a hundredth of them. It is kept by path, size and row group, which never change. Must not read
entries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.io import FileIO

from skipstone.caches import ByteCache
from skipstone.files.pages import PageBounds, PageReader
from skipstone.indexes.asking.entryreads import EntryPart
from skipstone.indexes.asking.rowgroups import Footer, naming_file
from skipstone.indexes.definition import key_name
from skipstone.indexes.keys import encoded_keys
from skipstone.indexes.keytests import AllTests, Points, Test
from skipstone.indexes.ranges import BoundsColumn, files_that_may_match
from skipstone.indexes.tables import IndexFile
from skipstone.tables.filesets import ColumnBounds

Int64s = npt.NDArray[np.int64]
CACHE_BYTES = 64 * 1024 * 1024
#: Pages of a row group of 65,536 entries.
_GROUP_PAGES = 32
#: Of more row groups the bounds alone take long.
_MOST_GROUPS = 8_192


@dataclass(frozen=True)
class KeyPages:
    """The pages of the first key in a row group: the first row of each, and the end; bounds in stored form; how many
    nulls each has at most.
    """

    first: Int64s
    lower: pa.Array
    upper: pa.Array
    nulls: Int64s

    def __len__(self) -> int:
        """How many."""
        return len(self.lower)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return int(self.first.nbytes + self.lower.nbytes + self.upper.nbytes + self.nulls.nbytes)

    def spans(self, chosen: npt.NDArray[np.bool_]) -> Int64s:
        """First row and end of the chosen pages, neighbors in one span: shape (n, 2)."""
        edges = np.diff(np.concatenate([[False], chosen, [False]]).astype(np.int8))
        begins, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
        return np.stack([self.first[begins], self.first[ends]], axis=1)


#: Stands for the pages of a row group of which the file does not tell.
_UNTOLD = KeyPages(np.zeros(1, np.int64), pa.nulls(0), pa.nulls(0), np.zeros(0, np.int64))
_NO_PAGES = np.empty(0, np.bool_)
_ENTRY_BYTES = 512
_cache: ByteCache[tuple[str, int, int], KeyPages] = ByteCache(
    "key pages", CACHE_BYTES, lambda pages: _ENTRY_BYTES + pages.nbytes
)


def key_pages(io: FileIO, file: IndexFile, footer: Footer, groups: Sequence[int]) -> Mapping[int, KeyPages]:
    """The pages in those of some row groups of which the file tells. Raises UnreadableIndexFile.

    None at all in an object store, where each look into a file is a request.
    """
    if not footer.by_pages:
        return {}
    by_group = {group: _cache.peek((file.path, file.size, group)) for group in groups}
    if missing := [group for group, pages in by_group.items() if pages is None]:
        with naming_file(file.path), io.new_input(file.path).open() as stream:
            reader = PageReader(stream, file.path, file.size, footer.rows.tolist())
            for group in missing:
                bounds = reader.bounds(group, key_name(0))
                pages = by_group[group] = _decoded(bounds, footer.definition.key_storages[0])
                _cache.put((file.path, file.size, group), pages)
    return {group: pages for group, pages in by_group.items() if pages}


def _decoded(bounds: PageBounds | None, storage: str) -> KeyPages:
    if bounds is None:
        return _UNTOLD
    return KeyPages(
        bounds.first, encoded_keys(bounds.lower, storage), encoded_keys(bounds.upper, storage), bounds.nulls
    )


class PagesOfGroups:
    """The pages of several row groups one after the other, as ``files_that_may_match`` takes them."""

    def __init__(self, pages: Sequence[KeyPages], field_id: int) -> None:
        """``field_id``: by which a test names the first key."""
        self._pages = pages
        self._field_id = field_id
        self.starts = np.cumsum([0, *map(len, pages)])

    def __len__(self) -> int:
        """Number of pages of all row groups."""
        return int(self.starts[-1])

    def bounds(self, field_id: int) -> ColumnBounds:
        """Bounds of the first key. Raises KeyError for another column."""
        if field_id != self._field_id:
            raise KeyError(field_id)
        unknown = pa.nulls(len(self), pa.int64())
        lower, upper = ([getattr(page, end) for page in self._pages] for end in ("lower", "upper"))
        return ColumnBounds(pa.concat_arrays(lower), pa.concat_arrays(upper), unknown, unknown, unknown)


def by_pages(io: FileIO, parts: Sequence[EntryPart], test: Test, field_id: int) -> list[EntryPart]:
    """``parts``, of an index that begins with the column ``field_id``, without pages in which no entry passes ``test``.

    Where a test asks for so many keys that most pages hold one, the parts stay as they are. Raises UnreadableIndexFile.
    """
    groups, keys = sum(len(part.groups) for part in parts), keys_of(test, field_id)
    if not 0 < groups <= _MOST_GROUPS or not 0 < keys * len(parts) <= _GROUP_PAGES * groups:
        return list(parts)
    return with_pages(io, parts, test, field_id)


def with_pages(io: FileIO, parts: Sequence[EntryPart], test: Test, field_id: int) -> list[EntryPart]:
    """``parts`` without pages in which no entry passes ``test``, whatever it asks for. Raises UnreadableIndexFile."""
    known = [key_pages(io, part.file, part.footer, part.groups) for part in parts]
    pages = PagesOfGroups([group_pages for by_group in known for group_pages in by_group.values()], field_id)
    mask = files_that_may_match(test, pages, {field_id: BoundsColumn(field_id, None)}) if len(pages) else _NO_PAGES
    hits = iter(np.split(mask, pages.starts[1:-1]))
    narrowed = [_with_spans(part, by_group, hits) for part, by_group in zip(parts, known, strict=True)]
    return [part for part in narrowed if part.groups]


def _with_spans(part: EntryPart, known: Mapping[int, KeyPages], hits: Iterator[npt.NDArray[np.bool_]]) -> EntryPart:
    """``hits``: which pages may hold an entry, for each row group of which the pages are known."""
    spans = {group: pages.spans(next(hits)) for group, pages in known.items()}
    groups = tuple(group for group in part.groups if group not in spans or len(spans[group]))
    return replace(part, groups=groups, spans={group: spans[group] for group in groups if group in spans})


def keys_of(test: Test, field_id: int) -> int:
    """Single keys of the first column of an index that a test asks for; 0 when it asks for others."""
    if isinstance(test, Points):
        return len(test.values) if test.field_id == field_id else 0
    parts = test.parts if isinstance(test, AllTests) else ()
    return max((keys_of(part, field_id) for part in parts if isinstance(part, Points)), default=0)
