"""Metadata of tables in format version 3, which PyIceberg reads and refuses to write.

Used by the SQL catalog, which writes all of a table's metadata with each commit. Must not change what it says.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pyiceberg.table.metadata import TableMetadata, TableMetadataV3
from pyiceberg.typedef import IcebergBaseModel

#: Types with parameters, between which writers put blanks or not.
_TYPE = re.compile(r"(decimal|fixed)\s*[(\[][\d,\s]+[)\]]")


class _WritableMetadata(TableMetadataV3):
    """Metadata of format version 3 that can be written."""

    def model_dump_json(  # type: ignore[override]
        self,
        exclude_none: bool = True,  # noqa: FBT001, FBT002 - as PyIceberg has it
        exclude: Any | None = None,
        by_alias: bool = True,  # noqa: FBT001, FBT002
        **kwargs: Any,
    ) -> str:
        """As other versions are written."""
        return IcebergBaseModel.model_dump_json(
            self, exclude_none=exclude_none, exclude=exclude, by_alias=by_alias, **kwargs
        )


def writable(metadata: TableMetadata) -> TableMetadata:
    """``metadata`` as PyIceberg can write it."""
    if not isinstance(metadata, TableMetadataV3):
        return metadata
    return _WritableMetadata.model_construct(**{**dict(metadata), "next_row_id": metadata.next_row_id or 0})


def is_kept_in_part(metadata: TableMetadata) -> bool:
    """Return whether there may be something in the file of ``metadata`` that PyIceberg does not know."""
    return isinstance(metadata, TableMetadataV3)


def find_lost(metadata: TableMetadata, stored: bytes) -> str | None:
    """What ``stored``, the file of ``metadata``, says and PyIceberg would lose when it writes it again, or None."""
    return _find_lost(json.loads(stored), json.loads(writable(metadata).model_dump_json()), "")


def _find_lost(before: Any, after: Any, path: str) -> str | None:
    if isinstance(before, dict) and isinstance(after, dict):
        inner = ((value, after.get(name), f"{path}.{name}".lstrip(".")) for name, value in before.items())
        return next((lost for pair in inner if (lost := _find_lost(*pair))), None)
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = zip(before, after, strict=True)
        return next((lost for old, new in pairs if (lost := _find_lost(old, new, path))), None)
    return None if before == after or before is None or _is_spelt_otherwise(before, after) else path


def _is_spelt_otherwise(before: Any, after: Any) -> bool:
    """Return whether two types differ in blanks alone, as ``decimal(9,2)`` and ``decimal(9, 2)`` do."""
    both = isinstance(before, str) and isinstance(after, str) and _TYPE.fullmatch(before)
    return bool(both) and "".join(before.split()) == "".join(after.split())
