"""Damages pages of Parquet files in ways that Arrow does not report."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

#: The start of a header of a page of data, and what one bit makes of it: a page that readers pass by.
_DATA_PAGE = b"\x15\x00"
_INDEX_PAGE = b"\x15\x02"


def lose_page(path: Path, column: str, group: int = 0) -> None:
    """Make the first page of data of ``column`` one that readers pass by; size and footer stay as they are."""
    metadata = pq.read_metadata(path).row_group(group)
    chunks = (metadata.column(at) for at in range(metadata.num_columns))
    at = next(chunk.data_page_offset for chunk in chunks if chunk.path_in_schema == column)
    content = bytearray(path.read_bytes())
    assert content[at : at + 2] == _DATA_PAGE
    content[at : at + 2] = _INDEX_PAGE
    path.write_bytes(content)
