"""Keys of rows as text: the same for equal keys, whichever run reads them.

Called for the few rows of which a change was left out, and for messages that change a key.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from skipstone_core.keys import key_type
from skipstone_core.merging.merges import BoundKey

from skipstone.kernels.canonical import canonical
from skipstone.sources.feeds.shapes import FeedTarget


@dataclass(frozen=True)
class KeyTexts:
    """The canonical key columns of some rows, in the order of their names."""

    columns: Mapping[str, pa.Array]

    @staticmethod
    def of_columns(target: FeedTarget, arrays: Sequence[pa.Array]) -> KeyTexts:
        """Of a batch whose ``arrays`` are the columns that feeds can carry."""
        keys = {
            column.name: canonical(array, kind)
            for column, array in zip(target.carried, arrays, strict=True)
            if column.is_key and (kind := key_type(str(column.type))) is not None
        }
        return KeyTexts(dict(sorted(keys.items())))

    @staticmethod
    def of_rows(rows: pa.Table, keys: Sequence[BoundKey]) -> KeyTexts:
        """Of source rows."""
        ordered = sorted(keys, key=lambda key: key.source)
        return KeyTexts({key.source: canonical(rows.column(key.source), key.type) for key in ordered})

    def text(self, row: int) -> str:
        """Return the key of ``row`` as text."""
        return json.dumps([_plain(column[row].as_py()) for column in self.columns.values()])

    def rows_of(self, texts: frozenset[str]) -> Mapping[int, str]:
        """Return the rows whose key is one of ``texts``, with it."""
        if not texts:
            return {}
        first = next(iter(self.columns.values()))
        values = {_value(json.loads(text)[0]) for text in texts}
        likely = pc.is_in(first, value_set=pa.array(list(values), first.type))
        rows = pc.indices_nonzero(likely).to_pylist()
        return {row: text for row in rows if (text := self.text(row)) in texts}


def _plain(value: int | bytes) -> int | str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _value(plain: int | str) -> int | bytes:
    return base64.b64decode(plain) if isinstance(plain, str) else plain
