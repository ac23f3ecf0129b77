"""How large the bloom filters of column chunks are.

Used by the table properties that ask for them and by the writers of data files. Source of the arithmetic:
BloomFilter.md of apache/parquet-format. Must not know how a filter is written.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Iceberg's defaults: one false answer in a hundred, in at most so many bytes a column chunk.
USUAL_RATE = 0.01
USUAL_BYTES = 1024 * 1024
LEAST_BYTES = 32
MOST_BYTES = 128 * 1024 * 1024
#: Bits of a filter that a value sets.
_BITS_SET = 8


@dataclass(frozen=True, kw_only=True)
class FilterSize:
    """The table's settings for the filters of a column. ``distinct``: values in a row group; None: as many as rows."""

    rate: float = USUAL_RATE
    most_bytes: int = USUAL_BYTES
    distinct: int | None = None

    def values(self, rows: int) -> int:
        """For how many values a filter of a row group of so many ``rows`` is made: no more than its bytes can tell."""
        most = _power_below(max(LEAST_BYTES, min(self.most_bytes, MOST_BYTES))) * _BITS_SET
        fitting = int(most * -math.log1p(-(self.rate ** (1 / _BITS_SET))) / _BITS_SET)
        return max(1, min(self.distinct or rows, fitting))


def _power_below(number: int) -> int:
    return 1 << (number.bit_length() - 1)
