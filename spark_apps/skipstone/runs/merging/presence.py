"""Which columns the rows of a source lack: from a character for each, as sources tell it, to the bits of slices.

Called inside the tasks that write a merge's source down. Must not read files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from skipstone_core.errors import BadData
from skipstone_core.merging.merges import BoundKey, PartialRows
from skipstone_core.reasons import Reason

from skipstone.kernels.partial import Bits, pack_bits
from skipstone.sources.reading import ABSENT_COLUMN, SourceColumn

_LACKS = ord("1")


@dataclass(frozen=True)
class Presence:
    """``names``: the columns of the source, as characters stand for them; ``columns``: those of the bits."""

    names: tuple[str, ...]
    columns: tuple[str, ...]
    keys: tuple[str, ...]

    @staticmethod
    def of(partial: PartialRows, columns: Sequence[SourceColumn], keys: Sequence[BoundKey]) -> Presence:
        """For a source with ``columns``."""
        return Presence(tuple(column.name for column in columns), partial.columns, tuple(key.source for key in keys))

    def bits(self, batch: pa.RecordBatch) -> pa.Array:
        """As ``pack_bits`` makes them. Raises BadData (BAD_RECORDS) for a record without a key column."""
        lacks = self._lacks(batch.column(ABSENT_COLUMN))
        for name in self.keys:
            if lacks[:, self.names.index(name)].any():
                raise _keyless(name)
        return pack_bits(lacks[:, [self.names.index(name) for name in self.columns]])

    def _lacks(self, names: pa.Array) -> Bits:
        """Rows by names."""
        if not len(names):
            return np.zeros((0, len(self.names)), dtype=bool)
        fixed = names.cast(pa.binary()).cast(pa.binary(len(self.names)))
        start = fixed.offset * len(self.names)
        content = np.frombuffer(fixed.buffers()[1], dtype=np.uint8)[start : start + len(fixed) * len(self.names)]
        return np.asarray(content.reshape(len(fixed), len(self.names)) == _LACKS)


def _keyless(name: str) -> BadData:
    message = f"a record has no {name!r}, which is a key: write it in every record, or null where it matches no row"
    return BadData(Reason.BAD_RECORDS, message, field="spec.source")
