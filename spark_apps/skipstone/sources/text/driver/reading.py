"""Files of text as typed tables in this process, for a source that is small.

Called by ``plain``. Takes sources of which every row is good; all else is left to Spark.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.schema import Schema
from skipstone_core.contract.formats import SourceFormat
from skipstone_core.contract.requests import SourceSpec

from skipstone.sources.columns import SourceColumn
from skipstone.sources.groups import ColumnGroup, RawColumn
from skipstone.sources.listing import SourceListing
from skipstone.sources.text.csvrecords import CsvShape
from skipstone.sources.text.driver.casts import (
    cast_text,
    null_text,
    require_cast,
    require_patterns,
    require_zone,
)
from skipstone.sources.text.driver.csvcells import csv_cells, require_dialect
from skipstone.sources.text.driver.jsonrecords import json_cells
from skipstone.sources.text.driver.sparkonly import SparkNeeded, SparkOnly
from skipstone.sources.text.files import csv_columns, declared_names
from skipstone.sources.text.headers import read_header, require_unpackable
from skipstone.sources.text.options import TextForms, text_options
from skipstone.sources.text.recordnames import alike
from skipstone.storage.port import StoredFile


@dataclass(frozen=True)
class TextReading(ABC):
    """How the files of a source are read."""

    forms: TextForms

    @abstractmethod
    def columns(self, stored: StoredFile) -> Mapping[str, RawColumn] | None:
        """The columns of a file by name, ``ref``: those of cells; None for a file that is left out.

        Raises BadData (SOURCE_UNREADABLE).
        """

    @abstractmethod
    def cells(self, stored: StoredFile, references: Sequence[str]) -> Iterator[pa.Table]:
        """The columns ``references`` of a file as text, some rows at a time. Raises SparkNeeded."""

    def require_castable(self, columns: Sequence[SourceColumn]) -> None:
        """Raise SparkNeeded for a column that text is not cast to here."""
        for column in columns:
            require_cast(column.type)

    def parts(
        self, stored: StoredFile, group: ColumnGroup, schema: pa.Schema, columns: Sequence[SourceColumn]
    ) -> Iterator[pa.Table]:
        """Those of ``columns`` that ``schema`` has, in its types, some rows at a time. Raises SparkNeeded.

        The values of all ``columns`` are proven to fit.
        """
        held = {column.name: group.columns.get(column.source) for column in columns}
        references = list(dict.fromkeys(raw.ref for raw in held.values() if raw is not None))
        for cells in self._cells(stored, references):
            arrays = {
                column.name: cast_text(cells.column(raw.ref), column.type, self.forms)
                for column in columns
                if (raw := held[column.name]) is not None
            }
            fitted = [
                arrays[field.name].cast(field.type) if field.name in arrays else pa.nulls(cells.num_rows, field.type)
                for field in schema
            ]
            yield pa.Table.from_arrays(fitted, schema=schema)

    def values(self, stored: StoredFile, group: ColumnGroup, names: Collection[str]) -> Counter[str]:
        """Rows of a file with a value, by column. Raises SparkNeeded."""
        references = {name: group.columns[name].ref for name in names if name in group.columns}
        counts: Counter[str] = Counter()
        for cells in self._cells(stored, list(references.values())) if references else ():
            counts.update({name: cells.num_rows - cells.column(ref).null_count for name, ref in references.items()})
        return counts

    def _cells(self, stored: StoredFile, references: Sequence[str]) -> Iterator[pa.Table]:
        null = self.forms.options.null_value
        for cells in self.cells(stored, references):
            yield pa.Table.from_arrays([null_text(column, null) for column in cells.columns], cells.column_names)


def text_reading(
    listing: SourceListing, source: SourceSpec, schema: Schema, time_zone: str, most_bytes: int
) -> TextReading | None:
    """For a table of ``schema``; None for a source that is not of text. ``most_bytes``: of texts that are held.

    Raises BadSpec as ``text_options`` does, BadData (SOURCE_UNREADABLE) and SparkNeeded.
    """
    if source.format not in (SourceFormat.CSV, SourceFormat.JSON):
        return None
    forms = TextForms(options=text_options(source), time_zone=time_zone)
    require_patterns(forms.options)
    require_zone(time_zone)
    if source.format is SourceFormat.JSON:
        return JsonReading.of(listing, forms, most_bytes)
    require_dialect(forms.options)
    return CsvReading(forms, declared_names(source, schema))


@dataclass(frozen=True)
class CsvReading(TextReading):
    """``names``: the columns of files without header. ``headers``: of files by name, as far as they are read."""

    names: tuple[str, ...]
    headers: dict[str, tuple[str, ...] | None] = field(default_factory=dict)

    def columns(self, stored: StoredFile) -> Mapping[str, RawColumn] | None:
        """Those of the header; None for a file without a line."""
        require_unpackable(stored.name)
        header = self._header(stored)
        return None if header is None else csv_columns(header, _references(header))

    def cells(self, stored: StoredFile, references: Sequence[str]) -> Iterator[pa.Table]:
        """Read from the file."""
        header = self._header(stored) or ()
        options = self.forms.options
        shape = CsvShape(options, _references(header), header if options.header else None)
        return csv_cells(stored, shape, references)

    def _header(self, stored: StoredFile) -> tuple[str, ...] | None:
        if stored.name not in self.headers:
            header = read_header(stored, self.forms.options)
            is_named = header is None or self.forms.options.header
            self.headers[stored.name] = header if is_named else self.names
        return self.headers[stored.name]


def _references(header: Sequence[str]) -> list[str]:
    return [f"c{position}" for position in range(len(header))]


@dataclass(frozen=True)
class JsonReading(TextReading):
    """``names``: all that stand in a record of some file. ``tables``: the records of each file by its name, as read."""

    names: tuple[str, ...]
    tables: Mapping[str, Sequence[pa.Table]]

    @staticmethod
    def of(listing: SourceListing, forms: TextForms, most_bytes: int) -> JsonReading:
        """Read the files, of which only the records tell the names. Raises as ``text_reading`` does."""
        for stored in listing.stored:
            require_unpackable(stored.name)
        tables: dict[str, list[pa.Table]] = {}
        held = 0
        for stored in listing.stored:
            for table in json_cells(stored, forms.options):
                held += table.nbytes
                if held > most_bytes:
                    raise SparkNeeded(SparkOnly.SIZE)
                tables.setdefault(stored.name, []).append(table)
        names = {name for parts in tables.values() for part in parts for name in part.column_names}
        if not names or alike(names):
            raise SparkNeeded(SparkOnly.JSON)
        # as Spark has them
        return JsonReading(forms, tuple(sorted(names, key=lambda name: name.encode("utf-16-be"))), tables)

    def columns(self, stored: StoredFile) -> Mapping[str, RawColumn] | None:
        """Those of the records of all files."""
        return {name: RawColumn(name, is_text=True) for name in self.names} if stored.name in self.tables else None

    def cells(self, stored: StoredFile, references: Sequence[str]) -> Iterator[pa.Table]:
        """Of the records that are held, null where one lacks the name."""
        for table in self.tables[stored.name]:
            nothing = pa.nulls(table.num_rows, pa.string())
            known = set(table.column_names)
            arrays = [table.column(name) if name in known else nothing for name in references]
            yield pa.Table.from_arrays(arrays or [nothing], list(references) or ["nothing"])
