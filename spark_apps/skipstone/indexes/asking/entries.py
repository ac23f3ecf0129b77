"""A test as a filter of entries, on keys and included values alike.

Used by whatever reads entries for a condition. Keys are stored in the form in which tests compare, and so are included
values but for floats, whose order is made when they are tested. Must not read files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.acero import Declaration, FilterNodeOptions, TableSourceNodeOptions

from skipstone.indexes.definition import EntryColumn
from skipstone.indexes.keys import stored_keys
from skipstone.indexes.keytests import Test, index_expression, tested_columns

_FLOATS = "double"


@dataclass(frozen=True)
class EntryFilter:
    """``names``: the columns of entries that are looked at; ``expression`` None: every entry may match.

    ``floats``: those of them that are compared by their order, which stands beside them under another name.
    """

    names: tuple[str, ...]
    floats: tuple[str, ...]
    expression: pc.Expression | None

    def passing(self, entries: pa.Table) -> pa.Table:
        """The entries that may match; ``entries`` have all columns of ``names``."""
        if self.expression is None:
            return entries
        tested = entries
        for name in self.floats:
            tested = tested.append_column(_order_name(name), stored_keys(entries[name], _FLOATS))
        return _filtered(tested, self.expression).select(entries.column_names)


def _filtered(entries: pa.Table, expression: pc.Expression) -> pa.Table:
    """As ``entries.filter``, in this thread: a row group is too little for several."""
    source = Declaration("table_source", TableSourceNodeOptions(entries))
    return Declaration.from_sequence([source, Declaration("filter", FilterNodeOptions(expression))]).to_table(
        use_threads=False
    )


def entry_filter(test: Test, columns: Mapping[int, EntryColumn]) -> EntryFilter:
    """The filter of a test by the ``columns`` of an index that are to be looked at, by field id of the table."""
    tested = {number: columns[number] for number in sorted(tested_columns(test)) if number in columns}
    floats = tuple(column.name for column in tested.values() if is_ordered_apart(column))
    names = tuple(column.name for column in tested.values())
    return EntryFilter(names, floats, index_expression(test, test_names(tested)))


def test_names(columns: Mapping[int, EntryColumn]) -> dict[int, tuple[str, str]]:
    """By which name and storage type a test finds each column."""
    return {
        number: (_order_name(column.name) if is_ordered_apart(column) else column.name, column.storage)
        for number, column in columns.items()
    }


def is_ordered_apart(column: EntryColumn) -> bool:
    """Return whether stored values do not compare as keys do: included floats, with NaN and zeros of both signs."""
    return column.storage == _FLOATS and not column.is_key


def _order_name(name: str) -> str:
    return f"{name} in order"
