"""Reads the entries of an entry file that pass a test: keys first, then of the other columns the pages that matter.

Used by ``probes``. Keys are sorted, so they take little to decode; of the other columns only the pages are decoded that
hold an entry whose keys pass, or those beside the keys where these are in a page or two. Must not choose row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from propcache.api import cached_property
from pyiceberg.io import FileIO

from skipstone.files.keptchunks import KeptFile, forget_chunks
from skipstone.files.pages import PageReader
from skipstone.indexes.asking.entries import EntryFilter, entry_filter
from skipstone.indexes.asking.rowgroups import Footer, naming_file
from skipstone.indexes.definition import EntryColumn
from skipstone.indexes.keytests import AllTests, AnyTest, Points, Test
from skipstone.indexes.scans import UnreadableIndexFile
from skipstone.indexes.tables import IndexFile
from skipstone.tables.parquetfiles import WholeFile

#: Number of an entry in its row group, beside its keys.
_ROW = "row"
#: A list of fewer keys is looked up as a whole in every row group.
_SHORT_LIST = 16
#: Of so few entries all columns are decoded at once: to find a page takes longer than to decode it.
_FEW_ROWS = 8 * 1024


@dataclass(frozen=True)
class EntryPart:
    """Row groups of an entry file.

    ``spans``: of some of them the entries that may pass, as first entry and end of each stretch: shape (n, 2).
    """

    file: IndexFile
    footer: Footer
    groups: tuple[int, ...]
    spans: Mapping[int, npt.NDArray[np.int64]] = field(default_factory=dict)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """Entries that have to be looked at in each row group."""
        whole = self.footer.rows[list(self.groups)]
        spans = (self.spans.get(group) for group in self.groups)
        pairs = zip(whole.tolist(), spans, strict=True)
        return np.array([count if span is None else (span[:, 1] - span[:, 0]).sum() for count, span in pairs], np.int64)


@dataclass(frozen=True)
class EntryQuestion:
    """Which entries are wanted, and what of them.

    ``tested``: the columns that are looked at, by field id of the table; the keys among them come first. ``schema``: of
    what is given.
    """

    test: Test
    tested: Mapping[int, EntryColumn]
    schema: pa.Schema

    @cached_property
    def keys(self) -> dict[int, EntryColumn]:
        """The keys that are looked at."""
        return {number: column for number, column in self.tested.items() if column.is_key}

    @cached_property
    def leading(self) -> int:
        """The field id of the first column of the index."""
        return next(iter(self.keys))


def read_part(io: FileIO, part: EntryPart, question: EntryQuestion) -> Iterator[pa.Table]:
    """The entries that pass, not empty, row group by row group. Raises UnreadableIndexFile."""
    try:
        with naming_file(part.file.path), KeptFile(io, part.file.path, part.file.size) as stream:
            opened = _OpenEntries(stream, part, question)
            for group in part.groups:
                entries = opened.read(group)
                if entries.num_rows:
                    yield entries
    except UnreadableIndexFile:
        forget_chunks(part.file.path)
        raise


class _OpenEntries:
    """An open entry file."""

    def __init__(self, stream: KeptFile, part: EntryPart, question: EntryQuestion) -> None:
        self._stream = stream
        self._footer = part.footer
        self._spans = part.spans
        self._question = question
        self._whole = _Filters.of(question)
        rows = part.footer.rows.tolist()
        self._pages = PageReader(stream, part.file.path, part.file.size, rows) if part.footer.by_pages else None

    @cached_property
    def _file(self) -> WholeFile:
        return WholeFile(self._stream, self._footer.metadata)

    def read(self, group: int) -> pa.Table:
        """The entries of a row group that pass."""
        filters, names = self._filters(group), self._question.schema.names
        self._stream.hold(self._footer.ranges(group, names))
        others = [name for name in names if name not in filters.keys.names]
        if self._pages is None or filters.keys.expression is None or not others:
            return filters.all.passing(self._cast(self._file.read_group(group, names)))
        if (few := self._few(self._pages, group)) is not None:
            return filters.all.passing(few)
        passing = filters.keys.passing(self._keys(self._pages, group, filters.keys.names))
        if not passing.num_rows:
            return self._question.schema.empty_table()
        rows = passing[_ROW].to_numpy()
        by_pages = self._pages.read(group, others, rows)
        besides = by_pages or self._file.read_group(group, others).take(pa.array(rows))
        entries = self._cast(pa.table({name: (besides if name in others else passing)[name] for name in names}))
        return entries if self._question.keys == self._question.tested else filters.all.passing(entries)

    def _few(self, pages: PageReader, group: int) -> pa.Table | None:
        """The entries of a row group that may pass where they are few, and take about as many bytes each."""
        spans = self._spans.get(group)
        if spans is None or (spans[:, 1] - spans[:, 0]).sum() > _FEW_ROWS or not self._are_short:
            return None
        names = self._question.schema.names
        batches = [pages.stretch(group, names, *span) for span in spans.tolist()]
        known = [batch for batch in batches if batch is not None]
        return self._cast(pa.Table.from_batches(known)) if known and len(known) == len(batches) else None

    @cached_property
    def _are_short(self) -> bool:
        return all(pa.types.is_primitive(field.type) for field in self._question.schema)

    def _keys(self, pages: PageReader, group: int, names: Sequence[str]) -> pa.Table:
        """The keys of the entries of a row group that may pass, and their numbers in it."""
        if (spans := self._spans.get(group)) is not None:
            rows = np.concatenate([np.arange(*span) for span in spans])
            if (batch := pages.read(group, names, rows)) is not None:
                return pa.Table.from_batches([batch]).append_column(_ROW, pa.array(rows))
        whole = self._file.read_group(group, names)
        return whole.append_column(_ROW, pa.array(np.arange(whole.num_rows)))

    def _cast(self, entries: pa.Table) -> pa.Table:
        return entries.select(self._question.schema.names).cast(self._question.schema)

    def _filters(self, group: int) -> _Filters:
        """The filters, with no more of long lists of keys than the row group can hold."""
        question, name = self._question, self._question.tested[self._question.leading].name
        bounds = self._footer.bounds(name)
        least, most = bounds.lower[group], bounds.upper[group]
        if not least.is_valid or not most.is_valid:
            return self._whole
        narrowed = _narrowed(question.test, question.leading, least, most)
        return self._whole if narrowed is question.test else _Filters.of(replace(question, test=narrowed))


@dataclass(frozen=True)
class _Filters:
    """By keys, and by all that is looked at."""

    keys: EntryFilter
    all: EntryFilter

    @classmethod
    def of(cls, question: EntryQuestion) -> _Filters:
        """Those of a question."""
        return cls(entry_filter(question.test, question.keys), entry_filter(question.test, question.tested))


def _narrowed(test: Test, field: int, least: pa.Scalar, most: pa.Scalar) -> Test:
    """``test`` with those of its keys that lie between two; the same object where there is nothing to leave out."""
    match test:
        case Points() if test.field_id == field and len(test.values) > _SHORT_LIST:
            kept = test.values.filter(pc.and_(pc.greater_equal(test.values, least), pc.less_equal(test.values, most)))
            return Points(field, kept)
        case AllTests() | AnyTest():
            parts = tuple(_narrowed(part, field, least, most) for part in test.parts)
            is_same = all(new is old for new, old in zip(parts, test.parts, strict=True))
            return test if is_same else replace(test, parts=parts)
        case _:
            return test
